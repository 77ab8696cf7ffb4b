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
search that ends one step earlier ends elsewhere. They are rounded before they are used: see `core/settling.py`.

Losses that the training code reports are data, not scores: they are the same on every machine, and are compared exactly
(`exact=True`).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from shoestring.core.arrays import Flags, Floats, Indices

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
