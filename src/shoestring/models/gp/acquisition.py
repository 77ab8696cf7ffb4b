"""Acquisition functions in logs, and the rules that trade improvement against cost on a set of candidates.

Guinet, Perrone and Archambeau, "Pareto-efficient Acquisition Functions for Cost-Aware Bayesian Optimization",
arXiv:2011.11456: EI and EIpu (section 2), EI-cool (section 2, after Lee et al., arXiv:2003.10870), EI_alpha (eq. 1),
contextual EI (eq. 2), cost Pareto front (section 3.1).

    paper     here              meaning                                                        unit
    f_min     f_min             incumbent; subtract a margin yourself if you want one          objective
    mu, sigma mean, std         latent posterior mean and standard deviation                   objective
    z         z                 (f_min - mu) / sigma                                           —
    h         —                 phi(z) + z Phi(z), so EI = sigma h(z)                          —
    c         exp(log_cost)     predicted cost                                                 seconds, dollars, …
    alpha     alpha             exponent of the cost, >= 0: 0 is EI, 1 is EI per unit cost     —
    lambda    slack             fraction of the best EI that may be given up, 0..1             —
    tau       total_cost        whole budget                                                   as c
    tau_k     spent_cost        spent so far, the initial design included                      as c
    tau_init  initial_cost      spent on the initial design                                    as c

Sign convention: the objective is minimised; every acquisition function is to be maximised. So `ucb` is the negative of the
lower confidence bound. Selection rules take arrays (m,) of log EI and log cost and return an index; log EI may be -inf.

Departs from the paper:
- Everything is compared in logs. EI itself underflows to 0 beyond z = -38, which would admit every point to CEI's set and
  make EI per unit cost pick at random.
- CEI admits by a threshold on the EI value, as eq. (2) says, not "the best 100 lambda per cent of the points" of the text.
- Ties go to the cheaper point, then to the larger EI, then to the lower index. Without this CEI's choice is only weakly
  efficient, so the claim that it lies on the front would be false.
- EI_alpha reaches only the vertices of the upper convex hull of (log c, log EI); `implied_alpha` tells for each point.
- The exponent of EI-cool is clipped to 0..1, and is 0 when the initial design has used up the budget.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, ndtr

Array = NDArray[np.float64]

_LOG_SQRT_2PI = 0.5 * float(np.log(2.0 * np.pi))
_SQRT_HALF_PI = float(np.sqrt(0.5 * np.pi))
_SERIES = (1.0, -3.0, 15.0, -105.0, 945.0, -10395.0, 135135.0)  # (-1)^k (2k + 1)!!


def expected_improvement(mean: Array, std: Array, f_min: float) -> Array:
    """EI, (m,); 0 where it underflows. Compare candidates with `log_expected_improvement` instead."""
    return np.exp(log_expected_improvement(mean, std, f_min))


def log_expected_improvement(mean: Array, std: Array, f_min: float) -> Array:
    """log EI, (m,), to about 12 digits for any z; -inf where std is 0 and the mean is no better than f_min."""
    certain, z, sigma = _standardised(mean, std, f_min)
    log_h, _, _ = _h(z, with_ratios=False)
    with np.errstate(divide="ignore"):
        return np.where(certain, np.log(np.maximum(f_min - mean, 0.0)), np.log(sigma) + log_h)


def log_expected_improvement_gradient(
    mean: Array, variance: Array, d_mean: Array, d_variance: Array, f_min: float
) -> tuple[Array, Array]:
    """log EI, (m,), and its derivative with respect to the inputs, (m, d), from `GP.predict_with_gradient`; variance > 0."""
    sigma = np.sqrt(variance)
    log_h, cdf_ratio, pdf_ratio = _h((f_min - mean) / sigma)
    # dEI/dmu = -Phi(z), dEI/dsigma = phi(z); divided by EI = sigma h
    d_log_mean, d_log_std = -cdf_ratio / sigma, pdf_ratio / sigma
    gradient = d_log_mean[:, None] * d_mean + (d_log_std / (2.0 * sigma))[:, None] * d_variance
    return np.log(sigma) + log_h, gradient


def log_probability_of_improvement(mean: Array, std: Array, f_min: float) -> Array:
    """log Phi(z), (m,); where std is 0, 0 if the mean is better than f_min, else -inf."""
    certain, z, _ = _standardised(mean, std, f_min)
    return np.where(certain, np.where(mean < f_min, 0.0, -np.inf), log_ndtr(z))


def ucb(mean: Array, std: Array, kappa: float) -> Array:
    """kappa * std - mean, (m,): to be maximised when the objective is minimised."""
    return kappa * std - mean


def _standardised(mean: Array, std: Array, f_min: float) -> tuple[NDArray[np.bool_], Array, Array]:
    """Where the std is too small to matter (z^2 would overflow), z, and sigma; there z = 0 and sigma = 1 stand in."""
    gap = f_min - np.asarray(mean, dtype=np.float64)
    certain = np.asarray(std) <= 1e-140 * np.abs(gap)
    sigma = np.where(certain, 1.0, std)
    return certain, np.where(certain, 0.0, gap / sigma), sigma


def _h(z: Array, *, with_ratios: bool = True) -> tuple[Array, Array, Array]:
    """log h(z), Phi(z) / h(z), phi(z) / h(z), each with full relative accuracy; the ratios empty unless asked for.

    z > -1:         as written; phi and z Phi cancel by a factor of 3 at most.
    -30 < z <= -1:  h = phi(z) (1 + z M), M = Phi / phi by the scaled erfc; loses z^2 ulps, under 1e-12.
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


def choose_ei(log_ei: Array, log_cost: Array) -> int:
    """Index of the largest EI."""
    return choose_ei_alpha(log_ei, log_cost, 0.0)


def choose_eipu(log_ei: Array, log_cost: Array) -> int:
    """Index of the largest EI per unit cost."""
    return choose_ei_alpha(log_ei, log_cost, 1.0)


def choose_ei_alpha(log_ei: Array, log_cost: Array, alpha: float) -> int:
    """Index of the largest EI / c^alpha, eq. (1)."""
    _check(log_ei, log_cost)
    if not alpha >= 0.0:
        raise ValueError(f"alpha={alpha} must be >= 0: a negative exponent would pay extra for expensive points.")
    score = log_ei - alpha * log_cost
    return _cheapest(np.flatnonzero(score == score.max()), log_ei, log_cost)


def cooling_exponent(total_cost: float, initial_cost: float, spent_cost: float) -> float:
    """alpha_k of EI-cool: 1 after the initial design, falling in proportion to what is left, 0 at the end."""
    if total_cost <= initial_cost:
        return 0.0
    return min(1.0, max(0.0, (total_cost - spent_cost) / (total_cost - initial_cost)))


def choose_cei(log_ei: Array, log_cost: Array, slack: float) -> int:
    """Index of the cheapest point with EI >= (1 - slack) max EI, eq. (2); slack 0 is EI, slack 1 the cheapest of all."""
    _check(log_ei, log_cost)
    return _cheapest(np.flatnonzero(log_ei >= cei_threshold(float(log_ei.max()), slack)), log_ei, log_cost)


def cei_threshold(log_ei_max: float, slack: float) -> float:
    """The smallest admissible log EI; a relative 1e-12 of grace keeps 0.9 >= (1 - 0.1) * 1 true in floating point."""
    if not 0.0 <= slack <= 1.0:
        raise ValueError(f"slack={slack} must lie in 0..1: it is the fraction of the best EI that may be given up.")
    return -np.inf if slack == 1.0 else log_ei_max + float(np.log1p(-slack)) - 1e-12


def pareto_front(log_ei: Array, log_cost: Array) -> NDArray[np.intp]:
    """Indices, rising, of the points that no other equals or beats in both cost and EI, beating in one; O(m log m)."""
    _check(log_ei, log_cost)
    # The front runs from the cheapest point to that of the largest EI: what lies outside needs no sorting.
    least = float(log_ei[log_cost == log_cost.min()].max())
    most = float(log_cost[log_ei == log_ei.max()].min())
    between = np.flatnonzero((log_ei >= least) & (log_cost <= most))
    order = between[
        np.lexsort((-log_ei[between], log_cost[between]))
    ]  # cheapest first, among equals the largest EI first
    e, c = log_ei[order], log_cost[order]
    first = np.searchsorted(c, c)  # start of each point's group of equal cost
    best = np.maximum.accumulate(e)
    beaten = (first > 0) & (e <= best[first - 1])  # by something strictly cheaper
    return np.sort(order[(e == e[first]) & ~beaten])


@dataclass(frozen=True, slots=True)
class ImpliedAlpha:
    """The exponents for which EI_alpha would have chosen a point.

    Supported: every alpha in low..high (high may be inf); `alpha` is the middle, or `low` when unbounded; `gap` is 0.
    Unsupported: no alpha does; `alpha` is the one that misses by least, `gap` the log score it misses by.
    """

    low: float
    high: float
    supported: bool
    alpha: float
    gap: float


def implied_alpha(log_ei: Array, log_cost: Array, index: int) -> ImpliedAlpha:
    """Which alpha leads EI_alpha to the point `index`; that point needs a positive EI (a finite log EI)."""
    _check(log_ei, log_cost)
    if not np.isfinite(log_ei[index]):
        raise ValueError(
            f"log_ei[{index}]={log_ei[index]} must be finite: a point without improvement implies no alpha."
        )
    gain, extra = log_ei - log_ei[index], log_cost - log_cost[index]
    costlier, cheaper = extra > 0.0, extra < 0.0
    low = max(0.0, float(np.max(gain[costlier] / extra[costlier], initial=0.0)))
    high = float(np.min(gain[cheaper] / extra[cheaper], initial=np.inf))
    outdone = bool(np.any(gain[extra == 0.0] > 0.0))  # by a point of the same cost
    if low <= high and not outdone:
        return ImpliedAlpha(low, high, True, low if np.isinf(high) else 0.5 * (low + high), 0.0)
    alpha = _least_gap_alpha(log_ei, log_cost, index)
    return ImpliedAlpha(low, high, False, alpha, float(np.max(gain - alpha * extra)))


def _least_gap_alpha(log_ei: Array, log_cost: Array, index: int) -> float:
    """Slope, at this point's cost, of the upper hull of (log c, log EI), no less than 0.

    The gap max_j score_j - score_i is convex in alpha and its minimum is the height of the hull above the point. A chord
    of the hull that spans the point is raised until nothing lies above it: one O(m) pass a hull edge met, no sorting.
    """
    some = np.isfinite(log_ei)  # a point without improvement never scores highest
    index, log_ei, log_cost = int(np.count_nonzero(some[:index])), log_ei[some], log_cost[some]
    left = _cheapest(np.arange(log_ei.size), log_ei, log_cost)
    right = choose_ei(log_ei, log_cost)
    if log_cost[right] <= log_cost[index]:
        return 0.0
    while True:
        alpha = float((log_ei[right] - log_ei[left]) / (log_cost[right] - log_cost[left]))
        score = log_ei - alpha * log_cost
        top = int(np.argmax(score))
        if score[top] <= max(score[left], score[right]) or log_cost[top] in (log_cost[left], log_cost[right]):
            return alpha
        if log_cost[top] <= log_cost[index]:
            left = top
        else:
            right = top


def _cheapest(among: NDArray[np.intp], log_ei: Array, log_cost: Array) -> int:
    """Of these indices the cheapest; then the largest EI, then the first."""
    return int(among[np.lexsort((among, -log_ei[among], log_cost[among]))[0]])


def _check(log_ei: Array, log_cost: Array) -> None:
    if log_ei.ndim != 1 or log_ei.shape != log_cost.shape or log_ei.size == 0:
        raise ValueError(
            f"log_ei of shape {log_ei.shape} and log_cost of shape {log_cost.shape} must both be (m,) with m >= 1: "
            "one number for each candidate."
        )
    if np.any(np.isnan(log_ei)) or np.any(log_ei == np.inf) or not np.all(np.isfinite(log_cost)):
        raise ValueError("log_ei must hold no NaN or +inf and log_cost only finite numbers: floor the costs above 0.")
