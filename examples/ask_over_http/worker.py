"""A worker that asks a shoestring server what to train, trains it, and tells: with the standard library alone.

    SHOESTRING_ADDRESS=http://127.0.0.1:8765 SHOESTRING_TOKEN=… python worker.py NAME --checkpoints /shared/folder

Make it yours by replacing `Training`. Any number of workers may run, each under a NAME of its own. One that is killed, moved
or started again under its old name goes on with its order, from the newest checkpoint that it finds.
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

PATIENCE_S = 600.0  # so long a server that does not answer is asked again: it may be starting anew


class Training:
    """Your code: something that trains a step, and can be saved and loaded."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.rate, self.weight = float(config["lr"]), 5.0

    def step(self) -> float:
        """One step of training; returns the validation loss."""
        self.weight *= 1.0 - self.rate
        return self.weight**2

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"weight": self.weight}))

    def load(self, path: Path) -> None:
        self.weight = json.loads(path.read_text())["weight"]


class Gone(Exception):
    """The order is not ours any more: we were silent for too long."""


def post(path: str, **body: Any) -> dict[str, Any]:
    """The server's answer. What is sent again because an answer was lost is done once."""
    request = urllib.request.Request(
        os.environ["SHOESTRING_ADDRESS"] + path,
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {os.environ['SHOESTRING_TOKEN']}"},
    )
    give_up_at, pause_s = time.monotonic() + PATIENCE_S, 0.2
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode()
            if error.code == 409:
                raise Gone(said) from None
            if error.code != 503:
                sys.exit(f"the server refuses {path}: {said}")
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            said = str(error)
        if time.monotonic() > give_up_at:
            sys.exit(f"the server does not answer {path}: {said}")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 10.0)


class Beats(threading.Thread):
    """Says that this worker is alive while a step takes long."""

    def __init__(self, order: int, every_s: float) -> None:
        super().__init__(daemon=True)
        self._order, self._every_s, self._stopped = order, every_s, threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                post("/beat", order=self._order)
            except Gone:  # the next `tell` will say so
                return

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *raised: object) -> None:
        self._stopped.set()


def carry_out(order: dict[str, Any], beat_s: float, checkpoints: Path) -> None:
    folder = checkpoints / f"trial-{order['trial']}"
    folder.mkdir(parents=True, exist_ok=True)
    number, held = order["number"], order["held"]
    found = max((step for step in range(1, held + 1) if (folder / f"step-{step}").exists()), default=0)
    if found < held:
        post("/lost", order=number, held=found)  # what is missing is trained again
    training = Training(order["config"])
    if found:
        training.load(folder / f"step-{found}")
    with Beats(number, beat_s):
        for step in range(found + 1, order["until"] + 1):
            began = time.monotonic()
            try:
                value = training.step()
            except Exception as error:  # told, so that the study goes on without this trial
                post("/tell", order=number, step=step, failed=repr(error), cost_s=time.monotonic() - began)
                return
            partial = folder / f"partial-{os.getpid()}"
            training.save(partial)
            partial.replace(folder / f"step-{step}")  # saved as a whole before it is told
            post("/tell", order=number, step=step, value=value, cost_s=time.monotonic() - began, saved=step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="another one for each worker, and the same when it is started again")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"), help="a folder that all workers see")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped: started again under this name, it goes on"))
    while not (answer := post("/ask", client=given.name))["over"]:
        if answer["order"] is None:  # the money is promised to others, or the policy waits for their results
            time.sleep(answer["again_s"])
            continue
        try:
            carry_out(answer["order"], answer["beat_s"], given.checkpoints)
        except Gone as gone:
            print(gone, file=sys.stderr)


if __name__ == "__main__":
    main()
