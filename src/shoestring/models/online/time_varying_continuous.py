"""The drifting Gaussian process on the continuous unit cube, and the separate modes of its upper confidence bound.

Wang, Ren, Bogunovic, Xiong, Urtasun, "Cost-Efficient Online Hyperparameter Optimization", arXiv:2101.06590: posterior
of Sect. 3.1, search for local optima of Appendix C.3 (50 random starts, L-BFGS, then mean shift with bandwidth 0.2).
Mean shift: Cheng, "Mean Shift, Mode Seeking, and Clustering", IEEE PAMI 17, 1995.

    paper      here               meaning                                                     unit
    D          [0, 1]^d           the domain                                                  —
    t          round              the round that is predicted                                 rounds
    h(i)       _rounds            round of the i-th observation                               rounds
    eps        time               kernel in time: the share eps is replaced in one round     —
    sigma^2    noise_variance     variance of an observation's noise                          value^2
    k          kernel             covariance in one round, with its gradient in x             value^2
    d          _decay             correlation of this round with that of each term            —
    L          _factor            Cholesky factor of K~ + sigma^2 I                           value
    beta_t     beta               exploration: u = mu + sqrt(beta) sigma                      —
    x_t        Modes.points[0]    argmax of u                                                 unit cube

Lags between observations never change, so a round without an observation does not change L and only decays k~; an observation
appends one row to L, O(n^2). Values must have their prior mean subtracted. An observation may be a sum over several rounds, as on
a finite domain (`skip`).

Differences from the paper: a merged mode is represented by its member with the largest u, not by the mean of its members,
which need not be near any optimum; so the first mode is x_t, and all others are its competitors. d has one entry per
observation (the paper prints 1..t). Old observations are dropped as on a finite domain. Where u is flat (the prior, far
from any data) every start is an optimum of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize

from shoestring.core.deciding.reproducible import PLACE_DECIMALS, round_result, sort_best_first
from shoestring.core.values.arrays import Floats, Indices
from shoestring.models.online.time_varying import (
    FORGET_BELOW,
    VARIANCE_FLOOR,
    ForgettingGP,
    TimeKernel,
    factorise,
)

# x (m, d), z (n, d) -> k (m, n), dk/dx (m, n, d)
KernelWithGradient = Callable[[Floats, Floats], tuple[Floats, Floats]]

# A few mean shifts suffice: a flat kernel has finitely many means. The limit prevents an endless loop by rounding.
_MEAN_SHIFTS = 100


@dataclass(frozen=True)
class Modes:
    """Modes of the upper confidence bound, highest first: the first is the point to choose, the others are its competitors."""

    points: Floats  # (m, d)
    mean: Floats  # (m,)
    variance: Floats  # (m,)
    ucb: Floats  # (m,)


class ContinuousTimeVaryingGP(ForgettingGP):
    """The posterior for the current round on [0, 1]^d. In each round: `modes`, perhaps `observe`, then `advance`.

    `kernel(x, z)` gives the covariances of x (m, d) with z (n, d), (m, n), and their derivatives in x, (m, n, d);
    `variance` is k(x, x), the same everywhere.
    """

    def __init__(
        self,
        kernel: KernelWithGradient,
        *,
        n_dims: int,
        variance: float,
        time: TimeKernel,
        noise_variance: float,
        forget_below: float = FORGET_BELOW,
    ) -> None:
        super().__init__(time, noise_variance, forget_below)
        if n_dims < 1:
            raise ValueError(f"n_dims={n_dims} must be at least 1.")
        if not (variance > 0.0 and math.isfinite(variance)):
            raise ValueError(f"variance={variance} must be positive and finite: it is the kernel's k(x, x).")
        self.n_dims = n_dims
        self.variance = variance
        self._kernel = kernel
        # An observation is a sum of terms; the terms of all observations follow each other.
        self._points: Floats  # (m, d): of the terms
        self._term_rounds: NDArray[np.int_]  # (m,)
        self._starts: NDArray[np.int_]  # (n,): the first term of each observation
        self._counts: NDArray[np.int_]  # (n,): how many it has
        self._rounds: list[int]
        self._values: list[float]
        self._decay: Floats  # (m,): from each term's round to this one
        self._factor: Floats  # (n, n), lower
        self._weights: Floats  # (n,): (K~ + sigma^2 I)^-1 y
        self.drop_skipped()
        self.reset()

    def observe(self, point: Floats, value: float) -> None:
        """Add a noisy value of this round's function at `point` (d,), plus those of the skipped rounds."""
        if not math.isfinite(value):
            raise ValueError(f"value={value} at {point} must be finite: clip or skip a diverged reward.")
        self.skip(point)
        terms, rounds = np.array(self._skipped), np.array(self._skipped_rounds)  # (k, d), (k,)
        n = self.n_observations
        row = np.empty(0)
        if n:
            lags = np.abs(rounds[:, None] - self._term_rounds)
            past = self._sum_terms((self._kernel(terms, self._points)[0] * self.time.correlation(lags)).sum(axis=0))
            row = solve_triangular(self._factor, past, lower=True, check_finite=False)
        prior = self.variance
        if len(terms) > 1:
            lags = np.abs(rounds[:, None] - rounds)
            prior = float((self._kernel(terms, terms)[0] * self.time.correlation(lags)).sum())
        factor = np.zeros((n + 1, n + 1))
        factor[:n, :n] = self._factor
        factor[n, :n] = row
        # The posterior variance cannot be negative, so the new pivot is at least the noise, except for rounding.
        factor[n, n] = math.sqrt(max(prior - float(row @ row), 0.0) + self.noise_variance)
        self._factor = factor
        self._starts = np.append(self._starts, len(self._points))
        self._counts = np.append(self._counts, len(terms))
        self._points = np.vstack([self._points, terms])
        self._term_rounds = np.append(self._term_rounds, rounds)
        self._rounds.append(self.round)
        self._values.append(value)
        self._fade(0)
        self._weights = cho_solve((factor, True), np.array(self._values), check_finite=False)
        self.drop_skipped()

    def skip(self, point: Floats) -> None:
        """Add this round's function at `point` (d,) to the sum that the next observation is about."""
        x = np.array(point, dtype=np.float64)
        if x.shape != (self.n_dims,) or not np.all((x >= 0.0) & (x <= 1.0)):
            raise ValueError(f"point={point} must be {self.n_dims} coordinates in [0, 1].")
        self._skipped.append(x)
        self._skipped_rounds.append(self.round)

    def drop_skipped(self) -> None:
        """Begin a new sum: the next observation is about its own round alone, unless rounds are skipped before it."""
        self._skipped: list[Floats] = []
        self._skipped_rounds: list[int] = []

    def reset(self) -> None:
        """Drop every observation and return to the prior; the number of the round stays, and so do the skipped rounds."""
        self._points = np.empty((0, self.n_dims))
        self._term_rounds = np.empty(0, dtype=np.int_)
        self._starts = self._counts = np.empty(0, dtype=np.int_)
        self._rounds = []
        self._values = []
        self._decay = np.empty(0)
        self._factor = np.empty((0, 0))
        self._weights = np.empty(0)

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Return posterior mean and variance (without noise) of this round's function at `points` (m, d): (m,), (m,)."""
        if not self.n_observations:
            return np.zeros(len(points)), np.full(len(points), self.variance)
        past = self._covariance_with_past(points)  # (m, n)
        white = solve_triangular(self._factor, past.T, lower=True, check_finite=False)  # (n, m)
        explained = np.einsum("ij,ij->j", white, white)
        return past @ self._weights, np.maximum(self.variance - explained, VARIANCE_FLOOR * self.variance)

    def covariance(self, a: Floats, b: Floats) -> Floats:
        """Return posterior covariances (m, p) of this round's function between `a` (m, d) and `b` (p, d)."""
        prior = self._kernel(a, b)[0]
        if not self.n_observations:
            return prior
        solved = cho_solve((self._factor, True), self._covariance_with_past(b).T, check_finite=False)  # (n, p)
        return np.asarray(prior - self._covariance_with_past(a) @ solved)

    def ucb_and_gradient(self, point: Floats, beta: float) -> tuple[float, Floats]:
        """Return u = mu + sqrt(beta) sigma at `point` (d,), and its gradient (d,)."""
        if not self.n_observations:
            return math.sqrt(beta * self.variance), np.zeros(self.n_dims)
        prior, slope = self._kernel(point[None], self._points)  # (1, n), (1, n, d)
        past = self._sum_terms(prior[0] * self._decay)
        solved = cho_solve((self._factor, True), past, check_finite=False)  # (n,)
        variance = self.variance - past @ solved
        floor = VARIANCE_FLOOR * self.variance
        sigma = math.sqrt(max(variance, floor))
        weights = self._weights  # d mu = (d o weights)' dk;  d sigma = -(d o solved)' dk / sigma
        if variance > floor:  # at the floor sigma is constant
            weights = weights - math.sqrt(beta) / sigma * solved
        of_terms = self._decay * np.repeat(weights, self._counts)  # (m,)
        return float(past @ self._weights) + math.sqrt(beta) * sigma, of_terms @ slope[0]

    def modes(self, beta: float, rng: np.random.Generator, *, n_starts: int = 50, bandwidth: float = 0.2) -> Modes:
        """Return the local maxima of the upper confidence bound, highest first; those closer than `bandwidth` are merged."""
        if beta < 0.0:
            raise ValueError(f"beta={beta} must be at least 0: it is the square of a number of standard deviations.")
        if n_starts < 1:
            raise ValueError(f"n_starts={n_starts} must be at least 1: the paper uses 50.")
        return self._climb(rng.random((n_starts, self.n_dims)), beta, bandwidth)

    def highest_means(self, *, n_starts: int = 5, bandwidth: float = 0.2) -> Modes:
        """Return local maxima of the mean, highest first, found from the observed points of the largest mean."""
        if not self.n_observations:
            raise ValueError("without an observation the mean is 0 everywhere: observe a round first.")
        starts = self._points[sort_best_first(self.predict(self._points)[0], "highest")]
        return self._climb(starts[:n_starts], 0.0, bandwidth)

    def _climb(self, starts: Floats, beta: float, bandwidth: float) -> Modes:
        """Return the separate maxima of the upper confidence bound that a search from `starts` (n, d) finds."""

        def descent(x: Floats) -> tuple[float, Floats]:
            u, gradient = self.ucb_and_gradient(x, beta)
            return -u, -gradient

        cube = [(0.0, 1.0)] * self.n_dims
        found = [minimize(descent, x, jac=True, method="L-BFGS-B", bounds=cube).x for x in starts]
        optima = np.clip(round_result(np.array(found), PLACE_DECIMALS), 0.0, 1.0)
        mean, variance = self.predict(optima)
        ucb = mean + math.sqrt(beta) * np.sqrt(variance)
        highest = merge_modes(optima, ucb, bandwidth)
        return Modes(optima[highest], mean[highest], variance[highest], ucb[highest])

    def _covariance_with_past(self, points: Floats) -> Floats:
        """Return k~ between `points` (p, d) in this round and the observations, (p, n)."""
        return self._sum_terms(self._kernel(points, self._points)[0] * self._decay)

    def _sum_terms(self, covariance: Floats) -> Floats:
        """Return the covariances with observations, (…, n), from those with their terms, (…, m)."""
        return np.asarray(np.add.reduceat(covariance, self._starts, axis=-1))

    def _fade(self, rounds: int) -> None:
        self._decay = self.time.correlation(self.round - self._term_rounds)

    def _drop(self, n_stale: int) -> None:
        """Drop the first `n_stale` observations and factorise the others again."""
        rounds, values = self._rounds[n_stale:], self._values[n_stale:]
        if not rounds:
            self.reset()
            return
        first = self._starts[n_stale]
        self._points, self._term_rounds = self._points[first:], self._term_rounds[first:]
        self._starts, self._counts = self._starts[n_stale:] - first, self._counts[n_stale:]
        self._rounds, self._values = rounds, values
        self._fade(0)
        prior = self._kernel(self._points, self._points)[0]
        self._factor = factorise(prior, self._term_rounds, self.time, self.noise_variance, self._starts)
        self._weights = cho_solve((self._factor, True), np.array(values), check_finite=False)


def merge_modes(points: Floats, heights: Floats, bandwidth: float) -> Indices:
    """Return the index of the highest point of each group of `points` (n, d) that mean shift merges, highest first.

    Every point moves to the mean of all points within `bandwidth` of it until nothing moves (flat kernel). A point that
    ends within `bandwidth` of where a higher mode ended belongs to that mode.
    """
    if not bandwidth > 0.0:
        raise ValueError(f"bandwidth={bandwidth} must be positive: the paper uses 0.2 in the unit cube.")
    centres = points
    for _ in range(_MEAN_SHIFTS):
        near = ((centres[:, None, :] - points[None, :, :]) ** 2).sum(axis=2) <= bandwidth**2  # (n, n)
        means = near @ points / near.sum(axis=1, keepdims=True)
        if np.allclose(means, centres, rtol=0.0, atol=1e-9):
            break
        centres = means
    modes: list[int] = []
    for i in sort_best_first(heights, "highest"):
        if all(((centres[i] - centres[j]) ** 2).sum() > bandwidth**2 for j in modes):
            modes.append(int(i))
    return np.array(modes, dtype=np.intp)
