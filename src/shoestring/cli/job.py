"""Read the arguments of a command line: what is trained, on which runner, in which space, with which settings.

A `Job` is stored with its study (as the `target` of the first entry), so that `shoestring resume` needs only the name.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from shoestring import policies
from shoestring.core.ledger.entries import Direction
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Space
from shoestring.errors import PolicyError, ShoestringError, SpaceError, StudyError
from shoestring.runners.checkpoints.checkpoint_store import make_location_entry
from shoestring.runners.make import RunnerOptions, count_steps, describe_code, has_code_changed, make_command_runner
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.training.targets import resolve
from shoestring.stores.addresses import IN_MEMORY, open_store
from shoestring.study.run_study import RunOptions

if TYPE_CHECKING:
    from shoestring.runners.simulated.recorded_table import Table

_MAX_HASHED_BYTES = 50_000_000  # a larger file in a command is data, and hashing it would delay the start
Kind = Literal["python", "command", "table"]


# what is trained -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """What is trained, and on which runner. The study stores it as its target."""

    kind: Kind
    where: str | list[str]  # file.py:train, the words of a command, or the file of a table
    options: RunnerOptions = field(default_factory=RunnerOptions)
    cluster: dict[str, Any] | None = None  # settings of RayCluster, for the Ray runner
    checkpoints: str | None = None  # a folder, or s3://bucket/runs; None: beside the store
    log: list[str] | None = None  # columns of a table on a log scale; None: those that the file names
    fingerprint: str = ""  # a hash of the training code

    @classmethod
    def from_words(
        cls,
        target: str | None,
        command: list[str],
        table: str | None,
        *,
        log: Iterable[str] = (),
        checkpoints: str | None = None,
        runner: str | None = None,
        devices: str | None = None,
        live: int | None = None,
        checkpoints_at_most: str | None = None,
        hung_after: str | None = None,
        **cluster: Any,
    ) -> Job:
        """Return the job that the options of `run` describe; `cluster` holds the options of `--runner ray`."""
        given = [name for name, value in (("TARGET", target), ("-- COMMAND", command), ("--table", table)) if value]
        if len(given) != 1:
            instead = f"not {' and '.join(given)}" if given else "for example: shoestring run train.py:train"
            raise StudyError(f"give exactly one of TARGET (file.py:train), -- COMMAND …, or --table FILE: {instead}")
        if log and not table:
            raise StudyError("--log is for --table: in a space, write log=true beside the range of a parameter")
        if devices is not None and table:
            raise StudyError("--devices is for code that is really trained: leave it out with --table")
        if not target:
            for option, value in (("runner", runner), ("live", live), ("checkpoints-at-most", checkpoints_at_most)):
                if value is not None:
                    raise StudyError(f"--{option} is for Python code: leave it out with {given[0]}")
            if "://" in (checkpoints or ""):
                raise StudyError(f"--checkpoints {checkpoints} is for Python code: a program needs a folder")
        job = cls(
            kind="python" if target else "table" if table else "command",
            where=target or table or command,
            options=RunnerOptions(
                runner=runner,
                devices=devices,
                live=live,
                checkpoints_at_most=checkpoints_at_most,
                hung_after=hung_after,
            ),
            cluster=_read_cluster(runner, cluster),
            checkpoints=make_location_entry(checkpoints).get("checkpoints"),
            log=list(log) or None,
        )
        return job.with_fingerprint()

    @classmethod
    def from_target(cls, target: Mapping[str, Any]) -> Job:
        """Return the job that a study stores."""
        if target.get("kind") not in ("python", "command", "table"):
            raise StudyError(
                "this study was begun from Python: continue it with the same call of tune(), "
                "or give the training code: shoestring run file.py:train …"
            )
        names = {one.name for one in fields(RunnerOptions)}
        options = RunnerOptions(**{name: value for name, value in target.items() if name in names})
        return cls(options=options, **{name: value for name, value in target.items() if name not in names})

    def to_target(self) -> dict[str, Any]:
        values = {**vars(self.options), **{one.name: getattr(self, one.name) for one in fields(self)}}
        return {name: value for name, value in values.items() if name != "options" and value is not None}

    def with_stored_options(self, target: Mapping[str, Any]) -> Job:
        """Return this job with the devices and the cluster that the study stores, unless others were given now."""
        options = self.options
        if options.devices is None and target.get("devices") is not None and options.runner in (None, "process"):
            options = replace(options, devices=target["devices"])
        cluster = self.cluster or target.get("cluster")
        return replace(self, options=options, cluster=cluster if options.is_ray else None)

    def has_changed_since(self, target: Mapping[str, Any]) -> bool:
        """Return whether the training code differs from that of the study, as far as fingerprints can tell."""
        if self.kind == "python" and "kind" not in target:  # begun from Python: the function itself is hashed
            return has_code_changed(target, describe_code(self.code))
        return has_code_changed(target, self.with_fingerprint().to_target())

    def with_fingerprint(self) -> Job:
        """Return this job with the present fingerprint of its code."""
        if isinstance(self.where, list):
            return replace(self, fingerprint=_hash_files(self.where))
        file = self.where.rpartition(":")[0] if self.kind == "python" else self.where
        return replace(self, fingerprint=_hash_files([file]))

    @property
    def name(self) -> str:
        """The name of the study if the user gives none."""
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

    @cached_property
    def code(self) -> Any:
        """The Python function or class."""
        return resolve(str(self.where))

    @cached_property
    def _table(self) -> Table:
        from shoestring.runners.simulated.recorded_table import Table

        return Table.load(Path(str(self.where)), log=self.log or None)

    def max_steps(self, given: int | None) -> int:
        if self.kind == "command":
            return 1 if given is None else given
        if self.kind == "table":
            return self._table.max_steps if given is None else min(given, self._table.max_steps)
        return count_steps(self.code, given)

    def space(self, file: str | None, parameters: Iterable[str]) -> Space:
        if self.kind == "table":
            if file or list(parameters):
                raise SpaceError("a table has its own space: leave --space and --param out")
            return self._table.space()
        return read_space(file, parameters)

    def check(self, space: Space | None, workers: int) -> None:
        """Raise an error if no runner can train this job; `space` is None if the study exists already."""
        if self.kind == "command" and space is not None:
            from shoestring.runners.command.command_line import check_arguments

            check_arguments(list(self.where), space)
        self.options.require_workers(workers)

    def list_warnings(self, space: Space) -> list[str]:
        """Return warnings about what looks like a mistake but may be intended."""
        if self.kind != "command":
            return []
        from shoestring.runners.command.command_line import find_unused

        unused = find_unused(list(self.where), space)
        if not unused:
            return []
        places = ", ".join(f"{{{name}}}" for name in unused)
        return [
            f"the command has no {places} for {', '.join(unused)}, although it has places for other parameters; "
            "this is right only if it reads the file in SHOESTRING_CONFIG, which cannot be checked here"
        ]

    def run_options(self, **more: Any) -> RunOptions:
        """Return the options for running this job; `more` are the options that are not stored with it."""
        runner = RayCluster(**(self.cluster or {})) if self.options.is_ray else self.options.runner
        return RunOptions(**{**vars(self.options), "runner": runner}, **more)

    def code_or_runner(self, ledger: Ledger, checkpoints: Path | str) -> Any:
        """Return the Python code; for a program or a table, return the runner that trains it."""
        if self.kind == "python":
            return self.code
        if self.kind == "table":
            from shoestring.runners.simulated.simulated_runner import SimulatedRunner

            return SimulatedRunner(self._table, ledger.workers)
        return make_command_runner(list(self.where), ledger, checkpoints, self.options)


def _hash_files(words: Iterable[str]) -> str:
    """Return a hash of the files among these words, so that changed code can be noticed."""
    files = [Path(word) for word in words if os.path.isfile(word) and os.access(word, os.R_OK)]
    joined = b"\0".join(file.read_bytes() for file in files if file.stat().st_size < _MAX_HASHED_BYTES)
    return hashlib.sha256(joined).hexdigest()[:16] if files else ""


_NUMBERS = {  # settings of a cluster that map names to numbers: option, form and an example
    "resources": ("--resource", "NAME=AMOUNT", "highmem=1"),
    "prices": ("--price", "NODE=FACTOR", "A100=2.5"),
}


def _read_cluster(runner: str | None, words: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the settings of `RayCluster` that were given; None without the Ray runner."""
    given = {name: value for name, value in words.items() if value is not None and value != () and value != []}
    if runner != "ray":
        for name in given:
            option = _NUMBERS[name][0] if name in _NUMBERS else f"--{name}"
            raise StudyError(f"{option} is for a Ray cluster: add --runner ray, or leave it out")
        return None
    return {name: _read_numbers(value, *_NUMBERS[name]) if name in _NUMBERS else value for name, value in given.items()}


def _read_numbers(words: Iterable[str], option: str, form: str, example: str) -> dict[str, float]:
    """Return {name: number} for words like `name=1`; the name itself may contain "=", as the label of a node does."""
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


# store, direction, space, settings and configurations --------------------------------------------------------------------


def require_file(store: str) -> str:
    """Return the store; raise an error for one in memory."""
    if store == IN_MEMORY:
        raise StudyError(f"--store {store} would lose the study at the end of the command: name a file")
    return store


def read_direction(direction: Direction | None, *, maximize: bool) -> Direction:
    """Return the direction that `--direction` and `--maximize` name together."""
    if maximize and direction == "min":
        raise StudyError("--maximize and --direction min contradict each other: give one of them")
    return "max" if maximize else direction or "min"


def read_space(file: str | None, parameters: Iterable[str]) -> Space:
    """Return the space of a TOML file, of words like `lr={float=[1e-4,1],log=true}`, or of both; words take precedence."""
    described: dict[str, Any] = {}
    if file:
        described |= _read_toml_file(file)
    word_of: dict[str, str] = {}  # the word that describes each parameter
    for word in parameters:
        parsed = _parse_toml(word, f"--param {word!r}")
        for name in parsed:
            if name in word_of:
                raise SpaceError(f"{name} is given twice, as --param {word_of[name]!r} and --param {word!r}: drop one")
            word_of[name] = word
        described |= parsed
    if not described:
        raise SpaceError(
            "no space is given: use --space FILE.toml, or --param 'lr={float=[1e-4,1.0],log=true}' for each parameter"
        )
    return Space.from_dict(described)


def read_settings(words: Iterable[str], policy: str) -> dict[str, Any]:
    """Return the settings of a policy from `name=value` words; a value is JSON, one of `_PLAIN_WORDS`, or else text."""
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not name:
            raise ShoestringError(f"--set {word!r} must be name=value, as in --set reduction_factor=3")
        if name in settings:
            raise PolicyError(f"--set {word!r} sets {name} a second time: drop one")
        settings[name] = value if policies.is_word(policy, name, value) else _read_value(value)
    return settings


# As pages, messages and Python write the values that JSON writes in another way.
_PLAIN_WORDS = {"none": None, "true": True, "false": False, "inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def _read_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or a number too long for Python to read
        return _PLAIN_WORDS.get(text.lower(), text)


def find_policy(policy: str | None, store: str, name: str) -> str:
    """Return the name of the policy: the one that is given, else that of the study if it exists, else the default."""
    if policy is not None:
        return policy
    ledger = open_store(store).load(name)
    return policies.DEFAULT if ledger is None else ledger.state.policy


def read_renames(words: Iterable[str]) -> dict[str, str]:
    """Return the names of `--like-rename OLD=NEW`."""
    renames = {}
    for word in words:
        old, equals, new = word.partition("=")
        if not (old and equals and new):
            raise StudyError(f"--like-rename {word!r} must be OLD=NEW, as in --like-rename learning_rate=lr")
        renames[old] = new
    return renames


def add_validation_limit(policy: str, settings: Mapping[str, Any], at_most: str | None) -> dict[str, Any]:
    """Return the settings with `--validate-at-most` among them, for the policies that decide when to validate."""
    if at_most is None:
        return dict(settings)
    word = f"--validate-at-most {at_most!r}"
    if "validate_at_most" not in policies.defaults_of(policy):
        raise PolicyError(
            f"{word} is for policies that decide when to validate, and {policy} does not: "
            "choose one with --policy ce_gp_ucb, or leave the option out"
        )
    if "validate_at_most" in settings:
        other = settings["validate_at_most"]
        raise PolicyError(
            f"{word} and --set validate_at_most={other} give the same setting twice: leave one of them out"
        )
    return {**settings, "validate_at_most": at_most}


def read_configs(file: str | None) -> list[dict[str, Any]]:
    """Return the configurations to try first: a JSON list, or one JSON object per line."""
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
        raise SpaceError(f"the configurations in {file!r} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise SpaceError(f"the configurations in {file!r} are not JSON: {error}") from None
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
