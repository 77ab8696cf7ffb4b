"""What BOIL buys next: a config not tried yet with a length, or, where runs may go on, more of a run that has stopped.

Both are compared by log EI - log cost (`models.boil.choice`). A run that goes on costs what it still lacks up to the new
length, at its own price a step; its EI is that of its config at that length, which the model knows well near its curve's end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoestring.core.books import Trial
from shoestring.core.encoding import Points
from shoestring.core.ledger import Ledger
from shoestring.core.policy import fresh_config
from shoestring.core.space import Config
from shoestring.models.boil.choice import Choice, LinearCost, choose, largest_mean, log_ratio
from shoestring.models.gp.acquisition import log_expected_improvement
from shoestring.models.gp.posterior import GP
from shoestring.policies.boil.belief import Belief, Recipe
from shoestring.policies.boil.runs import inputs
from shoestring.policies.config_table import draw_candidates as candidates
from shoestring.policies.outcomes import Table

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
_BEST = 5  # trials whose surroundings are searched
_LENGTHS = 20  # lengths at which a run that may go on is looked at


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    config: Config
    choice: Choice
    cost: float  # predicted, in the budget's unit
    trial: Trial | None = None  # the run that goes on; None: a new one


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    ledger: Ledger
    table: Table
    recipe: Recipe
    belief: Belief
    gp: GP  # the belief's, with open orders pretended
    rng: np.random.Generator
    n_candidates: int

    @property
    def chooses_lengths(self) -> bool:
        return self.recipe.min_steps < self.recipe.max_steps

    def best(self, *, continues: bool) -> Found | None:
        """None: every config was tried, and no run may go on."""
        pool, rows = self._pool()
        times = self.rng.random(len(pool)) if self.chooses_lengths else np.ones(len(pool))
        z = np.column_stack([inputs(self.table.encoding, pool), times])
        free = self._free(pool, z.shape[1])
        stored = self.table.stacked([int(trial) for trial in self.belief.trial_of])
        everywhere = np.vstack([z, self.belief.gp.x])
        best_mean, _ = largest_mean(self.gp, everywhere, np.vstack([free, self._free(stored, z.shape[1])]))
        new = self._new(pool, rows, z, free, best_mean) if len(pool) else None
        more = self._more(best_mean) if continues else None
        if new is None or more is None:
            return new or more
        return more if more.choice.log_ratio > new.choice.log_ratio else new

    # new runs --------------------------------------------------------------------------------------------------------

    def _new(self, pool: Points, rows: NDArray[np.intp], z: Array, free: Flags, best_mean: float) -> Found:
        encoding, is_listed = self.table.encoding, self.table.rows is not None

        def moved(x: Array, start: int) -> Points:
            cube = pool.cube[[start]]
            cube[0, encoding.numbers] = x[: encoding.numbers.size]
            return Points(cube, pool.active[[start]])

        choice = choose(
            self.gp,
            self.belief.cost if self.chooses_lengths else LinearCost.free(z.shape[1]),
            best_mean,
            z,
            free,
            min_steps=self.recipe.min_steps,
            max_steps=self.recipe.max_steps,
            allowed=lambda x, start: is_listed or not self.table.is_tried(moved(x, start))[0],
        )
        cost = float(self.belief.cost.predict(np.append(choice.x, choice.time)[None])[0])
        if self.table.rows is not None:
            return Found(self.table.rows[rows[choice.start]], choice, cost)
        return Found(encoding.config(moved(choice.x, choice.start), 0), choice, cost)

    def _pool(self) -> tuple[Points, NDArray[np.intp]]:
        """Configs to choose from, none of them tried, and their rows where all are listed; few rows come many times."""
        ledger, table = self.ledger, self.table
        if table.row_points is not None:
            rows = np.flatnonzero(table.unused)
            times = math.ceil(self.n_candidates / rows.size) if rows.size and self.chooses_lengths else 1
            rows = np.tile(rows, times)
            return table.row_points.take(rows), rows
        order = np.argsort([trial.best_loss for trial in ledger.trials], kind="stable")[:_BEST]
        best = table.stacked([int(number) for number in order]).cube
        pool = candidates(table.encoding, best, self.n_candidates, ledger.opened.seed, self.rng)
        pool = pool.take(~table.is_tried(pool))
        if not len(pool):  # a huge finite space searched with a handful of candidates
            config = fresh_config(ledger)
            pool = table.encoding.points([config] if config is not None else [])
        return pool, np.zeros(0, dtype=np.intp)

    def _free(self, points: Points, columns: int) -> Flags:
        """(m, columns): what may move of points z: active floats, unless all configs are listed, and time."""
        free = np.zeros((len(points), columns), dtype=bool)
        if self.table.rows is None:
            numbers = self.table.encoding.numbers
            free[:, : numbers.size] = self.table.encoding.free(points)[:, numbers]
        free[:, -1] = self.chooses_lengths
        return free

    # runs that go on -------------------------------------------------------------------------------------------------

    def _more(self, best_mean: float) -> Found | None:
        """The run and the new length of the largest EI for what is lacking; None: no run can go on."""
        at = [(i, steps) for i, run in enumerate(self.belief.runs) for steps in self._lengths(run.trial, run.steps)]
        if not at:
            return None
        trials = [self.ledger.trials[self.belief.runs[i].trial] for i, _ in at]
        times = np.array([self.recipe.time(steps) for _, steps in at])
        lacking = [steps - trial.steps for (_, steps), trial in zip(at, trials, strict=True)]
        costs = np.array([self.ledger.step_price(t.number) * n for t, n in zip(trials, lacking, strict=True)])
        x = self.belief.x[[i for i, _ in at]]
        mean, variance = self.gp.predict(np.column_stack([x, times]))
        std = np.sqrt(variance)
        ratio = log_ratio(mean, std, best_mean, (costs - self.belief.cost.lowest) / self.belief.cost.span)
        top = int(np.argmax(ratio))
        choice = Choice(
            x=x[top],
            start=-1,
            steps=at[top][1],
            time=float(times[top]),
            log_ratio=float(ratio[top]),
            log_ei=float(log_expected_improvement(-mean[[top]], std[[top]], -best_mean)[0]),
            mean=float(mean[top]),
            std=float(std[top]),
        )
        return Found(trials[top].config, choice, float(costs[top]), trials[top])

    def _lengths(self, number: int, steps: int) -> Iterable[int]:
        trial = self.ledger.trials[number]
        if trial.is_stuck or trial.open_order is not None:
            return ()
        shortest = max(steps + 1, self.recipe.min_steps)
        return (int(t) for t in np.unique(np.rint(np.linspace(shortest, trial.limit, _LENGTHS))))
