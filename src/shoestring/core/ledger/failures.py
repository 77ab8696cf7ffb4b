"""When are two failures the same one? Training code that always fails must not be bought again and again.

Texts of one and the same failure vary: the sizes in an "out of memory", the number of a trial in a path, the config that
the message quotes. So a failure with a traceback is known by the type of its exception and the place that raised it, and
any other by its last line with numbers, paths and quoted text masked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoestring.core.ledger.state import Books

_MOST_FAILURES_AT_FIRST = 3  # the same failure so often before anything has worked: the code is broken
_MOST_FAILURES = 10  # the same failure so often in a row later on: something broke on the way
_MOST_FAILURES_AT_A_STEP = 5  # so many trials broken alike at a step that none has got past: no config gets past it
_MOST_DIVERGED_AT_FIRST = 10  # so many trials with no number before anything has worked: bad luck is not that long
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]*)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE)
_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?::|$)", re.MULTILINE)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\{[^{}]*\}")
_PATH = re.compile(r"(?:[A-Za-z]:)?[\\/][^\s:,;'\")]+|\S+[\\/]\S+")
_NUMBER = re.compile(r"(?:0x[0-9a-fA-F]+|[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)")


class FailurePatience:
    """How many failures are borne, from now on: what there was of them before is forgiven, the code may have been repaired."""

    def __init__(self, books: Books) -> None:
        self._forgiven = books.failures_in_a_row
        self._failed_before = {trial.number for trial in books.trials if trial.failure}
        whole_tens = books.diverged_in_a_row // _MOST_DIVERGED_AT_FIRST
        self._most_diverged = (whole_tens + 1) * _MOST_DIVERGED_AT_FIRST

    def why_stop(self, books: Books) -> str | None:
        """The failure that a hundred more of would only cost money; None: go on."""
        most = _MOST_FAILURES if books.ok_receipts else _MOST_FAILURES_AT_FIRST
        if books.failures_in_a_row > self._forgiven and books.failures_in_a_row >= most:
            return books.last_failure
        if books.failures_in_a_row and books.ok_receipts and self._is_step_impassable(books):
            return books.last_failure
        if not books.ok_receipts and (diverged := books.diverged_in_a_row) >= self._most_diverged:
            return f"no step has ever worked: {diverged} trials diverged, none gave a number"
        return None

    def _is_step_impassable(self, books: Books) -> bool:
        """Whether the newest failure came at the furthest step of all, where others failed alike and nobody got past."""
        furthest = max(trial.steps for trial in books.trials)
        alike = [
            trial
            for trial in books.trials
            if trial.failure and trial.steps == furthest and trial.number not in self._failed_before
            if kind_of_failure(trial.failure) == books.failure_kind
        ]
        return len(alike) >= _MOST_FAILURES_AT_A_STEP


def kind_of_failure(text: str) -> str:
    """Equal for failures that are one and the same."""
    frames = list(_FRAME.finditer(text))
    if frames:
        last = frames[-1]
        raised = _RAISED.search(text, last.end())
        if raised is not None:
            return f"{raised['type']} in {last['file']}, line {last['line']}"
    return _mask(_last_line(text))


def say_failure(text: str) -> str:
    """The one line of a failure that says what happened."""
    frames = list(_FRAME.finditer(text))
    raised = _RAISED.search(text, frames[-1].end()) if frames else None
    return text[raised.start() :].splitlines()[0].strip() if raised is not None else _last_line(text)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""


def _mask(line: str) -> str:
    for pattern, word in ((_QUOTED, "<text>"), (_PATH, "<path>"), (_NUMBER, "<number>")):
        line = pattern.sub(word, line)
    return line
