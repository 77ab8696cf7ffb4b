"""Which hyperparameters to train, and how long: the largest expected improvement per unit of predicted cost.

Nguyen, Schulze, Osborne, "Bayesian Optimization for Iterative Learning", NeurIPS 2020, arXiv:1909.09593v5, eq. 3 and
appendix A.3. The model is that of `process`; z = [x, t~] as there.

    paper      here          meaning                                                               unit
    mu_max     best_mean     largest posterior mean over x and time together                       score
    mu_c       CostPlane     cost by linear regression on [1, z]                                   seconds, say
    —          pool, free    points z to start from, and their columns that may move within [0,1]  —

Departs from the paper:
- The regression has an intercept and Z' c in place of Z c; sigma_n in the improvement is a standard deviation.
- The decision maximises log EI - log cost, not the printed ratio of soft-plus values (`rule="softplus"`): soft-plus of a
  vanishing EI is log 2, which makes a worthless cheap point beat a promising dear one.
- In the ratio a cost counts as a share of the range of costs seen, no less than 0, plus 0.1, as in the authors' programs.
  These climb from 3 (d + 1) places, here from 5. In the printed one EI is that of standardised scores, and a cost is a share too.
- A search starts from given points and moves along their free columns only, so that options, whole numbers and listed configs
  stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from shoestring.core.deciding.reproducible import NAT, PLACE_DECIMALS, TOLERANCE, find_best, settle, sort_best_first
from shoestring.core.values.arrays import Flags, Floats, Indices
from shoestring.models.boil.process import RunLengths
from shoestring.models.gp.acquisition import log_expected_improvement, log_expected_improvement_gradient
from shoestring.models.gp.posterior import GP

Rule = Literal["log_ratio", "softplus"]
CLIMBS = 5
FLOOR = 0.1  # added to a cost's share of the range: no point is cheaper than a tenth of it
# Climbs that end within a millionth of a nat of each other are equal: how exactly they converge must not decide between
# configs of which nothing is known.
_CLIMBED = 1e-6 / TOLERANCE
_BEND = 0.01  # share of the range of costs: so far from the cheapest, the bend that climbs see is straight again


@dataclass(frozen=True, slots=True)
class CostPlane:
    """Cost of training as a plane over z."""

    coefficients: Floats  # (d + 2,), intercept first
    lowest: float
    span: float  # range of the costs seen; 1 where they are all the same

    @classmethod
    def of(cls, z: Floats, cost: Floats) -> CostPlane:
        if not 1 <= len(z) == len(cost) or not np.isfinite(cost).all():
            raise ValueError(f"{len(cost)} costs for {len(z)} points: give one finite cost a point, and at least one.")
        # Centred first: with fewer points than dimensions the shortest slope is then flat, not tilted to the origin.
        centre, level = z.mean(axis=0), float(cost.mean())
        slope = np.linalg.lstsq(z - centre, cost - level, rcond=None)[0]
        return cls(np.concatenate([[level - slope @ centre], slope]), float(cost.min()), float(np.ptp(cost)) or 1.0)

    @classmethod
    def zero(cls, columns: int) -> CostPlane:
        """Everything costs nothing, and improvement alone decides; `columns` of z."""
        return cls(np.zeros(columns + 1), 0.0, 1.0)

    def predict(self, z: Floats) -> Floats:
        return np.asarray(self.coefficients[0] + z @ self.coefficients[1:])  # (q, d + 1) -> (q,)

    def share(self, cost: Floats) -> Floats:
        """Costs as shares of the range seen: the cheapest was 0, the dearest 1."""
        return (cost - self.lowest) / self.span


def log_ratio(log_ei: Floats, cost_share: Floats) -> Floats:
    """Log of expected improvement per cost, eq. 3."""
    return log_ei - np.log(np.maximum(cost_share, 0.0) + FLOOR)


def log_softplus_ratio(log_ei: Floats, cost_share: Floats) -> Floats:
    """Log of the printed ratio, ln(1 + exp(EI)) / ln(1 + exp(cost)); EI of standardised scores."""
    return np.log(np.logaddexp(0.0, np.exp(log_ei))) - np.log(np.logaddexp(0.0, cost_share))


class Promise(NamedTuple):
    """What the model expects of one run."""

    score: float
    std: float
    log_ei: float
    log_ratio: float


@dataclass(frozen=True, slots=True, eq=False)
class Appraisal:
    """What the model expects of q points z."""

    score: Floats  # (q,)
    std: Floats
    log_ei: Floats
    log_ratio: Floats

    def promise(self, at: int) -> Promise:
        return Promise(float(self.score[at]), float(self.std[at]), float(self.log_ei[at]), float(self.log_ratio[at]))


@dataclass(frozen=True, slots=True, eq=False)
class Tradeoff:
    """Improvement against cost, as a function of z. Scores are to be large, the acquisition functions want them small."""

    gp: GP
    cost: CostPlane
    best_mean: float
    rule: Rule = "log_ratio"

    def appraise(self, z: Floats, cost: Floats | None = None) -> Appraisal:
        """Of points z, (q, d + 1), that cost what the plane predicts, unless it is known better."""
        mean, variance = self.gp.predict(z)
        std = np.sqrt(variance)
        log_ei = log_expected_improvement(-mean, std, -self.best_mean)
        cost = self.cost.predict(z) if cost is None else cost
        return Appraisal(mean, std, log_ei, self._weigh(log_ei, self.cost.share(cost)))

    def _weigh(self, log_ei: Floats, share: Floats) -> Floats:
        if self.rule == "softplus":
            return log_softplus_ratio(log_ei - np.log(self.gp.scale), share)
        return log_ratio(log_ei, share)

    def bent_log_ratio_with_gradient(self, z: Floats) -> tuple[Floats, Floats]:
        """Return for points z, (q, d + 1), the logarithm of the ratio, (q,), and its derivatives, (q, d + 1), for climbs.

        No cost is below the cheapest seen: there the logarithm of the ratio has an edge, and often its maximum. A climb to
        an edge ends in another place on another machine, so climbs see it bent within a share of `_BEND`.
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
            root = np.sqrt(share * share + _BEND**2)
            share = 0.5 * (share + root)  # max(share, 0) without its edge; its derivative is this over the root
            by_share = share / root / (share + FLOOR)
        d_share = self.cost.coefficients[1:] / self.cost.span  # (d + 1,)
        return self._weigh(log_ei, share), by_log_ei[:, None] * d_log_ei - by_share[:, None] * d_share


class Peak(NamedTuple):
    """mu_max, where it is, (d + 1,), and which row the climb to it began from: of the pool, then of the stored points."""

    mean: float
    z: Floats
    start: int


def find_largest_mean(gp: GP, pool: Floats, free: Flags) -> Peak:
    """mu_max over a pool, (m, d + 1), and the stored points, since narrow peaks are there.

    `free`, (m + s, d + 1), tells what may move: of the pool, then of the first s stored points.
    """

    def mean_with_gradient(z: Floats) -> tuple[Floats, Floats]:
        k, dk = gp.kernel.matrix_with_gradient(gp.theta[:-1], z, gp.x)
        return gp.shift + gp.scale * (k @ gp.weights), gp.scale * np.einsum("qnd,n->qd", dk, gp.weights)

    stored = len(free) - len(pool)
    before = np.concatenate([gp.predict_mean(pool), gp.fitted()[:stored]])
    everything = np.vstack([pool, gp.x[:stored]])
    values, points, starts = _climb(before, gp.predict_mean, mean_with_gradient, everything, free)
    top = find_best(values, "highest")
    return Peak(float(values[top]), points[top], int(starts[top]))


@dataclass(frozen=True, slots=True, eq=False)
class ChosenRun:
    """What to train, for how long, and what the model expects of it, taken at the rounded time."""

    z: Floats  # (d + 1,)
    start: int  # row of the pool that the search began from
    steps: int
    promise: Promise
    found: Scores


class Scores(NamedTuple):
    """What a search came across: log ratios, before times were rounded to steps, and the one that was chosen."""

    log_ratio: Floats  # (k,); -inf where nothing may be trained
    points: Floats  # (k, d + 1)
    starts: Indices  # (k,): rows of the pool
    chosen: int


def choose(
    tradeoff: Tradeoff,
    pool: Floats,
    free: Flags,
    lengths: RunLengths,
    may_train: Callable[[Floats, int], bool],
) -> ChosenRun:
    """Maximise log EI - log cost over x and time; the time is rounded to whole steps before anything is stored.

    `may_train` says whether an x that was reached from a row of the pool may be trained; the pool itself may.
    """

    def score(z: Floats) -> Floats:
        return tradeoff.appraise(z).log_ratio

    with_gradient = tradeoff.bent_log_ratio_with_gradient
    values, points, starts = _climb(score(pool), score, with_gradient, pool, free, spread=NAT)
    for top in sort_best_first(values, "highest", spread=_CLIMBED):
        if np.array_equal(points[top], pool[starts[top]]) or may_train(points[top, :-1], starts[top]):
            break
        values[top] = -np.inf
    steps = lengths.steps_at(points[top, -1])
    z = np.append(points[top, :-1], lengths.time_of(steps))
    scores = Scores(values, points, starts, int(top))
    return ChosenRun(z, int(starts[top]), steps, tradeoff.appraise(z[None]).promise(0), scores)


def _climb(
    before: Floats,
    score: Callable[[Floats], Floats],
    score_with_gradient: Callable[[Floats], tuple[Floats, Floats]],
    pool: Floats,
    free: Flags,
    spread: float | None = None,
) -> tuple[Floats, Floats, Indices]:
    """Local maxima and, behind them, their starts: values (k,), points (k, d + 1), rows of the pool they began from (k,).

    The pool is dealt out into 3 (f + 1) hands, f the most columns that are free in any row; of the best of each hand, CLIMBS
    climb. Dealing keeps them apart: the best rows of the whole pool are often neighbours. `before`: scores of the pool, (m,);
    `spread`: their unit, as for `find_best`. Where a climb ends is scored again.
    """
    hands = min(len(pool), 3 * (1 + int(free.sum(axis=1).max())))
    best = [find_best(before[hand::hands], "highest", spread=spread) for hand in range(hands)]
    starts = np.arange(hands) + hands * np.array(best, dtype=np.intp)
    ranked = starts[sort_best_first(before[starts], "highest", spread=spread)]
    climbers = ranked[free[ranked].any(axis=1)][:CLIMBS]
    tops = np.array([_find_top(score_with_gradient, pool[row], free[row]) for row in climbers]).reshape(
        -1, pool.shape[1]
    )
    values = np.concatenate([score(tops) if len(tops) else before[:0], before[starts]])
    return values, np.vstack([tops, pool[starts]]), np.concatenate([climbers, starts])


def _find_top(score_with_gradient: Callable[[Floats], tuple[Floats, Floats]], start: Floats, moving: Flags) -> Floats:
    """The maximum, (d + 1,), that is reached from `start` along the columns that move."""
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
    z[moving] = np.clip(settle(found.x, PLACE_DECIMALS), 0.0, 1.0)
    return z
