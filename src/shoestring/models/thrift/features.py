"""The input of the network for each arm: its curve, its rank among the others, its hyperparameters and the budget.

    feature                 meaning, on the scale u of `shapes`                                      number
    losses                  at 15 steps, and whether the arm has reached them                        15 + 15
    started                 whether the arm was trained at all                                       1
    last, low               its newest and its lowest loss                                           2
    trend                   newest loss less the loss at half its steps                              1
    rough, rises            mean size of a change from step to step, and of upward changes           2
    since                   steps since its lowest loss, as a share of a curve                       1
    ahead                   share of the arms with as many steps that had a larger loss there        1
    beaten                  share of all trained arms whose lowest loss is larger                    1
    as far                  log of the number of arms with as many steps                             1
    n                       steps trained: log, and share of a curve                                 2
    reach                   affordable further steps: share of a curve, log, and whether none        3
    price                   log of its price per step relative to the mean price                     1
    hyperparameters         rank within the study from -1 to 1, and whether it is active             16 + 16
    study                   logs of budget left, spent, arms started and steps; mean roughness        5

`training/network.py` has the same in PyTorch, for many studies at once; a golden file ensures that the two agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoestring.core.deciding.reproducible import ROUNDING, find_best_of_rows, sort_best_first
from shoestring.core.values.arrays import Flags, Floats, Indices, invert
from shoestring.models.thrift.shapes import COLUMNS, FEATURE_STEPS, HIGH, LOW, SHARPNESS, STEPS

_FAR = 1e30  # in place of losses that are not known yet
_AT_FEATURE_STEPS = np.array(FEATURE_STEPS) - 1
_STEP = np.arange(1, STEPS + 1)
_REACH = slice(2 * len(FEATURE_STEPS) + 12, 2 * len(FEATURE_STEPS) + 15)  # where `_reach_columns` are


@dataclass(frozen=True, slots=True, eq=False)
class Arms:
    """All arms of a study, and candidates that were not trained yet. A curve has at most 50 steps, or blocks of steps."""

    losses: Floats  # (K, 50): by step; entries beyond n are ignored
    n: NDArray[np.int64]  # (K,): steps with a loss; 0: not started
    reach: NDArray[np.int64]  # (K,): further steps that the remaining budget pays for
    price: Floats  # (K,): price of a step, relative to the mean
    x: Floats  # (K, 16): see `rank_columns`
    left: float  # remaining budget, in steps at the mean price
    steps: int  # steps of a full curve

    @property
    def is_started(self) -> Flags:
        return self.n > 0


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale u of losses."""

    best: float  # lowest loss so far
    unit: float  # median first loss less `best`; see `scale_of` where this is very small

    def to_u(self, losses: Floats) -> Floats:
        z = (losses - self.best) / self.unit
        return np.clip(np.arcsinh(SHARPNESS * z) / math.asinh(SHARPNESS), LOW, HIGH)

    def from_u(self, u: Floats) -> Floats:
        """Return z, the losses above the best in units, from u."""
        return np.asarray(np.sinh(u * math.asinh(SHARPNESS)) / SHARPNESS)


def scale_of(arms: Arms) -> Scale:
    """Return the scale of a study; at least one arm must have been trained."""
    started = arms.is_started
    seen = arms.losses[started][arms.n[started, None] >= _STEP]
    first = np.sort(arms.losses[started, 0])
    best, highest = float(seen.min()), float(seen.max())
    unit = max(_lower_quantile(first, 0.5) - best, 0.05 * (_lower_quantile(first, 0.75) - best))
    unit = unit if unit > 0 else highest - best
    return Scale(best, unit if unit > 0 else 1.0)


def _lower_quantile(ascending: Floats, share: float) -> float:
    return float(ascending[int((len(ascending) - 1) * share + 1e-6)])


def features(arms: Arms, scale: Scale) -> NDArray[np.float32]:
    """Return the features, (K, FEATURES)."""
    n, steps = arms.n, float(arms.steps)
    started = arms.is_started
    o = started.astype(float)
    seen = n[:, None] >= _STEP
    u = np.where(seen, scale.to_u(np.where(seen, arms.losses, scale.best)), 0.0)
    known = seen[:, _AT_FEATURE_STEPS]
    rows, newest = np.arange(len(n)), np.maximum(n, 1) - 1
    last, middle = u[rows, newest], u[rows, np.maximum((n + 1) // 2, 1) - 1]
    lows = np.where(seen, u, _FAR)
    low_at = find_best_of_rows(lows, "lowest", exact=True)
    low = np.where(started, lows[rows, low_at], 0.0)
    change = np.where(seen[:, 1:], np.diff(u, axis=1), 0.0)
    changes = np.maximum(seen[:, 1:].sum(axis=1), 1)
    rough = np.abs(change).sum(axis=1) / changes
    rises = np.maximum(change, 0.0).sum(axis=1) / changes
    ahead, count, beaten = _compare_arms(u, n, started, last, low)
    scalars = [
        o,
        last * o,
        low * o,
        (last - middle) * o,
        rough * o,
        rises * o,
        (n - 1 - low_at) * o / steps,
        ahead,
        beaten,
        np.log1p(count) / 5,
        np.log1p(n) / 4,
        n / steps,
        *_reach_columns(arms.reach, steps),
        np.clip(np.log(arms.price), -3, 3) / 3,
    ]
    has = arms.x >= 0
    study = [
        math.log(arms.left / steps + 0.02) / 3,
        math.log(n.sum() / steps + 0.02) / 3,
        math.log1p(o.sum()) / 5,
        math.log(steps) / 4,
        float((rough * o).sum() / max(1.0, o.sum())),
    ]
    parts = [u[:, _AT_FEATURE_STEPS] * known, known, np.stack(scalars, axis=1), np.where(has, arms.x * 2 - 1, 0.0), has]
    return np.hstack([*parts, np.tile(study, (len(n), 1))]).astype(np.float32)


def features_with_reach(f: NDArray[np.float32], reach: Indices, steps: int) -> NDArray[np.float32]:
    """Return features (n, FEATURES) with other reaches (n,)."""
    others = f.copy()
    others[:, _REACH] = np.stack(_reach_columns(reach, float(steps)), axis=1)
    return others


def _reach_columns(reach: Indices, steps: float) -> list[Floats]:
    return [reach / steps, np.log1p(reach) / 4, (reach <= 0).astype(float)]


def rank_share(arms: Arms) -> Floats:
    """Return for each arm the share of the arms with as many steps that were no better there, (K,); 0.5 for candidates."""
    share = np.full(len(arms.n), 0.5)
    mine = np.flatnonzero(arms.is_started)
    n = arms.n[mine]
    newest = arms.losses[mine, n - 1]
    at_my_step = arms.losses[np.ix_(mine, n - 1)]  # [other, arm]
    as_far = n[:, None] >= n[None]
    share[mine] = ((at_my_step >= newest) & as_far).sum(axis=0) / as_far.sum(axis=0)
    return share


def is_in_race(arms: Arms, share: Floats) -> Flags:
    """Return whether sequential halving would still have budget for an arm, (K,), given the shares (K,) of `rank_share`.

    A race of m arms that are at step s costs s / 2 * m * log2(m), if half of them are dropped and the others go twice as far
    until one is left. An arm is in the race if fewer arms have a larger share than the largest m that the budget pays for.
    """
    m = np.arange(1, len(arms.n) + 1)
    cost = m * np.log2(m) / 2 * (1.0 - ROUNDING)  # a budget that is exactly enough is enough
    affordable = np.searchsorted(cost, arms.left / np.maximum(arms.n, 1), side="right")
    better = len(share) - np.searchsorted(np.sort(share), share, side="right")
    return np.asarray(better < np.maximum(affordable, 2))


def _compare_arms(
    u: Floats, n: NDArray[np.int64], started: Flags, last: Floats, low: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the feature `ahead`, the number of arms with as many steps, and the feature `beaten`, (K,) each."""
    ahead, count, beaten = np.full(len(n), 0.5), np.zeros(len(n)), np.full(len(n), 0.5)
    mine = np.flatnonzero(started)
    at_my_step = u[np.ix_(mine, n[mine] - 1)]  # [other, arm]
    as_far = n[mine][:, None] >= n[mine][None]
    count[mine] = as_far.sum(axis=0)
    ahead[mine] = ((at_my_step > last[mine]) & as_far).sum(axis=0) / count[mine]
    beaten[mine] = (low[mine][:, None] > low[mine][None]).sum(axis=0) / len(mine)
    return ahead, count, beaten


def rank_columns(columns: Floats, share_better: Floats) -> Floats:
    """Return hyperparameters (K, d), nan where inactive, as ranks among the distinct values of the study, (K, 16).

    -1 stands for inactive or missing ones. If more than 16 vary, the network gets those whose ranks correlate most with
    `share_better`, the share of arms that are better, (K,) and nan where unknown. The strongest come first, because few studies
    in training had many hyperparameters and the network hardly uses the last of the 16.
    """
    ranked = []
    for column in columns.T:
        there = ~np.isnan(column)
        known, place = np.unique(column[there], return_inverse=True)
        if len(known) > 1:
            ranks = np.full(len(column), -1.0)
            ranks[there] = place / (len(known) - 1)
            ranked.append(ranks)
    if len(ranked) > COLUMNS:
        rows = np.flatnonzero(~np.isnan(share_better))
        order = invert(sort_best_first(share_better[rows], "lowest", exact=True)).astype(float)
        weight = np.array([abs(_correlate(ranks[rows], order)) for ranks in ranked])
        ranked = [ranked[i] for i in sort_best_first(weight, "highest", COLUMNS, spread=1.0)]
    x = np.full((len(columns), COLUMNS), -1.0)
    if ranked:
        x[:, : len(ranked)] = np.stack(ranked, axis=1)
    return x


def _correlate(ranks: Floats, order: Floats) -> float:
    a, b = ranks - ranks.mean() if len(ranks) else ranks, order - order.mean() if len(order) else order
    size = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / size if size > 0 else 0.0
