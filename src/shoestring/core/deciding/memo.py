"""What a policy carries from decision to decision: named lists of numbers in the memo of an order, and when to fit again.

Whether a fit is due depends on the number of observations, never on the number of decisions. So it does not matter how often
the policy is called, and an interrupted study continues as if it had not been interrupted. The memo holds the number of
observations at the last fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from shoestring.core.deciding.decision import Memo

Lists = dict[str, list[float]]


def pick(memo: Memo, names: Iterable[str]) -> Lists:
    """Return copies of those lists in the memo that have one of these names.

    Parameters
    ----------
    memo : Memo
        The memo of the last order.
    names : iterable of str
        The names.

    Returns
    -------
    dict of str to list of float
        The lists by name.
    """
    return {name: list(memo[name]) for name in names if name in memo}


class Fit(NamedTuple):
    """What `Refits` says about the next fit.

    Parameters
    ----------
    is_due : bool
        Whether a fit is due now.
    is_restart : bool
        Whether it should start from several places.
    marks : dict of str to list of float
        Numbers to put into the next memo.
    """

    is_due: bool
    is_restart: bool
    marks: Lists


@dataclass(frozen=True, slots=True)
class Refits:
    """A schedule of fits by the number of observations.

    Parameters
    ----------
    first : int
        The number of observations at which the first fit is due.
    dense_until : int
        Up to this number of observations, a fit is due after each new observation.
    every : float
        Beyond that, a fit is due after this many new observations.
    growth : float
        If it is finite, it replaces `dense_until` and `every`: fits are due at `first` observations, and then whenever the
        number of observations has grown by this factor. These numbers do not depend on when `check_fit` is called.
    restart_growth : float
        When the observations have grown by this factor since the last fit that started from several places, the next fit
        starts from several places again.
    key : str
        Name in the memo of two numbers: the observations at the last fit, and at the last fit from several places.
    """

    first: int = 1
    dense_until: int = 0
    every: float = math.inf
    growth: float = math.inf
    restart_growth: float = math.inf
    key: str = "fitted_at"

    def check_fit(self, memo: Memo, count: int) -> Fit:
        """Return what is due at `count` observations.

        Parameters
        ----------
        memo : Memo
            The memo of the last order.
        count : int
            The number of observations now.

        Returns
        -------
        Fit
            What is due.
        """
        marks = memo.get(self.key, ())
        if math.isfinite(self.growth):
            count = self._round_down(count)
        if not marks or marks[0] == 0.0:
            is_due = count >= self.first
            return Fit(is_due, is_due, {self.key: [float(count)] * 2} if is_due else {})
        last, last_restart = marks[0], marks[-1]
        if count >= self.restart_growth * last_restart:
            return Fit(True, True, {self.key: [float(count)] * 2})
        is_due = count != last and (
            count <= self.dense_until or count >= last + self.every or math.isfinite(self.growth)
        )
        return Fit(is_due, False, {self.key: [float(count) if is_due else last, last_restart]})

    def _round_down(self, count: int) -> int:
        """Return the number of observations at which the newest fit of a growing schedule was due; 0 before the first."""
        mark = 0
        # Marks are rounded up, so that each is above the last one.
        while count >= (next_mark := math.ceil(mark * self.growth) or self.first):
            mark = next_mark
        return mark
