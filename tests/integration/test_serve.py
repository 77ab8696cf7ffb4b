"""A real server in its own process, workers that use plain HTTP, and kill -9 while they train."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shoestring import Study
from shoestring.core.ledger.entries import Receipt

TOKEN = "a token for these tests alone"
EPOCHS, MAX_STEPS = 40, 4
WORDS = ["-p", "x={float=[0,1]}", "--budget", f"{EPOCHS} epochs", "--max-steps", str(MAX_STEPS)]
WORDS += ["--policy", "random_search", "--seed", "1", "--json"]
_RESTART_TIMEOUT_S = 120.0  # a busy machine needs a while to start a killed server again


class Process:
    """`shoestring serve`, on the same port each time it is started."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.folder, self.address = folder, f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shoestring", "serve", *WORDS, "--port", str(self.port), *words],
            cwd=self.folder,
            env=os.environ | {"SHOESTRING_TOKEN": TOKEN},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        assert json.loads(line)["port"] == self.port

    def kill(self, number: int = signal.SIGKILL) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return self.process.returncode


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path)
    yield process
    if process.process.poll() is None:
        process.kill()


def post(address: str, path: str, **body: Any) -> dict[str, Any]:
    """Send the request until it is answered, and return the answer."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, {"Authorization": f"Bearer {TOKEN}"})
    deadline = time.monotonic() + _RESTART_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            if error.code != 503:
                with error:
                    text = error.read().decode()
                raise AssertionError(f"{path} {body}: {error.code} {text}") from None
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError):
            pass
        time.sleep(0.05)
    raise AssertionError("the server is gone")


def train_orders(address: str, name: str, reported: Counter[tuple[int, int]]) -> None:
    while not (answer := post(address, "/ask", worker=name))["over"]:
        if (order := answer["order"]) is None:
            time.sleep(0.05)
            continue
        for step in range(order["resumable_step"] + 1, order["until"] + 1):
            value = order["config"]["x"] + 1 / step
            post(address, "/tell", order=order["number"], step=step, value=value, cost_s=1.0)
            reported[order["number"], step] += 1


def run_undisturbed_study() -> Any:
    study = Study.begin(
        {"x": {"float": [0.0, 1.0]}}, f"{EPOCHS} epochs", max_steps=MAX_STEPS, policy="random_search", seed=1
    )
    while (order := study.ask()) is not None:
        for step in range(1, order.until + 1):
            study.tell(order, order.config["x"] + 1 / step, cost_s=1.0)
    return study


@pytest.mark.slow
def test_a_server_that_is_killed_loses_no_step_and_charges_none_twice(server: Process, tmp_path: Path) -> None:
    reported: Counter[tuple[int, int]] = Counter()
    with ThreadPoolExecutor() as pool:
        workers = [pool.submit(train_orders, server.address, name, reported) for name in "abcd"]
        for _ in range(3):
            before = len(reported)
            while len(reported) < before + 6 and not any(worker.done() for worker in workers):
                time.sleep(0.005)
            assert server.kill() == -signal.SIGKILL
            server.start()
        for worker in workers:
            worker.result()  # raises the worker's error, if there was one
    assert server.kill(signal.SIGTERM) == 143
    ledger = Study.open(store=f"sqlite:///{tmp_path}/shoestring.db").ledger
    receipts = Counter((one.order, one.step) for one in ledger.entries() if isinstance(one, Receipt))
    assert set(receipts.values()) == {1}, "a step was charged twice"
    assert set(reported) <= set(receipts), "a step whose report was answered is not in the ledger"
    expected = run_undisturbed_study()
    assert ledger.spent == EPOCHS == expected.spent
    assert ledger.state.by_kind["train"] == float(EPOCHS)
    assert ledger.best is not None
    assert ledger.best.best_value == expected.best.value
    assert ledger.best.best_config == expected.best.config


def test_a_second_server_is_refused_and_ctrl_c_stops_the_first(server: Process) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "shoestring", "serve", *WORDS],
        cwd=server.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 1
    assert f" {server.process.pid} " in second.stderr
    assert len(second.stderr.splitlines()) == 1
    assert server.kill(signal.SIGINT) == 130
