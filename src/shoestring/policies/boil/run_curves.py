"""Trials at rest as BOIL sees them: a curve of losses, and what each prefix of it cost.

A run that diverged, or failed before it was `min_steps` long, is bad to the end of training; one whose training code came to
its own end keeps its last loss until then. Other runs shorter than `min_steps` say nothing. A step that was not validated is
as good as the one before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.values.arrays import Floats


@dataclass(frozen=True, slots=True, eq=False)
class CurveRun:
    """One trial's curve, as far as something is known of it."""

    trial: int
    steps: int  # really trained; those after a divergence do not count
    losses: Floats  # (length,), length >= steps; inf from the divergence on
    costs: Floats  # (steps,), of its first 1, 2, … steps, in the budget's unit

    @property
    def length(self) -> int:
        return self.losses.size

    @property
    def is_bad(self) -> bool:
        return not math.isfinite(self.losses[-1])


def read_finished_runs(ledger: Ledger, min_steps: int) -> list[CurveRun]:
    """The runs of all trials that are at rest and say something."""
    found = (_read_curve(ledger, trial, min_steps) for trial in ledger.trials if trial.open_order is None)
    return [run for run in found if run is not None]


def _read_curve(ledger: Ledger, trial: Trial, min_steps: int) -> CurveRun | None:
    is_bad = trial.diverged or (bool(trial.failure) and trial.steps < min_steps)
    good = _good_losses(trial)
    if not good.size and not is_bad:
        return None
    if is_bad:
        losses = _extend(good, math.inf, ledger.max_steps)
    elif trial.steps >= trial.limit:
        losses = _extend(good, good[-1], ledger.max_steps)
    else:
        losses = good
    if losses.size < min_steps:
        return None
    return CurveRun(trial.number, good.size, losses, _prefix_costs(ledger, trial)[: good.size])


def _good_losses(trial: Trial) -> Floats:
    """Losses up to the divergence, gaps filled in; none if no step was ever validated."""
    losses = np.array([math.nan if loss is None else loss for loss in trial.losses])
    known = np.flatnonzero(np.isfinite(losses))
    if not known.size:
        return known.astype(np.float64)
    steps = np.arange(trial.steps - trial.diverged)
    before = np.searchsorted(known, steps, side="right") - 1  # -1 before the first: that one then stands for them
    return np.asarray(losses[known[np.maximum(before, 0)]])


def _extend(losses: Floats, value: float, length: int) -> Floats:
    return np.concatenate([losses, np.full(length - losses.size, value)])


def _prefix_costs(ledger: Ledger, trial: Trial) -> Floats:
    """Of the first 1, 2, … steps; what went into steps that failed or were cut off counts for each of them."""
    if ledger.budget.unit == "epochs":
        return ledger.step_price() * np.arange(1.0, trial.steps + 1.0)
    steps = np.cumsum(trial.step_costs)
    in_vain = max(0.0, trial.seconds - float(steps[-1])) if steps.size else 0.0
    return np.asarray((in_vain + steps) * ledger.budget.per_second(ledger.workers))
