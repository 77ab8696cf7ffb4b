"""Choose and search so that every machine comes to the same result.

**Choosing among scores.** Policies and models choose only by these functions:

    find_best         the index of the best score (`find_best_of_rows`: one for each row of a matrix)
    sort_best_first   the indices of the best scores, the best first
    are_best          which scores are equal to the best
    reaches           whether a number is at least a limit

They treat two scores as equal if they differ by at most a tolerance: 1e-8 (`TOLERANCE`) of the spread of the scores, plus 1e-10
(`ROUNDING`) of the size of the best score. Among equal candidates, the one that is given first is chosen. A score that is NaN
is the worst. The spread is the difference between the best and the worst finite score. A caller that knows a better unit passes
it as `spread`: 1 for logarithms, where a difference of 1 is a factor of e, however bad the worst candidate is.

The reason: a score is the result of linear algebra. Its last digits depend on the processor, on the BLAS kernel that is used on
it and on the number of threads. Two candidates that are equal in theory then differ by rounding, and a plain `argmax` lets the
rounding decide.

The size of these differences was measured: every decision of 13 policies was repeated with the OpenBLAS kernels Prescott,
Nehalem, Sandybridge, Haswell, Zen and SkylakeX, with one and two threads (`python -m benchmarks portability`), and on a
second machine with other versions of Python, NumPy and SciPy. The scores of one decision differ by less than 1e-9 of their
spread. The results of an iterative search (parameters of a fit, the location of a maximum) differ by more, so they are refined
and rounded as described below.

Losses that the training code reported are not computed again. Recorded losses are read from the ledger, so every machine that
reads it sees the same numbers. They are compared exactly (`exact=True`).

**Results of a search.** An iterative search stops where its stopping rule is satisfied, and rounding errors grow on the way. So
two machines end near each other, but not at the same point. `polish` moves both to the minimum, and `round_result` removes the
digits in which they still differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from shoestring.core.values.arrays import Flags, Floats, Indices

Best = Literal["highest", "lowest"]
TOLERANCE = 1e-8  # as a share of the spread of the scores
ROUNDING = 1e-10  # as a share of the best score, if the spread is small compared with the scores, as on a flat curve
LOG_SPREAD = 1.0  # the `spread` to pass for logarithms


def find_best(scores: Floats, best_is: Best, *, spread: float | None = None, exact: bool = False) -> int:
    """Return the index of the best score. If several scores are equal to the best, it is the first of them.

    Scores are equal if they differ by at most 1e-8 of `spread` plus 1e-10 of the best score.

    Parameters
    ----------
    scores : array (n,)
        The scores, at least one.
    best_is : {"highest", "lowest"}
        Which score is the best.
    spread : float, optional
        The unit of the scores; 1 for logarithms. Without it, the best minus the worst finite score.
    exact : bool
        Compare without a tolerance: for recorded losses, which are the same on every machine.

    Returns
    -------
    int
        The index.
    """
    return int(are_best(scores, best_is, spread=spread, exact=exact).argmax())


def find_best_of_rows(scores: Floats, best_is: Best, *, exact: bool = False) -> Indices:
    """Return the index of the best score of each row, as `find_best` does for one row.

    Parameters
    ----------
    scores : array (..., n)
        The scores.
    best_is, exact
        As for `find_best`.

    Returns
    -------
    array of int (...,)
        The indices.
    """
    return np.asarray(are_best(scores, best_is, exact=exact).argmax(axis=-1))


def are_best(scores: Floats, best_is: Best, *, spread: float | None = None, exact: bool = False) -> Flags:
    """Return which scores are equal to the best of their row.

    Parameters
    ----------
    scores : array (..., n)
        The scores.
    best_is, spread, exact
        As for `find_best`.

    Returns
    -------
    array of bool (..., n)
        True for the scores that are equal to the best.
    """
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
    """Return the indices of the best scores, best first.

    Equal scores stay in the given order: the scores that are equal to the best come first, then those that are equal to the best
    of the rest, and so on. So the first index is the one that `find_best` returns.

    Parameters
    ----------
    scores : array (n,)
        The scores.
    best_is, spread, exact
        As for `find_best`.
    count : int, optional
        How many indices to return. Without it, all of them.

    Returns
    -------
    array of int
        The indices.
    """
    heights = _to_heights(scores, best_is)
    order = (-heights).argsort(kind="stable")
    wanted = heights.size if count is None else min(count, heights.size)
    if exact or not heights.size:
        return np.asarray(order[:wanted])
    tolerance = float(_measure_tolerance(heights, spread)[0])
    descending = -heights[order]
    groups, start = [], 0
    while start < wanted:
        end = max(start + 1, int(descending.searchsorted(descending[start] + tolerance, side="right")))
        groups.append(np.sort(order[start:end]))
        start = end
    return np.concatenate([*groups, order[:0]])[:wanted]


def measure_tolerance(scores: Floats, best_is: Best, *, spread: float | None = None) -> float:
    """Return the largest difference from the best of `scores`, (n,), that still counts as equal."""
    return float(_measure_tolerance(_to_heights(scores, best_is), spread)[0])


def reaches(number: float | Floats, limit: float | Floats, *, spread: float | Floats = 1.0) -> Flags:
    """Return whether each number is at least the limit, or below it by no more than the tolerance.

    The tolerance is 1e-8 of `spread` plus 1e-10 of the limit. Use this function for every limit on computed numbers.

    Parameters
    ----------
    number : float or array
        The numbers.
    limit : float or array
        The limits.
    spread : float or array
        The unit of the numbers: 1 for probabilities and logarithms.

    Returns
    -------
    array of bool
        Whether the limit is reached.
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
    else:  # an excluded candidate has an infinite score
        high = np.where(finite, heights, -np.inf).max(axis=-1, keepdims=True)
        low = np.where(finite, heights, np.inf).min(axis=-1, keepdims=True)
        high, low = np.where(np.isfinite(high), high, 0.0), np.where(np.isfinite(low), low, 0.0)
    width = high - low if spread is None else np.full_like(high, spread)
    return np.asarray(TOLERANCE * width + ROUNDING * np.abs(high))


# Decimals of a point in the unit cube that a search found: the results of 570 searches differed by at most 2e-7.
PLACE_DECIMALS = 4
_FLAT = 1e-6  # a smaller curvature cannot be distinguished from rounding errors
_LONGEST_STEP = 0.5  # beyond this distance the quadratic approximation is not valid


def round_result(found: Floats, decimals: int) -> Floats:
    """Return the numbers that an iterative search found, each rounded to this many decimals.

    After this, two machines differ only if a number lies almost exactly between two rounded numbers. Choose `decimals` so that
    the last decimal is far larger than the differences between machines, and far smaller than the differences that matter.

    Parameters
    ----------
    found : array
        The numbers.
    decimals : int
        Decimals to keep.

    Returns
    -------
    array
        The rounded numbers.
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
    """Return the minimum next to `point`, (n,), within the box from `lowest` to `highest`, after `steps` Newton steps.

    A search compares values of the function, and within about 1e-4 of a minimum these differ only by rounding. Newton's method
    looks for the zero of the gradient instead, which can be found more exactly. `gradient` returns (n,), `curvature` (n, n). The
    curvature may be approximate: it changes how fast this converges, not where. Scale the parameters so that the function
    changes by about 1 over a length of 1.
    """
    for _ in range(steps):
        slope = gradient(point)
        at_bound = ((point <= lowest) & (slope > 0.0)) | ((point >= highest) & (slope < 0.0))
        free = np.flatnonzero(~at_bound)
        bend = curvature(point)[np.ix_(free, free)]
        if not free.size or not (np.isfinite(bend).all() and np.isfinite(slope[free]).all()):
            break
        values, axes = np.linalg.eigh((bend + bend.T) / 2.0)
        # A direction in which the function is nearly flat has no minimum to move to.
        usable = values > _FLAT
        step = axes[:, usable] @ ((axes[:, usable].T @ slope[free]) / values[usable])
        if np.abs(step).max(initial=0.0) > _LONGEST_STEP:
            break
        point = point.copy()
        point[free] = np.clip(point[free] - step, lowest[free], highest[free])
    return point
