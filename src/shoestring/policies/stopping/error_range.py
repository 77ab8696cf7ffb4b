"""Conversion of losses to errors in [0, 1], which the models of learning curves need.

Losses in [0, 1], and accuracies in [0, 1] that are maximised, are used as they are. All others are mapped by a line that takes
the losses of the initial design, with a margin of 10 %, to [0, 1]. The line is fixed once the initial design is complete. Losses
beyond the limit of `models.loss_scaling` do not widen it. The settings `low` and `high` of a policy have priority.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoestring.errors import PolicyError
from shoestring.models.loss_scaling import fit_scaling
from shoestring.policy import Ledger

_MARGIN = 0.1  # share of the range of losses that is added at both ends
BELOW_RANGE = "the best loss is below the range of errors: no stopping"


class ErrorRange(NamedTuple):
    """The losses that correspond to the errors 0 and 1."""

    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


def is_below_range(loss: float, bounds: ErrorRange) -> bool:
    """Return whether this loss is an error of at most 0, so that no trial within the bounds could be better."""
    return math.isfinite(loss) and loss <= bounds.low


def measure_range(ledger: Ledger) -> ErrorRange:
    """Return the range for all losses so far."""
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
    margin = _MARGIN * (high - low) or max(abs(low), 1.0)  # a single value: any width will do
    return ErrorRange(low - margin, high + margin)


def pick_range(ledger: Ledger, low: float | None, high: float | None, fixed: ErrorRange | None) -> ErrorRange:
    """Return the user's range, else the one `fixed` after the initial design, else the range for the losses so far."""
    if low is not None and high is not None:
        return ErrorRange(low, high)
    return fixed or measure_range(ledger)


def require_range(owner: object, low: float | None, high: float | None) -> None:
    """Raise PolicyError unless the settings `low` and `high` are both missing or form a range."""
    name = getattr(owner, "name", type(owner).__name__)
    if (low is None) != (high is None):
        raise PolicyError(f"{name}(low={low!r}, high={high!r}) must be given together: set both bounds or neither.")
    if low is not None and high is not None and not -math.inf < low < high < math.inf:
        raise PolicyError(
            f"{name}(low={low!r}, high={high!r}) must be two finite losses, the lower first: they correspond "
            "to the errors 0 and 1. For accuracies that are maximised set their negatives, low=-1 and high=0."
        )
