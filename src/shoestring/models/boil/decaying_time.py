"""The time kernel of freeze-thaw optimisation in a product with SE kernels on the hyperparameters: an ablation of BOIL.

Swersky, Snoek, Adams, "Freeze-Thaw Bayesian Optimization", arXiv:1406.3896, section 3.1; the paper on BOIL uses it in place of
its own time kernel in appendix B.5.

    paper     here     meaning                                                                     unit
    t         time     last column of z, in [0, 1]                                                 full trainings
    beta      BETA     1                                                                           full trainings
    alpha     —        1 / st^2, so that st is the length-scale of time at the start of training    —
    u         _warp    ln(t + beta / 2)                                                            —

    k(t, t') = (beta / (t + t' + beta))^alpha, over the root of k(t, t) k(t', t'),
             = sech((u - u') / 2)^alpha = exp(-D / (2 st^2)) with D = 2 ln cosh((u - u') / 2)

so it is an SE kernel whose squared difference along time is D. The later two times are, the more similar they are.

Differences from the paper: the kernel is scaled to variance 1 everywhere, as the rest of the model expects; beta is not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from shoestring.core.values.arrays import Floats
from shoestring.models.gp.kernels import Kernel, Pairs

BETA = 1.0


@dataclass(frozen=True)
class DecayingTime(Kernel):
    """exp(-|x - x'|^2 / (2 sx^2)) with a length-scale per column, times the time kernel on the last column."""

    @classmethod
    def of(cls, n_dims: int) -> Self:
        return cls(Kernel.ard("se", n_dims).blocks)

    def pairs(self, x: Floats) -> Pairs:
        pairs = super().pairs(x)
        half = 0.5 * (_warp(x[pairs.rows, -1]) - _warp(x[pairs.cols, -1]))
        pairs.squared[-1] = _difference(half)
        return pairs

    def matrix(self, theta: Floats, x: Floats, z: Floats) -> Floats:
        difference = _difference(0.5 * (_warp(x[:, -1, None]) - _warp(z[None, :, -1])))
        along = np.exp(-0.5 * difference * np.exp(-2.0 * theta[-1]))
        return np.asarray(super().matrix(theta, _at_time_zero(x), _at_time_zero(z)) * along)

    def matrix_with_gradient(self, theta: Floats, x: Floats, z: Floats) -> tuple[Floats, Floats]:
        k, gradient = super().matrix_with_gradient(theta, _at_time_zero(x), _at_time_zero(z))
        half = 0.5 * (_warp(x[:, -1, None]) - _warp(z[None, :, -1]))
        inverse = float(np.exp(-2.0 * theta[-1]))
        along = np.exp(-0.5 * _difference(half) * inverse)
        k *= along
        gradient *= along[:, :, None]
        gradient[:, :, -1] = -0.5 * inverse * k * np.tanh(half) / (x[:, -1, None] + 0.5 * BETA)
        return k, gradient


def _warp(time: Floats) -> Floats:
    return np.log(time + 0.5 * BETA)


def _difference(half: Floats) -> Floats:
    """Return 2 ln cosh(half), without overflow."""
    size = np.abs(half)
    return np.asarray(2.0 * (size + np.log1p(np.exp(-2.0 * size)) - np.log(2.0)))


def _at_time_zero(x: Floats) -> Floats:
    """Return the points with time 0, so that time does not contribute to the distances between them."""
    at_zero = x.copy()
    at_zero[:, -1] = 0.0
    return at_zero
