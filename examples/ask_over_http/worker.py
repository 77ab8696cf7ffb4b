"""A worker that asks a shoestring server what to train, trains it, and reports each step. Standard library only.

    SHOESTRING_ADDRESS=http://127.0.0.1:8765 SHOESTRING_TOKEN=… python worker.py NAME --checkpoints /shared/folder

Replace `Training` with your own code. Any number of workers can run, each with its own NAME. A worker that is killed, moved or
started again under its old name continues its order, from the newest checkpoint that it finds.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

GIVE_UP_AFTER_S = 600.0  # how long a request is repeated: the server may be restarting


class Training:
    """Your code, which trains steps and can be saved and loaded."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.rate, self.weight = float(config["lr"]), 5.0

    def step(self) -> float:
        """Train one step, and return the validation loss."""
        self.weight *= 1.0 - self.rate
        return self.weight**2

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"weight": self.weight}))

    def load(self, path: Path) -> None:
        self.weight = json.loads(path.read_text())["weight"]


class OrderNotOpen(Exception):
    """The server has closed the order, because this worker was silent for too long."""


def post(path: str, **body: Any) -> dict[str, Any]:
    """Send a request until it is answered. It is safe to repeat a request: nothing is done twice."""
    request = urllib.request.Request(
        os.environ["SHOESTRING_ADDRESS"] + path,
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {os.environ['SHOESTRING_TOKEN']}"},
    )
    give_up_at, pause_s = time.monotonic() + GIVE_UP_AFTER_S, 0.2
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode()
            if error.code == 409:
                raise OrderNotOpen(text) from None
            if error.code != 503:
                sys.exit(f"the server refuses {path}: {text}")
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            text = str(error)
        if time.monotonic() > give_up_at:
            sys.exit(f"the server does not answer {path}: {text}")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 10.0)


class Heartbeats(threading.Thread):
    """Tells the server that this worker is alive while a step takes long."""

    def __init__(self, order: int, every_s: float) -> None:
        super().__init__(daemon=True)
        self._order, self._every_s, self._stopping = order, every_s, threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                post("/heartbeat", order=self._order)
            except OrderNotOpen:  # the next report notices it, too
                return

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *raised: object) -> None:
        self._stopping.set()


def train_order(order: dict[str, Any], heartbeat_s: float, checkpoints: Path) -> None:
    folder = checkpoints / f"trial-{order['trial']}"
    folder.mkdir(parents=True, exist_ok=True)
    number, resumable_step = order["number"], order["resumable_step"]
    found = max((step for step in range(1, resumable_step + 1) if (folder / f"step-{step}").exists()), default=0)
    if found < resumable_step:
        post("/lost", order=number, resumable_step=found)  # the missing steps are trained again
    training = Training(order["config"])
    if found:
        training.load(folder / f"step-{found}")
    with Heartbeats(number, heartbeat_s):
        for step in range(found + 1, order["until"] + 1):
            began = time.monotonic()
            try:
                value = training.step()
            except Exception as error:  # report it, so that the study continues without this trial
                post("/tell", order=number, step=step, failed=repr(error), cost_s=time.monotonic() - began)
                return
            partial = folder / f"partial-{os.getpid()}"
            training.save(partial)
            partial.replace(folder / f"step-{step}")  # a complete checkpoint, before the step is reported
            post("/tell", order=number, step=step, value=value, cost_s=time.monotonic() - began, saved_step=step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="a different one for each worker; the same one when a worker is started again")
    parser.add_argument(
        "--checkpoints", type=Path, default=Path("checkpoints"), help="a folder that all workers can read"
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped: start it again under the same name to continue"))
    while not (answer := post("/ask", worker=arguments.name))["over"]:
        if answer["order"] is None:  # the budget is reserved for other workers, or the policy waits for their results
            time.sleep(answer["retry_after_s"])
            continue
        try:
            train_order(answer["order"], answer["heartbeat_s"], arguments.checkpoints)
        except OrderNotOpen as error:
            print(error, file=sys.stderr)


if __name__ == "__main__":
    main()
