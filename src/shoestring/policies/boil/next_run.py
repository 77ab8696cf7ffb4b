"""What BOIL buys next: a config not tried yet with a length, or, where runs may go on, more of a run that has stopped.

Both are compared by log EI - log cost (`models.boil.choice`). A run that goes on costs what it still lacks up to the new
length, at its own price per step; its EI is that of its config at that length, which the model knows well near its curve's end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from shoestring.core.deciding.comparison import are_apart, compare_scores
from shoestring.core.deciding.decision import Why
from shoestring.core.deciding.reproducible import NAT, find_best, reaches
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.space.encoding import Points
from shoestring.core.space.space import Config
from shoestring.core.values.arrays import Flags, Floats
from shoestring.models.boil.choice import CostPlane, Peak, Promise, Rule, Tradeoff, choose, find_largest_mean
from shoestring.models.boil.process import RunLengths
from shoestring.models.gp.posterior import GP
from shoestring.policies.boil.score_model import ScoreBelief
from shoestring.policies.config_table import ConfigTable, Pool

SCORE_NAME = "expected improvement of the score for its cost"
_LENGTHS = 20  # lengths at which a run that may go on is looked at


@dataclass(frozen=True, slots=True, eq=False)
class NextRun:
    """What to train, up to which step, at what cost, and what the model expects of it."""

    trial: Trial | None  # the run that goes on; None: a new one
    config: Config
    until: int
    cost: float  # predicted, in the budget's unit
    promise: Promise
    compared: Why


@dataclass(frozen=True, slots=True, eq=False)
class RunSearch:
    """One decision's look at everything that could be bought; runs under way count as if they had come out as predicted."""

    ledger: Ledger
    table: ConfigTable
    lengths: RunLengths
    belief: ScoreBelief
    rng: np.random.Generator
    candidates: int
    rule: Rule = "log_ratio"

    def best(self, *, may_continue: bool) -> NextRun | None:
        """The most improvement for its cost; None: every config was tried, and no run may go on."""
        gp = self.belief.pretend(self._open_points())
        pool = self._draw_pool()
        times = self.rng.random(len(pool.points)) if self.lengths.vary else np.ones(len(pool.points))
        z = np.column_stack([self.table.encoding.on_simplex(pool.points), times])
        free = self._may_move(pool.points, z.shape[1])
        stored = self.table.stack([int(trial) for trial in self.belief.trial_of])
        free = np.vstack([free, self._may_move(stored, z.shape[1])])
        peak = find_largest_mean(gp, z, free)
        if self.table.rows is None:
            pool, z, free = self._with_peak(peak, pool, stored, z, free)
        new = self._best_new(gp, peak.mean, pool, z, free[: len(z)]) if len(z) else None
        more = self._best_continuation(gp, peak.mean) if may_continue else None
        if new is None or more is None:
            return new or more
        return new if reaches(new.promise.log_ratio, more.promise.log_ratio) else more  # of equals, the new run

    def _open_points(self) -> Floats:
        """(m, d + 1): where runs under way will end."""
        orders = [open_order.order for open_order in self.ledger.open_orders.values()]
        if not orders:
            return self.belief.gp.x[:0]
        x = self.table.encoding.on_simplex(self.table.stack([order.trial for order in orders]))
        return np.column_stack([x, [self.lengths.time_of(max(self.lengths.min_steps, o.until)) for o in orders]])

    # new runs --------------------------------------------------------------------------------------------------------

    def _draw_pool(self) -> Pool:
        """Configs to choose from, none of them tried; few rows come many times, each time to be met by another length."""
        pool = self.table.pool(self.ledger, self.candidates, self.rng)
        if not pool.rows.size or not self.lengths.vary:
            return pool
        again = np.tile(np.arange(pool.rows.size), math.ceil(self.candidates / pool.rows.size))
        return Pool(pool.points.take(again), pool.rows[again])

    def _may_move(self, points: Points, columns: int) -> Flags:
        """(m, columns): what may move of points z: active floats, unless all configs are listed, and time."""
        free = np.zeros((len(points), columns), dtype=bool)
        if self.table.rows is None:
            numbers = self.table.encoding.numbers
            free[:, : numbers.size] = self.table.encoding.free(points)[:, numbers]
        free[:, -1] = self.lengths.vary
        return free

    def _with_peak(self, peak: Peak, pool: Pool, stored: Points, z: Floats, free: Flags) -> tuple[Pool, Floats, Flags]:
        """The pool with the place of the largest mean, unless it was tried, and what may move of each row.

        Far below a sharp peak log EI falls towards it: what is most uncertain seems best, and climbs end in corners.
        """
        near, at = (pool.points, peak.start) if peak.start < len(z) else (stored, peak.start - len(z))
        top = self._move(near, at, peak.z)
        if self.table.is_tried(top)[0]:
            return pool, z, free[: len(z)]
        points = pool.points.join(top)
        return Pool(points, pool.rows), np.vstack([z, peak.z]), np.vstack([free[: len(z)], free[peak.start]])

    def _best_new(self, gp: GP, best_mean: float, pool: Pool, z: Floats, free: Flags) -> NextRun:
        """The config and the length of the largest EI for their cost; for EI alone where all runs are full trainings."""
        is_listed = self.table.rows is not None
        cost = self.belief.cost if self.lengths.vary else CostPlane.zero(z.shape[1])
        chosen = choose(
            Tradeoff(gp, cost, best_mean, self.rule),
            z,
            free,
            self.lengths,
            lambda x, start: is_listed or not self.table.is_tried(self._move(pool.points, start, x))[0],
        )
        found, apart = chosen.found, are_apart(chosen.found.points[:, :-1], chosen.found.chosen)

        def config_of(i: int) -> Config:
            start = int(found.starts[i])
            if self.table.rows is not None:
                return self.table.rows[int(pool.rows[start])]
            return self.table.encoding.config(self._move(pool.points, start, found.points[i, :-1]), 0)

        compared = compare_scores(
            SCORE_NAME, "highest", found.log_ratio, found.chosen, config_of, rivals=apart, in_unit=np.exp
        )
        predicted_cost = float(self.belief.cost.predict(chosen.z[None])[0])
        return NextRun(None, config_of(found.chosen), chosen.steps, predicted_cost, chosen.promise, compared)

    def _move(self, points: Points, start: int, x: Floats) -> Points:
        """One of the points with its numbers where a climb has led them: to the first columns of x."""
        point = points.take([start])
        numbers = self.table.encoding.numbers
        point.cube[0, numbers] = x[: numbers.size]
        return point

    # runs that go on -------------------------------------------------------------------------------------------------

    def _best_continuation(self, gp: GP, best_mean: float) -> NextRun | None:
        """The run and the new length of the largest EI for what is lacking; None: no run can go on."""
        options = [
            (place, until)
            for place, run in enumerate(self.belief.runs)
            for until in self._longer(self.ledger.trials[run.trial])
        ]
        if not options:
            return None
        trials = [self.ledger.trials[self.belief.runs[place].trial] for place, _ in options]
        costs = np.array(
            [
                self.ledger.step_price(trial.number) * (until - trial.steps)
                for trial, (_, until) in zip(trials, options, strict=True)
            ]
        )
        times = [self.lengths.time_of(until) for _, until in options]
        z = np.column_stack([self.belief.x[[place for place, _ in options]], times])
        appraisal = Tradeoff(gp, self.belief.cost, best_mean, self.rule).appraise(z, costs)
        top = find_best(appraisal.log_ratio, "highest", spread=NAT)
        others = np.array([trial is not trials[top] for trial in trials])
        compared = compare_scores(
            SCORE_NAME, "highest", appraisal.log_ratio, top, lambda i: trials[i].number, rivals=others, in_unit=np.exp
        )
        promise = appraisal.promise(top)
        return NextRun(trials[top], trials[top].config, options[top][1], float(costs[top]), promise, compared)

    def _longer(self, trial: Trial) -> Iterable[int]:
        """Lengths up to which a trial may go on."""
        if not trial.can_go_on:
            return ()
        shortest = max(trial.steps + 1, self.lengths.min_steps)
        return (int(steps) for steps in np.unique(np.rint(np.linspace(shortest, trial.limit, _LENGTHS))))
