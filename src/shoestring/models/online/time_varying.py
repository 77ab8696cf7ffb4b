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
    d, D_ij    TimeKernel         (1-eps)^(lag/2), correlation of two rounds                           —
    V          _rows * _scale     L^-1 k~(D), with L L' = K~ + sigma^2 I; one row per observation      value
    q          _explained         column sums of V^2: prior variance minus posterior variance          value^2

An observation may be the sum of the function over several rounds, at a point each: the gain of a run since its last validation is
the sum of the gains of its rounds. `skip` adds a round to the sum, `observe` the last one, together with the noisy sum.

The recursion: an observation appends one row to V, O(n N); a new round multiplies V by sqrt(1-eps), which is stored as
one scalar, O(N). A round without validation is only this multiplication: the mean shrinks to the prior's zero, and the
variance grows back to k(x, x). Values must have their prior mean subtracted. `forgetting_rate=0` is the ordinary GP; with
a `reset()` at fixed intervals it is the model of R-GP-UCB.

Differences from the paper: d has one entry per observation (i = 1..n, the paper prints 1..t). Algorithm 1 line 8 does not
change the posterior in a skipped round; the paper's text and this code move it to the next round. Observations whose
(1-eps)^age is below `forget_below` are dropped, which changes the mean at a point that was not visited again by about
sqrt(forget_below) of the value observed there. They are dropped once they are half of all, so that a rebuild costs no more
than the updates before it. Parameters that are not given are learned from the observations (parameter_fit.py).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from shoestring.core.values.arrays import Floats, Indices

KernelRows = Callable[[Indices], Floats]  # points (m,) -> their covariances with every point (m, N)

VARIANCE_FLOOR = 1e-12  # as a share of the prior variance: rounding must not make a variance zero or negative
FORGET_BELOW = 1e-6  # see the module docstring


@dataclass(frozen=True, slots=True)
class TimeKernel:
    """The correlation of the function with itself some rounds earlier: (1-eps)^(lag/2) exp(-lag^2 / (2 lengthscale^2))."""

    forgetting_rate: float = 0.0
    lengthscale: float = math.inf  # rounds

    def __post_init__(self) -> None:
        if not 0.0 <= self.forgetting_rate <= 1.0:
            raise ValueError(
                f"forgetting_rate={self.forgetting_rate} must be in [0, 1]: 0 never forgets, 1 forgets everything."
            )
        if not self.lengthscale > 0.0:
            raise ValueError(f"lengthscale={self.lengthscale} must be a positive number of rounds.")

    def correlation(self, lag_rounds: ArrayLike) -> Floats:
        """Return the correlation; 1 at lag 0, also if eps = 1."""
        lag = np.asarray(lag_rounds, dtype=np.float64)
        correlation = (1.0 - self.forgetting_rate) ** (lag / 2.0)
        if math.isfinite(self.lengthscale):
            correlation = correlation * np.exp(-0.5 * (lag / self.lengthscale) ** 2)
        return np.asarray(correlation)

    def lifetime_rounds(self, forget_below: float) -> float:
        """Return the age after which the squared correlation is below `forget_below`; infinite if nothing is forgotten."""
        if self.forgetting_rate == 1.0:
            return 0.0
        by_length = self.lengthscale * math.sqrt(-math.log(forget_below))
        if self.forgetting_rate == 0.0:
            return by_length
        return min(by_length, math.log(forget_below) / math.log1p(-self.forgetting_rate))


class ForgettingGP:
    """Base class of the processes on a list of points and on the cube. It counts rounds and drops old observations.

    Each new round reduces the covariance with the observations. Once half of them are stale, these are dropped and the
    rest is factorised again.
    """

    _rounds: list[int]  # of the observations, ascending; of a sum, its last round

    def __init__(self, time: TimeKernel, noise_variance: float, forget_below: float) -> None:
        if not (noise_variance > 0.0 and math.isfinite(noise_variance)):
            raise ValueError(
                f"noise_variance={noise_variance} must be positive and finite: a point observed twice in one round "
                "would make the matrix singular. For exact values try 1e-6 of the kernel's variance."
            )
        if not 0.0 < forget_below < 1.0:
            raise ValueError(f"forget_below={forget_below} must be in (0, 1): try {FORGET_BELOW}.")
        self.time, self.noise_variance = time, noise_variance
        self.round = 1
        self._lifetime_rounds = time.lifetime_rounds(forget_below)

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
        self._fade(rounds)
        if n_stale >= self.n_observations - n_stale:  # also if there are no observations
            self._drop(n_stale)

    def _drop(self, n_stale: int) -> None:
        """Drop the first `n_stale` observations."""
        raise NotImplementedError

    def _fade(self, rounds: int) -> None:
        """Reduce the covariance with every observation to that after `rounds` more rounds."""
        raise NotImplementedError


class TimeVaryingGP(ForgettingGP):
    """The posterior for the current round on points 0..N-1.

    In each round: read `mean` and `variance`, call `observe` if the round is validated and perhaps `skip` if not, then
    `advance`.

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
        super().__init__(TimeKernel(forgetting_rate), noise_variance, forget_below)
        if prior_variance.ndim != 1 or not np.all((prior_variance > 0.0) & np.isfinite(prior_variance)):
            raise ValueError("prior_variance must hold a positive, finite variance for each point: k(x, x).")
        self._kernel_rows, self._prior_variance = kernel_rows, prior_variance
        self._rows: Floats = np.empty((16, self.n_points))  # (capacity, N): V / _scale
        self._sum_covariance: Floats  # (N,): of the sum of skipped rounds with this round's function
        self.drop_skipped()
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
        """Add a noisy value of this round's function at `point`, plus those of the skipped rounds: O(n N)."""
        self._check_point(point)
        if not math.isfinite(value):
            raise ValueError(f"value={value} at point {point} must be finite: clip or skip a diverged reward.")
        self.skip(point)
        n = self.n_observations
        if n == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        s = max(
            self._sum_variance + self.noise_variance, self.noise_variance
        )  # rounding can make the variance negative
        row = self._sum_covariance / math.sqrt(s)  # (N,)
        self._rows[n] = row / self._scale
        self._set_mean(self._mean + row * ((value - self._sum_mean) / math.sqrt(s)))
        self._explained += row**2
        self._sums.append(self._skipped)
        self._rounds.append(self.round)
        self._values.append(value)
        self.drop_skipped()

    def skip(self, point: int) -> None:
        """Add this round's function at `point` to the sum that the next observation is about: O(n N)."""
        self._check_point(point)
        own_variance = self._prior_variance[point] - self._explained[point]
        self._sum_variance += float(2.0 * self._sum_covariance[point] + own_variance)
        self._sum_covariance = self._sum_covariance + self.covariance(point)
        self._sum_mean += float(self._mean[point])
        self._skipped.append((point, self.round))

    def drop_skipped(self) -> None:
        """Begin a new sum: the next observation is about its own round alone, unless rounds are skipped before it."""
        self._skipped: list[tuple[int, int]] = []  # points and rounds
        self._sum_mean, self._sum_variance = 0.0, 0.0
        self._sum_covariance = np.zeros(self.n_points)

    def reset(self) -> None:
        """Drop every observation and return to the prior; the number of the round stays, and so do the skipped rounds."""
        self._sums: list[list[tuple[int, int]]] = []  # points and rounds of each observation
        self._rounds: list[int] = []
        self._values: list[float] = []
        self._scale = 1.0
        self._explained = np.zeros(self.n_points)
        self._set_mean(np.zeros(self.n_points))
        if self._skipped:
            prior, points, rounds = self._prior_of([self._skipped])
            self._sum_mean, self._sum_covariance = 0.0, prior.sum(axis=0)
            lags = np.abs(rounds[:, None] - rounds)
            self._sum_variance = float((self._kernel_rows(points)[:, points] * self.time.correlation(lags)).sum())

    def _fade(self, rounds: int) -> None:
        decay = float(self.time.correlation(rounds))
        self._scale *= decay
        self._set_mean(decay * self._mean)
        self._explained *= decay**2
        self._sum_covariance = decay * self._sum_covariance

    def _drop(self, n_stale: int) -> None:
        """Drop the first `n_stale` observations and factorise the others again.

        This also sets `_scale` back to 1, long before it could underflow: between two rebuilds the observations must
        double within every lifetime, and a lifetime multiplies `_scale` by no less than sqrt(forget_below).
        """
        fresh = self._sums[n_stale:], self._rounds[n_stale:], self._values[n_stale:]
        skipped = self._sum_mean, self._sum_variance, self._sum_covariance
        self.reset()
        if not fresh[0]:
            return
        self._sums, self._rounds, self._values = fresh
        sums = fresh[0]
        prior, points, rounds = self._prior_of(sums)  # (m, N), one row for each term of a sum
        starts = np.cumsum([0] + [len(terms) for terms in sums[:-1]])
        factor = factorise(self._kernel_rows(points)[:, points], rounds, self.time, self.noise_variance, starts)
        rows = solve_triangular(
            factor, np.add.reduceat(prior, starts, axis=0), lower=True, check_finite=False
        )  # (n, N)
        self._rows[: len(sums)] = rows
        self._explained = np.einsum("ij,ij->j", rows, rows)
        self._set_mean(solve_triangular(factor, np.array(self._values), lower=True, check_finite=False) @ rows)
        # What the dropped observations say about the skipped rounds is as little as what they say about this one.
        self._sum_mean, self._sum_variance, self._sum_covariance = skipped

    def _prior_of(self, sums: list[list[tuple[int, int]]]) -> tuple[Floats, Indices, Indices]:
        """Return the prior covariance of each term with this round's function, (m, N), and the points and rounds, (m,)."""
        points, rounds = np.array([term for terms in sums for term in terms]).T
        return self._kernel_rows(points) * self.time.correlation(self.round - rounds)[:, None], points, rounds

    def _set_mean(self, mean: Floats) -> None:
        mean.flags.writeable = False  # callers get this array itself
        self._mean = mean

    def _check_point(self, point: int) -> None:
        if not 0 <= point < self.n_points:
            raise ValueError(f"point={point} must be an index in 0..{self.n_points - 1}.")


def factorise(
    covariance: Floats, rounds: NDArray[np.int_], time: TimeKernel, noise_variance: float, starts: NDArray[np.int_]
) -> Floats:
    """Return the lower Cholesky factor of K o D + sigma^2 I, (n, n), for the sums whose terms begin at `starts` (n,)."""
    terms = covariance * time.correlation(np.abs(rounds[:, None] - rounds[None, :]))
    gram = np.add.reduceat(np.add.reduceat(terms, starts, axis=0), starts, axis=1)
    gram[np.diag_indices_from(gram)] += noise_variance
    try:
        return np.asarray(cholesky(gram, lower=True, check_finite=False))
    except LinAlgError as error:
        raise ValueError(
            f"the kernel with noise_variance={noise_variance} is not positive definite: check that the kernel is a "
            "covariance, or raise the noise to 1e-6 of its variance."
        ) from error
