"""The errors of this package. A message is one line: name and value, the rule and its reason, a remedy.

    ShoestringError
    ├── SpaceError          a search space or a config breaks its rules
    ├── BudgetError         a budget cannot be read, or is too small for any step
    ├── PolicyError         an unknown policy, or a setting out of range
    ├── DecisionError       a policy made a decision that the ledger forbids (a mistake in the policy)
    ├── StaleLedger         a ledger was used after an entry had been appended to it
    ├── StudyError          a request does not fit the study, or an argument is wrong
    │   ├── TrainingFailed  a run ended, and no step of the training code ever worked
    │   └── UnknownFormat   a stored study was recorded in another format
    ├── RunnerError         training code cannot be started at all
    │   └── WorkersDied     workers died again and again before they could train
    ├── MissingExtra        an optional dependency is not installed
    └── StoreError          a store cannot be read or written
        ├── Conflict        another process has appended to the study: reload it and decide again
        ├── StudyInUse      the study is being run already
        └── DamagedStore    a stored entry does not match its checksum

If a loss diverges, training code raises an error or a worker dies, no error of this package is raised: that is an entry in the
ledger.
"""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path
from typing import Any

_MAX_TEXT = 4000  # largest number of characters in a message
_PACKAGE = str(Path(__file__).parent)


class ShoestringError(Exception):
    """Base class of all errors that this package raises on purpose. The message is one line, whatever value it quotes."""

    def __init__(self, message: object = "") -> None:
        super().__init__(one_line(str(message)))


class SpaceError(ShoestringError):
    """A search space or a config breaks its rules."""


class BudgetError(ShoestringError):
    """A budget cannot be read, or is too small for any step."""


class PolicyError(ShoestringError):
    """A policy is unknown, or one of its settings is out of range."""


class DecisionError(ShoestringError):
    """A policy made a decision that the ledger forbids: a mistake in the policy."""


class StudyError(ShoestringError):
    """A request does not fit the study, or an argument is wrong."""


class TrainingFailed(StudyError):
    """A run ended, and no step of the training code ever worked.

    Attributes
    ----------
    study : Study or None
        The study, with the text of every failure in its trials.
    """

    def __init__(self, message: str, study: Any = None) -> None:
        super().__init__(message)
        self.study = study


class UnknownFormat(StudyError):
    """A stored study was recorded in another format by another version of shoestring."""


class StaleLedger(ShoestringError):
    """A ledger was used after an entry had been appended to it; its successor must be used."""


class RunnerError(ShoestringError):
    """Training code cannot be started at all."""


class WorkersDied(RunnerError):
    """Workers died again and again before they could train, as by a lack of memory while they imported the training code."""


class MissingExtra(ShoestringError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs {package}, which is not installed: pip install 'shoestring[{extra}]'")


class StoreError(ShoestringError):
    """A ledger store cannot be read or written."""


class Conflict(StoreError):
    """Another process has appended to the study in the meantime: reload it and decide again."""


class StudyInUse(StoreError):
    """The study is being run already, usually by another process."""


class DamagedStore(StoreError):
    """A stored entry does not match its checksum.

    Attributes
    ----------
    last_good : int
        Number of the last entry that can be trusted; -1 if there is none.
    """

    def __init__(self, message: str, last_good: int) -> None:
        super().__init__(message)
        self.last_good = last_good


_is_command_line = ContextVar("is_command_line", default=False)
_OPTIONS = {
    *("checkpoints", "checkpoints_at_most", "deadline", "devices", "direction", "give_up_after", "gpus", "hung_after"),
    *("live", "max_steps", "name", "policy", "rows", "runner", "seed", "store", "workers"),
}


@contextmanager
def name_as_options() -> Iterator[None]:
    """Name arguments in messages as options of the command line inside this block."""
    token = _is_command_line.set(True)
    try:
        yield
    finally:
        _is_command_line.reset(token)


def show_argument(name: str, *value: object) -> str:
    """Return an argument and its value as the user gave it: `max_steps=0`, or on the command line `--max-steps 0`.

    Without a value, return how it is given. What is no option, such as a setting of a policy, has its Python name everywhere.
    """
    if not (_is_command_line.get() and name in _OPTIONS):
        return f"{name}={value[0]!r}" if value else f"{name}=…"
    option = "--study" if name == "name" else f"--{name.replace('_', '-')}"
    example = "NAME" if name == "name" else "…"
    return f"{option} {shlex.quote(str(value[0])) if value else example}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the known name that was probably meant, else all known names."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known: {', '.join(names) or 'none'}."


def warn(text: str) -> None:
    """Issue a Python warning that shows the line in the user's code from which this package was called."""
    depth, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, stacklevel=depth)


def one_line(text: str) -> str:
    """Return the text as one line: line ends become spaces, unprintable characters are escaped, and a long text is cut."""
    flat = " ".join(text.split()) if len(text.splitlines()) > 1 else text
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in flat)
    return shown if len(shown) <= _MAX_TEXT else f"{shown[:_MAX_TEXT]}… ({len(shown) - _MAX_TEXT} characters more)"
