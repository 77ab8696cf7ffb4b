"""The points (config, length of training) that BOIL's model is fitted to: the end of every curve, and some of its prefixes.

The prefixes of a curve are selected once, when its trial is first considered, with the parameters of that moment. The memo of
each order names the prefixes that its decision added, so all orders together name all of them:

    memo                          meaning
    run_trials, run_steps         trials that were considered, and their lengths then
    prefix_trials, prefix_steps   prefixes that were added for them

A trial that was continued since is considered again, and the point where it ended before stays in the model.
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
from shoestring.models.boil.score_process import ProcessParameters, TimeKernel, TrainingLengths, product_kernel
from shoestring.models.gp.posterior import GP, condition
from shoestring.policies.boil.loss_curves import LossCurve
from shoestring.policy import Ledger, Memo

# Prefixes of all curves together: by then the effect of time is well known, and each prefix slows all later decisions.
MAX_PREFIXES = 1000
Augmentation = Literal["selected", "random", "full", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixRule:
    """The rule that selects the prefixes of a curve."""

    augmentation: Augmentation
    max_points: int
    max_log_condition: float
    floor: Floor = "variance"
    in_proportion: bool = True  # whether a shorter training gets fewer points than `max_points`

    def choose(
        self,
        gp: GP,
        x: Floats,
        curve: LossCurve,
        known: Sequence[int],
        lengths: TrainingLengths,
        rng: np.random.Generator,
    ) -> list[int]:
        """Return lengths to add to the known ones for a curve at x, (d,); the end of the curve is in the model already."""
        # `curve.length` is the full training for a trial that diverged: it is known to be bad at every later length.
        grid = step_grid(lengths.min_steps, curve.length)
        grid = grid[~np.isin(grid, known)]
        times = np.array([lengths.time_of(int(steps)) for steps in grid])
        allowed = self.max_points
        if self.in_proportion:
            allowed = count_allowed_points(lengths.time_of(curve.length), allowed)
        at_most = max(0, allowed - len(known))
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
    considered: dict[int, int] = field(default_factory=dict)  # trained steps of each trial when it was last considered
    # what this decision adds
    memo: Lists = field(
        default_factory=lambda: {"run_trials": [], "run_steps": [], "prefix_trials": [], "prefix_steps": []}
    )

    @classmethod
    def read(cls, ledger: Ledger) -> Prefixes:
        """Return the prefixes that the orders of this policy have added so far."""
        prefixes = cls()
        for order in ledger.orders[ledger.state.first_own_order :]:
            for trial, steps in _pairs(order.memo, "run"):
                prefixes._mark(trial, steps)
            for trial, steps in _pairs(order.memo, "prefix"):
                prefixes.lengths[trial].add(steps)
        return prefixes

    def of(self, curve: LossCurve) -> list[int]:
        """Return the lengths of the curve's prefixes in the model, ascending."""
        return sorted(self.lengths.get(curve.trial, ()))

    def is_known(self, curve: LossCurve) -> bool:
        """Return whether the trial was considered, and not continued since."""
        return self.considered.get(curve.trial) == curve.steps

    def add(self, curve: LossCurve, lengths: Iterable[int]) -> None:
        """Record that this decision considered the trial, and which prefixes it selected."""
        self._mark(curve.trial, curve.steps)
        self.memo["run_trials"].append(float(curve.trial))
        self.memo["run_steps"].append(float(curve.steps))
        for steps in lengths:
            self.lengths[curve.trial].add(steps)
            self.memo["prefix_trials"].append(float(curve.trial))
            self.memo["prefix_steps"].append(float(steps))

    def _mark(self, trial: int, steps: int) -> None:
        before = self.considered.get(trial)
        self.lengths.setdefault(trial, set()).update(() if before is None else (before,))
        self.considered[trial] = steps


def _pairs(memo: Memo, what: str) -> Iterator[tuple[int, int]]:
    for trial, steps in zip(memo.get(f"{what}_trials", ()), memo.get(f"{what}_steps", ()), strict=True):
        yield int(trial), int(steps)


class ModelRow(NamedTuple):
    """A point of the model: the index of its curve in the list of curves, and the number of steps."""

    place: int
    steps: int


def model_rows(
    curves: Sequence[LossCurve], x: Floats, prefixes: Prefixes, lengths: TrainingLengths
) -> tuple[Floats, list[ModelRow]]:
    """Return the points z, (n, d + 1), of all curves, at x (curves, d), and the row of each: every end, and then its prefixes."""
    rows = [
        ModelRow(place, steps)
        for place, curve in enumerate(curves)
        for steps in (curve.length, *prefixes.of(curve))
        if steps >= lengths.min_steps
    ]
    times = [lengths.time_of(row.steps) for row in rows]
    return np.column_stack([x[[row.place for row in rows]], times]), rows


def add_prefixes(
    prefixes: Prefixes,
    rule: PrefixRule,
    ledger: Ledger,
    curves: Sequence[LossCurve],
    x: Floats,
    *,
    lengths: TrainingLengths,
    parameters: ProcessParameters,
    time_kernel: TimeKernel,
) -> None:
    """Select prefixes of the curves, at x (curves, d), that are new or were continued, one trial after the other.

    For each curve, the process is conditioned on the curves before it and on its own end; the factor gets a few more rows.
    """
    kernel, theta = product_kernel(x.shape[1], time_kernel), parameters.theta(x.shape[1])
    in_model = [place for place, curve in enumerate(curves) if prefixes.is_known(curve)]
    room = MAX_PREFIXES - sum(len(prefixes.of(curves[place])) for place in in_model)
    gp: GP | None = None
    for place, curve in enumerate(curves):
        if prefixes.is_known(curve):
            continue
        if rule.augmentation == "none" or room <= 0:
            prefixes.add(curve, ())
            continue
        if gp is None:  # all scores are 0, since variances do not depend on them
            z, _ = model_rows([curves[j] for j in (*in_model, place)], x[[*in_model, place]], prefixes, lengths)
            gp = condition(kernel, theta, z, np.zeros(len(z)))
        else:
            z, _ = model_rows([curve], x[[place]], prefixes, lengths)
            gp = gp.extend(z, np.zeros(len(z)))
        rng = ledger.rng("augmentation", curve.trial, curve.steps)
        chosen = rule.choose(gp, x[place], curve, prefixes.of(curve), lengths, rng)[:room]
        prefixes.add(curve, chosen)
        room -= len(chosen)
        if chosen:
            times = [lengths.time_of(steps) for steps in chosen]
            gp = gp.extend(np.column_stack([np.tile(x[place], (len(times), 1)), times]), np.zeros(len(times)))
