"""Eleven parametric learning curves, and their weighted sum sampled from its posterior given the beginning of a curve.

Domhan, Springenberg and Hutter, "Speeding Up Automatic Hyperparameter Optimization of Deep Neural Networks by
Extrapolation of Learning Curves", IJCAI 2015 (no arXiv version known to us): the families, the sum, and its posterior by
Markov chain Monte Carlo. Moves of parameters are the stretch move of Goodman and Weare, "Ensemble samplers with affine
invariance", Comm. App. Math. Comp. Sci. 5 (2010).

    paper      here               meaning                                                  unit
    x, x_m     steps              steps of training; the last is full training             steps
    y          y                  accuracy after a step                                    in [0, 1]
    phi_k      CurveFamily        one parametric curve                                     accuracy
    theta_k    theta[k]           parameters of family k, in its box                       -
    w_k        weights[:, k]      its weight, in [0, 1]                                    -
    sigma      exp(log_sigma)     standard deviation of an observation                     accuracy
    f_comb     weighted_sum()     sum over k of w_k phi_k(x)                               accuracy
    Z          stretch            factor by which a move stretches a line                  -

Differences from the paper:
- The boxes make every family non-decreasing, so the requirement f_comb(x_m) > f_comb(1) always holds. For rates that vary
  over decades the box holds the logarithm. For this, weibull, mmf and janoschek use the rise (a - b) instead of the start b.
- ilog2 divides by ln(x + 1): ln x is zero after the first step.
- Stretching all 48 coordinates at once hardly moves the walkers: on an eight-step curve Pr(y > y*) was 0.60 after 1000 moves
  and 0.70 after 10,000, and still rising. Here a sweep moves the parameters of one family at a time. It then draws the
  weights exactly along each of the axes of their conditional distribution, a truncated normal, and takes a Metropolis step
  in log sigma. On that curve the result is 0.94 to 0.97 after 150 sweeps (the default of `forecasts`) and 0.97 after 4000.
- The priors on the boxes are flat. The sum must not end above 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares
from scipy.special import ndtr, ndtri

from shoestring.core.deciding.reproducible import find_best, round_result
from shoestring.core.values.arrays import Floats


@dataclass(frozen=True, slots=True)
class CurveFamily:
    """A parametric curve that is non-decreasing in the step number within the box of its parameters."""

    name: str
    curve: Callable[..., Floats]  # its arguments are the step number and each parameter
    low: tuple[float, ...]
    high: tuple[float, ...]

    def at(self, steps: Floats, theta: Floats) -> Floats:
        """Return the curves (m, n) of parameters (m, p) at steps (n,)."""
        return np.asarray(self.curve(steps, *theta.T[:, :, None]))


FAMILIES = (
    CurveFamily("vapor_pressure", lambda x, a, b, c: np.exp(a + b / x + c * np.log(x)), (-5, -10, 0), (0, 0, 1)),
    CurveFamily("ilog2", lambda x, c, a: c - a / np.log1p(x), (0, 0), (1, 2)),
    CurveFamily(
        "weibull",
        lambda x, a, rise, log_k, d: a - rise * np.exp(-((np.exp(log_k) * x) ** d)),
        (0, 0, -7, 0.05),
        (1, 1, 3, 3),
    ),
    CurveFamily("pow3", lambda x, c, a, al: c - a * x**-al, (0, 0, 0.01), (1, 1, 3)),
    CurveFamily(
        "pow4", lambda x, c, log_a, b, al: c - (np.exp(log_a) * x + b) ** -al, (0, -5, 0.1, 0.01), (1, 5, 50, 3)
    ),
    CurveFamily(
        "mmf", lambda x, a, rise, log_k, d: a - rise / (1 + (np.exp(log_k) * x) ** d), (0, 0, -7, 0.05), (1, 1, 3, 5)
    ),
    CurveFamily(
        "janoschek",
        lambda x, a, rise, log_k, d: a - rise * np.exp(-np.exp(log_k) * x**d),
        (0, 0, -12, 0.05),
        (1, 1, 3, 3),
    ),
    CurveFamily("loglog_linear", lambda x, a, b: np.log(a * np.log(x) + b), (0, 0.5), (1, 2.8)),
    CurveFamily("log_power", lambda x, a, b, c: a / (1 + np.exp(c * (np.log(x) - b))), (0, -5, -5), (1, 7, 0)),
    CurveFamily(
        "exp4", lambda x, c, log_a, al, b: c - np.exp(-np.exp(log_a) * x**al + b), (0, -9, 0.05, -5), (1, 3, 2, 3)
    ),
    CurveFamily("hill3", lambda x, th, log_k, eta: th / (1 + (np.exp(log_k) / x) ** eta), (0, -5, 0.05), (1, 7, 5)),
)


LOG_SIGMA = (float(np.log(1e-3)), float(np.log(0.3)))  # its box
_LOG_SIGMA_STEP = 0.5  # standard deviation of a proposed change
_DECIMALS = 3  # decimals of a fit, as a share of its box; 88 fits differed by at most 1e-5 between BLAS kernels
_CANDIDATES = 256  # random points in the box of a family; the least-squares fit starts from the best of them
_SPREAD = 0.02  # share of a box side: standard deviation of the first walkers about the fit
_MAX_START_END = 0.999  # the sum of a starting walker must end below this


def stretch_move(mine: Floats, others: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return proposals (m, d) on lines through random members of `others` (h, d), and their log Jacobian weights (m,).

    Accept with probability min(1, exp(log weight + log density of the proposal - log density now)). `others` must not
    contain the walkers that move: two halves that move in turn keep the move reversible. Moves stay in the ensemble's span.
    """
    stretch = np.square(rng.random(mine.shape[0]) + 1.0) / 2.0  # density ~ 1 / sqrt(z) on [1/2, 2]
    partner = others[rng.integers(others.shape[0], size=mine.shape[0])]
    proposal = partner + stretch[:, None] * (mine - partner)
    return proposal, (mine.shape[1] - 1) * np.log(stretch)


@dataclass(slots=True)
class Walkers:
    """Ensemble of w walkers, each a full set of parameters. The three kinds of move change it in place."""

    y: Floats  # (n,)
    steps: Floats  # (n + 1,)
    theta: list[Floats]  # one (w, parameters) per family
    weights: Floats  # (w, families)
    log_sigma: Floats  # (w,)
    curves: Floats  # (w, families, n + 1), each family's curve at theta

    def weighted_sum(self) -> Floats:
        """Return f_comb (w, n + 1)."""
        return np.asarray((self.weights[:, None, :] @ self.curves)[:, 0, :])

    def log_density(self, combined: Floats, log_sigma: Floats) -> Floats:
        """Return the log density (m,) of sums (m, n + 1) whose parameters are within the boxes."""
        misfit = np.square(combined[:, :-1] - self.y).sum(axis=1)
        density = -0.5 * misfit * np.exp(-2.0 * log_sigma) - self.y.size * log_sigma
        return np.where(combined[:, -1] <= 1.0, density, -np.inf)

    def move_family(self, k: int, family: CurveFamily, rng: np.random.Generator) -> None:
        """Move the parameters of family k by the stretch move: one half of the walkers, then the other half."""
        half = self.log_sigma.size // 2
        combined = self.weighted_sum()
        low, high = np.array(family.low), np.array(family.high)
        for mine, others in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
            proposal, log_weight = stretch_move(self.theta[k][mine], self.theta[k][others], rng)
            allowed = ((proposal >= low) & (proposal <= high)).all(axis=1)
            proposal = np.clip(proposal, low, high)  # so that the curves of rejected proposals can be computed too
            curve = family.at(self.steps, proposal)
            change = self.weights[mine, k, None] * (curve - self.curves[mine, k])
            sigma = self.log_sigma[mine]
            gain = self.log_density(combined[mine] + change, sigma) - self.log_density(combined[mine], sigma)
            accept = allowed & (np.log1p(-rng.random(half)) < log_weight + gain)  # log1p: never the log of 0
            self.theta[k][mine][accept] = proposal[accept]
            self.curves[mine, k][accept] = curve[accept]

    def draw_weights(self, rng: np.random.Generator) -> None:
        """Draw once along each axis of the normal distribution of the weights, in their box and with an end of at most 1.

        The axes are eigenvectors of the curves' Gram matrix. Their images in data space are orthogonal, so a draw along one
        axis does not move the best point along the others.
        """
        data, end = self.curves[:, :, :-1], self.curves[:, :, -1]  # (w, k, n), (w, k)
        curvature, axes = np.linalg.eigh(data @ data.transpose(0, 2, 1))  # (w, k), (w, k, k)
        curvature = np.maximum(curvature, 1e-12)  # an axis without effect on the data is nearly flat; the box bounds it
        combined = self.weighted_sum()
        pull = data @ (self.y - combined[:, :-1])[:, :, None]  # (w, k, 1)
        best = (axes.transpose(0, 2, 1) @ pull)[:, :, 0] / curvature  # (w, axis): distance to the best point
        spread = np.exp(self.log_sigma)[:, None] / np.sqrt(curvature)  # (w, axis)
        slope = (end[:, None, :] @ axes)[:, 0, :]  # (w, axis): change of the end value
        room = 1.0 - combined[:, -1]  # (w,)
        for axis in range(self.weights.shape[1]):
            direction = _away_from_zero(axes[:, :, axis])
            to_low, to_high = -self.weights / direction, (1.0 - self.weights) / direction
            first = np.minimum(to_low, to_high).max(axis=1)
            last = np.maximum(to_low, to_high).min(axis=1)
            rise = _away_from_zero(slope[:, axis])
            first = np.where(rise < 0.0, np.maximum(first, room / rise), first)
            last = np.where(rise > 0.0, np.minimum(last, room / rise), last)
            distance = _truncated_normal(best[:, axis], spread[:, axis], first, last, rng)
            self.weights = np.clip(self.weights + distance[:, None] * direction, 0.0, 1.0)
            room = room - distance * rise

    def move_sigma(self, rng: np.random.Generator) -> None:
        """Take one Metropolis step in log sigma for each walker."""
        proposal = self.log_sigma + _LOG_SIGMA_STEP * rng.standard_normal(self.log_sigma.size)
        combined = self.weighted_sum()
        gain = self.log_density(combined, proposal) - self.log_density(combined, self.log_sigma)
        allowed = (proposal >= LOG_SIGMA[0]) & (proposal <= LOG_SIGMA[1])
        accept = allowed & (np.log1p(-rng.random(proposal.size)) < gain)
        self.log_sigma = np.where(accept, proposal, self.log_sigma)


def _away_from_zero(values: Floats) -> Floats:
    """Return values to divide by: a value that is zero up to rounding becomes a tiny positive number."""
    return np.where(np.abs(values) > 1e-12, values, 1e-12)


def _truncated_normal(mean: Floats, spread: Floats, first: Floats, last: Floats, rng: np.random.Generator) -> Floats:
    """Return draws (m,) of normals truncated to [first, last]; 0, which is no move, where the interval has no probability."""
    lower, upper = (first - mean) / spread, (last - mean) / spread
    flip = lower > 0.0  # the lower tail keeps digits that the upper tail loses
    lower, upper = np.where(flip, -upper, lower), np.where(flip, -lower, upper)
    below = ndtr(lower)
    score = ndtri(below + rng.random(mean.size) * (ndtr(upper) - below))
    drawn = mean + spread * np.where(flip, -score, score)
    return np.where(np.isfinite(drawn) & (drawn >= first) & (drawn <= last), drawn, 0.0)


def scatter_walkers(
    y: Floats, steps: Floats, n_walkers: int, families: Sequence[CurveFamily], rng: np.random.Generator
) -> Walkers:
    """Return walkers near the least-squares fit of each family. Weights are equal, and smaller where the sum ends above 1."""
    theta = []
    for family in families:
        low, high = np.array(family.low), np.array(family.high)
        candidates = rng.uniform(low, high, (_CANDIDATES, low.size))
        misfit = np.square(family.at(steps[:-1], candidates) - y).sum(axis=1)

        def residual(point: Floats, family: CurveFamily = family) -> Floats:
            return np.asarray(family.at(steps[:-1], point[None])[0] - y)

        found = least_squares(residual, candidates[find_best(misfit, "lowest")], bounds=(low, high), max_nfev=50).x
        fitted = low + (high - low) * round_result((found - low) / (high - low), _DECIMALS)
        jitter = _SPREAD * (high - low) * rng.standard_normal((n_walkers, low.size))
        theta.append(np.clip(fitted + jitter, low, high))
    curves = np.stack([family.at(steps, points) for family, points in zip(families, theta, strict=True)], axis=1)
    weights = np.full((n_walkers, len(families)), 1.0 / len(families))
    weights /= np.maximum(curves[:, :, -1].mean(axis=1) / _MAX_START_END, 1.0)[:, None]
    walkers = Walkers(y, steps, theta, weights, np.zeros(n_walkers), curves)
    misfit = np.square(walkers.weighted_sum()[:, :-1] - y).mean(axis=1)
    walkers.log_sigma = 0.5 * np.log(np.clip(misfit, *np.exp(2.0 * np.array(LOG_SIGMA))))
    return walkers
