"""Running totals without accumulated rounding errors, and a running quantile of step costs.

`to_exact` and `to_float` are for a total to which every part is added once and from which it is subtracted once during a study.
The total is stored as a multiple of the smallest float, so it equals the exact sum of its parts, rounded only once.

`StepTimes` knows at any time the cost that 90 % of the steps do not exceed, and needs only a few comparisons for each new step.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

_BITS = 1074  # the smallest float above 0 is 2**-1074
_ONE = 1 << _BITS
_QUANTILE = 0.9  # one step in ten may cost more; at the budget limit such a step is cut off


def to_exact(number: float) -> int:
    """Return a finite float as a whole number of units of 2**-1074; this is exact for every float."""
    numerator, denominator = number.as_integer_ratio()  # the denominator is a power of two
    return numerator << (_BITS + 1 - denominator.bit_length())


def to_float(units: int) -> float:
    """Return the float that is nearest to `units` times 2**-1074."""
    return units / _ONE


def upper_quantile(ascending: Sequence[float]) -> float:
    """Return the smallest cost that at least 90 % of the steps did not exceed; 0 if there are no steps."""
    return ascending[math.ceil(_QUANTILE * len(ascending)) - 1] if ascending else 0.0


class StepTimes:
    """The seconds of all finished steps, in two heaps (the lower 90 % and the others), so that no step needs a new sort."""

    __slots__ = ("_high", "_low")

    def __init__(self, seconds: Iterable[float] = ()) -> None:
        ascending = sorted(seconds)
        n_low = math.ceil(_QUANTILE * len(ascending))
        self._low = [-cost for cost in reversed(ascending[:n_low])]  # negated: the largest of them comes first
        self._high = ascending[n_low:]

    def __len__(self) -> int:
        return len(self._low) + len(self._high)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StepTimes) and self.ascending() == other.ascending()

    def __repr__(self) -> str:
        return f"StepTimes({self.ascending()})"

    __hash__ = None  # type: ignore[assignment]

    def add(self, seconds: float) -> None:
        """Add the cost of one more step."""
        n_low = math.ceil(_QUANTILE * (len(self) + 1))
        if n_low > len(self._low):
            heapq.heappush(self._low, -heapq.heappushpop(self._high, seconds))
        else:
            heapq.heappush(self._high, -heapq.heappushpop(self._low, -seconds))

    @property
    def upper_quantile(self) -> float:
        """The cost that 90 % of the steps do not exceed; 0 if there are no steps."""
        return -self._low[0] if self._low else 0.0

    def ascending(self) -> list[float]:
        """Return all costs in ascending order."""
        return sorted([*(-cost for cost in self._low), *self._high])
