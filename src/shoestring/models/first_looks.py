"""How good trials look after few steps, as scores that a model can predict from their configurations.

Losses at different steps cannot be compared, and their scale changes from task to task, so only their order is used.

    here        meaning                                                                               unit
    look        newest loss of a trial up to step 1, 2, 4, …; a diverged or failed trial has inf      loss
    place       share of trials that are ahead of a trial, plus half of its own                       0 to 1
    score       normal quantile of the place: 0 is the middle, -2 is ahead of 98 % of the trials      standard deviations
    agreement   share of the pairs of trials that are in the same order at the first look and later   0 to 1

Places are assigned by the first loss of every trial. Then, for steps 2, 4, 8, …, the trials that went that far exchange the
places that they hold among themselves, so that their order is that of their losses there. So every trial is compared with each
other trial at about the furthest step that both have reached. Equal losses share the mean of their places.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from shoestring.core.values.arrays import Floats

Curve = Sequence[float | None]  # losses by step; None where a step was not validated
_LATER = 8  # times the steps of the first look: from there on an order counts as later
_MOST_COMPARED = 64  # trials whose order is compared, the newest
_PRIOR_PAIRS, _PRIOR_AGREEMENT = 10.0, 0.6  # as if so many pairs had been seen: the mean agreement in recorded tables


def place_trials(losses: Sequence[Curve]) -> Floats:
    """Return the place of each trial, (n,), from its losses by step; each trial must have at least one loss."""
    places = _assign(np.arange(0.5, len(losses)), np.array([_first(curve) for curve in losses]))
    step = 2
    while len(rows := [i for i, curve in enumerate(losses) if len(curve) >= step]) > 1:
        # A trial that was not validated by then keeps its place.
        rows = [i for i in rows if any(loss is not None for loss in losses[i][:step])]
        places[rows] = _assign(places[rows], np.array([_newest(losses[i][:step]) for i in rows]))
        step *= 2
    return places / len(losses)


def score_places(places: Floats) -> Floats:
    """Return the scores of places, any shape; every place must lie strictly between 0 and 1."""
    return np.asarray(ndtri(places))


def measure_agreement(losses: Sequence[Curve]) -> float:
    """Return the share of the pairs of trials whose order at the first look is their order much later, 0 to 1.

    The first look is at the last step that all trials have reached. "Later" is at least eight times as many steps. Two trials
    are compared at about the furthest step that both have reached. With few pairs the result is close to .6.
    """
    first = max(1, min(map(len, losses), default=1))
    late = [
        curve for curve in losses if len(curve) >= _LATER * first and any(loss is not None for loss in curve[:first])
    ]
    late = late[-_MOST_COMPARED:]
    at_first = np.array([_newest(curve[:first]) for curve in late])
    agreed, pairs, step = _PRIOR_PAIRS * _PRIOR_AGREEMENT, _PRIOR_PAIRS, _LATER * first
    while len(rows := np.flatnonzero([len(curve) >= step for curve in late])) > 1:
        later = np.array([_newest(late[i][:step]) for i in rows])
        ends_here = np.array([len(late[i]) < 2 * step for i in rows])
        both = np.sign(np.subtract.outer(later, later)) * np.sign(np.subtract.outer(at_first[rows], at_first[rows]))
        counted = np.triu(ends_here[:, None] | ends_here, 1) & (both != 0.0)
        agreed += float((both[counted] > 0.0).sum())
        pairs += float(counted.sum())
        step *= 2
    return agreed / pairs


def _first(losses: Curve) -> float:
    return next(loss for loss in losses if loss is not None)


def _newest(losses: Curve) -> float:
    return next(loss for loss in reversed(losses) if loss is not None)


def _assign(places: Floats, losses: Floats) -> Floats:
    """Return the same places, (m,), assigned again: the lowest loss gets the first place, equal losses the mean of theirs."""
    _, group, sizes = np.unique(losses, return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes)
    sums = np.concatenate([[0.0], np.cumsum(np.sort(places))])
    return np.asarray(((sums[ends] - sums[ends - sizes]) / sizes)[group])
