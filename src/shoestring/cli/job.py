"""From the words of a command line to a study and its runner: what is trained, over which space, by which runner.

The `opened` entry keeps what was launched (`target`), so that `shoestring resume` needs no more than the study's name.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from shoestring import policies
from shoestring.core.ledger import Ledger
from shoestring.core.money import parse_duration_s
from shoestring.core.space import Space
from shoestring.errors import PolicyError, ShoestringError, SpaceError, StudyError
from shoestring.runners.make import check_runner, make_runner, steps_of
from shoestring.runners.runner import Runner

if TYPE_CHECKING:
    from shoestring.runners.tables import Table

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
    fingerprint: str = ""  # of the training code

    @classmethod
    def from_words(cls, target: str | None, command: list[str], table: str | None, **how: Any) -> Job:
        given = [name for name, it in (("TARGET", target), ("-- COMMAND", command), ("--table", table)) if it]
        if len(given) != 1:
            instead = f"not {' and '.join(given)}" if given else "for example: shoestring run train.py:train"
            raise StudyError(f"give exactly one of TARGET (file.py:train), -- COMMAND …, or --table FILE: {instead}")
        if target:
            return cls("python", target, **how).with_fingerprint()
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
        return asdict(self)

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
            scripts = [word for word in self.where if Path(word).suffix and "{" not in word and Path(word).exists()]
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
            from shoestring.runners.command_line import check_arguments

            check_arguments(list(self.where), space)
        check_runner(self.runner, workers, self.live, self.checkpoints_at_most)

    def make_runner(self, ledger: Ledger, checkpoints: Path) -> Runner:
        hung_after_s = None if self.hung_after is None else parse_duration_s(self.hung_after, "time to hang")
        if self.kind == "table":
            from shoestring.runners.simulated import Simulated

            return Simulated(self._table(), ledger.workers)
        if self.kind == "command":
            from shoestring.runners.command import Commands

            return Commands(list(self.where), ledger.space, checkpoints, ledger.workers, hung_after_s)
        limits = (self.live, self.checkpoints_at_most, hung_after_s)
        return make_runner(self.runner, self._callable(), checkpoints, ledger.workers, *limits)

    def _callable(self) -> Any:
        from shoestring.runners.targets import resolve

        return resolve(str(self.where))

    def _table(self) -> Table:
        from shoestring.runners.tables import Table

        return Table.load(Path(str(self.where)))


def read_space(file: str | None, parameters: Iterable[str]) -> Space:
    """A space from a TOML file, from words like `lr={float=[1e-4,1],log=true}`, or both (words win)."""
    described: dict[str, Any] = {}
    if file:
        described |= _read_toml_file(file)
    for word in parameters:
        described |= _parse_toml(word, f"--param {word!r}")
    if not described:
        raise SpaceError("no space is given: --space FILE.toml, or --param 'lr={float=[1e-4,1.0],log=true}' for each")
    return Space.from_dict(described)


def parameter_words(space: Space) -> list[str]:
    """A space as words for `--param`, the other way round."""
    return (
        [f"{name}={_to_inline_toml(parameter)}" for name, parameter in space.to_dict().items()]
        if space.rows is None
        else []
    )


def _to_inline_toml(value: Any) -> str:
    """A value as TOML on one line; what JSON writes for lists, text, numbers and booleans is TOML too."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}={_to_inline_toml(part)}" for name, part in value.items()) + "}"
    return json.dumps(value)


def read_settings(words: Iterable[str]) -> dict[str, Any]:
    """Policy settings from `name=value` words; a value is read as JSON, else taken as text."""
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise ShoestringError(f"--set {word!r} must be name=value, as in --set reduction_factor=3")
        try:
            settings[name.strip()] = json.loads(value)
        except json.JSONDecodeError:
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
    except ValueError as error:  # no JSON, or no text at all
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
    files = [Path(word) for word in words if Path(word).is_file()]
    joined = b"\0".join(file.read_bytes() for file in files if file.stat().st_size < _LARGEST_CODE)
    return hashlib.sha256(joined).hexdigest()[:16] if files else ""
