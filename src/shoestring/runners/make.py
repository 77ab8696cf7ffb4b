"""From what a user gives (a function, a class, a name of a runner) to a runner."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoestring.core.values.checks import whole
from shoestring.errors import RunnerError, did_you_mean
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.devices import Devices, parse_devices
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.runner import Runner, is_runner
from shoestring.runners.training.code import shape_of

_NAMES = ("local", "process", "ray")
_SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


def make_runner(
    runner: str | Runner | RayCluster | None,
    train: Any,
    checkpoints: Path | str,
    workers: int,
    live: int | None,
    checkpoints_at_most: str | None,
    hung_after_s: float | None = None,
    devices: Devices | None = None,
) -> Runner:
    """By name, `local`, `process` or `ray`; without one, this process for one worker, others for several or for devices.

    `devices` are given to the workers in turn; `count_workers(workers, parse_devices(devices))` is how many workers there
    are when the user does not say.
    """
    check_runner(runner, workers, live, checkpoints_at_most, devices)
    if runner is not None and not isinstance(runner, str | RayCluster):
        return runner
    kept = Checkpoints(checkpoints, parse_size_bytes(checkpoints_at_most))
    if runner == "ray" or isinstance(runner, RayCluster):
        from shoestring.runners.ray.ray_runner import Seats

        return Seats(train, kept, workers, runner if isinstance(runner, RayCluster) else None, hung_after_s)
    if runner == "local" or (runner is None and workers == 1 and devices is None):
        from shoestring.runners.local.local_runner import Local

        return Local(train, kept, live)
    from shoestring.runners.process.process_runner import Processes

    return Processes(train, kept, workers, live, hung_after_s, devices)


def check_runner(
    runner: str | Runner | RayCluster | None,
    workers: int,
    live: int | None,
    checkpoints_at_most: str | None,
    devices: Devices | None = None,
) -> None:
    """Whether there can be such a runner: asked before a study is begun, so that a slip writes nothing."""
    if isinstance(runner, str) and runner not in _NAMES:
        raise RunnerError(f"unknown runner {runner!r}. {did_you_mean(runner, _NAMES)}")
    if not (runner is None or isinstance(runner, str | RayCluster) or is_runner(runner)):
        raise RunnerError(
            f"runner={runner!r} must be 'local', 'process', 'ray', RayCluster(…), or an object that starts, submits and waits"
        )
    whole("workers", workers, 1)
    if isinstance(runner, str) and runner == "local" and workers != 1:
        raise RunnerError(f"the local runner has one worker, not {workers}: use the process runner")
    if devices is not None and runner is not None and runner != "process":
        raise RunnerError(
            f"the devices {devices!r} are for worker processes: leave the runner out, or use the process runner"
        )
    parse_devices(devices)
    if live is not None:
        whole("live", live, 1, "the trial that is trained is alive", RunnerError)
        if runner == "ray" or isinstance(runner, RayCluster):
            raise RunnerError(f"live={live} is for other runners: on Ray each seat keeps its last trial; leave it out")
    parse_size_bytes(checkpoints_at_most)


def steps_of(train: Any, max_steps: int | None) -> int:
    """How long a full training is: 1 for a plain function, else what the user says."""
    if shape_of(train) == "function":
        if max_steps not in (None, 1):
            raise RunnerError(f"max_steps={max_steps} needs a generator or a class: a plain function is one step")
        return 1
    if max_steps is None:
        raise RunnerError("how many steps is a full training? Give max_steps (--max-steps), as in max_steps=20")
    return max_steps


def target_of(train: Any) -> dict[str, Any]:
    """Name and fingerprint of training code, so that a later run can warn that it has changed."""
    try:
        source = inspect.getsource(train)
    except (OSError, TypeError):
        source = ""
    name = getattr(train, "__qualname__", repr(train))
    return {"name": name, "fingerprint": hashlib.sha256(source.encode()).hexdigest()[:16] if source else ""}


def has_code_changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether both fingerprints were made in the same way, and differ."""
    old, new = before.get("fingerprint"), now.get("fingerprint")
    return before.get("kind") == now.get("kind") and bool(old and new and old != new)


def parse_size_bytes(text: str | None) -> float:
    """Bytes in "500MB" or "2 GB"; None: unlimited."""
    if text is None:
        return float("inf")
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmgt]?)b?\s*", text.lower() if isinstance(text, str) else "")
    if not found:
        raise RunnerError(f"the size {text!r} cannot be read: write 500MB or 2GB")
    return float(found[1]) * _SIZES[found[2]]
