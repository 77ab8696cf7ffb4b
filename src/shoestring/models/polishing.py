"""Finish the search for a minimum: a search stops near it, in another place on another machine; this goes on to it.

A search compares values, and these change by less than their last digits within some 1e-4 of a minimum. Newton's method
looks for the place where the gradient is 0 instead, which is sharp. The second derivatives may be rough: they decide how fast
it converges, not where to.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shoestring.core.arrays import Floats

_FLAT = 1e-6  # a curvature below this is not told from rounding
_LONGEST_STEP = 0.5  # farther away a quadratic is no guide


def polish(
    point: Floats,
    gradient: Callable[[Floats], Floats],
    curvature: Callable[[Floats], Floats],
    lowest: Floats,
    highest: Floats,
    steps: int,
) -> Floats:
    """Return the minimum next to `point`, (n,), within the box from `lowest` to `highest`, after so many Newton steps.

    `gradient` has shape (n,), `curvature` (n, n). The function should change by about 1 over a length of 1.
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
