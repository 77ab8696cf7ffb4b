"""Univariate slice sampling: draw from a density known up to a factor, one coordinate at a time, with nothing to tune.

Neal, "Slice Sampling", Annals of Statistics 31(3), 2003, arXiv:physics/0009028: stepping out (his Fig. 3), shrinkage (Fig. 5).

    paper   here             meaning                                                     unit
    w       widths           first width of the interval, by coordinate                  that coordinate's
    m       max_step_outs    most times the interval grows, both ends together           —
    y       level            log density of the slice: log f(x) minus an exponential     —

Departs from the paper: works with log densities; the interval is shrunk at most 100 times, then the point stays.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_MOST_SHRINKS = 100  # each halves the interval on average: past this it is one floating-point number wide


def slice_sweep(
    log_density: Callable[[Floats], float],
    position: Floats,
    log_value: float,
    widths: Floats,
    rng: np.random.Generator,
    max_step_outs: int = 10,
) -> tuple[Floats, float]:
    """Move every coordinate once, in order. Takes and returns a position (d,) with its finite log density."""
    if not np.isfinite(log_value):
        raise ValueError(
            f"log density {log_value} at the start: a chain must start where it is finite. Start elsewhere."
        )
    for axis in range(len(position)):
        position, log_value = _slice_axis(
            log_density, position, log_value, axis, float(widths[axis]), rng, max_step_outs
        )
    return position, log_value


def _slice_axis(
    log_density: Callable[[Floats], float],
    position: Floats,
    log_value: float,
    axis: int,
    width: float,
    rng: np.random.Generator,
    max_step_outs: int,
) -> tuple[Floats, float]:
    def moved(x: float) -> Floats:
        point = position.copy()
        point[axis] = x
        return point

    here = float(position[axis])
    level = log_value - rng.exponential()
    left = here - width * rng.random()
    right = left + width
    # the allowance is split between the ends before looking at either: else the move would not be reversible
    to_left = int(rng.integers(max_step_outs + 1))
    for _ in range(to_left):
        if log_density(moved(left)) <= level:
            break
        left -= width
    for _ in range(max_step_outs - to_left):
        if log_density(moved(right)) <= level:
            break
        right += width
    for _ in range(_MOST_SHRINKS):
        point = moved(left + (right - left) * rng.random())
        value = log_density(point)
        if value > level:
            return point, value
        if point[axis] < here:
            left = float(point[axis])
        else:
            right = float(point[axis])
    return position, log_value
