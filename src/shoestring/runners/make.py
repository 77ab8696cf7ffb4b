"""Make a runner from what a user gives: training code, and a runner as a name or as an object."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoestring.core.ledger.budget import read_duration_s
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.checks import check_whole
from shoestring.errors import RunnerError, did_you_mean, show_argument
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.devices import Devices, parse_devices
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.runner import Runner, is_runner
from shoestring.runners.training.code import shape_of

_NAMES = ("local", "process", "ray")
_SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


@dataclass(frozen=True, kw_only=True)
class RunnerOptions:
    """Which runner trains, and its limits. Wrong values are refused here, before anything is written to a store."""

    runner: str | Runner | RayCluster | None = None  # None: chosen by the number of workers and by the devices
    devices: Devices | None = None  # assigned to the workers in turn
    live: int | None = None  # largest number of trials in memory; with worker processes, of paused trials
    checkpoints_at_most: str | None = None  # disk space, as "2GB"
    hung_after: str | float | None = None  # duration of a step after which it counts as hung

    def __post_init__(self) -> None:
        runner, devices, live = self.runner, self.devices, self.live
        if isinstance(runner, str) and runner not in _NAMES:
            raise RunnerError(f"unknown runner {runner!r}. {did_you_mean(runner, _NAMES)}")
        if not (runner is None or isinstance(runner, str | RayCluster) or is_runner(runner)):
            raise RunnerError(
                f"{show_argument('runner', runner)} must be 'local', 'process', 'ray', RayCluster(…), or a Runner object"
            )
        if devices is not None:
            if runner is not None and runner != "process":
                instead = f"; on Ray, {show_argument('gpus', 1)} gives each worker its own GPU" if self.is_ray else ""
                raise RunnerError(
                    f"{show_argument('devices', devices)} is for worker processes: leave {show_argument('runner', runner)} "
                    f"out, or give {show_argument('runner', 'process')}{instead}"
                )
            parse_devices(devices)
        if live is not None:
            check_whole("live", live, 1, "the trial in training is one of them", RunnerError)
            if self.is_ray:
                raise RunnerError(
                    f"{show_argument('live', live)} is not for Ray, where each worker keeps its last trial: leave it out"
                )
        parse_size_bytes(self.checkpoints_at_most)
        read_duration_s(self.hung_after, "hung_after")

    @property
    def is_ray(self) -> bool:
        return isinstance(self.runner, RayCluster) or self.runner == "ray"

    @property
    def device_count(self) -> int | None:
        """The number of named devices, each of which gets a worker; None if no devices are named."""
        return None if self.devices is None else len(parse_devices(self.devices))

    def require_workers(self, workers: int) -> None:
        """Raise a RunnerError if this runner cannot have so many workers."""
        if self.runner == "local" and workers != 1:
            raise RunnerError(
                f"the local runner has one worker, not {workers}: leave {show_argument('runner', 'local')} out, or give "
                f"{show_argument('runner', 'process')}"
            )


def make_runner(
    options: RunnerOptions, train: Any, checkpoints: Path | str, workers: int, deadline_s: float | None = None
) -> Runner:
    """Return the runner that `options` name.

    If they name none: one worker without devices trains in this process, otherwise every worker is a process. Workers that do
    not start within `deadline_s` are not waited for.
    """
    options.require_workers(workers)
    runner, devices = options.runner, options.devices
    if runner is not None and not isinstance(runner, str | RayCluster):
        return runner
    folder = Checkpoints(checkpoints, parse_size_bytes(options.checkpoints_at_most))
    hung_after_s = read_duration_s(options.hung_after, "hung_after")
    if options.is_ray:
        from shoestring.runners.ray.ray_runner import RayRunner

        cluster = runner if isinstance(runner, RayCluster) else None
        return RayRunner(train, folder, workers, cluster, hung_after_s, deadline_s)
    if runner == "local" or (runner is None and workers == 1 and devices is None):
        from shoestring.runners.local.local_runner import LocalRunner

        return LocalRunner(train, folder, options.live)
    from shoestring.runners.process.process_runner import ProcessRunner

    return ProcessRunner(train, folder, workers, options.live, hung_after_s, devices, deadline_s)


def make_command_runner(
    command: Sequence[str], ledger: Ledger, folder: Path | str, options: RunnerOptions | None = None
) -> Runner:
    """Return the runner of a program, for the space and the workers of this study."""
    from shoestring.runners.command.command_runner import CommandRunner

    options = options or RunnerOptions()
    hung_after_s = read_duration_s(options.hung_after, "hung_after")
    return CommandRunner(command, ledger.space, Path(folder), ledger.workers, hung_after_s, devices=options.devices)


def count_steps(train: Any, max_steps: int | None) -> int:
    """Return the number of steps of a full training: 1 for a plain function, otherwise `max_steps`."""
    if shape_of(train) == "function":
        if max_steps not in (None, 1):
            raise RunnerError(
                f"{show_argument('max_steps', max_steps)} needs a generator or a class: a plain function has one step"
            )
        return 1
    if max_steps is None:
        raise RunnerError(
            f"the number of steps of a full training is missing: give it, as in {show_argument('max_steps', 20)}"
        )
    return max_steps


def describe_code(train: Any) -> dict[str, Any]:
    """Return the name and the fingerprint of training code, so that a later run can warn when the code has changed."""
    try:
        source = inspect.getsource(train)
    except (OSError, TypeError):
        source = ""
    name = getattr(train, "__qualname__", repr(train))
    return {"name": name, "fingerprint": hashlib.sha256(source.encode()).hexdigest()[:16] if source else ""}


def has_code_changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether both fingerprints were made in the same way and differ."""
    old, new = before.get("fingerprint"), now.get("fingerprint")
    return before.get("kind") == now.get("kind") and bool(old and new and old != new)


def parse_size_bytes(text: str | None) -> float:
    """Return the number of bytes in "500MB" or "2 GB"; infinity for None."""
    if text is None:
        return float("inf")
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmgt]?)b?\s*", text.lower() if isinstance(text, str) else "")
    if not found:
        raise RunnerError(f"the size {text!r} cannot be read: write 500MB or 2GB")
    return float(found[1]) * _SIZES[found[2]]
