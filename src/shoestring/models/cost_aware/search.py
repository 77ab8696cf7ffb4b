"""Finding the point to buy next in a mixed space: scan many candidates, then move the best along their continuous part.

Guinet, Perrone and Archambeau, "Pareto-efficient Acquisition Functions for Cost-Aware Bayesian Optimization",
arXiv:2011.11456, eqs. (1) and (2); the paper leaves the search itself to its toolbox, so what follows is ours.

    here         meaning                                                                              unit
    candidates   quasi-random points, and perturbed copies of the best points seen                    unit cube
    climb        L-BFGS-B on log EI - alpha log c from the best candidates; choices and integers stay —
    slide        SLSQP on log c with log EI kept above CEI's threshold, from the cheapest admissible  —
    allowed      which points may be bought at all (not tried before, within what is left)            —

All starts move together: their scores share no variable, so the sum of the scores is one function whose maximum is
everybody's maximum, and one model call serves all. Nothing found is trusted before it was scored again as a config: only
improvements are kept, so the result is never worse than the best candidate.

Departs from the usual: the derivative of log cost is a central difference. Cost models are piecewise smooth (clipped) and cost
next to nothing, and one rule serves all seven of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from shoestring.core.encoding import Encoding, Points
from shoestring.core.quasi_random import points as quasi_random
from shoestring.models.gp.acquisition import (
    cei_threshold,
    choose_cei,
    choose_ei_alpha,
    log_expected_improvement,
    log_expected_improvement_gradient,
)
from shoestring.models.gp.posterior import GP

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

STARTS = 5
NEAR = 50  # perturbed copies of each of the best
NEAR_STD = 0.05  # of a perturbation, in the unit cube
REDRAWN = 0.2  # chance that a perturbation draws an integer or choice anew: a small step rarely leaves its cell
CLIMB_STEPS = 20
SLIDE_STEPS = 8
BISECTIONS = 6
_STEP = 1e-5  # of the central difference


@dataclass(frozen=True, eq=False, slots=True)
class Surface:
    """What is known at every point: log EI from the objective's model, log cost from the cost model."""

    encoding: Encoding
    gp: GP
    f_min: float
    log_cost: Callable[[Points], Array]  # (m,)

    def scores(self, points: Points) -> tuple[Array, Array]:
        """log EI and log cost, (m,) each."""
        return self.log_ei(points), self.log_cost(points)

    def log_ei(self, points: Points) -> Array:
        """(m,)."""
        mean, variance = self.gp.predict(self.encoding.features(points))
        return log_expected_improvement(mean, np.sqrt(variance), self.f_min)

    def log_ei_gradient(self, points: Points) -> tuple[Array, Array]:
        """log EI, (m,), and its derivative with respect to the cube, (m, dims); 0 along choices."""
        moments = self.gp.predict_with_gradient(self.encoding.features(points))
        log_ei, by_column = log_expected_improvement_gradient(*moments, self.f_min)
        gradient = np.zeros_like(points.cube)
        gradient[:, self.encoding.numbers] = by_column[:, : self.encoding.numbers.size]
        return log_ei, gradient

    def log_cost_gradient(self, points: Points) -> tuple[Array, Array]:
        """log cost, (m,), and its derivative with respect to the continuous dimensions of the cube, (m, dims)."""
        m, dims = points.cube.shape
        along = np.flatnonzero(self.encoding.is_continuous)
        above = np.repeat(points.cube[None], along.size, axis=0)  # (k, m, dims)
        below = above.copy()
        for i, j in enumerate(along):
            above[i, :, j] = np.minimum(above[i, :, j] + _STEP, 1.0)
            below[i, :, j] = np.maximum(below[i, :, j] - _STEP, 0.0)
        cube = np.concatenate([points.cube, above.reshape(-1, dims), below.reshape(-1, dims)])
        values = self.log_cost(Points(cube, np.tile(points.active, (1 + 2 * along.size, 1))))
        rise = values[m:].reshape(2, along.size, m)
        run = np.stack([above[i, :, j] - below[i, :, j] for i, j in enumerate(along)], axis=1)  # (m, k)
        gradient = np.zeros((m, dims))
        gradient[:, along] = (rise[0] - rise[1]).T / run
        return values[:m], gradient


@dataclass(frozen=True, eq=False, slots=True)
class Found:
    """The choice among all points that were looked at, the refined ones included."""

    points: Points  # (m,)
    log_ei: Array  # (m,)
    log_cost: Array  # (m,)
    index: int
    threshold: float | None  # smallest log EI that CEI admitted


def candidates(encoding: Encoding, best: Array, count: int, seed: int, rng: np.random.Generator) -> Points:
    """`count` quasi-random points, shifted anew each time, and `NEAR` perturbed copies of each row of best, (k, dims)."""
    dims = encoding.space.dims
    spread = (_sequence(seed, dims, count) + rng.random(dims)) % 1.0
    near = np.repeat(best, NEAR, axis=0)
    moved = np.clip(near + NEAR_STD * rng.standard_normal(near.shape), 0.0, 1.0)
    redrawn = (rng.random(near.shape) < REDRAWN) & ~encoding.is_continuous
    return encoding.snap(np.vstack([spread, np.where(redrawn, rng.random(near.shape), moved)]))


@lru_cache(maxsize=16)
def _sequence(seed: int, dims: int, count: int) -> Array:
    return quasi_random(seed, "candidates", dims, np.arange(count))


def find_ei_alpha(
    surface: Surface, pool: Points, alpha: float, *, allowed: Callable[[Points], Flags], refine: bool
) -> Found:
    """The largest EI / c^alpha; `pool` must be allowed and not empty."""
    log_ei, log_cost = surface.scores(pool)
    if refine:
        top = np.argsort(alpha * log_cost - log_ei, kind="stable")[:STARTS]
        pool, log_ei, log_cost = _added(surface, pool, log_ei, log_cost, climb(surface, pool.take(top), alpha), allowed)
    return Found(pool, log_ei, log_cost, choose_ei_alpha(log_ei, log_cost, alpha), None)


def find_cei(
    surface: Surface, pool: Points, slack: float, *, allowed: Callable[[Points], Flags], refine: bool
) -> Found:
    """The cheapest point whose EI is at least (1 - slack) of the best; `pool` must be allowed and not empty."""
    log_ei, log_cost = surface.scores(pool)
    if refine:
        top = np.argsort(-log_ei, kind="stable")[:STARTS]
        pool, log_ei, log_cost = _added(surface, pool, log_ei, log_cost, climb(surface, pool.take(top), 0.0), allowed)
    threshold = cei_threshold(float(log_ei.max()), slack)
    if refine and slack > 0.0:
        admitted = np.flatnonzero(log_ei >= threshold)
        cheapest = admitted[np.argsort(log_cost[admitted], kind="stable")[:STARTS]]
        slid = slide(surface, pool.take(cheapest), threshold)
        # A point that slid to a larger EI than the best would raise the threshold after the fact: it is not taken.
        best = float(log_ei.max())
        pool, log_ei, log_cost = _added(surface, pool, log_ei, log_cost, slid, allowed, at_most=best)
    return Found(pool, log_ei, log_cost, choose_cei(log_ei, log_cost, slack), threshold)


def climb(surface: Surface, starts: Points, alpha: float) -> Points:
    """Each start moved uphill on log EI - alpha log c along its active continuous dimensions."""
    free = surface.encoding.free(starts)
    if not free.any():
        return starts
    at_start = surface.log_cost(starts)  # subtracted, so that the solver's tolerances do not depend on the unit of cost

    def negative_score(moving: Array) -> tuple[float, Array]:
        points = _moved(starts, free, moving)
        value, gradient = surface.log_ei_gradient(points)
        if alpha > 0.0:
            cost, by_place = surface.log_cost_gradient(points)
            value, gradient = value - alpha * (cost - at_start), gradient - alpha * by_place
        return -float(value.sum()), -gradient[free]

    found = minimize(
        negative_score,
        starts.cube[free],
        jac=True,
        method="L-BFGS-B",
        bounds=np.tile((0.0, 1.0), (int(free.sum()), 1)),
        options={"maxiter": CLIMB_STEPS, "ftol": 1e-6, "gtol": 1e-4},
    )
    return _moved(starts, free, found.x)


def slide(surface: Surface, starts: Points, threshold: float) -> Points:
    """Each start moved to lower cost along its active continuous dimensions, with log EI kept at or above `threshold`."""
    free = surface.encoding.free(starts)
    if not free.any():
        return starts
    at_start, slope = surface.log_cost_gradient(starts)
    free &= np.any(slope * free, axis=1)[:, None]  # a start whose cost is flat stays
    if not free.any():
        return starts
    owner = np.nonzero(free)[0]  # the start that each variable belongs to
    moving_starts = np.unique(owner)

    def at(moving: Array) -> Points:
        return _moved(starts, free, moving)

    def slopes(moving: Array) -> Array:  # (starts that move, variables); each depends on its own variables alone
        return np.where(moving_starts[:, None] == owner, surface.log_ei_gradient(at(moving))[1][free], 0.0)

    # Values and slopes apart: the solver's line search asks for values only, which cost half as much.
    found = minimize(
        lambda moving: float((surface.log_cost(at(moving)) - at_start).sum()),
        starts.cube[free],
        jac=lambda moving: surface.log_cost_gradient(at(moving))[1][free],
        method="SLSQP",
        bounds=[(0.0, 1.0)] * owner.size,
        constraints=[
            {"type": "ineq", "fun": lambda v: surface.log_ei(at(v))[moving_starts] - threshold, "jac": slopes}
        ],
        options={"maxiter": SLIDE_STEPS, "ftol": 1e-3},
    )
    if not np.all(np.isfinite(found.x)):
        return starts
    # The solver stops a rounding away from the threshold, often on the wrong side, and where the peak is narrow far beyond:
    # each start goes as much of its way as keeps the threshold, by bisection.
    way = _moved(starts, free, np.clip(found.x, 0.0, 1.0)).cube - starts.cube
    kept, share, step = np.zeros(len(starts)), np.ones(len(starts)), 1.0
    for _ in range(BISECTIONS):
        fits = surface.log_ei(Points(starts.cube + share[:, None] * way, starts.active)) >= threshold
        kept = np.where(fits, share, kept)
        step /= 2.0
        share = np.minimum(1.0, np.where(fits, share + step, share - step))
    return Points(starts.cube + kept[:, None] * way, starts.active)


def _moved(starts: Points, free: Flags, moving: Array) -> Points:
    cube = starts.cube.copy()
    cube[free] = moving
    return Points(cube, starts.active)


def _added(
    surface: Surface,
    pool: Points,
    log_ei: Array,
    log_cost: Array,
    more: Points,
    allowed: Callable[[Points], Flags],
    at_most: float = np.inf,
) -> tuple[Points, Array, Array]:
    """The pool with those of `more` that may be bought and whose log EI is no larger than `at_most`."""
    more = more.take(allowed(more))
    if not len(more):
        return pool, log_ei, log_cost
    new_ei, new_cost = surface.scores(more)
    keep = new_ei <= at_most
    return (
        pool.join(more.take(keep)),
        np.concatenate([log_ei, new_ei[keep]]),
        np.concatenate([log_cost, new_cost[keep]]),
    )
