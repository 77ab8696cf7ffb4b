"""Which points (config, length of training) BOIL's model sees: the end of every run, and some prefixes of its curve.

Prefixes of a run are chosen once, when the run is first looked at, with the parameters of that moment. So each order's memo
names those that its decision added, and all orders together name all:

    memo                          meaning
    looked_trials, looked_steps   runs that were looked at, and how long they were
    added_trials, added_steps     prefixes added for them

A run that has gone on since is looked at again, and keeps the point where it ended before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from shoestring.core.deciding.decision import Memo
from shoestring.core.deciding.memo import Lists
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.arrays import Floats
from shoestring.models.boil.augmentation import (
    Floor,
    count_allowed_points,
    pick_full_curve,
    pick_most_uncertain,
    pick_random_times,
    step_grid,
)
from shoestring.models.boil.process import ProcessParameters, RunLengths, TimeKernel, product_kernel
from shoestring.models.gp.posterior import GP, condition
from shoestring.policies.boil.run_curves import CurveRun

MOST_ADDED = (
    1000  # prefixes of all runs together: by then time is well known, and each makes every later decision slower
)
AugmentationWay = Literal["selected", "random", "full", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixRule:
    """Which prefixes of a run are worth a point."""

    way: AugmentationWay
    max_points: int
    max_log_condition: float
    floor: Floor = "variance"

    def choose(
        self, gp: GP, x: Floats, run: CurveRun, known: Sequence[int], lengths: RunLengths, rng: np.random.Generator
    ) -> list[int]:
        """Lengths to add for a run at x, (d,), beside those known; the model sees its end already."""
        # What is known to the end of training counts whole: of a run that diverged, that it was bad at every later length.
        grid = step_grid(lengths.min_steps, run.length)
        grid = grid[~np.isin(grid, known)]
        times = np.array([lengths.time_of(int(steps)) for steps in grid])
        at_most = max(0, count_allowed_points(lengths.time_of(run.length), self.max_points) - len(known))
        limit = self.max_log_condition
        if self.way == "full":
            chosen = pick_full_curve(gp, x, times)
        elif self.way == "random":
            chosen = pick_random_times(gp, x, times, rng, max_points=at_most, max_log_condition=limit)
        else:
            chosen = pick_most_uncertain(gp, x, times, max_points=at_most, max_log_condition=limit, floor=self.floor)
        return [int(steps) for steps in grid[chosen.picked]]


@dataclass(slots=True)
class Prefixes:
    """Lengths of prefixes that are points of the model, by trial."""

    added: dict[int, set[int]] = field(default_factory=dict)
    looked: dict[int, int] = field(default_factory=dict)  # how long each run was when it was last looked at
    memo: Lists = field(  # what this decision adds
        default_factory=lambda: {"looked_trials": [], "looked_steps": [], "added_trials": [], "added_steps": []}
    )

    @classmethod
    def recall(cls, ledger: Ledger) -> Prefixes:
        """What the orders of this policy have added so far."""
        prefixes = cls()
        for order in ledger.orders[ledger.books.memo_from :]:
            for trial, steps in _pairs(order.memo, "looked"):
                prefixes._mark(trial, steps)
            for trial, steps in _pairs(order.memo, "added"):
                prefixes.added[trial].add(steps)
        return prefixes

    def of(self, run: CurveRun) -> list[int]:
        return sorted(self.added.get(run.trial, ()))

    def know(self, run: CurveRun) -> bool:
        """Whether the run was looked at, and has not gone on since."""
        return self.looked.get(run.trial) == run.steps

    def add(self, run: CurveRun, lengths: Iterable[int]) -> None:
        """Note that this decision looked at the run, and which prefixes it chose."""
        self._mark(run.trial, run.steps)
        self.memo["looked_trials"].append(float(run.trial))
        self.memo["looked_steps"].append(float(run.steps))
        for steps in lengths:
            self.added[run.trial].add(steps)
            self.memo["added_trials"].append(float(run.trial))
            self.memo["added_steps"].append(float(steps))

    def _mark(self, trial: int, steps: int) -> None:
        before = self.looked.get(trial)
        self.added.setdefault(trial, set()).update(() if before is None else (before,))
        self.looked[trial] = steps


def _pairs(memo: Memo, what: str) -> Iterator[tuple[int, int]]:
    for trial, steps in zip(memo.get(f"{what}_trials", ()), memo.get(f"{what}_steps", ()), strict=True):
        yield int(trial), int(steps)


class ModelRow(NamedTuple):
    """A point of the model: the place of its run in the list of runs, and how much of the run's curve it is."""

    place: int
    steps: int


def model_rows(
    runs: Sequence[CurveRun], x: Floats, prefixes: Prefixes, lengths: RunLengths
) -> tuple[Floats, list[ModelRow]]:
    """Points z, (n, d + 1), and what each is: of every run, at x (number of runs, d), the whole, then its prefixes."""
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
    """Choose prefixes of the runs, at x (number of runs, d), that are new or have gone on: trial by trial.

    Each is looked at by a process that knows the runs before it. That process grows: one factor, a few rows longer a run.
    """
    kernel, theta = product_kernel(x.shape[1], time_kernel), parameters.theta(x.shape[1])
    in_model = [place for place, run in enumerate(runs) if prefixes.know(run)]
    room = MOST_ADDED - sum(len(prefixes.of(runs[place])) for place in in_model)
    gp: GP | None = None
    for place, run in enumerate(runs):
        if prefixes.know(run):
            continue
        if rule.way == "none" or room <= 0:
            prefixes.add(run, ())
            continue
        if gp is None:  # variances do not depend on scores: they are all 0
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
