"""Covariance functions: a signal variance times a product of stationary kernels, each on its own block of dimensions.

Rasmussen and Williams, "Gaussian Processes for Machine Learning", MIT Press 2006, eqs. (4.9), (4.17), (5.1); the Matérn 5/2
with one length-scale per dimension is the kernel of Guinet et al., arXiv:2011.11456, appendix A.

    symbol   here              meaning                                                              unit
    s^2      exp(theta[0])     signal variance, k(x, x)                                             output squared
    l_j      exp(theta[1:])    length-scales, block after block, in the order of `Block.dims`       input
    D_j      Pairs.squared     (x_j - x'_j)^2; for a category 1 where x_j differs from x'_j, else 0  input squared
    R        squared_distance  sum of D_j / l_j^2 over the block
    rho      slope             -2 k'(R) / k(R), finite and positive for every R >= 0

    se, hamming  exp(-R/2)                          rho = 1
    matern32     (1 + a) exp(-a),         a^2 = 3R  rho = 3 / (1 + a)
    matern52     (1 + a + a^2/3) exp(-a), a^2 = 5R  rho = 5/3 (1 + a) / (1 + a + a^2/3)

All gradients are k * rho * D_j / l_j^2 (for log l_j) and -k * rho * (x_j - x'_j) / l_j^2 (for x_j). Written with the ratio
rho instead of k' they need no division by r, so coinciding points need no special case, and a product of blocks needs no
product rule.

Categories use the Hamming kernel: one column and one length-scale per category, whatever its number of values. It equals the
SE kernel on a one-hot code (scaled by 1/sqrt 2) whose columns share one length-scale. A one-hot code with one length-scale
per column would have dozens of parameters, and a handful of trials cannot determine them.

Differences from the sources: blocks are stationary only. `decay_kernel` is the covariance of learning curves, for the models of
curves; the form that is scaled to variance 1 is in `models.boil.decaying_time`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
from scipy.spatial.distance import cdist

from shoestring.core.space.encoding import Encoding
from shoestring.core.values.arrays import Floats, Indices

Family = Literal["se", "matern32", "matern52", "hamming"]


@dataclass(frozen=True, slots=True)
class Block:
    """One factor of the product: a kernel family on some columns; if `tied`, they share one length-scale."""

    family: Family
    dims: tuple[int, ...]
    tied: bool = False

    @property
    def n_lengthscales(self) -> int:
        return 1 if self.tied else len(self.dims)


@dataclass(frozen=True, slots=True)
class Pairs:
    """The squared differences of all pairs i > j of n points, computed once and reused at every step of a fit."""

    rows: Indices  # (m,), m = n (n - 1) / 2
    cols: Indices  # (m,)
    squared: Floats  # (d, m)


@dataclass(frozen=True)
class Kernel:
    """k(x, x') = s^2 * product over blocks; `theta` = (log s^2, log length-scales block after block)."""

    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        dims = sorted(j for block in self.blocks for j in block.dims)
        if not dims or dims != list(range(len(dims))):
            raise ValueError(f"kernel blocks cover the dimensions {dims}: each of 0..d-1 must be in exactly one block.")
        known = get_args(Family)
        for block in self.blocks:
            if block.family not in known:
                raise ValueError(f"kernel family {block.family!r} is unknown: use one of {', '.join(known)}.")

    @classmethod
    def ard(cls, family: Family, n_dims: int) -> Kernel:
        """Return a kernel of one block over all dimensions, with one length-scale each."""
        return cls((Block(family, tuple(range(n_dims))),))

    @cached_property
    def n_dims(self) -> int:
        return sum(len(block.dims) for block in self.blocks)

    @cached_property
    def n_parameters(self) -> int:
        return 1 + sum(block.n_lengthscales for block in self.blocks)

    @cached_property
    def _slices(self) -> tuple[slice, ...]:
        """The place of each block's log length-scales in theta."""
        ends = np.cumsum([1] + [block.n_lengthscales for block in self.blocks])
        return tuple(slice(int(a), int(b)) for a, b in pairwise(ends))

    def _scaled_blocks(self, theta: Floats) -> Iterator[tuple[Block, slice, Floats]]:
        """Yield each block with its place in theta and 1 / l_j^2 for each of its dimensions, (len(dims),)."""
        for block, where in zip(self.blocks, self._slices, strict=True):
            yield block, where, np.broadcast_to(np.exp(-2.0 * theta[where]), len(block.dims))

    def pairs(self, x: Floats) -> Pairs:
        """Return the squared differences of the points x, (n, d)."""
        rows, cols = np.tril_indices(x.shape[0], -1)
        squared = np.empty((self.n_dims, rows.size))
        for block in self.blocks:
            for j in block.dims:
                difference = x[rows, j] - x[cols, j]
                squared[j] = difference != 0.0 if block.family == "hamming" else difference * difference
        return Pairs(rows, cols, squared)

    def pair_values(self, theta: Floats, pairs: Pairs) -> tuple[Floats, Callable[[Floats], Floats]]:
        """Return k for every pair, (m,), and a function from v, (m,), to the sum over pairs of v dk/dtheta, (n_parameters,)."""
        k = np.full(pairs.rows.size, np.exp(theta[0]))  # (m,)
        factors: list[tuple[Block, slice, Floats, Floats | None]] = []
        for block, where, inverse in self._scaled_blocks(theta):
            value, slope = _profile(block.family, inverse @ _columns(pairs.squared, block.dims), with_slope=True)
            k *= value
            factors.append((block, where, inverse, slope))

        def pullback(v: Floats) -> Floats:
            weighted = v * k  # (m,)
            gradient = np.empty(self.n_parameters)
            gradient[0] = weighted.sum()
            for block, where, inverse, slope in factors:
                along = weighted if slope is None else weighted * slope
                per_dim = (_columns(pairs.squared, block.dims) @ along) * inverse  # (len(dims),)
                gradient[where] = per_dim.sum() if block.tied else per_dim
            return gradient

        return k, pullback

    def matrix(self, theta: Floats, x: Floats, z: Floats) -> Floats:
        """Return the covariances (n, m) between the points x, (n, d), and z, (m, d)."""
        return self._matrix_and_slopes(theta, x, z, with_slopes=False)[0]

    def diag(self, theta: Floats, n: int) -> Floats:
        """Return k(x, x) at n points: the signal variance everywhere, since the kernel is stationary."""
        return np.full(n, np.exp(theta[0]))

    def matrix_with_gradient(self, theta: Floats, x: Floats, z: Floats) -> tuple[Floats, Floats]:
        """Return the covariances (n, m) of x with z and their derivatives with respect to x, (n, m, d), 0 along categories."""
        k, slopes = self._matrix_and_slopes(theta, x, z, with_slopes=True)
        gradient = np.zeros((x.shape[0], z.shape[0], self.n_dims))
        for (block, _, inverse), slope in zip(self._scaled_blocks(theta), slopes, strict=True):
            if block.family == "hamming":
                continue
            along = k if slope is None else k * slope
            dims = list(block.dims)
            difference = x[:, None, dims] - z[None, :, dims]  # (n, m, len(dims))
            gradient[:, :, dims] = -along[:, :, None] * difference * inverse
        return k, gradient

    def _matrix_and_slopes(
        self, theta: Floats, x: Floats, z: Floats, *, with_slopes: bool
    ) -> tuple[Floats, list[Floats | None]]:
        slopes: list[Floats | None] = []
        k: Floats | None = None
        for block, _, inverse in self._scaled_blocks(theta):
            if block.family == "hamming":
                squared = np.zeros((x.shape[0], z.shape[0]))
                for j, weight in zip(block.dims, inverse, strict=True):
                    squared += weight * (x[:, j, None] != z[None, :, j])
            else:
                # Differences first, squares second: expanding (a - b)^2 would lose half the digits of close points.
                root = np.sqrt(inverse)
                squared = cdist(x[:, list(block.dims)] * root, z[:, list(block.dims)] * root, "sqeuclidean")
            value, slope = _profile(block.family, squared, with_slope=with_slopes)
            k = value if k is None else k * value
            slopes.append(slope)
        assert k is not None
        k *= np.exp(theta[0])
        return k, slopes


def decay_kernel(time_sum: Floats, alpha: float | Floats, beta: float | Floats) -> Floats:
    """Return (beta / (t + t' + beta))^alpha for `time_sum` = t + t', any shape: the covariance of decaying exponentials.

    Swersky, Snoek, Adams, "Freeze-Thaw Bayesian Optimization", arXiv:1406.3896, section 3.1. Decay rates have a Gamma
    distribution of shape alpha and rate beta, and are integrated out.
    """
    with np.errstate(under="ignore"):  # far along a steep curve the covariance is 0, which is right
        return np.asarray(np.exp(-alpha * np.log1p(time_sum / beta)))


def kernel_for(encoding: Encoding, family: Family = "matern52", *, tied: bool = False) -> Kernel:
    """Return a kernel for the columns of `encoding.features`: `family` on numbers, Hamming on options.

    It is positive definite on distinct configurations. Each column has its own length-scale, and activities count as numbers.
    If `tied`, all numbers share one length-scale, and all options and activities share another.
    """
    numbers, switches, options = encoding.number_columns, encoding.activity_columns, encoding.option_columns
    numbers, options = (numbers, (*switches, *options)) if tied else ((*numbers, *switches), options)
    blocks = (Block(family, numbers, tied=tied), Block("hamming", options, tied=tied))
    return Kernel(tuple(block for block in blocks if block.dims))


def _columns(squared: Floats, dims: tuple[int, ...]) -> Floats:
    """Return the block's rows of `squared`: a view, not a copy, in the usual case of neighbouring dimensions."""
    if all(b - a == 1 for a, b in pairwise(dims)):
        return squared[dims[0] : dims[-1] + 1]
    return squared[list(dims)]


def _profile(family: Family, squared_distance: Floats, *, with_slope: bool) -> tuple[Floats, Floats | None]:
    """Return the correlation at R and, if `with_slope`, rho there; None means rho = 1."""
    if family in ("se", "hamming"):
        return np.exp(-0.5 * squared_distance), None
    if family == "matern32":
        a = np.sqrt(3.0 * squared_distance)
        polynomial = 1.0 + a
        slope = 3.0 / polynomial if with_slope else None
    else:
        a = np.sqrt(5.0 * squared_distance)
        polynomial = 1.0 + a
        polynomial += (5.0 / 3.0) * squared_distance
        slope = (5.0 / 3.0) * (1.0 + a) / polynomial if with_slope else None
    # In place from here: at thousands of candidates memory traffic, not arithmetic, sets the time.
    np.negative(a, out=a)
    np.exp(a, out=a)
    polynomial *= a
    return polynomial, slope
