"""Measure how long workers wait for an order: 16 processes that use a server, and 8 that use the database directly.

    python -m benchmarks serve [--workers 16] [--direct-workers 8] [--seconds 20] [--quick]

Each process asks for an order of one step, reports it, and asks again immediately, which no real training does. A wait is the
time of one request, `ask` or `tell`, seen by the worker. Both cases use the same machine, one after the other, with an SQLite
file of their own that waits for the disk. Target: every wait of the server's workers is below a second, and no worker has
less than half of the average number of orders.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from shoestring import Float, Space, Study

TARGET_S = 1.0
FAIR_SHARE = 0.5  # least number of orders of a worker, relative to the average
TOKEN = "for this benchmark only"

_LOOP = """
waits, orders = [], 0
print("ready", flush=True)
end = time.time() + float(sys.stdin.readline())
while time.time() < end:
    began = time.perf_counter()
    order = ask()
    waits.append(time.perf_counter() - began)
    if order is None:
        time.sleep(0.05)
        continue
    began = time.perf_counter()
    tell(order)
    waits.append(time.perf_counter() - began)
    orders += 1
print(json.dumps({"orders": orders, "waits": waits}))
"""
SERVER_WORKER = f"""
import json, sys, time
from http.client import HTTPConnection
port, name = int(sys.argv[1]), sys.argv[2]
def post(path, **body):
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, json.dumps(body), {{"Authorization": "Bearer {TOKEN}"}})
    answer = connection.getresponse()
    read = json.load(answer)
    assert answer.status == 200, read
    return read
def ask():
    return post("/ask", worker=name)["order"]
def tell(order):
    post("/tell", order=order["number"], step=1, value=order["config"]["x"], cost_s=1.0)
{_LOOP}"""
DATABASE_WORKER = f"""
import json, sys, time
from shoestring import Study
study = Study.open(store=sys.argv[1])
ask = study.ask
def tell(order):
    study.tell(order, order.config["x"], cost_s=1.0)
{_LOOP}"""


def begin(where: str) -> None:
    Study.begin(Space({"x": Float(0.0, 1.0)}), "1000000 epochs", policy="random_search", store=where, seed=1)


def run_all(code: str, where: str, count: int, seconds: float) -> dict[str, Any]:
    """Run that many processes and return their measurements."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, where, f"worker {i}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for i in range(count)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{seconds}\n")
        process.stdin.flush()
    results = [json.loads(process.communicate(timeout=seconds + 120)[0]) for process in processes]
    waits = sorted(wait for result in results for wait in result["waits"])
    orders = [result["orders"] for result in results]
    return {
        "processes": count,
        "orders_per_s": round(sum(orders) / seconds, 1),
        "mean_wait_s": round(sum(waits) / len(waits), 4),
        "p99_wait_s": round(waits[int(0.99 * (len(waits) - 1))], 4),
        "worst_wait_s": round(waits[-1], 4),
        "fewest_orders": min(orders),
        "most_orders": max(orders),
    }


def through_server(folder: Path, workers: int, seconds: float) -> dict[str, Any]:
    begin(f"sqlite:///{folder}/served.db")
    arguments = ["-m", "shoestring", "serve", "--store", f"sqlite:///{folder}/served.db", "--json"]
    environment = os.environ | {"SHOESTRING_TOKEN": TOKEN}
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([sys.executable, *arguments], env=environment, **options) as server:
        try:
            assert server.stdout is not None
            port = json.loads(server.stdout.readline())["port"]
            return run_all(SERVER_WORKER, str(port), workers, seconds)
        finally:
            server.terminate()


def through_database(folder: Path, workers: int, seconds: float) -> dict[str, Any]:
    begin(f"sqlite:///{folder}/asked.db")
    return run_all(DATABASE_WORKER, f"sqlite:///{folder}/asked.db", workers, seconds)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks serve", description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=16, help="processes that use the server")
    parser.add_argument("--direct-workers", type=int, default=8, help="processes that use the database")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--quick", action="store_true", help="5 seconds per case")
    chosen = parser.parse_args(arguments)
    seconds = 5.0 if chosen.quick else chosen.seconds
    with tempfile.TemporaryDirectory() as name:
        served = through_server(Path(name), chosen.workers, seconds)
        direct = through_database(Path(name), chosen.direct_workers, seconds)
    for case, found in {"through the server": served, "on the database": direct}.items():
        print(f"{case}: " + ", ".join(f"{name} {number}" for name, number in found.items()))
    fair = FAIR_SHARE * served["orders_per_s"] * seconds / served["processes"]
    ok = served["worst_wait_s"] < TARGET_S and served["fewest_orders"] >= fair > 0
    target = {"worst_wait_s": TARGET_S, "fewest_orders": round(fair, 1)}
    print(json.dumps({"name": "serve", "measured": served, "target": target, "peers": {"database": direct}, "ok": ok}))
    return 0 if ok else 1
