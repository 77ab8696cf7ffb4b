"""A cheap start: configs that fill the space and cost little, bought before any model of the objective is asked.

Lee, Perrone, Archambeau and Seeger, "Cost-aware Bayesian Optimization", arXiv:2003.10870 (CArBO), section 4.1.

Departs from the paper, which describes the elimination in words: of a set of random candidates the costliest and the one
closest to a trial are dropped in turn, until one is left.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

Array = NDArray[np.float64]


def cheap_and_far(x: Array, tried: Array, log_cost: Array) -> int:
    """Index of the last candidate left; x (m, d), m >= 1, tried (n, d), n >= 1, log_cost (m,). The costliest goes first."""
    apart = cdist(x, tried).min(axis=1)  # (m,)
    first_out = (np.argsort(-log_cost, kind="stable"), np.argsort(apart, kind="stable"))
    gone = np.zeros(x.shape[0], dtype=bool)
    place = [0, 0]  # how far each of the two lists was read
    for turn in range(x.shape[0] - 1):
        side = turn % 2
        while gone[first_out[side][place[side]]]:
            place[side] += 1
        gone[first_out[side][place[side]]] = True
    return int(np.flatnonzero(~gone)[0])
