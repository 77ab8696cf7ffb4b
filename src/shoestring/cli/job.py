"""From the words of a command line to a study and its runner: what is trained, over which space, by which runner.

The `opened` entry keeps what was launched (`target`), so that `shoestring resume` needs no more than the study's name.

The options that say where code is trained, and on what: devices of this machine, or a Ray cluster.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from shoestring import policies
from shoestring.core.ledger.budget import parse_duration_s
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Space
from shoestring.errors import PolicyError, ShoestringError, SpaceError, StudyError
from shoestring.runners.make import check_runner, has_code_changed, make_runner, steps_of, target_of
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.runner import Runner

if TYPE_CHECKING:
    from shoestring.runners.simulated.recorded_table import Table

_LARGEST_CODE = 50_000_000  # bytes: a larger file among the words is data, and hashing it would delay the start
Kind = Literal["python", "command", "table"]


@dataclass(frozen=True)
class Job:
    """What is trained and how: kept in the ledger as the study's target."""

    kind: Kind
    where: str | list[str]  # file.py:train, the words of a command, or the file of a table
    runner: str | None = None
    live: int | None = None
    hung_after: str | None = None
    checkpoints_at_most: str | None = None
    devices: str | None = None  # 0,1: one for each worker
    cluster: dict[str, Any] | None = None  # settings of RayCluster, for the Ray runner
    checkpoints: str | None = None  # a folder, or s3://bucket/runs; None: beside the store
    log: list[str] | None = None  # columns of a table on a log scale; None: what the file says
    fingerprint: str = ""  # of the training code

    @classmethod
    def from_words(cls, target: str | None, command: list[str], table: str | None, **how: Any) -> Job:
        given = [name for name, it in (("TARGET", target), ("-- COMMAND", command), ("--table", table)) if it]
        if len(given) != 1:
            instead = f"not {' and '.join(given)}" if given else "for example: shoestring run train.py:train"
            raise StudyError(f"give exactly one of TARGET (file.py:train), -- COMMAND …, or --table FILE: {instead}")
        if how.get("log") and not table:
            raise StudyError("--log is for --table: in a space, write log=true beside the range of a parameter")
        if how.get("devices") is not None or how.get("runner") == "ray" or how.get("cluster"):
            from shoestring.cli.job import read_where

            how["cluster"] = read_where(how.get("devices"), how.get("runner"), how.get("cluster") or {}, table)
        if target:
            return cls("python", target, **how).with_fingerprint()
        if "://" in (how.get("checkpoints") or ""):
            raise StudyError(f"--checkpoints {how['checkpoints']} is for Python code: a program writes into a folder")
        for option in ("runner", "live", "checkpoints_at_most"):
            if how.get(option) is not None:
                word = option.replace("_", "-")
                raise StudyError(f"--{word} is for Python code: leave it out with {given[0]}")
        if table:
            return cls("table", table, **how).with_fingerprint()
        return cls("command", command, **how).with_fingerprint()

    @classmethod
    def from_target(cls, target: Mapping[str, Any]) -> Job:
        if target.get("kind") not in ("python", "command", "table"):
            raise StudyError(
                "this study was begun from Python: go on with the same call of tune(), "
                "or give the training code: shoestring run file.py:train …"
            )
        return cls(**target)

    def to_target(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def going_on(self, target: Mapping[str, Any]) -> Job:
        """The same job, on the devices and the cluster that the study has when none are named now."""
        devices, cluster = self.devices or target.get("devices"), self.cluster or target.get("cluster")
        return replace(self, devices=devices, cluster=cluster if self.runner == "ray" else None)

    @property
    def workers(self) -> int | None:
        """How many, when the user does not say: one for each device, if any are named."""
        return self.devices.count(",") + 1 if self.devices else None

    def has_changed_since(self, target: Mapping[str, Any]) -> bool:
        """Whether its code is another one than when the study began, as far as that can be told."""
        if self.kind == "python" and "kind" not in target:  # begun from Python, where the function itself is hashed
            return has_code_changed(target, target_of(self._callable()))
        return has_code_changed(target, self.with_fingerprint().to_target())

    def with_fingerprint(self) -> Job:
        """The same job, with the fingerprint that its code has now."""
        if isinstance(self.where, list):
            return replace(self, fingerprint=_hash_files(self.where))
        file = self.where.rpartition(":")[0] if self.kind == "python" else self.where
        return replace(self, fingerprint=_hash_files([file]))

    @property
    def name(self) -> str:
        """A study's name, when the user gives none."""
        if self.kind == "command":
            scripts = [word for word in self.where if Path(word).suffix and "{" not in word and os.path.isfile(word)]
            return Path(scripts[0] if scripts else self.where[0]).stem
        return Path(str(self.where).rpartition(":")[0] or str(self.where)).stem

    @property
    def words(self) -> str:
        """The part of a command line that names this job."""
        if self.kind == "command":
            return f"-- {shlex.join(self.where)}"
        return f"--table {shlex.quote(str(self.where))}" if self.kind == "table" else shlex.quote(str(self.where))

    def max_steps(self, given: int | None) -> int:
        if self.kind == "command":
            return given or 1
        if self.kind == "table":
            return min(given or self._table().max_steps, self._table().max_steps)
        return steps_of(self._callable(), given)

    def warnings(self, space: Space) -> list[str]:
        """What looks like a slip, but may be meant."""
        if self.kind != "command":
            return []
        from shoestring.runners.command.command_line import find_unused

        unused = find_unused(list(self.where), space)
        places = ", ".join(f"{{{name}}}" for name in unused)
        known_as = "no place for them" if len(unused) > 1 else "no place for it"
        return (
            [
                f"{', '.join(unused)}: the command has {known_as} ({places}), and other parameters have one; "
                "this is right only if it reads the file in SHOESTRING_CONFIG, which cannot be seen from here"
            ]
            if unused
            else []
        )

    def space(self, file: str | None, parameters: Iterable[str]) -> Space:
        if self.kind == "table":
            if file or list(parameters):
                raise SpaceError("a table brings its own space: leave --space and --param out")
            return self._table().space()
        return read_space(file, parameters)

    def check(self, space: Space | None, workers: int) -> None:
        """Whether there can be a runner for this job; `space` is None when the study exists already."""
        if self.hung_after is not None:
            parse_duration_s(self.hung_after, "time to hang")
        if self.kind == "command" and space is not None:
            from shoestring.runners.command.command_line import check_arguments

            check_arguments(list(self.where), space)
        check_runner(self._on, workers, self.live, self.checkpoints_at_most)

    @property
    def _on(self) -> str | RayCluster | None:
        """The runner, as it is made: one on Ray with its cluster, one for devices in processes."""
        if self.runner == "ray":
            return RayCluster(**(self.cluster or {}))
        return self.runner or ("process" if self.devices else None)  # this process has its devices already

    def make_runner(self, ledger: Ledger, checkpoints: Path | str) -> Runner:
        hung_after_s = None if self.hung_after is None else parse_duration_s(self.hung_after, "time to hang")
        if self.kind == "table":
            from shoestring.runners.simulated.simulated_runner import Simulated

            return Simulated(self._table(), ledger.workers)
        on_devices: dict[str, Any] = {"devices": self.devices} if self.devices else {}
        if self.kind == "command":
            from shoestring.runners.command.command_runner import Commands

            kept = Path(checkpoints)
            return Commands(list(self.where), ledger.space, kept, ledger.workers, hung_after_s, **on_devices)
        limits = (self.live, self.checkpoints_at_most, hung_after_s)
        return make_runner(self._on, self._callable(), checkpoints, ledger.workers, *limits, **on_devices)

    def _callable(self) -> Any:
        from shoestring.runners.training.targets import resolve

        return resolve(str(self.where))

    def _table(self) -> Table:
        from shoestring.runners.simulated.recorded_table import Table

        return Table.load(Path(str(self.where)), log=self.log or None)


def read_space(file: str | None, parameters: Iterable[str]) -> Space:
    """A space from a TOML file, from words like `lr={float=[1e-4,1],log=true}`, or both (words win)."""
    described: dict[str, Any] = {}
    if file:
        described |= _read_toml_file(file)
    said: dict[str, str] = {}  # parameter: the word it came from
    for word in parameters:
        parsed = _parse_toml(word, f"--param {word!r}")
        for name in parsed:
            if name in said:
                raise SpaceError(f"{name} is given twice, as --param {said[name]!r} and --param {word!r}: drop one")
            said[name] = word
        described |= parsed
    if not described:
        raise SpaceError("no space is given: --space FILE.toml, or --param 'lr={float=[1e-4,1.0],log=true}' for each")
    return Space.from_dict(described)


def read_settings(words: Iterable[str]) -> dict[str, Any]:
    """Policy settings from `name=value` words; a value is read as JSON, else taken as text."""
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise ShoestringError(f"--set {word!r} must be name=value, as in --set reduction_factor=3")
        if name.strip() in settings:
            raise PolicyError(f"--set {word!r} gives {name.strip()} for the second time: drop one")
        try:
            settings[name.strip()] = json.loads(value)
        except ValueError:  # no JSON, or a number too long for Python to read
            settings[name.strip()] = value.strip()
    return settings


def add_validation_cap(policy: str, settings: Mapping[str, Any], at_most: str | None) -> dict[str, Any]:
    """The settings with `--validate-at-most` among them, for the policies that decide when to validate."""
    if at_most is None:
        return dict(settings)
    word = f"--validate-at-most {at_most!r}"
    if "validate_at_most" not in policies.defaults_of(policy):
        raise PolicyError(
            f"{word} is for policies that decide when to validate, and {policy} does not: "
            "choose one with --policy ce_gp_ucb, or leave the option out"
        )
    if "validate_at_most" in settings:
        also = settings["validate_at_most"]
        raise PolicyError(f"{word} and --set validate_at_most={also} say the same thing twice: leave one of them out")
    return {**settings, "validate_at_most": at_most}


def read_configs(file: str | None) -> list[dict[str, Any]]:
    """Configs to try first: a JSON list, or one JSON object per line."""
    if file is None:
        return []
    try:
        text = Path(file).read_text(encoding="utf-8")
        rows = (
            json.loads(text)
            if text.lstrip().startswith("[")
            else [json.loads(x) for x in text.splitlines() if x.strip()]
        )
    except OSError as error:
        raise SpaceError(f"the configs in {file!r} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise SpaceError(f"the configs in {file!r} are not JSON: {error}") from None
    return list(rows)


def _read_toml_file(file: str) -> dict[str, Any]:
    try:
        return _parse_toml(Path(file).read_text(encoding="utf-8"), f"the space file {file!r}")
    except OSError as error:
        raise SpaceError(f"the space file {file!r} cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise SpaceError(f"the space file {file!r} is not text in UTF-8") from None


def _parse_toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpaceError(f"{where} is not TOML: {error}; write lr = {{ float = [1e-4, 1.0], log = true }}") from None


def _hash_files(words: Iterable[str]) -> str:
    """Of the files among the words, so that changed code can be pointed out."""
    files = [Path(word) for word in words if os.path.isfile(word) and os.access(word, os.R_OK)]
    joined = b"\0".join(file.read_bytes() for file in files if file.stat().st_size < _LARGEST_CODE)
    return hashlib.sha256(joined).hexdigest()[:16] if files else ""


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
