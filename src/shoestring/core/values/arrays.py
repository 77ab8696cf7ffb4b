"""Types of arrays by what they hold (the comment beside each array gives its shape), and two functions for indices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]


def first_true(flags: Flags) -> Indices:
    """Return the index of the first true flag along the last axis, (...,), for flags (..., n); 0 where there is none."""
    return np.asarray(flags.argmax(axis=-1))


def invert(permutation: Indices) -> Indices:
    """Return the inverse of a permutation of 0, 1, … n - 1: at each index, the position at which the permutation has it."""
    places = np.empty_like(permutation)
    places[permutation] = np.arange(permutation.size)
    return places
