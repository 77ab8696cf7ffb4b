"""Search for the next point in a mixed space: score many candidates, then improve the best in their continuous dimensions.

Guinet et al., arXiv:2011.11456, eqs. (1) and (2), leave the search itself to their toolbox, so what follows is ours.

    here         meaning
    climb        L-BFGS-B on log EI - alpha log c from the best candidates; choices and integers stay
    slide        SLSQP on log c, with log EI at or above CEI's threshold, from the cheapest admissible candidates
    is_allowed   which points may be trained at all (not tried before, within the remaining budget)

All starts move together: their scores share no variable, so the sum of the scores has its maximum where each score has its
own, and one model call serves all. Every point found is scored again as a configuration and becomes one more candidate, so the
result is never worse than the best candidate before.

Before there is a model of the objective, `choose_cheap_and_far` finds configurations that fill the space and cost little: Lee
et al., arXiv:2003.10870 (CArBO), section 4.1.

Differences from the paper and from common practice:
- The derivative of log cost is a central difference. Cost models are piecewise smooth (clipped) and very cheap to evaluate,
  and one rule serves all seven of them.
- CArBO describes its elimination in words only. Here the most expensive candidate and the one closest to a trial are removed
  in turn, until one is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from shoestring.core.deciding.reproducible import LOG_SPREAD, PLACE_DECIMALS, reaches, round_result, sort_best_first
from shoestring.core.space.encoding import Encoding, Points
from shoestring.core.values.arrays import Flags, Floats
from shoestring.models.cost_aware.trade_off import cei_threshold, choose_cei, choose_ei_alpha
from shoestring.models.earlier_scores import InformedGP
from shoestring.models.gp.acquisition import log_expected_improvement, log_expected_improvement_gradient
from shoestring.models.gp.posterior import GP

PointFilter = Callable[[Points], Flags]  # m points -> m flags
STARTS = 5  # points from which a climb or slide starts
_CLIMB_STEPS = 20  # of L-BFGS-B: few, since a decision should take milliseconds
_SLIDE_STEPS = 8  # of SLSQP, for the same reason
_BISECTIONS = 6  # a slide ends within 1/32 of its way from the threshold
_STEP = 1e-5  # step of the central difference, in the unit cube


@dataclass(frozen=True, eq=False, slots=True)
class Surface:
    """The predictions at every point: log EI from the model of the objective, log cost from the cost model."""

    encoding: Encoding
    gp: GP | InformedGP
    f_min: float
    log_cost: Callable[[Points], Floats]  # (m,)

    def scores(self, points: Points) -> tuple[Floats, Floats]:
        """Return log EI and log cost, (m,) each."""
        return self.log_ei(points), self.log_cost(points)

    def log_ei(self, points: Points) -> Floats:
        """Return log EI, (m,)."""
        mean, variance = self.gp.predict(self.encoding.features(points))
        return log_expected_improvement(mean, np.sqrt(variance), self.f_min)

    def log_ei_gradient(self, points: Points) -> tuple[Floats, Floats]:
        """Return log EI, (m,), and its derivative with respect to the cube, (m, dims), 0 along choices."""
        moments = self.gp.predict_with_gradient(self.encoding.features(points))
        log_ei, by_column = log_expected_improvement_gradient(*moments, self.f_min)
        gradient = np.zeros_like(points.cube)
        gradient[:, self.encoding.numbers] = by_column[:, : self.encoding.numbers.size]
        return log_ei, gradient

    def log_cost_gradient(self, points: Points) -> tuple[Floats, Floats]:
        """Return log cost, (m,), and its derivative with respect to the continuous dimensions of the cube, (m, dims)."""
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
class ScoredPoints:
    """Points with their log EI and log cost."""

    points: Points  # (m,)
    log_ei: Floats  # (m,)
    log_cost: Floats  # (m,)

    def add(self, surface: Surface, more: Points, is_allowed: PointFilter, at_most: float = np.inf) -> ScoredPoints:
        """Return these points, then those of `more` that are allowed and whose log EI is at most `at_most`."""
        more = more.take(is_allowed(more))
        if not len(more):
            return self
        log_ei, log_cost = surface.scores(more)
        keep = reaches(at_most, log_ei)
        return ScoredPoints(
            self.points.join(more.take(keep)),
            np.concatenate([self.log_ei, log_ei[keep]]),
            np.concatenate([self.log_cost, log_cost[keep]]),
        )


@dataclass(frozen=True, eq=False, slots=True)
class Findings(ScoredPoints):
    """All points that were scored, including the refined ones, and the index of the one to train."""

    index: int
    threshold: float | None  # smallest log EI that CEI admits


def find_ei_alpha(surface: Surface, pool: Points, alpha: float, *, is_allowed: PointFilter, refine: bool) -> Findings:
    """Return the point of largest EI / c^alpha with all points that were scored.

    All points of `pool` must be allowed, and there must be at least one.
    """
    scored = ScoredPoints(pool, *surface.scores(pool))
    if refine:
        top = sort_best_first(scored.log_ei - alpha * scored.log_cost, "highest", STARTS, spread=LOG_SPREAD)
        scored = scored.add(surface, climb(surface, pool.take(top), alpha), is_allowed)
    index = choose_ei_alpha(scored.log_ei, scored.log_cost, alpha)
    return Findings(scored.points, scored.log_ei, scored.log_cost, index, None)


def find_cei(surface: Surface, pool: Points, slack: float, *, is_allowed: PointFilter, refine: bool) -> Findings:
    """Return the cheapest point whose EI is at least (1 - slack) of the best, with all points that were scored.

    All points of `pool` must be allowed, and there must be at least one.
    """
    scored = ScoredPoints(pool, *surface.scores(pool))
    if refine:
        top = sort_best_first(scored.log_ei, "highest", STARTS, spread=LOG_SPREAD)
        scored = scored.add(surface, climb(surface, pool.take(top), 0.0), is_allowed)
    best = float(scored.log_ei.max())
    threshold = cei_threshold(best, slack)
    if refine and slack > 0.0:
        admissible = np.flatnonzero(reaches(scored.log_ei, threshold))
        cheapest = admissible[sort_best_first(scored.log_cost[admissible], "lowest", STARTS, spread=LOG_SPREAD)]
        # A point that slid to a larger EI than the best would raise the threshold afterwards, so it is left out.
        scored = scored.add(surface, slide(surface, scored.points.take(cheapest), threshold), is_allowed, at_most=best)
    index = choose_cei(scored.log_ei, scored.log_cost, slack)
    return Findings(scored.points, scored.log_ei, scored.log_cost, index, threshold)


def climb(surface: Surface, starts: Points, alpha: float) -> Points:
    """Return the starts, each moved uphill on log EI - alpha log c along its active continuous dimensions."""
    free = surface.encoding.free(starts)
    if not free.any():
        return starts
    at_start = surface.log_cost(starts)  # subtracted, so that the solver's tolerances do not depend on the unit of cost

    def negative_score(moving: Floats) -> tuple[float, Floats]:
        points = starts.with_coordinates(free, moving)
        value, gradient = surface.log_ei_gradient(points)
        if alpha > 0.0:
            cost, by_place = surface.log_cost_gradient(points)
            value, gradient = value - alpha * (cost - at_start), gradient - alpha * by_place
        return -float(value.sum()), -gradient[free]

    bounds = np.tile((0.0, 1.0), (int(free.sum()), 1))
    options = {"maxiter": _CLIMB_STEPS, "ftol": 1e-6, "gtol": 1e-4}
    found = minimize(negative_score, starts.cube[free], jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return starts.with_coordinates(free, np.clip(round_result(found.x, PLACE_DECIMALS), 0.0, 1.0))


def slide(surface: Surface, starts: Points, threshold: float) -> Points:
    """Return the starts, each moved to lower cost along its active continuous dimensions, log EI at or above `threshold`."""
    free = surface.encoding.free(starts)
    if not free.any():
        return starts
    at_start, slope = surface.log_cost_gradient(starts)
    free &= np.any(slope * free, axis=1)[:, None]  # a start whose cost is flat stays
    if not free.any():
        return starts
    owner = np.nonzero(free)[0]  # the start that each variable belongs to
    movers = np.unique(owner)  # starts that move

    def at(moving: Floats) -> Points:
        return starts.with_coordinates(free, moving)

    def slopes(moving: Floats) -> Floats:  # (movers, variables); each depends on its own variables alone
        return np.where(movers[:, None] == owner, surface.log_ei_gradient(at(moving))[1][free], 0.0)

    # Values and slopes are separate functions: the solver's line search needs values only, which cost half as much.
    found = minimize(
        lambda moving: float((surface.log_cost(at(moving)) - at_start).sum()),
        starts.cube[free],
        jac=lambda moving: surface.log_cost_gradient(at(moving))[1][free],
        method="SLSQP",
        bounds=[(0.0, 1.0)] * owner.size,
        constraints=[{"type": "ineq", "fun": lambda v: surface.log_ei(at(v))[movers] - threshold, "jac": slopes}],
        options={"maxiter": _SLIDE_STEPS, "ftol": 1e-3},
    )
    if not np.all(np.isfinite(found.x)):
        return starts
    # The solver stops a rounding error away from the threshold, often on the wrong side, and far beyond it where the peak is
    # narrow. Bisection finds the largest share of each start's way on which log EI stays at or above the threshold.
    way = starts.with_coordinates(free, np.clip(round_result(found.x, PLACE_DECIMALS), 0.0, 1.0)).cube - starts.cube
    largest, share, step = np.zeros(len(starts)), np.ones(len(starts)), 1.0
    for _ in range(_BISECTIONS):
        fits = reaches(surface.log_ei(Points(starts.cube + share[:, None] * way, starts.active)), threshold)
        largest = np.where(fits, share, largest)
        step /= 2.0
        share = np.minimum(1.0, np.where(fits, share + step, share - step))
    return Points(starts.cube + largest[:, None] * way, starts.active)


def choose_cheap_and_far(x: Floats, tried: Floats, log_cost: Floats) -> int:
    """Return the index of the candidate that remains when expensive ones and ones close to a trial are removed in turn.

    x (m, d), m >= 1, tried (n, d), n >= 1, log_cost (m,). The most expensive candidate is removed first.
    """
    distance = cdist(x, tried).min(axis=1)  # (m,)
    orders = sort_best_first(log_cost, "highest", spread=LOG_SPREAD), sort_best_first(distance, "lowest")
    next_out = [iter(order.tolist()) for order in orders]
    removed: set[int] = set()
    for turn in range(len(x) - 1):
        removed.add(next(i for i in next_out[turn % 2] if i not in removed))
    (left,) = set(range(len(x))) - removed
    return left
