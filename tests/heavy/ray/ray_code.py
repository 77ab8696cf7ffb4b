"""Training code for tests on a cluster. A curve depends on its config only, so all runs that train it agree."""

from __future__ import annotations

import ctypes
import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shoestring.runners.checkpoints.checkpoint_store import FolderStore

CONFIGS = [{"rate": rate} for rate in (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.16)]
STEP_S = 0.15
GATE = os.environ["RAY_CODE_GATE"]  # while this file exists, no step of `SlowCurve` is completed


class SlowCurve:
    """The loss falls at its rate; each step takes a moment and prints a line into the log of its trial."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config, self.done = config, 0

    def step(self) -> float:
        time.sleep(STEP_S)
        while os.path.exists(GATE):
            time.sleep(0.05)
        self.done += 1
        print(f"step {self.done}")  # noqa: T201
        return loss_at(self.config, self.done)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.done))

    def load(self, path: Path) -> None:
        self.done = json.loads(path.read_text())


def loss_at(config: dict[str, Any], step: int) -> float:
    return 0.05 + math.exp(-config["rate"] * step)


class Quick(SlowCurve):
    """The same curve without a delay; the checkpoint is a folder."""

    def step(self) -> float:
        self.done += 1
        return loss_at(self.config, self.done)

    def save(self, path: Path) -> None:
        path.mkdir()
        (path / "done").write_text(json.dumps(self.done))

    def load(self, path: Path) -> None:
        self.done = json.loads((path / "done").read_text())


class HoldsTheLock(Quick):
    """A step in C code during which no other Python thread can run for three seconds."""

    def step(self) -> float:
        ctypes.PyDLL(None).sleep(3)
        return super().step()


def never_saves(config: dict[str, Any]) -> Iterator[float]:
    for step in range(1, 7):
        yield loss_at(config, step)


def plain(config: dict[str, Any]) -> float:
    return float(config["rate"])


class DriverOnlyFolder(FolderStore):
    """A folder that only the driver can reach."""

    def has_marker(self, marker: str) -> bool:
        return False
