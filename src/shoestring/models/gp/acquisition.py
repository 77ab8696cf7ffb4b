"""Expected improvement (EI) and its logarithm, which is accurate for points with a tiny EI too.

EI = E max(0, f_min - f) is the expected amount by which a point is better than the incumbent (as in Guinet et al.,
arXiv:2011.11456, section 2). EI underflows to 0 below z = -38, where candidates still differ, so logs are compared.

    symbol      here        meaning                                                        unit
    f_min       f_min       incumbent, less the margin by which it must be improved        objective
    mu, sigma   mean, std   latent posterior mean and standard deviation                   objective
    z           z           (f_min - mu) / sigma                                           —
    h           —           phi(z) + z Phi(z), so EI = sigma h(z)                          —

The objective is minimised; every acquisition function is maximised.

`standard_expected_improvement` evaluates h directly and is cheaper than `_h`; the two differ in the last digits.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfcx, ndtr

from shoestring.core.values.arrays import Floats

_LOG_SQRT_2PI = 0.5 * float(np.log(2.0 * np.pi))
_SQRT_HALF_PI = float(np.sqrt(0.5 * np.pi))
_SERIES = (1.0, -3.0, 15.0, -105.0, 945.0, -10395.0, 135135.0)  # (-1)^k (2k + 1)!!


def log_expected_improvement(mean: Floats, std: Floats, f_min: float) -> Floats:
    """Return log EI, (m,), to about 12 digits for any z; -inf where std is 0 and the mean is not below f_min."""
    gap = f_min - np.asarray(mean, dtype=np.float64)
    is_certain = np.asarray(std) <= 1e-140 * np.abs(gap)  # z^2 would overflow, so z = 0 and sigma = 1 replace it
    sigma = np.where(is_certain, 1.0, std)
    log_h, _, _ = _h(np.where(is_certain, 0.0, gap / sigma), with_ratios=False)
    with np.errstate(divide="ignore"):
        return np.where(is_certain, np.log(np.maximum(gap, 0.0)), np.log(sigma) + log_h)


def log_expected_improvement_gradient(
    mean: Floats, variance: Floats, d_mean: Floats, d_variance: Floats, f_min: float
) -> tuple[Floats, Floats]:
    """Return log EI, (m,), and its derivative with respect to the inputs, (m, d); variance must be positive.

    The arguments are those that `GP.predict_with_gradient` returns.
    """
    sigma = np.sqrt(variance)
    log_h, cdf_ratio, pdf_ratio = _h((f_min - mean) / sigma)
    # dEI/dmu = -Phi(z), dEI/dsigma = phi(z); divided by EI = sigma h
    d_log_mean, d_log_std = -cdf_ratio / sigma, pdf_ratio / sigma
    gradient = d_log_mean[:, None] * d_mean + (d_log_std / (2.0 * sigma))[:, None] * d_variance
    return np.log(sigma) + log_h, gradient


def standard_expected_improvement(z: Floats) -> Floats:
    """Return h(z) = z Phi(z) + phi(z), never below 0, so that EI = sigma h(z); exact to z^2 roundings, 0 below z = -39."""
    return np.asarray(np.maximum(z * ndtr(z) + np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi), 0.0))


def _h(z: Floats, *, with_ratios: bool = True) -> tuple[Floats, Floats, Floats]:
    """Return log h(z), Phi(z) / h(z) and phi(z) / h(z) with full relative accuracy; without `with_ratios` both ratios are empty.

    z > -1:         as written; phi and z Phi cancel by a factor of 3 at most.
    -30 < z <= -1:  h = phi(z) (1 + z M), with M = Phi / phi from the scaled erfc; the error is z^2 ulps, under 1e-12.
    z <= -30:       1 + z M = z^-2 (1 - 3 z^-2 + 15 z^-4 - …); seven terms, the next is under 5e-15.
    """
    z = np.asarray(z, dtype=np.float64)
    log_h = np.empty_like(z)
    cdf_ratio, pdf_ratio = (np.empty_like(z), np.empty_like(z)) if with_ratios else (np.empty(0), np.empty(0))
    near = z > -1.0
    t = z[near]
    pdf, cdf = np.exp(-0.5 * t * t - _LOG_SQRT_2PI), ndtr(t)
    h = pdf + t * cdf
    log_h[near] = np.log(h)
    if with_ratios:
        cdf_ratio[near], pdf_ratio[near] = cdf / h, pdf / h
    t = z[~near]
    mills = erfcx(-t / np.sqrt(2.0)) * _SQRT_HALF_PI
    bracket = 1.0 + t * mills
    far = t <= -30.0
    if np.any(far):
        inverse = t[far] ** -2.0
        bracket[far] = np.polynomial.polynomial.polyval(inverse, _SERIES) * inverse
    log_h[~near] = -0.5 * t * t - _LOG_SQRT_2PI + np.log(bracket)
    if with_ratios:
        cdf_ratio[~near], pdf_ratio[~near] = mills / bracket, 1.0 / bracket
    return log_h, cdf_ratio, pdf_ratio
