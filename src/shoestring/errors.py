"""Everything that can be misused says so in one line: name and value, the rule and its reason, a remedy.

    ShoestringError
    ├── SpaceError        a search space or a config breaks its rules
    ├── BudgetError       a budget cannot be read, or buys nothing
    ├── PolicyError       an unknown policy or a setting out of range
    ├── DecisionError     a policy ordered something that the ledger forbids (a mistake in the policy)
    ├── StudyError        a study is asked for something that contradicts what it is
    │   └── TrainingFailed  a run ended and no step of the training code has ever worked; `study` holds what happened
    ├── RunnerError       training code that cannot be started at all
    ├── MissingExtra      an optional dependency is not installed
    └── StoreError        a store cannot be read or written
        ├── Conflict      somebody else appended first: reload and decide again
        ├── Leased        another process runs this study
        └── Damaged       a stored entry does not match its checksum

What happens to a trial (a loss that diverged, code that raised, a worker that died) is not an error of ours: it is a receipt
in the ledger.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

_MOST_TEXT = 4000  # characters of a message
_PACKAGE = str(Path(__file__).parent)


class ShoestringError(Exception):
    """Root of all errors that this package raises on purpose. The message is one line, whatever value it quotes."""

    def __init__(self, message: object = "") -> None:
        super().__init__(one_line(str(message)))


class SpaceError(ShoestringError):
    pass


class BudgetError(ShoestringError):
    pass


class PolicyError(ShoestringError):
    pass


class DecisionError(ShoestringError):
    pass


class StudyError(ShoestringError):
    pass


class TrainingFailed(StudyError):
    """`study` is the study, with the text of every failure in its trials."""

    def __init__(self, message: str, study: Any = None) -> None:
        super().__init__(message)
        self.study = study


class RunnerError(ShoestringError):
    pass


class MissingExtra(ShoestringError):
    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs {package}, which is not installed: pip install 'shoestring[{extra}]'")


class StoreError(ShoestringError):
    pass


class Conflict(StoreError):
    pass


class Leased(StoreError):
    pass


class Damaged(StoreError):
    """`last_good` is the number of the last entry that can be trusted (-1: none)."""

    def __init__(self, message: str, last_good: int) -> None:
        super().__init__(message)
        self.last_good = last_good


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A tail for "unknown name" messages: the likely meant name, else all known ones."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known: {', '.join(names) or 'none'}."


def warn(text: str) -> None:
    """A Python warning that points at the line of the user's code, however deep inside this package it comes from."""
    depth, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, stacklevel=depth)


def one_line(text: str) -> str:
    """Text from elsewhere as one line: ends of lines are spaces, other control characters are spelled out, the end is cut."""
    flat = " ".join(text.split()) if len(text.splitlines()) > 1 else text
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in flat)
    return shown if len(shown) <= _MOST_TEXT else f"{shown[:_MOST_TEXT]}… ({len(shown) - _MOST_TEXT} characters more)"
