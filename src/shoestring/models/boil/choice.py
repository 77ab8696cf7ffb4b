"""Which hyperparameters to train, and how long: the largest expected improvement per unit of predicted cost.

Nguyen, Schulze, Osborne, "Bayesian Optimization for Iterative Learning", NeurIPS 2020, arXiv:1909.09593v5, eq. 3 and
appendix A.3. The model is that of `iterative_gp`; z = [x, t~] as there.

    paper      here          meaning                                                               unit
    mu_max     best_mean     largest posterior mean over x and time together                       score
    mu_c       LinearCost    cost by linear regression on [1, z]                                   seconds, say
    —          pool, free    points z to start from, and their columns that may move within [0,1]  —

Departs from the paper: the regression has an intercept and Z' c in place of Z c; sigma_n in the improvement is a standard
deviation. The decision maximises log EI - log cost, not a ratio of soft-plus values: soft-plus of a vanishing EI is log 2,
which makes a worthless cheap point beat a promising dear one. In the ratio a cost counts as a share of the range of costs
seen, no less than 0, plus 0.1, as in the authors' programs, which climb from 3 (d + 1) places, here from 5. A search starts
from given points and moves along their free columns only, so that options, whole numbers and listed configs stay what they
are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from shoestring.models.gp.acquisition import log_expected_improvement, log_expected_improvement_gradient
from shoestring.models.gp.posterior import GP

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
CLIMBS = 5
FLOOR = 0.1  # added to a cost scaled to [0, 1]: no point is cheaper than a tenth of the range


@dataclass(frozen=True, slots=True)
class LinearCost:
    """Cost of training as a plane over z."""

    coefficients: Array  # (d + 2,), intercept first
    lowest: float
    span: float  # range of the costs seen; 1 where they are all the same

    @classmethod
    def of(cls, z: Array, cost: Array) -> LinearCost:
        if not 1 <= len(z) == len(cost) or not np.isfinite(cost).all():
            raise ValueError(f"{len(cost)} costs for {len(z)} points: give one finite cost a point, and at least one.")
        # Centred first: with fewer points than dimensions the shortest slope is then flat, not tilted to the origin.
        centre, level = z.mean(axis=0), float(cost.mean())
        slope = np.linalg.lstsq(z - centre, cost - level, rcond=None)[0]
        return cls(np.concatenate([[level - slope @ centre], slope]), float(cost.min()), float(np.ptp(cost)) or 1.0)

    def predict(self, query: Array) -> Array:
        return np.asarray(self.coefficients[0] + query @ self.coefficients[1:])  # (q, d + 1) -> (q,)

    def scaled(self, query: Array) -> Array:
        """Cost as a share of the range seen: the cheapest was 0, the dearest 1. The regression of scaled costs."""
        return (self.predict(query) - self.lowest) / self.span

    @classmethod
    def free(cls, columns: int) -> LinearCost:
        """Everything costs nothing, and improvement alone decides; `columns` of z."""
        return cls(np.zeros(columns + 1), 0.0, 1.0)


def log_ratio(mean: Array, std: Array, best_mean: float, scaled_cost: Array) -> Array:
    """Log of expected improvement (larger is better) per cost, eq. 3; costs count from 0 on, and FLOOR is added."""
    return log_expected_improvement(-mean, std, -best_mean) - np.log(np.maximum(scaled_cost, 0.0) + FLOOR)


def log_ratio_at(gp: GP, cost: LinearCost, best_mean: float, query: Array) -> Array:
    """The same at points z."""  # (q, d + 1) -> (q,)
    mean, variance = gp.predict(query)
    return log_ratio(mean, np.sqrt(variance), best_mean, cost.scaled(query))


def log_ratio_gradient_at(gp: GP, cost: LinearCost, best_mean: float, query: Array) -> tuple[Array, Array]:
    """The same with its derivatives."""  # (q, d + 1) -> (q,), (q, d + 1)
    mean, variance, d_mean, d_variance = gp.predict_with_gradient(query)
    log_ei, d_log_ei = log_expected_improvement_gradient(-mean, variance, -d_mean, d_variance, -best_mean)
    scaled = cost.scaled(query)
    floored = np.maximum(scaled, 0.0) + FLOOR
    slope = np.where(scaled > 0.0, 1.0 / floored, 0.0)[:, None] * (cost.coefficients[1:] / cost.span)
    return log_ei - np.log(floored), d_log_ei - slope


def largest_mean(gp: GP, pool: Array, free: Flags) -> tuple[float, Array]:
    """mu_max and where it lies; the pool, (m, d + 1), should hold the stored points too, since narrow peaks are there."""

    # Without variances: they would cost O(n^2) a point, the mean alone costs O(n).
    def mean(query: Array) -> Array:
        return gp.shift + gp.scale * (gp.kernel.matrix(gp.theta[:-1], query, gp.x) @ gp.weights)

    def mean_gradient(query: Array) -> tuple[Array, Array]:
        k, dk = gp.kernel.matrix_with_gradient(gp.theta[:-1], query, gp.x)
        return gp.shift + gp.scale * (k @ gp.weights), gp.scale * np.einsum("qnd,n->qd", dk, gp.weights)

    values, points, _ = _climb(mean, mean_gradient, pool, free)
    top = int(np.argmax(values))
    return float(values[top]), points[top]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to train, for how long, and the numbers behind it, taken at the rounded time."""

    x: Array  # (d,)
    start: int  # row of the pool that the search began from
    steps: int
    time: float
    log_ratio: float
    log_ei: float
    mean: float
    std: float


def choose(
    gp: GP,
    cost: LinearCost,
    best_mean: float,
    pool: Array,
    free: Flags,
    *,
    min_steps: int,
    max_steps: int,
    allowed: Callable[[Array, int], bool] = lambda x, start: True,
) -> Choice:
    """Maximise log EI - log cost over x and time; the time is rounded to whole steps before anything is stored.

    `allowed` says whether an x that was reached from a row of the pool may be trained; the pool itself may.
    """
    values, points, starts = _climb(
        lambda query: log_ratio_at(gp, cost, best_mean, query),
        lambda query: log_ratio_gradient_at(gp, cost, best_mean, query),
        pool,
        free,
    )
    # Configs of which nothing is known are equal; how exactly each climb converged must not decide between them.
    ranked = np.argsort(-np.round(values, 6), kind="stable")
    at = next(i for i in ranked if np.array_equal(points[i], pool[starts[i]]) or allowed(points[i, :-1], starts[i]))
    x = points[at, :-1]
    steps = int(np.rint(min_steps + points[at, -1] * (max_steps - min_steps)))
    time = unit_time(steps, min_steps, max_steps)
    query = np.append(x, time)[None]
    mean, variance = gp.predict(query)
    std = np.sqrt(variance)
    return Choice(
        x=x,
        start=int(starts[at]),
        steps=steps,
        time=time,
        log_ratio=float(log_ratio(mean, std, best_mean, cost.scaled(query))[0]),
        log_ei=float(log_expected_improvement(-mean, std, -best_mean)[0]),
        mean=float(mean[0]),
        std=float(std[0]),
    )


def unit_time(steps: int, min_steps: int, max_steps: int) -> float:
    """t~ of a number of steps; 1 where there is but one length of training."""
    if not 1 <= min_steps <= steps <= max_steps:
        raise ValueError(f"steps={steps} must lie in min_steps={min_steps} .. max_steps={max_steps}, 1 at least.")
    return (steps - min_steps) / (max_steps - min_steps) if max_steps > min_steps else 1.0


def _climb(
    score: Callable[[Array], Array],
    score_gradient: Callable[[Array], tuple[Array, Array]],
    pool: Array,
    free: Flags,
) -> tuple[Array, Array, NDArray[np.intp]]:
    """Local maxima and, behind them, their starts: values (k,), points (k, d + 1), rows of the pool they began from (k,).

    The pool is dealt out into 3 (f + 1) hands, f the most columns that are free in any row; of the best of each hand, CLIMBS
    climb. Dealing keeps them apart: the best rows of the whole pool are often neighbours.
    """
    before = score(pool)
    hands = min(len(pool), 3 * (1 + int(free.sum(axis=1).max())))
    starts = np.array([hand + hands * int(np.argmax(before[hand::hands])) for hand in range(hands)], dtype=np.intp)
    ranked = starts[np.argsort(-before[starts], kind="stable")]
    climbed = ranked[free[ranked].any(axis=1)][:CLIMBS]
    tops = [_top(score_gradient, pool[row], free[row]) for row in climbed]
    values = np.concatenate([[value for value, _ in tops], before[starts]])
    return values, np.array([*(z for _, z in tops), *pool[starts]]), np.concatenate([climbed, starts])


def _top(score_gradient: Callable[[Array], tuple[Array, Array]], start: Array, moving: Flags) -> tuple[float, Array]:
    """The maximum that is reached from `start`, (d + 1,), along the columns that move."""
    z = start.copy()

    def descent(place: Array) -> tuple[float, Array]:
        z[moving] = place
        value, gradient = score_gradient(z[None])
        return -float(value[0]), -gradient[0, moving]

    found = minimize(
        descent,
        start[moving],
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, 1.0)] * int(moving.sum()),
        options={"maxiter": 10 * int(moving.sum())},
    )
    z[moving] = found.x
    return -float(found.fun), z
