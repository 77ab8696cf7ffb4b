"""What a policy carries from decision to decision: named lists of floats in an order's memo, and when a fit is due again.

A fit is due by the number of observations, never by the number of decisions, so several workers may ask often and a study
that was cut off goes on as if it had not been. The memo keeps the number of observations at the last fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from shoestring.core.deciding.decision import Memo

Lists = dict[str, list[float]]


def pick(memo: Memo, names: Iterable[str]) -> Lists:
    """The lists of these names, as far as the memo has them."""
    return {name: list(memo[name]) for name in names if name in memo}


class Fit(NamedTuple):
    """Whether a fit is due now, and whether it should look for a new start; `marks` go into the next memo."""

    is_due: bool
    is_afresh: bool
    marks: Lists


@dataclass(frozen=True, slots=True)
class Refits:
    """A schedule of fits.

    first    observations before the first fit
    often    up to so many observations, one more is enough for a fit
    every    beyond that, so many more are
    growth   above 1, instead: fits at first, then at this factor of the last fit's observations, whenever asked for
    afresh   growth by this factor since the last fit that started from several places calls for another such fit
    key      name in the memo: observations at the last fit, and at the last one afresh
    """

    first: int = 1
    often: int = 0
    every: float = math.inf
    growth: float = math.inf
    afresh: float = math.inf
    key: str = "fitted_at"

    def check_due(self, memo: Memo, count: int) -> Fit:
        """What is due at `count` observations, given what the last decision left."""
        marks = memo.get(self.key, ())
        if math.isfinite(self.growth):
            count = self._round_down(count)
        if not marks or marks[0] == 0.0:
            is_due = count >= self.first
            return Fit(is_due, is_due, {self.key: [float(count)] * 2} if is_due else {})
        last, last_afresh = marks[0], marks[-1]
        if count >= self.afresh * last_afresh:
            return Fit(True, True, {self.key: [float(count)] * 2})
        is_due = count != last and (count <= self.often or count >= last + self.every or math.isfinite(self.growth))
        return Fit(is_due, False, {self.key: [float(count) if is_due else last, last_afresh]})

    def _round_down(self, count: int) -> int:
        """The number of observations at which the newest fit of a growing schedule is due; 0 before the first."""
        mark = 0
        while count >= (following := math.ceil(mark * self.growth) or self.first):  # up: a mark is above the last
            mark = following
        return mark
