"""Decide when two failures are of the same kind, and when failures end a run.

Training code that always fails must not be trained again and again. But the text of the same failure varies: the size in an "out
of memory" message, a trial's number in a path, the config that the message quotes. So a failure with a traceback is identified
by the type of its exception and the line that raised it. Any other failure is identified by its last line, with numbers, paths
and quoted text masked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoestring.core.ledger.state import StudyState

# Numbers of failures that end a run:
_MAX_FAILURES_AT_FIRST = 3  # of the same kind, before any step has worked: the code is broken
_MAX_FAILURES = 10  # of the same kind in a row, later: something broke during the study
_MAX_FAILURES_AT_A_STEP = 5  # of the same kind at a step that no trial has passed: probably no config passes it
_MAX_DIVERGED_AT_FIRST = 10  # steps without a finite value before any step has worked: that is hardly chance
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]*)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE)
_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?::|$)", re.MULTILINE)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\{[^{}]*\}")
_PATH = re.compile(r"(?:[A-Za-z]:)?[\\/][^\s:,;'\")]+|\S+[\\/]\S+")
_NUMBER = re.compile(r"(?:0x[0-9a-fA-F]+|[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)")


class FailureLimit:
    """Decides when failures end a run.

    Failures before the run do not end it, because the code may have been repaired since. They count as soon as a failure of the
    same kind follows in the run, because then the code was not repaired.
    """

    def __init__(self, state: StudyState) -> None:
        self._earlier_failures, self._earlier_kind = state.failures_in_a_row, state.failure_kind
        self._failed_before = {trial.number for trial in state.trials if trial.failure}
        whole_tens = state.diverged_in_a_row // _MAX_DIVERGED_AT_FIRST
        self._max_diverged = (whole_tens + 1) * _MAX_DIVERGED_AT_FIRST

    def reason_to_stop(self, state: StudyState) -> str | None:
        """Return the reason to stop the run; None if it should continue."""
        if state.failure_kind != self._earlier_kind or state.failures_in_a_row < self._earlier_failures:
            self._earlier_failures = 0  # a failure of another kind or a finished step has ended the earlier failures
        max_failures = _MAX_FAILURES if state.ok_receipts else _MAX_FAILURES_AT_FIRST
        if state.failures_in_a_row > self._earlier_failures and state.failures_in_a_row >= max_failures:
            return state.last_failure
        if state.failures_in_a_row and state.ok_receipts and self._is_step_impassable(state):
            return state.last_failure
        if not state.ok_receipts and (diverged := state.diverged_in_a_row) >= self._max_diverged:
            return f"no step has ever worked: {diverged} trials diverged, none reported a number"
        return None

    def _is_step_impassable(self, state: StudyState) -> bool:
        """Return whether many trials failed in the same way at the furthest step that any trial has reached."""
        furthest_step = max(trial.steps for trial in state.trials)
        failed_alike = [
            trial
            for trial in state.trials
            if trial.failure and trial.steps == furthest_step and trial.number not in self._failed_before
            if kind_of_failure(trial.failure) == state.failure_kind
        ]
        return len(failed_alike) >= _MAX_FAILURES_AT_A_STEP


def kind_of_failure(text: str) -> str:
    """Return a text that is equal for two failures of the same kind."""
    frames = list(_FRAME.finditer(text))
    if frames:
        last = frames[-1]
        raised = _RAISED.search(text, last.end())
        if raised is not None:
            return f"{raised['type']} in {last['file']}, line {last['line']}"
    return _mask(_last_line(text))


def describe_failure(text: str) -> str:
    """Return the line of a failure's text that says what happened."""
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
