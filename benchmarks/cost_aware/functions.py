"""Three functions with known optima, on the unit cube and as spaces: Branin, Hartmann in six dimensions, and a mixed table.

The table is Hartmann's function on a grid of 4 x 3 x 8 x 6 x 10 x 10 = 57,600 configurations. Its first two parameters are
categories in shuffled order, the others are integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Config, Space

Array = NDArray[np.float64]

_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)
_WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
_SHUFFLED = ((2, 0, 3, 1), (1, 2, 0))


def hartmann6(u: Array) -> float:
    return float(-_WEIGHTS @ np.exp(-np.sum(_A * (u - _P) ** 2, axis=1)))


def branin(u: Array) -> float:
    x, y = 15 * u[0] - 5, 15 * u[1]
    return float(
        (y - 5.1 / (4 * np.pi**2) * x * x + 5 / np.pi * x - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10
    )


@dataclass(frozen=True)
class Function:
    """A function `of` a point of the cube.

    `levels` has the number of values of each dimension (0: continuous). The first `n_categories` dimensions are categories.
    """

    of: Callable[[Array], float]
    levels: tuple[int, ...]
    n_categories: int = 0

    @cached_property
    def space(self) -> Space:
        def parameter(j: int, n: int) -> Float | Int | Choice:
            if j < self.n_categories:
                return Choice([f"{k}" for k in range(n)])
            return Int(0, n - 1) if n else Float(0.0, 1.0)

        return Space({f"x{j}": parameter(j, n) for j, n in enumerate(self.levels)})

    def at(self, config: Config) -> Array:
        """Return the point of a configuration in the cube; a value is at the centre of its cell."""
        return self.space.to_cube(config)


def mixed(u: Array) -> float:
    shuffled = u.copy()
    for j, order in enumerate(_SHUFFLED):
        shuffled[j] = (order[min(int(u[j] * len(order)), len(order) - 1)] + 0.5) / len(order)
    return hartmann6(shuffled)


BRANIN, HARTMANN6 = Function(branin, (0, 0)), Function(hartmann6, (0,) * 6)
MIXED = Function(mixed, (4, 3, 8, 6, 10, 10), n_categories=2)


FUNCTIONS = {"branin": BRANIN, "hartmann6": HARTMANN6, "mixed table": MIXED}


@cache
def optimum(name: str) -> float:
    """Return the lowest value; for the table, by evaluating all of it."""
    if name != "mixed table":
        return {"branin": 0.39788735772973816, "hartmann6": -3.322368011391339}[name]
    grid = np.array(list(product(*[(np.arange(n) + 0.5) / n for n in MIXED.levels])))  # (57600, 6)
    # the order of the categories does not change the minimum
    exponents = np.stack([np.sum(a * (grid - p) ** 2, axis=1) for a, p in zip(_A, _P, strict=True)])
    return float((-_WEIGHTS @ np.exp(-exponents)).min())
