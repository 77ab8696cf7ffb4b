"""A Gaussian process whose function drifts from round to round, updated exactly on a finite set of points.

Wang, Ren, Bogunovic, Xiong, Urtasun, "Cost-Efficient Online Hyperparameter Optimization", arXiv:2101.06590, Sect. 2.1
and 3.1; the drift model is that of Bogunovic, Scarlett, Cevher, "Time-Varying Gaussian Process Bandit Optimization",
arXiv:1601.06650:  f_{t+1} = sqrt(1-eps) f_t + sqrt(eps) g_{t+1},  f_1 and all g_t independent GP(0, k).

    paper      here               meaning                                                              unit
    D          points 0..N-1      the finite domain, known here only by its kernel                     index
    t          round              the round that `mean` and `variance` predict                         rounds
    h(i)       _rounds            round of the i-th observation                                        rounds
    eps        forgetting_rate    share of the function replaced in one round                          —
    sigma^2    noise_variance     variance of an observation's noise                                   value^2
    k          kernel_rows        covariance of two points in one round                                value^2
    d, D_ij    drift_correlation  (1-eps)^(lag/2), correlation of two rounds                           —
    V          _rows * _scale     L^-1 k~(D), with L L' = K~ + sigma^2 I; one row per observation      value
    q          _explained         column sums of V^2: prior variance minus posterior variance          value^2

The recursion: an observation appends one row to V, O(n N); a new round multiplies V by sqrt(1-eps), which is stored as
one scalar, O(N). A round without validation is only this multiplication: the mean shrinks to the prior's zero, and the
variance grows back to k(x, x). Values must have their prior mean subtracted. `forgetting_rate=0` is the ordinary GP; with
a `reset()` at fixed intervals it is the model of R-GP-UCB.

Differences from the paper: d has one entry per observation (i = 1..n, the paper prints 1..t). Algorithm 1 line 8 does not
change the posterior in a skipped round; the paper's text and this code move it to the next round. Observations whose
(1-eps)^age is below `forget_below` are dropped, which changes the mean at a point that was not visited again by about
sqrt(forget_below) of the value observed there. They are dropped once they are half of all, so that a rebuild costs no more
than the updates before it. The forgetting rate, known in the paper's experiments, can be learned, within bounds
(`forgetting_bounds`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.optimize import minimize_scalar

from shoestring.core.deciding.reproducible import LOG_SPREAD, find_best, reaches, round_result
from shoestring.core.values.arrays import Floats, Indices

KernelRows = Callable[[Indices], Floats]  # points (m,) -> their covariances with every point (m, N)

VARIANCE_FLOOR = 1e-12  # as a share of the prior variance: rounding must not make a variance zero or negative
FORGET_BELOW = 1e-6  # see the module docstring
_DECIMALS = 3  # decimals of the log of a fitted rate: the search ends within 1e-4
_GRID_SIZE = 13  # rates of a first scan: the likelihood can have two maxima, and this grid seldom misses one


def drift_correlation(forgetting_rate: float, lag_rounds: ArrayLike) -> Floats:
    """Return the correlation (1-eps)^(lag/2) of the function with itself `lag_rounds` earlier; 1 at lag 0, also if eps = 1."""
    return np.asarray((1.0 - forgetting_rate) ** (np.asarray(lag_rounds, dtype=np.float64) / 2.0))


def lifetime_rounds(forgetting_rate: float, forget_below: float) -> float:
    """Return the age after which (1-eps)^age < forget_below; infinite if nothing is forgotten."""
    if forgetting_rate == 0.0:
        return math.inf
    return 0.0 if forgetting_rate == 1.0 else math.log(forget_below) / math.log1p(-forgetting_rate)


class ForgettingGP:
    """Base class of the processes on a list of points and on the cube. It counts rounds and drops old observations.

    Each new round reduces the covariance with the observations. Once half of them are stale, these are dropped and the
    rest is factorised again.
    """

    _rounds: list[int]  # of the observations, ascending

    def __init__(self, forgetting_rate: float, noise_variance: float, forget_below: float) -> None:
        if not 0.0 <= forgetting_rate <= 1.0:
            raise ValueError(
                f"forgetting_rate={forgetting_rate} must be in [0, 1]: 0 never forgets, 1 forgets everything."
            )
        if not (noise_variance > 0.0 and math.isfinite(noise_variance)):
            raise ValueError(
                f"noise_variance={noise_variance} must be positive and finite: a point observed twice in one round "
                "would make the matrix singular. For exact values try 1e-6 of the kernel's variance."
            )
        if not 0.0 < forget_below < 1.0:
            raise ValueError(f"forget_below={forget_below} must be in (0, 1): try {FORGET_BELOW}.")
        self.forgetting_rate, self.noise_variance = forgetting_rate, noise_variance
        self.round = 1
        self._lifetime_rounds = lifetime_rounds(forgetting_rate, forget_below)

    @property
    def n_observations(self) -> int:
        """Return the number of observations in the posterior, without those that were dropped."""
        return len(self._rounds)

    def advance(self, rounds: int = 1) -> None:
        """Move the posterior forward by `rounds` rounds without an observation."""
        if rounds < 1:
            raise ValueError(f"rounds={rounds} must be at least 1: the posterior only moves forward.")
        self.round += rounds
        n_stale = bisect_left(self._rounds, self.round - self._lifetime_rounds)
        if n_stale >= self.n_observations - n_stale:  # also if there are no observations
            self._drop(n_stale)
        else:
            self._fade(float(drift_correlation(self.forgetting_rate, rounds)))

    def _drop(self, n_stale: int) -> None:
        """Drop the first `n_stale` observations."""
        raise NotImplementedError

    def _fade(self, decay: float) -> None:
        """Multiply the covariance with every observation by `decay`."""
        raise NotImplementedError


class TimeVaryingGP(ForgettingGP):
    """The posterior for the current round on points 0..N-1.

    In each round: read `mean` and `variance`, call `observe` if the round is validated, then `advance`.

    `kernel_rows` maps points (m,) to their covariances (m, N) with every point, so that the matrix of a large domain is never
    computed; `prior_variance` (N,) is k(x, x). Only `observe`, `advance` and `reset` change the state; arrays that were
    returned earlier do not change.
    """

    def __init__(
        self,
        kernel_rows: KernelRows,
        prior_variance: Floats,
        *,
        forgetting_rate: float,
        noise_variance: float,
        forget_below: float = FORGET_BELOW,
    ) -> None:
        super().__init__(forgetting_rate, noise_variance, forget_below)
        if prior_variance.ndim != 1 or not np.all((prior_variance > 0.0) & np.isfinite(prior_variance)):
            raise ValueError("prior_variance must hold a positive, finite variance for each point: k(x, x).")
        self._kernel_rows, self._prior_variance = kernel_rows, prior_variance
        self._rows: Floats = np.empty((16, self.n_points))  # (capacity, N): V / _scale
        self.reset()

    @property
    def n_points(self) -> int:
        return int(self._prior_variance.size)

    @property
    def mean(self) -> Floats:
        """Return the posterior mean of this round's function at every point, (N,), read only."""
        return self._mean

    @property
    def variance(self) -> Floats:
        """Return the posterior variance of this round's function (without noise) at every point, (N,)."""
        return np.maximum(self._prior_variance - self._explained, VARIANCE_FLOOR * self._prior_variance)

    def covariance(self, point: int) -> Floats:
        """Return the posterior covariance of this round's function at `point` with every point, (N,)."""
        self._check_point(point)
        rows = self._rows[: self.n_observations]  # (n, N)
        prior = self._kernel_rows(np.array([point]))[0]
        return np.asarray(prior - self._scale**2 * (rows[:, point] @ rows))

    def observe(self, point: int, value: float) -> None:
        """Add a noisy value of this round's function at `point`: O(n N)."""
        self._check_point(point)
        if not math.isfinite(value):
            raise ValueError(f"value={value} at point {point} must be finite: clip or skip a diverged reward.")
        n = self.n_observations
        if n == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        s = self._prior_variance[point] - self._explained[point] + self.noise_variance
        s = max(float(s), self.noise_variance)  # rounding can make the variance negative
        row = self.covariance(point) / math.sqrt(s)  # (N,)
        self._rows[n] = row / self._scale
        self._set_mean(self._mean + row * ((value - self._mean[point]) / math.sqrt(s)))
        self._explained += row**2
        self._points.append(point)
        self._rounds.append(self.round)
        self._values.append(value)

    def reset(self) -> None:
        """Drop every observation and return to the prior; the number of the round stays."""
        self._points: list[int] = []
        self._rounds: list[int] = []
        self._values: list[float] = []
        self._scale = 1.0
        self._explained = np.zeros(self.n_points)
        self._set_mean(np.zeros(self.n_points))

    def _fade(self, decay: float) -> None:
        self._scale *= decay
        self._set_mean(decay * self._mean)
        self._explained *= decay**2

    def _drop(self, n_stale: int) -> None:
        """Drop the first `n_stale` observations and factorise the others again.

        This also sets `_scale` back to 1, long before it could underflow: between two rebuilds the observations must
        double within every lifetime, and a lifetime multiplies `_scale` by no less than sqrt(forget_below).
        """
        fresh = self._points[n_stale:], self._rounds[n_stale:], self._values[n_stale:]
        self.reset()
        if not fresh[0]:
            return
        self._points, self._rounds, self._values = fresh
        points, rounds = np.array(self._points), np.array(self._rounds)  # (n,), (n,)
        prior = self._kernel_rows(points)  # (n, N)
        factor = factorise(prior[:, points], rounds, self.forgetting_rate, self.noise_variance)
        decayed = prior * drift_correlation(self.forgetting_rate, self.round - rounds)[:, None]
        rows = solve_triangular(factor, decayed, lower=True, check_finite=False)  # (n, N)
        self._rows[: points.size] = rows
        self._explained = np.einsum("ij,ij->j", rows, rows)
        self._set_mean(solve_triangular(factor, np.array(self._values), lower=True, check_finite=False) @ rows)

    def _set_mean(self, mean: Floats) -> None:
        mean.flags.writeable = False  # callers get this array itself
        self._mean = mean

    def _check_point(self, point: int) -> None:
        if not 0 <= point < self.n_points:
            raise ValueError(f"point={point} must be an index in 0..{self.n_points - 1}.")


def log_likelihood(
    covariance: Floats, rounds: ArrayLike, values: ArrayLike, *, forgetting_rate: float, noise_variance: float
) -> float:
    """Return the log density of observed `values` (n,), given the kernel between their points (n, n) and their rounds (n,)."""
    y, h = np.asarray(values, dtype=np.float64), np.asarray(rounds)
    if y.ndim != 1 or h.shape != y.shape or covariance.shape != (y.size, y.size) or not np.isfinite(y).all():
        raise ValueError(
            f"values {y.shape}, rounds {h.shape} and covariance {covariance.shape} must be n finite numbers, their n "
            "rounds and the n x n kernel between their points."
        )
    factor = factorise(covariance, h, forgetting_rate, noise_variance)
    white = solve_triangular(factor, y, lower=True, check_finite=False)
    return float(-0.5 * (white @ white) - np.log(np.diag(factor)).sum() - 0.5 * y.size * math.log(2.0 * math.pi))


def forgetting_bounds(horizon_rounds: int) -> tuple[float, float]:
    """Return the bounds within which to learn the forgetting rate of a study of `horizon_rounds` rounds.

    The lower bound prevents over-confidence: a query rule that saves validations leaves few observations, and with these the
    likelihood prefers a function that hardly changes; a model with that function stops validating. Correlation must fall to
    exp(-1/2) within an eighth of the horizon, as under a squared-exponential time kernel with that length-scale.
    """
    if horizon_rounds < 1:
        raise ValueError(f"horizon_rounds={horizon_rounds} must be at least 1.")
    upper = 0.5  # half of the function is new in every round: above this there is little to learn from
    return min(-math.expm1(-8.0 / horizon_rounds), upper), upper


def fit_forgetting_rate(
    covariance: Floats, rounds: ArrayLike, values: ArrayLike, *, noise_variance: float, bounds: tuple[float, float]
) -> float:
    """Return the forgetting rate with the largest likelihood within `bounds`, given the kernel of observed points (n, n).

    Only the rate is learned; the variance and length-scales of the kernel stay as given.
    """
    low, high = bounds
    if not 0.0 < low <= high < 1.0:
        raise ValueError(f"bounds={bounds} must satisfy 0 < low <= high < 1: use forgetting_bounds(horizon_rounds).")
    if np.unique(rounds).size < 2:
        raise ValueError("a forgetting rate needs observations of at least two rounds: use a given rate until then.")

    def loss(log_rate: float) -> float:
        return -log_likelihood(
            covariance, rounds, values, forgetting_rate=math.exp(log_rate), noise_variance=noise_variance
        )

    if low == high:
        return low
    grid = np.linspace(math.log(low), math.log(high), _GRID_SIZE)
    losses = [loss(log_rate) for log_rate in grid]
    best = find_best(np.array(losses), "lowest", spread=LOG_SPREAD)
    bracket = (grid[max(best - 1, 0)], grid[min(best + 1, _GRID_SIZE - 1)])
    found = minimize_scalar(loss, bounds=bracket, method="bounded", options={"xatol": 1e-4})
    # The search never evaluates the ends of its bracket, where the grid may have found a larger likelihood.
    log_rate = grid[best] if reaches(found.fun, losses[best]) else float(round_result(found.x, _DECIMALS))
    return min(max(math.exp(log_rate), low), high)


def factorise(covariance: Floats, rounds: NDArray[np.int_], forgetting_rate: float, noise_variance: float) -> Floats:
    """Return the lower Cholesky factor of K o D + sigma^2 I, (n, n)."""
    gram = covariance * drift_correlation(forgetting_rate, np.abs(rounds[:, None] - rounds[None, :]))
    gram[np.diag_indices_from(gram)] += noise_variance
    try:
        return np.asarray(cholesky(gram, lower=True, check_finite=False))
    except LinAlgError as error:
        raise ValueError(
            f"the kernel with noise_variance={noise_variance} is not positive definite: check that the kernel is a "
            "covariance, or raise the noise to 1e-6 of its variance."
        ) from error
