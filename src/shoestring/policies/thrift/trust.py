"""Is what the network says borne out by this study? A look back at its own record.

Every trial that was trained for two steps or more is put back to half its steps, and the network is asked how low it would
get by where it is now. The study is left to halving

    while the network orders them clearly worse than their losses at the half did
    while hardly any outcome lies within its 90 % interval

Without enough such trials the network is trusted: there is nothing against it yet. The look back is due by the number of
receipts; its verdict travels in the memo of the orders.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from shoestring.core.deciding.memo import Lists, Refits, pick
from shoestring.core.deciding.reproducible import reaches
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.arrays import Floats
from shoestring.models.thrift.belief import believe
from shoestring.models.thrift.features import Arms
from shoestring.models.thrift.network import Network
from shoestring.models.thrift.shapes import STEPS

FEWEST = 8  # trials that a verdict must rest on
_FEWEST_STEPS = 2  # of such a trial
_MARGIN = 0.2  # of rank correlation: as much worse than the order of losses may be luck
_MOST_OUTSIDE = 0.75  # of the 90 % intervals: with few trials half of them may be bad luck
_CHECKS = Refits(first=1, growth=1.2, key="trust_at")


@dataclass(frozen=True, slots=True)
class Record:
    """How forecasts made at half of each trial's steps turned out."""

    trials: int
    order: float = math.nan  # rank correlation of forecast and outcome
    order_by_loss: float = math.nan  # of the loss at the half and the outcome
    outside: float = math.nan  # share of outcomes outside the 90 % interval

    @property
    def is_good(self) -> bool:
        if self.trials < FEWEST:
            return True
        return bool(reaches(self.order, self.order_by_loss - _MARGIN) and self.outside <= _MOST_OUTSIDE)


def look_back(networks: tuple[Network, ...], arms: Arms) -> Record:
    far = np.flatnonzero(arms.n >= _FEWEST_STEPS)
    if len(far) < FEWEST:
        return Record(len(far))
    half = arms.n.copy()
    half[far] = (arms.n[far] + 1) // 2
    again = replace(arms, n=half, reach=arms.n - half, left=arms.left + float((arms.n - half).sum()))
    belief = believe(networks, again)
    step = np.arange(1, STEPS + 1)
    between = (step > half[far, None]) & (step <= arms.n[far, None])
    lowest = np.where(between, arms.losses[far], math.inf).min(axis=1)
    low, high = belief.quantile(0.05)[far], belief.quantile(0.95)[far]
    slack = 1e-9 + 0.02 * belief.scale.unit  # a bin is that wide near the best
    outside = (lowest < low - slack) | (lowest > high + slack)
    return Record(
        trials=len(far),
        order=rank_correlation(belief.middle[far], lowest),
        order_by_loss=rank_correlation(arms.losses[far, half[far] - 1], lowest),
        outside=float(outside.mean()),
    )


def rank_correlation(a: Floats, b: Floats) -> float:
    """Of Spearman, equal values at the mean of their ranks; 0 where one of them does not vary."""
    x, y = (_ranks(v) - (len(v) - 1) / 2 for v in (a, b))
    size = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / size if size > 0 else 0.0


def _ranks(values: Floats) -> Floats:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count) - 1
    return np.asarray((last - (count - 1) / 2)[place], dtype=float)


def check_trust(ledger: Ledger, networks: tuple[Network, ...], arms: Arms) -> tuple[bool, Lists]:
    """Whether the network is trusted now, and what the next memo says about it."""
    due = _CHECKS.check_due(ledger.memo, ledger.books.receipts)
    verdict = pick(ledger.memo, ["trust"])
    if due.is_due or not verdict:
        verdict = {"trust": [float(look_back(networks, arms).is_good)]}
    return verdict["trust"][0] > 0, {**due.marks, **verdict}
