"""Make what a search finds the same on every machine: go on to the minimum itself, then round.

An iterative search ends where its stopping rule says so, and rounding errors grow on the way there. So two machines end near
each other, not in one place. `polish` takes both to the minimum, `settle` removes the digits in which they still differ.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shoestring.core.arrays import Floats

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
