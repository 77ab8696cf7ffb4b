"""Notice a step that takes far longer than all steps before it: most likely it hangs, and nothing would say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shoestring.core.ledger.entries import Entry, Receipt
from shoestring.core.ledger.ledger import Ledger

_FACTOR, _LEAST_S = 20.0, 30.0  # times the longest step so far; shorter steps vary more, so it is at least this long
_REMEDY = "if it hangs, stop the run and continue it with --hung-after 10m, which ends such steps"
_REMEDY_HERE = (
    "if it hangs, press Ctrl-C twice and continue the run with --runner process --hung-after 10m, which ends such steps"
)


class LongSteps:
    """Announces, once in a run, a step that takes more than 20 times as long as the longest so far, and at least 30 s."""

    def __init__(self, ledger: Ledger, announce: Callable[[str], None], *, trains_here: bool) -> None:
        self._announce, self._remedy = announce, _REMEDY_HERE if trains_here else _REMEDY
        self._longest_s = max((seconds for trial in ledger.trials for seconds in trial.step_costs), default=0.0)
        self._has_announced = False

    def note(self, entry: Entry) -> None:
        if isinstance(entry, Receipt) and entry.is_finished:
            self._longest_s = max(self._longest_s, entry.cost.total)

    def look(self, ledger: Ledger, running_s: Mapping[int, float]) -> None:
        """Look at the steps under way, as {order: seconds}. Any thread may call this."""
        limit_s = max(_FACTOR * self._longest_s, _LEAST_S)
        if self._has_announced or not self._longest_s:
            return
        for number, seconds in running_s.items():
            if seconds > limit_s:
                self._has_announced = True
                self._announce(
                    f"a step of trial {ledger.orders[number].trial} has taken {seconds:.0f} s, and the longest before took "
                    f"{self._longest_s:.3g} s: {self._remedy}"
                )
                return
