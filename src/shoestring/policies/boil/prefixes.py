"""The points (config, length of training) that BOIL's model is fitted to: the end of every run, and some prefixes of its curve.

The prefixes of a run are selected once, when the run is first considered, with the parameters of that moment. The memo of each
order names the prefixes that its decision added, so all orders together name all of them:

    memo                          meaning
    run_trials, run_steps         runs that were considered, and their lengths then
    prefix_trials, prefix_steps   prefixes that were added for them

A run that was continued since is considered again, and the point where it ended before stays in the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from shoestring.core.deciding.memo import Lists
from shoestring.core.values.arrays import Floats
from shoestring.models.boil.augmentation import (
    Floor,
    count_allowed_points,
    pick_full_curve,
    pick_most_uncertain,
    pick_random_times,
    step_grid,
)
from shoestring.models.boil.score_process import ProcessParameters, RunLengths, TimeKernel, product_kernel
from shoestring.models.gp.posterior import GP, condition
from shoestring.policies.boil.run_curves import CurveRun
from shoestring.policy import Ledger, Memo

# Prefixes of all runs together: by then the effect of time is well known, and each prefix slows all later decisions.
MAX_PREFIXES = 1000
Augmentation = Literal["selected", "random", "full", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixRule:
    """The rule that selects the prefixes of a run."""

    augmentation: Augmentation
    max_points: int
    max_log_condition: float
    floor: Floor = "variance"

    def choose(
        self, gp: GP, x: Floats, run: CurveRun, known: Sequence[int], lengths: RunLengths, rng: np.random.Generator
    ) -> list[int]:
        """Return lengths to add to the known ones for a run at x, (d,); the end of the run is in the model already."""
        # `run.length` is the full training for a run that diverged: it is known to be bad at every later length.
        grid = step_grid(lengths.min_steps, run.length)
        grid = grid[~np.isin(grid, known)]
        times = np.array([lengths.time_of(int(steps)) for steps in grid])
        at_most = max(0, count_allowed_points(lengths.time_of(run.length), self.max_points) - len(known))
        limit = self.max_log_condition
        if self.augmentation == "full":
            chosen = pick_full_curve(gp, x, times)
        elif self.augmentation == "random":
            chosen = pick_random_times(gp, x, times, rng, max_points=at_most, max_log_condition=limit)
        else:
            chosen = pick_most_uncertain(gp, x, times, max_points=at_most, max_log_condition=limit, floor=self.floor)
        return [int(steps) for steps in grid[chosen.picked]]


@dataclass(slots=True)
class Prefixes:
    """Lengths of the prefixes that are points of the model, by trial."""

    lengths: dict[int, set[int]] = field(default_factory=dict)
    run_steps: dict[int, int] = field(default_factory=dict)  # the length of each run when it was last considered
    # what this decision adds
    memo: Lists = field(
        default_factory=lambda: {"run_trials": [], "run_steps": [], "prefix_trials": [], "prefix_steps": []}
    )

    @classmethod
    def read_predicted_history(cls, ledger: Ledger) -> Prefixes:
        """Return the prefixes that the orders of this policy have added so far."""
        prefixes = cls()
        for order in ledger.orders[ledger.state.first_own_order :]:
            for trial, steps in _pairs(order.memo, "run"):
                prefixes._mark(trial, steps)
            for trial, steps in _pairs(order.memo, "prefix"):
                prefixes.lengths[trial].add(steps)
        return prefixes

    def of(self, run: CurveRun) -> list[int]:
        """Return the lengths of the run's prefixes in the model, ascending."""
        return sorted(self.lengths.get(run.trial, ()))

    def is_known(self, run: CurveRun) -> bool:
        """Return whether the run was considered, and not continued since."""
        return self.run_steps.get(run.trial) == run.steps

    def add(self, run: CurveRun, lengths: Iterable[int]) -> None:
        """Record that this decision considered the run, and which prefixes it selected."""
        self._mark(run.trial, run.steps)
        self.memo["run_trials"].append(float(run.trial))
        self.memo["run_steps"].append(float(run.steps))
        for steps in lengths:
            self.lengths[run.trial].add(steps)
            self.memo["prefix_trials"].append(float(run.trial))
            self.memo["prefix_steps"].append(float(steps))

    def _mark(self, trial: int, steps: int) -> None:
        before = self.run_steps.get(trial)
        self.lengths.setdefault(trial, set()).update(() if before is None else (before,))
        self.run_steps[trial] = steps


def _pairs(memo: Memo, what: str) -> Iterator[tuple[int, int]]:
    for trial, steps in zip(memo.get(f"{what}_trials", ()), memo.get(f"{what}_steps", ()), strict=True):
        yield int(trial), int(steps)


class ModelRow(NamedTuple):
    """A point of the model: the index of its run in the list of runs, and the number of steps."""

    place: int
    steps: int


def model_rows(
    runs: Sequence[CurveRun], x: Floats, prefixes: Prefixes, lengths: RunLengths
) -> tuple[Floats, list[ModelRow]]:
    """Return the points z, (n, d + 1), and their meanings: for every run, at x (runs, d), its end and then its prefixes."""
    rows = [
        ModelRow(place, steps)
        for place, run in enumerate(runs)
        for steps in (run.length, *prefixes.of(run))
        if steps >= lengths.min_steps
    ]
    times = [lengths.time_of(row.steps) for row in rows]
    return np.column_stack([x[[row.place for row in rows]], times]), rows


def add_prefixes(
    prefixes: Prefixes,
    rule: PrefixRule,
    ledger: Ledger,
    runs: Sequence[CurveRun],
    x: Floats,
    *,
    lengths: RunLengths,
    parameters: ProcessParameters,
    time_kernel: TimeKernel,
) -> None:
    """Select prefixes of the runs, at x (runs, d), that are new or were continued, one trial after the other.

    For each run, the process is conditioned on the runs before it and on its own end; the factor gets a few more rows.
    """
    kernel, theta = product_kernel(x.shape[1], time_kernel), parameters.theta(x.shape[1])
    in_model = [place for place, run in enumerate(runs) if prefixes.is_known(run)]
    room = MAX_PREFIXES - sum(len(prefixes.of(runs[place])) for place in in_model)
    gp: GP | None = None
    for place, run in enumerate(runs):
        if prefixes.is_known(run):
            continue
        if rule.augmentation == "none" or room <= 0:
            prefixes.add(run, ())
            continue
        if gp is None:  # all scores are 0, since variances do not depend on them
            z, _ = model_rows([runs[j] for j in (*in_model, place)], x[[*in_model, place]], prefixes, lengths)
            gp = condition(kernel, theta, z, np.zeros(len(z)))
        else:
            z, _ = model_rows([run], x[[place]], prefixes, lengths)
            gp = gp.extend(z, np.zeros(len(z)))
        rng = ledger.rng("augmentation", run.trial, run.steps)
        chosen = rule.choose(gp, x[place], run, prefixes.of(run), lengths, rng)[:room]
        prefixes.add(run, chosen)
        room -= len(chosen)
        if chosen:
            times = [lengths.time_of(steps) for steps in chosen]
            gp = gp.extend(np.column_stack([np.tile(x[place], (len(times), 1)), times]), np.zeros(len(times)))
