"""Choose which hyperparameters to train and how long: the largest expected improvement per unit of predicted cost.

Nguyen, Schulze, Osborne, "Bayesian Optimization for Iterative Learning", NeurIPS 2020, arXiv:1909.09593v5, eq. 3 and
appendix A.3. The model is that of `score_process`; z = [x, t~] as there.

    paper      here          meaning                                                               unit
    mu_max     best_mean     largest posterior mean over x and time together                       score
    mu_c       CostPlane     cost by linear regression on [1, z]                                   seconds, …
    —          pool, free    points z to start from, and their columns that may move within [0,1]  —

Differences from the paper:
- The regression has an intercept and Z' c in place of Z c; sigma_n in the improvement is a standard deviation.
- The decision maximises log EI - log cost, not the printed ratio of soft-plus values (`rule="softplus"`): soft-plus of a
  vanishing EI is log 2, so a cheap point without any improvement beats an expensive one with a large improvement.
- In the ratio a cost is replaced by its share of the range of costs seen, at least 0, plus 0.1, as in the authors' programs.
  The programs climb from 3 (d + 1) places, this code climbs from 5. The printed ratio takes the EI of standardised scores and the
  share of a cost.
- A search starts from given points and moves along their free columns only, so that options, whole numbers and listed configs
  keep their values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from shoestring.core.deciding.reproducible import (
    LOG_SPREAD,
    PLACE_DECIMALS,
    TOLERANCE,
    find_best,
    round_result,
    sort_best_first,
)
from shoestring.core.values.arrays import Flags, Floats, Indices
from shoestring.models.boil.score_process import TrainingLengths
from shoestring.models.gp.acquisition import log_expected_improvement, log_expected_improvement_gradient
from shoestring.models.gp.posterior import GP

Rule = Literal["log_ratio", "softplus"]
CLIMBS = 5  # local searches of one decision
FLOOR = 0.1  # added to a cost's share of the range: no point is cheaper than a tenth of the range
# Climbs whose values differ by less than a millionth of a nat are equal: how exactly they converge must not decide between
# configs about which nothing is known.
_CLIMB_SPREAD = 1e-6 / TOLERANCE
# Distance from the cheapest cost within which climbs use a smooth ratio, as a share of the range of costs.
_SMOOTHING = 0.01


@dataclass(frozen=True, slots=True)
class CostPlane:
    """Cost of training as a linear function of z."""

    coefficients: Floats  # (d + 2,): intercept first
    lowest: float
    span: float  # range of the costs seen; 1 if they are all equal

    @classmethod
    def of(cls, z: Floats, cost: Floats) -> CostPlane:
        """Return the least-squares plane of the costs, (n,), at points z, (n, d + 1); n >= 1."""
        if not 1 <= len(z) == len(cost) or not np.isfinite(cost).all():
            raise ValueError(
                f"{len(cost)} costs for {len(z)} points: give one finite cost per point, and at least one."
            )
        # The points are centred. Otherwise, with fewer points than dimensions, the least-norm slope would point to the origin.
        centre, level = z.mean(axis=0), float(cost.mean())
        slope = np.linalg.lstsq(z - centre, cost - level, rcond=None)[0]
        return cls(np.concatenate([[level - slope @ centre], slope]), float(cost.min()), float(np.ptp(cost)) or 1.0)

    @classmethod
    def zero(cls, columns: int) -> CostPlane:
        """Return a plane on which everything costs 0, so that improvement alone decides; z has this many columns."""
        return cls(np.zeros(columns + 1), 0.0, 1.0)

    def predict(self, z: Floats) -> Floats:
        return np.asarray(self.coefficients[0] + z @ self.coefficients[1:])  # (q, d + 1) -> (q,)

    def share(self, cost: Floats) -> Floats:
        """Return costs as shares of the range seen: 0 for the cheapest, 1 for the most expensive."""
        return (cost - self.lowest) / self.span


def log_ratio(log_ei: Floats, cost_share: Floats) -> Floats:
    """Return the log of expected improvement per cost, eq. 3."""
    return log_ei - np.log(np.maximum(cost_share, 0.0) + FLOOR)


def log_softplus_ratio(log_ei: Floats, cost_share: Floats) -> Floats:
    """Return the log of the printed ratio, ln(1 + exp(EI)) / ln(1 + exp(cost)), with EI of standardised scores."""
    return np.log(np.logaddexp(0.0, np.exp(log_ei))) - np.log(np.logaddexp(0.0, cost_share))


class ScorePrediction(NamedTuple):
    """Prediction of the model for one point z."""

    score: float
    std: float
    log_ei: float
    log_ratio: float


@dataclass(frozen=True, slots=True, eq=False)
class ScorePredictions:
    """Predictions of the model for q points z."""

    score: Floats  # (q,)
    std: Floats
    log_ei: Floats
    log_ratio: Floats

    def at(self, at: int) -> ScorePrediction:
        return ScorePrediction(
            float(self.score[at]), float(self.std[at]), float(self.log_ei[at]), float(self.log_ratio[at])
        )


@dataclass(frozen=True, slots=True, eq=False)
class Tradeoff:
    """Improvement against cost, as a function of z.

    Scores are maximised, but `models.gp.acquisition` minimises, so scores enter it with the opposite sign.
    """

    gp: GP
    cost: CostPlane
    best_mean: float
    rule: Rule = "log_ratio"

    def predict(self, z: Floats) -> ScorePredictions:
        """Return the predictions for points z, (q, d + 1)."""
        mean, variance = self.gp.predict(z)
        std = np.sqrt(variance)
        log_ei = log_expected_improvement(-mean, std, -self.best_mean)
        return ScorePredictions(mean, std, log_ei, self._log_ratio(log_ei, self.cost.share(self.cost.predict(z))))

    def _log_ratio(self, log_ei: Floats, share: Floats) -> Floats:
        """Return the log of the ratio of improvement and cost by the rule, (q,)."""
        if self.rule == "softplus":
            return log_softplus_ratio(log_ei - np.log(self.gp.scale), share)
        return log_ratio(log_ei, share)

    def smooth_log_ratio_with_gradient(self, z: Floats) -> tuple[Floats, Floats]:
        """Return for points z, (q, d + 1), the log of the ratio, (q,), and its derivatives, (q, d + 1), for climbs.

        No cost counts as lower than the cheapest seen. There the log of the ratio has an edge, and often its maximum. A climb
        to an edge ends in another place on another machine, so climbs use a function that is smooth there (`_SMOOTHING`).
        """
        mean, variance, d_mean, d_variance = self.gp.predict_with_gradient(z)
        log_ei, d_log_ei = log_expected_improvement_gradient(-mean, variance, -d_mean, d_variance, -self.best_mean)
        share = self.cost.share(self.cost.predict(z))
        if self.rule == "softplus":
            ei = np.exp(log_ei - np.log(self.gp.scale))
            by_log_ei = ei * expit(ei) / np.logaddexp(0.0, ei)
            by_share = expit(share) / np.logaddexp(0.0, share)
        else:
            by_log_ei = np.ones_like(log_ei)
            root = np.sqrt(share * share + _SMOOTHING**2)
            share = 0.5 * (share + root)  # a smooth max(share, 0); its derivative is itself over the root
            by_share = share / root / (share + FLOOR)
        d_share = self.cost.coefficients[1:] / self.cost.span  # (d + 1,)
        return self._log_ratio(log_ei, share), by_log_ei[:, None] * d_log_ei - by_share[:, None] * d_share


class Peak(NamedTuple):
    """The largest mean, its place (d + 1,), and the row where the climb to it began; the stored points follow the pool."""

    mean: float
    z: Floats
    start: int


def find_largest_mean(gp: GP, pool: Floats, free: Flags) -> Peak:
    """Return mu_max over a pool, (m, d + 1), and the stored points, where narrow peaks are.

    `free`, (m + s, d + 1), says which columns may move: for the pool, then for the first s stored points.
    """

    def mean_with_gradient(z: Floats) -> tuple[Floats, Floats]:
        k, dk = gp.kernel.matrix_with_gradient(gp.theta[:-1], z, gp.x)
        return gp.shift + gp.scale * (k @ gp.weights), gp.scale * np.einsum("qnd,n->qd", dk, gp.weights)

    stored = len(free) - len(pool)
    before = np.concatenate([gp.predict_mean(pool), gp.predict_observed()[:stored]])
    everything = np.vstack([pool, gp.x[:stored]])
    values, points, starts = _climb(before, gp.predict_mean, mean_with_gradient, everything, free)
    top = find_best(values, "highest")
    return Peak(float(values[top]), points[top], int(starts[top]))


@dataclass(frozen=True, slots=True, eq=False)
class ChosenPoint:
    """What to train, for how long, and the prediction of the model at the rounded time."""

    z: Floats  # (d + 1,)
    start: int  # row of the pool where the search began
    steps: int
    prediction: ScorePrediction
    candidates: SearchCandidates


class SearchCandidates(NamedTuple):
    """Candidates of a search with their log ratios before times were rounded to steps, and the chosen one."""

    log_ratio: Floats  # (k,); -inf for a point that may not be trained
    points: Floats  # (k, d + 1)
    starts: Indices  # (k,): rows of the pool
    chosen: int


def choose(
    tradeoff: Tradeoff,
    pool: Floats,
    free: Flags,
    lengths: TrainingLengths,
    may_train: Callable[[Floats, int], bool],
) -> ChosenPoint:
    """Maximise log EI - log cost over x and time; the time is rounded to whole steps before anything is stored.

    `may_train` says whether an x that was reached from a row of the pool may be trained; rows of the pool always may.
    """

    def score(z: Floats) -> Floats:
        return tradeoff.predict(z).log_ratio

    with_gradient = tradeoff.smooth_log_ratio_with_gradient
    values, points, starts = _climb(score(pool), score, with_gradient, pool, free, spread=LOG_SPREAD)
    for top in sort_best_first(values, "highest", spread=_CLIMB_SPREAD):
        if np.array_equal(points[top], pool[starts[top]]) or may_train(points[top, :-1], starts[top]):
            break
        values[top] = -np.inf
    steps = lengths.steps_at(points[top, -1])
    z = np.append(points[top, :-1], lengths.time_of(steps))
    candidates = SearchCandidates(values, points, starts, int(top))
    return ChosenPoint(z, int(starts[top]), steps, tradeoff.predict(z[None]).at(0), candidates)


def _climb(
    before: Floats,
    score: Callable[[Floats], Floats],
    score_with_gradient: Callable[[Floats], tuple[Floats, Floats]],
    pool: Floats,
    free: Flags,
    spread: float | None = None,
) -> tuple[Floats, Floats, Indices]:
    """Return local maxima, followed by the starts: values (k,), points (k, d + 1), rows of the pool where they began (k,).

    Row i of the pool belongs to group i modulo 3 (f + 1); f is the largest number of columns that are free in any row. A climb
    starts at the best row of each of the CLIMBS best groups. Without groups the starts would often be neighbours, as the best
    rows of the whole pool are. `before` has the scores of the pool, (m,); `spread` is their unit, as for `find_best`. The end of
    a climb is scored again.
    """
    groups = min(len(pool), 3 * (1 + int(free.sum(axis=1).max())))
    best = [find_best(before[group::groups], "highest", spread=spread) for group in range(groups)]
    starts = np.arange(groups) + groups * np.array(best, dtype=np.intp)
    ranked = starts[sort_best_first(before[starts], "highest", spread=spread)]
    climbers = ranked[free[ranked].any(axis=1)][:CLIMBS]
    tops = np.array([_find_top(score_with_gradient, pool[row], free[row]) for row in climbers])
    tops = tops.reshape(-1, pool.shape[1])  # there may be no climbers
    values = np.concatenate([score(tops) if len(tops) else before[:0], before[starts]])
    return values, np.vstack([tops, pool[starts]]), np.concatenate([climbers, starts])


def _find_top(score_with_gradient: Callable[[Floats], tuple[Floats, Floats]], start: Floats, moving: Flags) -> Floats:
    """Return the local maximum, (d + 1,), that a climb from `start` along the moving columns reaches."""
    z = start.copy()

    def descent(place: Floats) -> tuple[float, Floats]:
        z[moving] = place
        value, gradient = score_with_gradient(z[None])
        return -float(value[0]), -gradient[0, moving]

    found = minimize(
        descent,
        start[moving],
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, 1.0)] * int(moving.sum()),
        options={"maxiter": 10 * int(moving.sum())},
    )
    z[moving] = np.clip(round_result(found.x, PLACE_DECIMALS), 0.0, 1.0)
    return z
