"""The search for the trial that BOIL starts next: a config that was not tried yet, and a length, by log EI - log cost (eq. 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoestring.core.deciding.comparison import are_apart
from shoestring.core.values.arrays import Flags, Floats
from shoestring.models.boil.choice import CostPlane, Peak, Rule, ScorePrediction, Tradeoff, choose, find_largest_mean
from shoestring.models.boil.score_process import TrainingLengths
from shoestring.models.gp.posterior import GP
from shoestring.policies.boil.score_model import ScoreModel
from shoestring.policies.config_table import ConfigTable, Pool
from shoestring.policy import Config, Ledger, Points, Why, compare_scores

SCORE_NAME = "expected improvement of the score for its cost"


@dataclass(frozen=True, slots=True, eq=False)
class NextTrial:
    """A config, the step up to which to train it, its predicted cost, and the prediction of its score."""

    config: Config
    until: int
    cost: float  # in the budget's unit
    prediction: ScorePrediction
    comparison: Why


@dataclass(frozen=True, slots=True, eq=False)
class TrialSearch:
    """The search of one decision; trials that are being trained count as if they had ended as predicted."""

    ledger: Ledger
    table: ConfigTable
    lengths: TrainingLengths
    model: ScoreModel
    rng: np.random.Generator
    candidates: int
    rule: Rule = "log_ratio"

    def find(self) -> NextTrial | None:
        """Return the trial with the largest improvement for its cost, or None if every config was tried."""
        gp = self.model.assume_predicted(self._open_points())
        pool = self._draw_pool()
        times = self.rng.random(len(pool.points)) if self.lengths.vary else np.ones(len(pool.points))
        z = np.column_stack([self.table.encoding.on_simplex(pool.points), times])
        free = self._find_free_columns(pool.points, z.shape[1])
        stored = self.table.stack([int(trial) for trial in self.model.trial_of])
        free = np.vstack([free, self._find_free_columns(stored, z.shape[1])])
        peak = find_largest_mean(gp, z, free)
        if self.table.rows is None:
            pool, z, free = self._add_peak(peak, pool, stored, z, free)
        return self._choose(gp, peak.mean, pool, z, free[: len(z)]) if len(z) else None

    def _open_points(self) -> Floats:
        """Return the points, (m, d + 1), at which the trials that are being trained will end."""
        orders = [open_order.order for open_order in self.ledger.open_orders.values()]
        if not orders:
            return self.model.gp.x[:0]
        x = self.table.encoding.on_simplex(self.table.stack([order.trial for order in orders]))
        return np.column_stack([x, [self.lengths.time_of(max(self.lengths.min_steps, o.until)) for o in orders]])

    def _draw_pool(self) -> Pool:
        """Return untried configs to choose from; if few rows are listed, they are repeated, so that each has many lengths."""
        pool = self.table.pool(self.ledger, self.candidates, self.rng)
        if not pool.rows.size or not self.lengths.vary:
            return pool
        repeated = np.tile(np.arange(pool.rows.size), math.ceil(self.candidates / pool.rows.size))
        return Pool(pool.points.take(repeated), pool.rows[repeated])

    def _find_free_columns(self, points: Points, columns: int) -> Flags:
        """Return which columns of z may move, (m, columns): active floats unless all configs are listed, and time."""
        free = np.zeros((len(points), columns), dtype=bool)
        if self.table.rows is None:
            numbers = self.table.encoding.numbers
            free[:, : numbers.size] = self.table.encoding.free(points)[:, numbers]
        free[:, -1] = self.lengths.vary
        return free

    def _add_peak(self, peak: Peak, pool: Pool, stored: Points, z: Floats, free: Flags) -> tuple[Pool, Floats, Flags]:
        """Add the place of the largest mean to the pool, unless it was tried; return the pool, its z and its free columns.

        Far below a sharp peak, log EI decreases towards the peak: the most uncertain points look best, and climbs end in
        corners.
        """
        near, at = (pool.points, peak.start) if peak.start < len(z) else (stored, peak.start - len(z))
        top = self._move(near, at, peak.z)
        if self.table.is_tried(top)[0]:
            return pool, z, free[: len(z)]
        points = pool.points.join(top)
        return Pool(points, pool.rows), np.vstack([z, peak.z]), np.vstack([free[: len(z)], free[peak.start]])

    def _choose(self, gp: GP, best_mean: float, pool: Pool, z: Floats, free: Flags) -> NextTrial:
        """Return the trial with the largest EI for its cost; if all lengths are full trainings, cost does not count."""
        is_listed = self.table.rows is not None
        cost = self.model.cost if self.lengths.vary else CostPlane.zero(z.shape[1])
        chosen = choose(
            Tradeoff(gp, cost, best_mean, self.rule),
            z,
            free,
            self.lengths,
            lambda x, start: is_listed or not self.table.is_tried(self._move(pool.points, start, x))[0],
        )
        found = chosen.candidates

        def config_of(i: int) -> Config:
            start = int(found.starts[i])
            if self.table.rows is not None:
                return self.table.rows[int(pool.rows[start])]
            return self.table.encoding.config(self._move(pool.points, start, found.points[i, :-1]), 0)

        comparison = compare_scores(
            SCORE_NAME,
            "highest",
            found.log_ratio,
            found.chosen,
            config_of,
            competitors=are_apart(found.points[:, :-1], found.chosen),
            in_unit=np.exp,
        )
        predicted_cost = float(self.model.cost.predict(chosen.z[None])[0])
        return NextTrial(config_of(found.chosen), chosen.steps, predicted_cost, chosen.prediction, comparison)

    def _move(self, points: Points, start: int, x: Floats) -> Points:
        """Return one of the points with its numbers moved to the first columns of x."""
        point = points.take([start])
        numbers = self.table.encoding.numbers
        point.cube[0, numbers] = x[: numbers.size]
        return point
