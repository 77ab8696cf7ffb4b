"""Gaussian process of decaying exponentials for a learning curve, and random future curves drawn from it.

Dai, Yu, Low and Jaillet, "Bayesian Optimization Meets Bayesian Optimal Stopping", ICML 2019 (PMLR 97, no arXiv
version known to us), appendix B, equation (5); the kernel is from Swersky, Snoek and Adams, "Freeze-Thaw Bayesian
Optimization", arXiv:1406.3896.

    paper     here             meaning                                                        unit
    n         steps            training done so far                                           steps
    N0        len(errors)      steps observed before the future is simulated                  steps
    1 - y     errors           validation error after steps 1, 2, ..., N0                     error, in [0, 1]
    alpha     alpha            shape of the Gamma distribution of decay rates                 -
    beta      beta             rate of that Gamma distribution; large = slow decay            steps
    lambda    -                decay rate, integrated out                                     1 / step
    sigma^2   noise_variance   variance of one observed error about its curve                 error^2

Equation (5): k(n, m) = E[exp(-lambda (n + m))] = (beta / (n + m + beta))^alpha, lambda ~ Gamma(alpha, beta).

Differences from the paper:
- alpha and beta maximise the marginal likelihood, as in the authors' programs. The appendix describes a conjugate update,
  alpha = N0 and beta = sum of errors, as if the errors were draws of an exponential distribution with a Gamma prior
  (`rule="update"`). It fits the wrong quantity: the predicted error is near zero one step later, whatever the curve.
- The noise variance is fixed (1e-3), as eight points of a curve do not determine it.
- The posterior covariance of a future curve is nearly singular (a few decay rates explain it), so a plain Cholesky factor
  would need jitter. A pivoted factor stops at the numerical rank, at most 9 of 42 steps in our trials. Drawing 100,000
  paths is then several times cheaper. So float64 is affordable, and float32 is not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import minimize

from shoestring.core.deciding.reproducible import LOG_SPREAD, find_best, polish, round_result, sort_best_first
from shoestring.core.values.arrays import Floats
from shoestring.models.gp.kernels import decay_kernel

CurveFitRule = Literal["likelihood", "update"]
ALPHA_BOUNDS = (0.01, 100.0)
BETA_BOUNDS = (0.01, 1000.0)
NOISE_VARIANCE = 1e-3  # fixed, see the module docstring
# Below this the Gram matrix of a few hundred steps (largest eigenvalue up to N0) is no longer safely positive definite.
SMALLEST_NOISE_VARIANCE = 1e-10
# Variance that the paths may lack: a standard deviation of 1e-6 of an error unit, a ten-thousandth of a cell.
DROPPED_VARIANCE = 1e-12
_GRID = 20  # points per axis of the first scan of (log alpha, log beta)
_STARTS = 3  # local searches, from the best local minima of that scan
_NEWTON_STEPS = 4  # after the searches: each step squares the distance from the minimum
_DIFFERENCE = 1e-3  # step in (log alpha, log beta) for second derivatives
_DECIMALS = 4  # decimals of log alpha and log beta; 60 fits differed by at most 4e-9 between BLAS kernels


@dataclass(frozen=True, slots=True)
class CurveFit:
    """Parameters of the curve process, and the log likelihood of the errors to which they were fitted."""

    alpha: float
    beta: float
    noise_variance: float
    log_likelihood: float


def log_marginal_likelihood(
    errors: Floats | Sequence[float],
    alpha: float,
    beta: float,
    *,
    noise_variance: float = NOISE_VARIANCE,
) -> float:
    """Return log p(errors | alpha, beta) for errors after steps 1, 2, ..., N0."""
    y = _require_curve_and_noise(errors, noise_variance)  # (n0,)
    factor = _gram_factor(y.size, alpha, beta, noise_variance)
    return _log_density(y, _solve(factor, y), factor)


def fit_curve(
    errors: Floats | Sequence[float], *, noise_variance: float = NOISE_VARIANCE, rule: CurveFitRule = "likelihood"
) -> CurveFit:
    """Return (alpha, beta) within the bounds, by default the most likely ones, given the errors after steps 1..N0."""
    y = _require_curve_and_noise(errors, noise_variance)  # (n0,)
    if rule == "update":
        alpha = float(np.clip(y.size, *ALPHA_BOUNDS))
        beta = float(np.clip(y.sum(), *BETA_BOUNDS))
        return CurveFit(
            alpha, beta, noise_variance, log_marginal_likelihood(y, alpha, beta, noise_variance=noise_variance)
        )
    lowest = np.log([ALPHA_BOUNDS[0], BETA_BOUNDS[0]])
    highest = np.log([ALPHA_BOUNDS[1], BETA_BOUNDS[1]])

    def loss(point: Floats) -> tuple[float, Floats]:
        return _negative_log_likelihood(y, point, noise_variance)

    bounds = list(zip(lowest, highest, strict=True))
    # Truncated Newton, because it is plain C. L-BFGS-B passes 2 x 2 matrices to threaded BLAS, and waiting for threads on
    # a busy machine took 200 ms instead of 4 ms. Truncated Newton also follows the nearly flat ridge along alpha / beta =
    # mean decay rate to its end; L-BFGS-B stops there early, after a small step.
    options = {"maxfun": 300}
    found = [
        minimize(loss, start, jac=True, method="TNC", bounds=bounds, options=options)
        for start in _starting_points(y, lowest, highest, noise_variance)
    ]
    nearly = found[find_best(np.array([one.fun for one in found]), "lowest", spread=LOG_SPREAD)].x

    def gradient(point: Floats) -> Floats:
        return loss(point)[1]

    def curvature(point: Floats) -> Floats:
        shifts = _DIFFERENCE * np.eye(2)
        return np.array([gradient(point + shift) - gradient(point - shift) for shift in shifts]) / (2.0 * _DIFFERENCE)

    best = round_result(polish(nearly, gradient, curvature, lowest, highest, _NEWTON_STEPS), _DECIMALS)
    # exp(log(bound)) may leave the box by one rounding error
    alpha = float(np.clip(np.exp(best[0]), *ALPHA_BOUNDS))
    beta = float(np.clip(np.exp(best[1]), *BETA_BOUNDS))
    likelihood = log_marginal_likelihood(y, alpha, beta, noise_variance=noise_variance)
    return CurveFit(alpha, beta, noise_variance, likelihood)


def curve_posterior(
    errors: Floats | Sequence[float], steps: Floats | Sequence[int] | range, fit: CurveFit
) -> tuple[Floats, Floats]:
    """Return mean (m,) and covariance (m, m) of the noise-free curve at `steps`, given the errors after steps 1..N0."""
    y = _require_curve_and_noise(errors, fit.noise_variance)
    seen = np.arange(1.0, y.size + 1.0)  # (n0,)
    future = np.asarray(steps, dtype=np.float64)  # (m,)
    factor = _gram_factor(y.size, fit.alpha, fit.beta, fit.noise_variance)
    cross = decay_kernel(np.add.outer(seen, future), fit.alpha, fit.beta)  # (n0, m)
    mean = cross.T @ _solve(factor, y)
    half, _ = lapack.dtrtrs(factor, cross, lower=1)  # (n0, m)
    cov = decay_kernel(np.add.outer(future, future), fit.alpha, fit.beta) - half.T @ half
    return mean, cov


def draw_paths(mean: Floats, cov: Floats, n_paths: int, rng: np.random.Generator) -> Floats:
    """Return joint draws (n_paths, m) of the curve. Each step is contiguous in memory, because callers go step by step."""
    if n_paths < 1:
        raise ValueError(f"n_paths={n_paths} must be at least 1. Try 100000.")
    packed, pivots, rank, _ = lapack.dpstrf(cov, tol=DROPPED_VARIANCE, lower=1)
    root = np.zeros((mean.size, rank))
    root[pivots - 1] = np.tril(packed)[:, :rank]  # LAPACK counts from 1; root @ root.T = cov
    by_step: Floats = root @ rng.standard_normal((rank, n_paths))  # (m, n_paths)
    by_step += mean[:, None]
    return by_step.T


def keep_paths_within_unit(paths: Floats) -> Floats:
    """Return the paths that stay inside (0, 1) at every step; a value outside is not an error rate."""
    by_step = paths.T
    inside = (by_step.min(axis=0) > 0.0) & (by_step.max(axis=0) < 1.0)
    return paths if inside.all() else np.compress(inside, by_step, axis=1).T  # keeps each step contiguous


def _require_curve_and_noise(errors: Floats | Sequence[float], noise_variance: float) -> Floats:
    y = np.asarray(errors, dtype=np.float64)
    if y.ndim != 1 or y.size == 0:
        raise ValueError(f"errors of shape {y.shape} must be a non-empty list of numbers, one per step from step 1 on.")
    if not np.isfinite(y).all():
        raise ValueError(f"errors has a value that is not finite, {y[~np.isfinite(y)][0]}: drop the diverged curve.")
    if not SMALLEST_NOISE_VARIANCE <= noise_variance < np.inf:
        raise ValueError(
            f"noise_variance={noise_variance} must be at least {SMALLEST_NOISE_VARIANCE}: below it the kernel matrix "
            f"is singular in floating point. Try {NOISE_VARIANCE}."
        )
    return y


def _gram_factor(n0: int, alpha: float, beta: float, noise_variance: float) -> Floats:
    """Return the lower Cholesky factor of K + sigma^2 I on steps 1..n0."""
    if not (alpha > 0.0 and beta > 0.0):
        raise ValueError(
            f"alpha={alpha} and beta={beta} must be positive: they are the parameters of a Gamma distribution. Try fit_curve."
        )
    seen = np.arange(1.0, n0 + 1.0)
    gram = decay_kernel(np.add.outer(seen, seen), alpha, beta)
    gram.flat[:: n0 + 1] += noise_variance
    return np.asarray(np.linalg.cholesky(gram), dtype=np.float64)


def _solve(factor: Floats, right: Floats) -> Floats:
    solution, _ = lapack.dpotrs(factor, right, lower=1)
    return np.asarray(solution, dtype=np.float64).reshape(right.shape)


def _log_density(residual: Floats, weights: Floats, factor: Floats) -> float:
    log_det = 2.0 * np.log(np.diagonal(factor)).sum()
    return float(-0.5 * (residual @ weights + log_det + residual.size * np.log(2.0 * np.pi)))


def _negative_log_likelihood(y: Floats, log_point: Floats, noise_variance: float) -> tuple[float, Floats]:
    """Return the value and its gradient with respect to (log alpha, log beta)."""
    alpha, beta = np.exp(log_point)
    factor = _gram_factor(y.size, alpha, beta, noise_variance)
    inverse = _solve(factor, np.eye(y.size))  # the trace in the gradient needs the whole inverse
    weights = _solve(factor, y)
    total = np.add.outer(np.arange(1.0, y.size + 1.0), np.arange(1.0, y.size + 1.0))
    slope = 0.5 * alpha * (np.outer(weights, weights) - inverse) * decay_kernel(total, alpha, beta)
    by_log_alpha = -(slope * np.log1p(total / beta)).sum()
    by_log_beta = (slope * (total / (total + beta))).sum()
    return -_log_density(y, weights, factor), np.array([-by_log_alpha, -by_log_beta])


def _starting_points(y: Floats, lowest: Floats, highest: Floats, noise_variance: float) -> Floats:
    """Return the best local minima of a coarse scan, (starts, 2), best first; all Cholesky factors are one batch."""
    axes = np.linspace(lowest, highest, _GRID)  # (grid, 2)
    alpha, beta = np.exp(axes[:, None, None, None, 0]), np.exp(axes[None, :, None, None, 1])
    seen = np.arange(1.0, y.size + 1.0)
    gram = decay_kernel(np.add.outer(seen, seen), alpha, beta)  # (grid, grid, n0, n0)
    gram += noise_variance * np.eye(y.size)
    factor = np.linalg.cholesky(gram)
    # The column of ones is there only for its effect on rounding: LAPACK solves a single column by other operations, which
    # would move the minima of the scan along flat ridges.
    right = np.stack([y, np.ones_like(y)], axis=-1)
    whitened = np.linalg.solve(factor, right)[..., 0]  # (grid, grid, n0): L^-1 y
    loss = 0.5 * np.square(whitened).sum(axis=-1) + np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1)
    padded = np.pad(loss, 1, constant_values=np.inf)
    neighbours = [padded[1 + i : 1 + i + _GRID, 1 + j : 1 + j + _GRID] for i in (-1, 0, 1) for j in (-1, 0, 1)]
    rows, columns = np.nonzero(loss <= np.min(neighbours, axis=0))  # never empty: the smallest of all is one
    best = sort_best_first(loss[rows, columns], "lowest", _STARTS, spread=LOG_SPREAD)
    return np.column_stack([axes[rows[best], 0], axes[columns[best], 1]])
