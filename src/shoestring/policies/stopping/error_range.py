"""Losses as errors in [0, 1], which is what models of learning curves want.

Losses in [0, 1], and accuracies in [0, 1] that are maximised, are taken as they are. All others pass through a line that maps the
losses of the initial design, with a margin of 10 %, to [0, 1]; it is fixed once the design is complete. Losses beyond the
fence of `models.loss_scaling` do not stretch it. A policy's settings `low` and `high` overrule all this.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import PolicyError
from shoestring.models.loss_scaling import fit_scaling

_MARGIN = 0.1
RANGE_LEFT = "the best loss lies below the range of errors: no stopping"


class ErrorRange(NamedTuple):
    """The losses that stand for the errors 0 and 1."""

    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low

    def is_left_by(self, loss: float) -> bool:
        """Whether this loss would be an error below 0: nothing in the range could beat it."""
        return math.isfinite(loss) and loss <= self.low


def measure_range(ledger: Ledger) -> ErrorRange:
    """The range that all losses so far suggest."""
    width = max((len(trial.losses) for trial in ledger.trials), default=0)
    losses = np.full((len(ledger.trials), max(width, 1)), np.nan)
    for trial in ledger.trials:
        losses[trial.number, : len(trial.losses)] = [np.nan if loss is None else loss for loss in trial.losses]
    finite = losses[np.isfinite(losses)]
    if not finite.size:
        return ErrorRange(0.0, 1.0)
    for usual in (ErrorRange(0.0, 1.0), ErrorRange(-1.0, 0.0)):
        if usual.low <= finite.min() and finite.max() <= usual.high:
            return usual
    low = float(finite.min())
    high = float(min(finite.max(), fit_scaling(losses, ~np.isnan(losses)).fence))
    margin = _MARGIN * (high - low) or max(abs(low), 1.0)  # nothing but one value: any width will do
    return ErrorRange(low - margin, high + margin)


def pick_range(ledger: Ledger, low: float | None, high: float | None, fixed: ErrorRange | None) -> ErrorRange:
    """The user's range, or else the one `fixed` after the initial design, or else what the losses so far suggest."""
    if low is not None and high is not None:
        return ErrorRange(low, high)
    return fixed or measure_range(ledger)


def require_range(owner: object, low: float | None, high: float | None) -> None:
    """The rule of the settings `low` and `high`."""
    if (low is None) != (high is None):
        raise PolicyError(
            f"{type(owner).__name__}(low={low!r}, high={high!r}) go together: give both bounds or neither."
        )
    if low is not None and high is not None and not -math.inf < low < high < math.inf:
        raise PolicyError(
            f"{type(owner).__name__}(low={low!r}, high={high!r}) must be two finite losses, the lower first: they stand for "
            "the errors 0 and 1. For accuracies that are maximised give their negatives, low=-1 and high=0."
        )
