"""The freeze-thaw time kernel against its formula, finite differences, and as part of BOIL's likelihood."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shoestring.models.boil.compression import CurveMatrix
from shoestring.models.boil.decaying_time import BETA, DecayingTime
from shoestring.models.boil.score_process import BOUNDS, ON_LOG_SCALE, CurveProcess, ProcessParameters, product_kernel

THETA = np.log([1.3, 0.4, 0.7, 0.5])  # signal variance, two columns of x, time


def points(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).random((n, 3))


def test_the_kernel_is_that_of_freeze_thaw_scaled_to_one() -> None:
    x, z = points(0, 6), points(1, 4)
    alpha = np.exp(-2.0 * THETA[-1])

    def raw(t: np.ndarray, u: np.ndarray) -> np.ndarray:
        return np.asarray((BETA / (t + u + BETA)) ** alpha)

    t, u = x[:, -1, None], z[None, :, -1]
    time = raw(t, u) / np.sqrt(raw(t, t) * raw(u, u))
    space = np.exp(-0.5 * (((x[:, None, :2] - z[None, :, :2]) / np.exp(THETA[1:3])) ** 2).sum(axis=2))
    np.testing.assert_allclose(DecayingTime.of(3).matrix(THETA, x, z), 1.3 * space * time, rtol=1e-12)


def test_at_the_start_of_training_time_has_the_length_scale_of_an_se_kernel() -> None:
    x = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.01]])
    ours, se = product_kernel(2, "freeze_thaw").matrix(THETA, x, x), product_kernel(2).matrix(THETA, x, x)
    assert 1.3 - ours[0, 1] == pytest.approx(1.3 - se[0, 1], rel=0.03)


def test_pairs_agree_with_the_matrix() -> None:
    kernel, x = DecayingTime.of(3), points(2, 7)
    pairs = kernel.pairs(x)
    values, _ = kernel.pair_values(THETA, pairs)
    np.testing.assert_allclose(values, kernel.matrix(THETA, x, x)[pairs.rows, pairs.cols], rtol=1e-12)


def test_derivatives_along_points() -> None:
    kernel, x, z = DecayingTime.of(3), points(3, 4), points(4, 5)
    k, gradient = kernel.matrix_with_gradient(THETA, x, z)
    np.testing.assert_allclose(k, kernel.matrix(THETA, x, z), rtol=1e-12)
    for j in range(3):
        step = np.zeros(3)
        step[j] = 1e-6
        slope = (kernel.matrix(THETA, x + step, z) - kernel.matrix(THETA, x - step, z)) / 2e-6
        np.testing.assert_allclose(gradient[:, :, j], slope, atol=1e-8)


def test_gradient_of_the_likelihood_and_predictions() -> None:
    z = points(5, 9)
    curves = CurveMatrix.of(np.random.default_rng(6).random((9, 12)), 12)
    process = CurveProcess(z, curves, time_kernel="freeze_thaw")
    p = ProcessParameters(lengthscale_t=0.6, noise_variance=1e-2)
    _, gradient = process.log_likelihood_and_gradient(p)
    for name, slope in zip(BOUNDS, gradient, strict=True):
        step = 1e-5 * (getattr(p, name) if name in ON_LOG_SCALE else 1.0)
        above, below = (process.log_likelihood(replace(p, **{name: getattr(p, name) + by})) for by in (step, -step))
        assert (above - below) / 2e-5 == pytest.approx(slope, rel=1e-4, abs=1e-6)
    gp = process.posterior(replace(p, noise_variance=1e-8))
    np.testing.assert_allclose(gp.predict(z)[0], gp.y, rtol=1e-4)
