"""Sums that forget nothing: a float as a whole number of the smallest float there is.

A sum that is kept for years, with every part added once and taken away once, must not drift; kept in whole numbers it is what
adding all parts afresh would give, rounded once.

What nine steps in ten did not exceed, known at any time, in a few comparisons for each further step.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

_BITS = 1074  # the smallest float above 0 is 2**-1074
_ONE = 1 << _BITS


def to_exact(number: float) -> int:
    """A finite float in units of 2**-1074: exact for every one of them."""
    above, below = number.as_integer_ratio()  # below is a power of two
    return above << (_BITS + 1 - below.bit_length())


def to_float(units: int) -> float:
    """The float next to so many units."""
    return units / _ONE


_SHARE = 0.9  # one step in ten may cost more: the wall catches those


def upper_quantile(ascending: Sequence[float]) -> float:
    """The smallest cost that at least 90 % of the steps did not exceed; 0 when there are none."""
    return ascending[math.ceil(_SHARE * len(ascending)) - 1] if ascending else 0.0


class StepTimes:
    """Seconds of all finished steps in two heaps: the lower nine tenths and the rest, so that nothing is ever sorted again."""

    __slots__ = ("_high", "_low")

    def __init__(self, seconds: Iterable[float] = ()) -> None:
        ascending = sorted(seconds)
        below = math.ceil(_SHARE * len(ascending))
        self._low = [-cost for cost in reversed(ascending[:below])]  # negated: the largest of them comes first
        self._high = ascending[below:]

    def __len__(self) -> int:
        return len(self._low) + len(self._high)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StepTimes) and self.ascending() == other.ascending()

    def __repr__(self) -> str:
        return f"StepTimes({self.ascending()})"

    __hash__ = None  # type: ignore[assignment]

    def add(self, seconds: float) -> None:
        below = math.ceil(_SHARE * (len(self) + 1))
        if below > len(self._low):
            heapq.heappush(self._low, -heapq.heappushpop(self._high, seconds))
        else:
            heapq.heappush(self._high, -heapq.heappushpop(self._low, -seconds))

    @property
    def most(self) -> float:
        """Their upper quantile."""
        return -self._low[0] if self._low else 0.0

    def ascending(self) -> list[float]:
        return sorted([*(-cost for cost in self._low), *self._high])
