"""How long a worker may go without a report before its step counts as hung."""

from __future__ import annotations

# Generous, because steps vary and some load data: a step that would succeed must not be ended.
_FACTOR, _EXTRA_S = 10, 60.0


class SilenceLimit:
    """A limit in seconds if the user set one, else 10 times the longest step seen plus one minute.

    Before any step was seen there is nothing to measure against, and only the budget limits a step.
    """

    def __init__(self, hung_after_s: float | None) -> None:
        self._limit_s, self._longest_s = hung_after_s, 0.0

    def note_step(self, step_s: float) -> None:
        self._longest_s = max(self._longest_s, step_s)

    def is_over(self, silent_s: float) -> bool:
        if self._limit_s is not None:
            return silent_s > self._limit_s
        return self._longest_s > 0 and silent_s > _FACTOR * self._longest_s + _EXTRA_S

    def describe(self, silent_s: float) -> str:
        rule = "its limit"
        if self._limit_s is None:
            rule = f"10 times the longest step, {self._longest_s:.3g} s, plus one minute"
        return f"no report for {silent_s:.3g} s, which is over {rule}: the step counts as hung and was ended"
