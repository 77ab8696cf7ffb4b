"""Where an online policy may act: the space as columns for a kernel, and as a list of points where it is finite.

Every parameter that varies is one column, numbers in the unit interval, options by their code; a conditional parameter
adds a column that says whether it is active, so that (0.5, 0) means "absent". Numbers share one stationary kernel, options
and activities a Hamming kernel. One length-scale serves all columns: `lengthscale` times the root of the number of
parameters, since distances in the cube grow with that root.

Competitors on a finite domain are the other local maxima. Along one number that is an interval; among options alone every
other point counts, as arms do; any other list of points uses each one's nearest neighbours with the same options.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from shoestring.core.parameters import Choice
from shoestring.core.space import Config, Space
from shoestring.models.gp.kernels import Block, Family, Kernel
from shoestring.models.online.query_rules import other_arms, other_maxima

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

ENUMERABLE = 2_000  # configs of a finite space up to this many are scored one by one; listed rows always are
_NEAR = 0.5  # in the cube: a point further away is no neighbour
_APART = 1e6  # puts points with other options further away than that, however many options there are


class Encoding:
    """From configs, or from points of the cube, to kernel columns."""

    def __init__(self, space: Space) -> None:
        self.space = space
        names = space.cube_names
        self.is_option = np.array([isinstance(space.parameters[name], Choice) for name in names], dtype=np.bool_)
        if space.rows is None:
            self.is_conditional = np.array([bool(space.parameters[name].when) for name in names], dtype=np.bool_)
        else:  # a listed row may simply lack a parameter
            self.is_conditional = np.array([any(name not in row for row in space.rows) for name in names], np.bool_)
        self.is_plain = not (self.is_option.any() or self.is_conditional.any())
        numbers = tuple(int(i) for i in np.flatnonzero(~self.is_option))
        options = (*(int(i) for i in np.flatnonzero(self.is_option)),)
        options += tuple(range(len(names), len(names) + int(self.is_conditional.sum())))
        self.numbers, self.options = (numbers, options) if names else ((0,), ())  # nothing varies: one column of zeros

    def columns(self, config: Config) -> Floats:
        """(n_columns,)"""
        return self._row(self.space.to_cube(config), config)

    def _row(self, u: Floats, config: Config) -> Floats:
        if not self.space.dims:
            return np.zeros(1)
        return np.concatenate([u, self.space.activity(config)[self.is_conditional]])

    def columns_of_cube(self, points: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Columns (m, n_columns) of points (m, d), and where a coordinate moves its column, (m, d)."""
        if self.is_plain:
            return points, np.ones(points.shape, dtype=np.bool_)
        rows, moves = [], []
        for u in points:
            config = self.space.from_cube(u)
            active = self.space.activity(config)
            moving = active & ~self.is_option
            rows.append(self._row(np.where(moving, u, self.space.to_cube(config)), config))
            moves.append(moving)
        width = len(self.numbers) + len(self.options)
        return np.array(rows).reshape(-1, width), np.array(moves, dtype=np.bool_).reshape(points.shape)

    def kernel(self, family: Family, lengthscale: float, variance: float) -> tuple[Kernel, Floats]:
        """The kernel over the columns and its parameters."""
        log_scale = math.log(lengthscale * math.sqrt(max(self.space.dims, 1)))
        blocks = []
        if self.numbers:
            blocks.append(Block(family, self.numbers, tied=True))
        if self.options:
            blocks.append(Block("hamming", self.options, tied=True))
        return Kernel(tuple(blocks)), np.array([math.log(variance)] + [log_scale] * len(blocks))


class CubeKernel:
    """The kernel as a function of points of the cube, with its gradient: what the continuous model asks for."""

    def __init__(self, encoding: Encoding, kernel: Kernel, theta: Floats) -> None:
        self._encoding, self._kernel, self._theta = encoding, kernel, theta
        self._seen: tuple[Floats, Floats] = (np.empty(0), np.empty(0))  # the observations' points and columns

    def __call__(self, x: Floats, z: Floats) -> tuple[Floats, Floats]:
        columns, moves = self._encoding.columns_of_cube(x)
        if self._seen[0] is not z:  # a search calls thousands of times with the same observations
            self._seen = (z, self._encoding.columns_of_cube(z)[0])
        k, gradient = self._kernel.matrix_with_gradient(self._theta, columns, self._seen[1])
        return k, gradient[:, :, : x.shape[1]] * moves[:, None, :]


@dataclass(frozen=True, slots=True)
class Points:
    """The configs of a finite space, in their order."""

    configs: Sequence[Config]
    columns: Floats  # (N, n_columns)
    index: dict[str, int]  # by the config's key
    along: Indices | None  # the order of the points along their one number
    place: Indices | None  # of each point in that order
    neighbours: Indices | None  # (N, k); a point that lacks neighbours is its own

    def rivals(self, height: Floats, chosen: int) -> Indices:
        """Competitors of `chosen` among all points, given the acquisition's height (N,) everywhere."""
        if self.along is not None and self.place is not None:
            return np.asarray(self.along[other_maxima(height[self.along], int(self.place[chosen]))])
        if self.neighbours is None:
            return other_arms(height.size, chosen)
        peaks = np.flatnonzero((height[:, None] >= height[self.neighbours]).all(axis=1))
        return np.asarray(peaks[peaks != chosen])


def is_finite(space: Space) -> bool:
    return space.rows is not None or space.size <= ENUMERABLE


def points_of(encoding: Encoding) -> Points:
    """All configs of a finite space."""
    space = encoding.space
    configs = list(space.rows) if space.rows is not None else list(space.grid(ENUMERABLE))
    columns = np.array([encoding.columns(config) for config in configs])  # (N, n_columns)
    index = {space.key(config): i for i, config in enumerate(configs)}
    varying = np.flatnonzero(np.ptp(columns, axis=0) > 0.0)
    numbers = [int(j) for j in varying if j in encoding.numbers]
    along = place = neighbours = None
    if numbers and len(varying) == 1:
        along = np.argsort(columns[:, numbers[0]], kind="stable")
        place = np.empty_like(along)
        place[along] = np.arange(along.size)
    elif numbers and len(configs) > 1:
        apart = columns.copy()
        apart[:, list(encoding.options)] *= _APART
        k = min(2 * len(numbers) + 1, len(configs))  # as many as a grid has, and the point itself
        distance, nearest = cKDTree(apart).query(apart, k=k)
        neighbours = np.where(distance <= _NEAR, nearest, np.arange(len(configs))[:, None])
    return Points(configs, columns, index, along, place, neighbours)
