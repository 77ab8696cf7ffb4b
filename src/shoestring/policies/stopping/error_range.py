"""Losses as errors in [0, 1], which is what models of learning curves want.

Losses in [0, 1], and accuracies in [0, 1] that are maximised, are taken as they are. All others pass through a line that maps the
losses of the initial design, with a margin of 10 %, to [0, 1]; it is fixed once the design is complete. Losses beyond the
fence of `models.loss_scaling` do not stretch it.
"""

from __future__ import annotations

import math

import numpy as np

from shoestring.core.ledger import Ledger
from shoestring.errors import PolicyError
from shoestring.models.loss_scaling import scaling

_MARGIN = 0.1


def incumbent(ledger: Ledger, trial: int) -> float:
    """The best loss of all the other trials; inf if there is none."""
    return min((other.best_loss for other in ledger.trials if other.number != trial), default=math.inf)


def error_bounds(ledger: Ledger) -> tuple[float, float]:
    """The losses that stand for the errors 0 and 1."""
    width = max((len(trial.losses) for trial in ledger.trials), default=0)
    losses = np.full((len(ledger.trials), max(width, 1)), np.nan)
    for trial in ledger.trials:
        losses[trial.number, : len(trial.losses)] = [np.nan if loss is None else loss for loss in trial.losses]
    finite = losses[np.isfinite(losses)]
    if not finite.size:
        return 0.0, 1.0
    for low, high in ((0.0, 1.0), (-1.0, 0.0)):
        if low <= finite.min() and finite.max() <= high:
            return low, high
    low = float(finite.min())
    high = float(min(finite.max(), scaling(losses, ~np.isnan(losses)).fence))
    margin = _MARGIN * (high - low) or max(abs(low), 1.0)  # nothing but one value: any width will do
    return low - margin, high + margin


def given_bounds(owner: object, low: float | None, high: float | None) -> None:
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
