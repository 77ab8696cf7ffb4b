"""Fit the parameters of a Gaussian process: maximise likelihood times weak priors by L-BFGS-B from several starts.

Rasmussen and Williams, "Gaussian Processes for Machine Learning", MIT Press 2006, eqs. (5.8)-(5.9); Guinet et al.,
arXiv:2011.11456, appendix A, maximise the likelihood alone.

Symbols are those of `posterior`. In addition W = alpha alpha' - A^-1, so that dL/dtheta = tr(W dA) / 2.

Differences from the paper: normal priors on the logs, since the likelihood of two to five points has no useful maximum (noise
explains everything, or length-scales run to a bound). In units of standardised outputs and unit-cube inputs they are

    log l_j    ~ N(log 0.5 + log(d) / 2, 1.2^2)    the distance of random points grows like sqrt d; so do the length-scales
    log s^2    ~ N(0, 1)
    log s_n^2  ~ N(log 3e-3, 2^2)                  noise of about 5 % of the spread; 0.1 % to 100 % are plausible

and a hundred observations outweigh them. The constant mean is profiled out: its derivative is 0 at its own optimum, so the
gradient in theta needs no term for it. Starts come from a low-discrepancy sequence, so one data set always gives one fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import minimize

from shoestring.core.deciding.decision import Memo
from shoestring.core.deciding.memo import Fit, Lists
from shoestring.core.deciding.reproducible import LOG_SPREAD, find_best, round_result, sort_best_first
from shoestring.core.values.arrays import Floats
from shoestring.models.gp.kernels import Kernel, Pairs
from shoestring.models.gp.posterior import (
    GP,
    GP_MEMO,
    check_observations,
    check_theta,
    condition,
    factorise,
    mean_and_weights,
    standardisation,
)

LOG_2PI = float(np.log(2.0 * np.pi))
MAX_FULL_SEARCH = 200  # with more observations, only a short last search uses all of them
_LAST_ITERATIONS = 4  # iterations of that last search: an evaluation costs n^3
_DECIMALS = 4  # of the log of a fitted parameter: of 40 fits the worst differed by 2e-8 between BLAS kernels
MAX_ITERATIONS = 60  # of one search; half of 450 that were tried took 13 or fewer, the longest 37


@dataclass(frozen=True, slots=True)
class Prior:
    """A normal prior on the log of a parameter, with bounds."""

    median: float
    log_std: float
    lower: float
    upper: float


def priors(kernel: Kernel) -> list[Prior]:
    """Return the priors of the module docstring, one for each entry of theta."""
    signal_variance = Prior(1.0, 1.0, 1e-3, 1e3)
    lengthscale = Prior(0.5 * kernel.n_dims**0.5, 1.2, 5e-3, 200.0)
    noise_variance = Prior(3e-3, 2.0, 1e-8, 10.0)
    return [signal_variance, *[lengthscale] * (kernel.n_parameters - 1), noise_variance]


def prior_medians(kernel: Kernel) -> Floats:
    """Return the parameters that are assumed before there are observations: the medians of the priors."""
    return np.log([prior.median for prior in priors(kernel)])


def fit_gp(
    kernel: Kernel,
    x: Floats,
    y: Floats,
    *,
    memo: Memo | None = None,
    n_starts: int = 2,
    standardise: bool = True,
    with_priors: bool = True,
    max_iterations: int | None = None,
) -> GP:
    """Return the posterior given x, (n, d), and y, (n,), at the most probable parameters (without priors: the most likely).

    The search starts from `memo` (returned earlier by `GP.memo()`; without one, the priors' medians) and from the best
    `n_starts` of four times as many quasi-random points. With a memo of nearly the same data, `n_starts=0` suffices.
    With more than `MAX_FULL_SEARCH` observations and `n_starts` above 0, the search first uses a part of them, evenly from the
    best to the worst. So a change of policy in a study of a thousand trials does not wait for a dozen searches with all of them.
    """
    x, y = check_observations(x, y, kernel)
    if n_starts and y.size > MAX_FULL_SEARCH:
        places = np.linspace(0, y.size - 1, MAX_FULL_SEARCH).round().astype(int)
        part = sort_best_first(y, "lowest", exact=True)[places]
        options: dict[str, bool] = {"standardise": standardise, "with_priors": with_priors}
        first_fit = fit_gp(kernel, x[part], y[part], memo=memo, n_starts=n_starts, **options)
        n_starts, memo, max_iterations = 0, first_fit.memo(), _LAST_ITERATIONS
    shift, scale = standardisation(y) if standardise else (0.0, 1.0)
    theta_priors = priors(kernel)
    medians, log_stds = prior_medians(kernel), np.array([p.log_std for p in theta_priors])
    lower, upper = np.log([p.lower for p in theta_priors]), np.log([p.upper for p in theta_priors])
    log_likelihood = make_log_likelihood(kernel, kernel.pairs(x), (y - shift) / scale)

    def negative_log_posterior(theta: Floats) -> tuple[float, Floats]:
        value, gradient = log_likelihood(theta)
        if not with_priors:
            return -value, -gradient
        away = (theta - medians) / log_stds
        return 0.5 * float(away @ away) - value, away / log_stds - gradient

    spread = 1.5 * log_stds * (2.0 * _spread_points(4 * n_starts, medians.size) - 1.0)  # (4 n_starts, p + 1)
    scattered = np.clip(medians + spread, lower, upper)
    values = np.array([negative_log_posterior(theta)[0] for theta in scattered])
    best_scattered = scattered[sort_best_first(values, "lowest", n_starts, spread=LOG_SPREAD)]
    first = np.clip(medians if memo is None else theta_from_memo(memo, kernel), lower, upper)
    bounds = np.column_stack([lower, upper])
    limits = {"maxiter": max_iterations or MAX_ITERATIONS, "ftol": 1e-7, "gtol": 1e-4}
    found = [
        minimize(negative_log_posterior, start, jac=True, method="L-BFGS-B", bounds=bounds, options=limits)
        for start in [first, *best_scattered]
    ]
    best = found[find_best(np.array([one.fun for one in found]), "lowest", spread=LOG_SPREAD)]
    return condition(kernel, round_result(best.x, _DECIMALS), x, y, standardise=standardise)


def carry_gp(
    kernel: Kernel,
    x: Floats,
    y: Floats,
    memo: Memo,
    fit: Fit,
    *,
    n_starts: int = 0,
    prefix: str = "",
    with_priors: bool = True,
) -> tuple[GP, Lists]:
    """Return the posterior at the parameters in the memo, fitted again if a fit is due, and the next memo.

    Between two fits the posterior is conditioned on all observations at the parameters of the last fit, which is exact. A fit
    starts from the last optimum and `n_starts` other points; a fit from scratch starts from at least two other points.
    `prefix` is put before the names in the memo, for a policy with two Gaussian processes.
    """
    past = {name: memo[prefix + name] for name in GP_MEMO if prefix + name in memo}
    if fit.is_due or not past:
        starts = max(2, n_starts) if fit.is_restart or not past else n_starts
        gp = fit_gp(kernel, x, y, memo=past or None, n_starts=starts, with_priors=with_priors)
    else:
        gp = condition(kernel, theta_from_memo(past, kernel), x, y)
    return gp, {prefix + name: numbers for name, numbers in gp.memo().items()} | fit.marks


def make_log_likelihood(kernel: Kernel, pairs: Pairs, y: Floats) -> Callable[[Floats], tuple[float, Floats]]:
    """Return the function theta -> (log likelihood of standardised y at the optimal constant mean, gradient (p + 1,)).

    The value includes the mean's prior, log N(m; 0, 1). Everything that does not depend on theta is computed once, here. Only
    the lower triangle is filled, factored and read, so kernels and gradients cost n^2 / 2.
    """
    n = y.size
    below = pairs.cols * n + pairs.rows  # entry (row, col), row > col, of a Fortran-ordered matrix

    def evaluate(theta: Floats) -> tuple[float, Floats]:
        k, pullback = kernel.pair_values(theta[:-1], pairs)  # (m,)
        signal, noise = float(np.exp(theta[0])), float(np.exp(theta[-1]))
        flat = np.empty(n * n)
        flat[below] = k
        flat[:: n + 1] = signal + noise
        factor, _ = factorise(flat.reshape(n, n).T, typical=signal + noise)
        m, weights = mean_and_weights(factor, y, "constant")
        log_determinant = 2.0 * float(np.log(factor.diagonal()).sum())
        value = -0.5 * (float((y - m) @ weights) + log_determinant + n * LOG_2PI)
        value -= 0.5 * (m * m + LOG_2PI)
        inverse = _invert_below(factor)
        w = weights[pairs.rows] * weights[pairs.cols] - inverse.T.ravel()[below]  # (m,)
        w_trace = float(weights @ weights - inverse.trace())
        gradient = np.empty(theta.size)
        gradient[:-1] = pullback(w)  # each pair stands for two entries, which cancels the 1/2
        gradient[0] += 0.5 * signal * w_trace
        gradient[-1] = 0.5 * noise * w_trace
        return value, gradient

    return evaluate


def _invert_below(factor: Floats) -> Floats:
    """Return the lower triangle of A^-1 = L^-T L^-1, (n, n) in Fortran order; the trace in the gradient needs every entry.

    LAPACK's potri would do this in one call, but OpenBLAS uses all its threads for it even at n = 10. On a machine that is
    busy training, this is several times slower than one thread. Products of under 2^18 multiplications stay in the
    calling thread.
    """
    n = factor.shape[0]
    root, _ = lapack.dtrtri(factor, lower=1)
    root = np.tril(root)
    inverse = np.empty((n, n), order="F")
    width = max(16, 2**18 // (n * n) - 1)
    for j in range(0, n, width):
        inverse[j:, j : j + width] = root[j:, j:].T @ root[j:, j : j + width]
    return inverse


def theta_from_memo(memo: Memo, kernel: Kernel) -> Floats:
    """Return the parameters that `GP.memo` stored; raise ValueError if they do not fit the kernel."""
    return check_theta([value for name in GP_MEMO for value in memo.get(name, ())], kernel)


def _spread_points(n: int, dims: int) -> Floats:
    """Return n well-spread points of the unit cube, (n, dims).

    They are multiples of powers of the root of g^(dims + 1) = g + 1, modulo 1.
    """
    g = 2.0
    for _ in range(40):  # a contraction: 40 rounds reach machine precision
        g = (1.0 + g) ** (1.0 / (dims + 1))
    steps = g ** -np.arange(1.0, dims + 1)
    return (0.5 + np.arange(1.0, n + 1)[:, None] * steps) % 1.0


def pick_rows_to_fit(owners: Sequence[int], at_most: int) -> list[int]:
    """Return the indices of all rows or, if there are more than `at_most`, of the rows of trials spread over the study.

    A fit of n rows costs n^3 dozens of times, and a few hundred observations determine a handful of parameters well.
    `owners[i]` is the trial that row i belongs to. All rows of a trial are used together, since they show how it changed.
    """
    if len(owners) <= at_most:
        return list(range(len(owners)))
    rows: dict[int, list[int]] = {}
    for at, owner in enumerate(owners):
        rows.setdefault(owner, []).append(at)
    trials = sorted(rows)
    largest = max(len(rows_of_trial) for rows_of_trial in rows.values())
    count = min(len(trials), max(1, at_most // largest))
    while count < len(trials) and _size(rows, _spread(trials, count + 1)) <= at_most:
        count += 1
    return sorted(at for trial in _spread(trials, count) for at in rows[trial])


def _spread(trials: Sequence[int], count: int) -> list[int]:
    """Return `count` trials at even distances, always with the last, which is the newest."""
    places = np.linspace(len(trials) - 1, 0, count).round().astype(int)
    return [trials[place] for place in places]


def _size(rows: dict[int, list[int]], trials: Sequence[int]) -> int:
    return sum(len(rows[trial]) for trial in trials)
