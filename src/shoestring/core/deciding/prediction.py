"""What a policy believed when it placed an order: an optional third word of a policy, beside `name` and `decide`.

    def believe(self, ledger: Ledger, order: Order) -> Believed | None

`ledger` is the study as it was before `order`. What was fitted for the order is in `order.memo`, what it was chosen by in
`order.why`, so nothing needs to be fitted or chosen again. None: the order rests on no belief (a first design, a config of the
user's). Reports draw it; no decision is made with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config
from shoestring.core.values.arrays import Floats, Indices

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)  # of quantiles: the ends of the 90 % and of the 50 % interval, and the middle
MOST_CURVES = 6  # that a policy tells of: more than a reader compares
VALUE = "the value expected after each step"  # what a curve may be of: with its noise, as training code reports it
BEST_BY_THEN = "the best value expected by each step, of those to come"


@dataclass(frozen=True, slots=True, eq=False)
class BelievedCurve:
    """What was expected of one trial, or of a config that might have been opened."""

    trial: int | None  # None: a config that was not opened
    config: Config
    steps: Indices  # (n,), ascending
    quantiles: Floats  # (5, n): of the value at each step, at LEVELS

    @classmethod
    def of(
        cls,
        trial: int | None,
        config: Config,
        steps: Indices | Sequence[int],
        quantile: Callable[[float], Floats],
        sign: float,
    ) -> BelievedCurve:
        """`quantile`: from a level to losses (n,); `sign` makes values of them, as everywhere."""
        losses = np.array([quantile(level) for level in LEVELS])
        return cls(trial, config, np.asarray(steps, dtype=np.intp), losses if sign > 0.0 else -losses[::-1])


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """Candidates that were weighed by what they promise and what they cost."""

    gain: Floats  # (m,): expected improvement, in the unit of the values
    cost: Floats  # (m,): predicted, in the budget's unit
    front: Indices  # those that no other beats in both
    chosen: int
    runner_up: int | None
    least: float | None  # the smallest gain that was admitted, if there was such a rule
    config: Callable[[int], Config]


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """What was to be done with a run, by the step that it has come to and the mean of its values since the plan was made."""

    trial: int
    steps: Indices  # (n,), ascending
    edges: Floats  # (m + 1,), ascending: of the mean, in the unit of the values
    verdict: Indices  # (n, m): a place in VERDICTS, or -1 where too few simulated futures pass to tell
    means: Floats  # (k,), k <= n: of the run so far


VERDICTS = ("go on", "give up", "trust: train to the end")


@dataclass(frozen=True, slots=True, eq=False)
class Believed:
    """What a decision looked at; `curves` begin with the order's own, then come those it was preferred to."""

    curves: Sequence[BelievedCurve] = ()
    about: str = VALUE
    offers: Offers | None = None
    regions: Regions | None = None


@runtime_checkable
class Believing(Protocol):
    def believe(self, ledger: Ledger, order: Order) -> Believed | None: ...


def put_first(numbers: Sequence[int] | Indices, *wanted: int | None) -> list[int]:
    """At most MOST_CURVES of these numbers, each once, those wanted first."""
    first = [one for one in wanted if one is not None]
    return list(dict.fromkeys([*first, *(int(one) for one in numbers)]))[:MOST_CURVES]
