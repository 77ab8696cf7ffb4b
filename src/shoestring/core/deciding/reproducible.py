"""Choose among scores, so that every machine makes the same choice.

A score is the result of linear algebra. Its last digits depend on the processor, on the BLAS kernel that was picked for it
and on the number of threads. Two candidates that are equal on paper then differ by rounding, and a plain `argmax` lets the
rounding decide. So policies and models choose by the functions below, and by nothing else:

    equal       scores whose difference is at most the tolerance
    tolerance   `TOLERANCE` times the spread of the scores, plus `ROUNDING` times the size of the best
    order       of equal candidates the first is taken, in the order in which they are given

A score that is no number is the worst. The spread is the best minus the worst finite score. A caller that knows a better
unit passes it as `spread`: 1 for logarithms, where a difference of 1 is a factor of e, however far behind the last
candidate is.

What the tolerance has to cover was measured: every decision of 13 policies was repeated with the OpenBLAS kernels Prescott,
Nehalem, Sandybridge, Haswell, Zen and SkylakeX, with one and two threads (`python -m benchmarks portability`), and on a
second machine with other versions of Python, NumPy and SciPy. The scores of one decision differ by less than 1e-9 of their
spread. The numbers that an iterative search arrives at (parameters of a fit, the place of a maximum) differ by more, since a
search that ends one step earlier ends elsewhere. They are rounded before they are used: see `core/deciding/reproducible.py`.

Losses that the training code reports are data, not scores: they are the same on every machine, and are compared exactly
(`exact=True`).

Make what a search finds the same on every machine: go on to the minimum itself, then round.

An iterative search ends where its stopping rule says so, and rounding errors grow on the way there. So two machines end near
each other, not in one place. `polish` takes both to the minimum, `settle` removes the digits in which they still differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from shoestring.core.values.arrays import Flags, Floats, Indices

Best = Literal["highest", "lowest"]
TOLERANCE = 1e-8  # of the spread of the scores
ROUNDING = 1e-10  # of the best score: for scores whose spread is small beside their size, such as those of a flat curve
NAT = 1.0  # the spread of logarithms


def find_best(scores: Floats, best_is: Best, *, spread: float | None = None, exact: bool = False) -> int:
    """Return the index of the best of `scores`, (n,) with n >= 1; of equal ones the first."""
    return int(are_best(scores, best_is, spread=spread, exact=exact).argmax())


def find_best_of_rows(scores: Floats, best_is: Best, *, exact: bool = False) -> Indices:
    """Return the index of the best score of each row, (...,), for `scores` of shape (..., n)."""
    return np.asarray(are_best(scores, best_is, exact=exact).argmax(axis=-1))


def are_best(scores: Floats, best_is: Best, *, spread: float | None = None, exact: bool = False) -> Flags:
    """Return which scores are equal to the best of their row; same shape as `scores`, (..., n)."""
    heights = _to_heights(scores, best_is)
    best = heights.max(axis=-1, keepdims=True)
    if np.isnan(best).any():
        heights = np.where(np.isnan(heights), -np.inf, heights)
        best = heights.max(axis=-1, keepdims=True)
    if exact:
        return np.asarray(heights == best)
    return np.asarray(heights >= best - _measure_tolerance(heights, spread))


def sort_best_first(
    scores: Floats, best_is: Best, count: int | None = None, *, spread: float | None = None, exact: bool = False
) -> Indices:
    """Return the indices of the best `count` of `scores`, (n,), best first; all of them without a count.

    A score belongs to the group of the best one before it that is equal to it; a group is in the order that was given. So
    the first index is that of `find_best`.
    """
    heights = _to_heights(scores, best_is)
    order = (-heights).argsort(kind="stable")
    wanted = heights.size if count is None else min(count, heights.size)
    if exact or not heights.size:
        return np.asarray(order[:wanted])
    tolerance = float(_measure_tolerance(heights, spread)[0])
    falling = -heights[order]
    groups, begin = [], 0
    while begin < wanted:
        end = max(begin + 1, int(falling.searchsorted(falling[begin] + tolerance, side="right")))
        groups.append(np.sort(order[begin:end]))
        begin = end
    return np.concatenate([*groups, order[:0]])[:wanted]


def measure_tolerance(scores: Floats, best_is: Best, *, spread: float | None = None) -> float:
    """Return how far behind the best of `scores`, (n,), a score may be and still count as equal to it."""
    return float(_measure_tolerance(_to_heights(scores, best_is), spread)[0])


def reaches(number: float | Floats, limit: float | Floats, *, spread: float | Floats = 1.0) -> Flags:
    """Return whether each number is at least the limit; one that is equal to it, up to the tolerance, is.

    The rule of every threshold on computed numbers. `spread` is the unit of the numbers: 1 for probabilities and
    logarithms.
    """
    size = np.where(np.isfinite(limit), np.abs(limit), 0.0)
    unit = np.where(np.isfinite(spread), spread, 0.0)
    return np.asarray(number >= limit - (TOLERANCE * unit + ROUNDING * size))


def _to_heights(scores: Floats, best_is: Best) -> Floats:
    scores = np.asarray(scores, dtype=np.float64)
    return -scores if best_is == "lowest" else scores


def _measure_tolerance(heights: Floats, spread: float | None) -> Floats:
    """Return the tolerance of each row, (..., 1)."""
    finite = np.isfinite(heights)
    if finite.all():
        high, low = heights.max(axis=-1, keepdims=True), heights.min(axis=-1, keepdims=True)
    else:  # a candidate that is out has an infinite score
        high = np.where(finite, heights, -np.inf).max(axis=-1, keepdims=True)
        low = np.where(finite, heights, np.inf).min(axis=-1, keepdims=True)
        high, low = np.where(np.isfinite(high), high, 0.0), np.where(np.isfinite(low), low, 0.0)
    width = high - low if spread is None else np.full_like(high, spread)
    return np.asarray(TOLERANCE * width + ROUNDING * np.abs(high))


PLACE_DECIMALS = 4  # of a place in the unit cube that a search found: the ends of 570 searches differed by at most 2e-7
_FLAT = 1e-6  # a curvature below this cannot be told from rounding
_LONGEST_STEP = 0.5  # farther away a quadratic function is no guide


def settle(found: Floats, decimals: int) -> Floats:
    """Return the numbers that an iterative search found, each rounded to so many decimals.

    Only a number that lies at the edge between two decimals can still differ from machine to machine. The last decimal must
    be far above the difference between machines and far below what matters.
    """
    return np.round(found, decimals) + 0.0  # + 0.0 turns -0.0 into 0.0


def polish(
    point: Floats,
    gradient: Callable[[Floats], Floats],
    curvature: Callable[[Floats], Floats],
    lowest: Floats,
    highest: Floats,
    steps: int,
) -> Floats:
    """Return the minimum next to `point`, (n,), within the box from `lowest` to `highest`, after so many Newton steps.

    A search compares values, and within some 1e-4 of a minimum these change by less than their last digits. Newton's method
    looks for the place where the gradient is 0 instead, which is sharp. `gradient` returns (n,), `curvature` (n, n). The
    curvature may be rough: it decides how fast this converges, not where to. Scale the numbers so that the function changes by
    about 1 over a length of 1.
    """
    for _ in range(steps):
        slope = gradient(point)
        held = ((point <= lowest) & (slope > 0.0)) | ((point >= highest) & (slope < 0.0))
        free = np.flatnonzero(~held)
        bend = curvature(point)[np.ix_(free, free)]
        if not free.size or not (np.isfinite(bend).all() and np.isfinite(slope[free]).all()):
            break
        values, axes = np.linalg.eigh((bend + bend.T) / 2.0)
        # Along a direction that is as good as flat there is no minimum to go to.
        usable = values > _FLAT
        step = axes[:, usable] @ ((axes[:, usable].T @ slope[free]) / values[usable])
        if np.abs(step).max(initial=0.0) > _LONGEST_STEP:
            break
        point = point.copy()
        point[free] = np.clip(point[free] - step, lowest[free], highest[free])
    return point
