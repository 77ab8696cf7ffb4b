"""Training code for the tests of runners. It imports little, so that worker processes start quickly."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shoestring.runners.training.code import Context, Report


def process_number(config: Mapping[str, Any]) -> Iterator[float]:
    while True:
        yield os.getpid()


def one_number(config: Mapping[str, Any]) -> float:
    return os.getpid()


class Counter:
    """Can save; `x` decides what it does at which step."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config, self.count = config, 0

    def step(self) -> float:
        self.count += 1
        return float(self.count + self.config["x"])

    def save(self, path: Path) -> None:
        path.write_text(str(self.count))

    def load(self, path: Path) -> None:
        self.count = int(path.read_text())


class Forgetful(Counter):
    def load(self, path: Path) -> None:
        self.count = 0


class Unloadable(Counter):
    def load(self, path: Path) -> None:
        raise ValueError("what is this?")


class Unwritable(Counter):
    def save(self, path: Path) -> None:
        raise OSError("no space left on this device")


class Dying(Counter):
    """Ends at its second step: with exit code 3, or by SIGKILL when x is 1; it hangs when x is 0."""

    def step(self) -> float:
        if self.count == 1:
            if self.config["x"] == 0.0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(1000)
            os._exit(3) if self.config["x"] == 0.5 else os.kill(os.getpid(), signal.SIGKILL)
        return super().step()


class Exiting(Counter):
    def step(self) -> float:
        sys.exit("no licence for this")


class DyingOnLoad(Counter):
    def load(self, path: Path) -> None:
        os._exit(4)


class SlowToSave(Counter):
    def save(self, path: Path) -> None:
        time.sleep(1000)


def failing(config: Mapping[str, Any]) -> Iterator[float]:
    yield 1.0
    raise RuntimeError("no such data")


def three_steps(config: Mapping[str, Any], context: Context) -> Iterator[Report]:
    sys.stdout.write("said by training code\n")
    for step in range(context.step, 3):
        yield Report(float(step), cost={"setup": 1.0, "train": 2.0, "validate": 3.0})


class DyingOnce(Counter):
    """Killed at its third step, the first time it gets there."""

    def step(self) -> float:
        marker = shared_folder() / "has died"
        if self.count == 2 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step()


class SlowToLoad(Counter):
    def load(self, path: Path) -> None:
        time.sleep(2.0)
        super().load(path)


class NeverLoaded(Counter):
    def load(self, path: Path) -> None:
        time.sleep(1000)


class CheckedThenFailing(Counter):
    """Fails at its second step, but not in a copy."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.is_copy = False

    def step(self) -> float:
        if self.count == 1 and not self.is_copy:
            raise RuntimeError("no such data")
        return super().step()

    def load(self, path: Path) -> None:
        super().load(path)
        self.is_copy = True


def shared_folder() -> Path:
    return Path(os.environ["SHOESTRING_TEST_FOLDER"])


def starts_a_child(config: Mapping[str, Any]) -> Iterator[float]:
    """Start a child, train two steps and end as `x` says: 0 sleeps, 0.25 exits, 0.5 is killed, 0.75 ends, 1 never ends."""
    child = subprocess.Popen(["sleep", "300"], process_group=0)  # as `timeout` does
    (shared_folder() / f"child-{child.pid}").touch()
    (shared_folder() / f"worker-{os.getpid()}").touch()
    yield 1.0
    if config["x"] == 0.0:
        time.sleep(300)
    elif config["x"] == 0.25:
        os._exit(3)
    elif config["x"] == 0.5:
        os.kill(os.getpid(), signal.SIGKILL)
    elif config["x"] == 1.0:
        ctypes.PyDLL(None).sleep(300)  # with the lock that other threads need
    yield 2.0


def prints(config: Mapping[str, Any]) -> Iterator[float]:
    while True:
        print(f"out {config['x']}")  # noqa: T201
        print("err", file=sys.stderr)  # noqa: T201
        os.write(1, b"out from below\n")
        yield 1.0


def prints_a_lot(config: Mapping[str, Any]) -> Iterator[float]:
    while True:
        for _ in range(1000):
            print("x" * 99)  # noqa: T201
        yield 1.0


def with_metrics(config: Mapping[str, Any]) -> Iterator[Report]:
    yield Report(1.0, metrics={"accuracy": 0.9, "gap": float("nan")})
    yield Report(2.0, metrics={"accuracy": "high"})  # type: ignore[dict-item]


DEVICE_AT_IMPORT = os.environ.get("CUDA_VISIBLE_DEVICES", "-1")


def device_number(config: Mapping[str, Any]) -> Iterator[float]:
    assert os.environ["SHOESTRING_DEVICE"] == DEVICE_AT_IMPORT
    while True:
        yield float(DEVICE_AT_IMPORT)


class DeviceNumber(Counter):
    def step(self) -> float:
        self.count += 1
        return float(DEVICE_AT_IMPORT)


def leaves_a_child(config: Mapping[str, Any]) -> Iterator[float]:
    child = os.fork()
    if child == 0:
        time.sleep(300)
    yield child
    os._exit(5)


def sleeping(config: Mapping[str, Any]) -> Iterator[float]:
    if "SHOESTRING_TEST_FOLDER" in os.environ:
        (shared_folder() / "pid").write_text(str(os.getpid()))
    while True:
        time.sleep(1000)
        yield 1.0


class Inexact(Counter):
    """Loses a little when it is saved, and declares so."""

    resume = "inexact"

    def load(self, path: Path) -> None:
        self.count = int(path.read_text()) + 100


def inexact_report(config: Mapping[str, Any], context: Context) -> Iterator[Report]:
    def save(path: Path) -> None:
        path.write_text("something")

    save.resume = "inexact"  # type: ignore[attr-defined]
    step = 0
    while True:
        step += 1
        yield Report(step + 10.0 * context.step, save=save)


def start_method(config: Mapping[str, Any]) -> float:
    """Report 1 if its own processes would be started by the default method, else 0."""
    inherited = multiprocessing.get_start_method()
    multiprocessing.set_start_method(None, force=True)
    return float(inherited == multiprocessing.get_start_method())


def floods(config: Mapping[str, Any]) -> Iterator[float]:
    yield 1.0
    for _ in range(20):
        os.write(1, b"x" * 1_000_000)
    (shared_folder() / "pid").write_text(str(os.getpid()))
    time.sleep(300)
