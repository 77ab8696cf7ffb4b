"""The options that say where code is trained, and on what: devices of this machine, or a Ray cluster."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from shoestring.errors import StudyError

_DEVICE = re.compile(r"[A-Za-z0-9][\w.:/-]*")
_NUMBERS = {  # settings of a cluster that are numbers by name: option, form and an example
    "resources": ("--resource", "NAME=AMOUNT", "highmem=1"),
    "prices": ("--price", "NODE=FACTOR", "A100=2.5"),
}


def read_where(
    devices: str | None, runner: str | None, cluster: Mapping[str, Any], table: str | None
) -> dict[str, Any] | None:
    """The settings of `RayCluster` that were given; None without the Ray runner. What does not go together is told."""
    if devices is not None:
        _check_devices(devices, runner, table)
    if cluster and runner != "ray":
        name = next(iter(cluster))
        word = _NUMBERS[name][0] if name in _NUMBERS else f"--{name}"
        raise StudyError(f"{word} is for a Ray cluster: add --runner ray, or leave it out")
    for name in cluster.keys() & _NUMBERS.keys():
        cluster = {**cluster, name: _read_numbers(cluster[name], *_NUMBERS[name])}
    return dict(cluster) if runner == "ray" else None


def _check_devices(devices: str, runner: str | None, table: str | None) -> None:
    if table:
        raise StudyError("--devices is for code that is really trained: leave it out with --table")
    if runner in ("local", "ray"):
        instead = ": there, --gpus N gives each worker its own" if runner == "ray" else ""
        raise StudyError(f"--devices gives each worker process its own: leave --runner {runner} out{instead}")
    if not all(_DEVICE.fullmatch(name.strip()) for name in devices.split(",")):
        raise StudyError(f"--devices {devices!r} must name one or more, as in --devices 0,1 or GPU-1a2b")


def _read_numbers(words: Iterable[str], option: str, form: str, example: str) -> dict[str, float]:
    """From such words; a name may hold an equals sign, as a label of a node does."""
    found: dict[str, float] = {}
    for word in words:
        name, _, amount = (part.strip() for part in word.rpartition("="))
        try:
            found[name] = float(amount)
        except ValueError:
            found[name] = math.nan
        if not name or not 0 < found[name] < math.inf:
            raise StudyError(f"{option} {word!r} must be {form}, above 0, as in {option} {example}")
    return found
