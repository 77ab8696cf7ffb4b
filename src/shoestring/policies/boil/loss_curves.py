"""Trials that are not being trained, as BOIL reads them: a curve of losses, and the cost of each prefix.

A trial that diverged, or that failed before it had `min_steps` steps, is bad at every step up to a full training. If the training
code ended by itself, the last loss counts for all steps after it. Other trials shorter than `min_steps` are left out. A step
without validation has the loss of the step before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoestring.core.values.arrays import Floats
from shoestring.policy import Ledger, Trial


@dataclass(frozen=True, slots=True, eq=False)
class LossCurve:
    """The curve of one trial, up to the last step with a known loss."""

    trial: int
    steps: int  # trained steps; those after a divergence do not count
    losses: Floats  # (length,): length >= steps; inf from the divergence on
    costs: Floats  # (steps,): cost of the first 1, 2, … steps, in the budget's unit

    @property
    def length(self) -> int:
        return self.losses.size

    @property
    def is_bad(self) -> bool:
        return not math.isfinite(self.losses[-1])


def read_loss_curves(ledger: Ledger, min_steps: int) -> list[LossCurve]:
    """Return the curves of all trials without an open order, except those that are too short."""
    found = (_read_curve(ledger, trial, min_steps) for trial in ledger.trials if trial.open_order is None)
    return [curve for curve in found if curve is not None]


def _read_curve(ledger: Ledger, trial: Trial, min_steps: int) -> LossCurve | None:
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
    return LossCurve(trial.number, good.size, losses, _prefix_costs(ledger, trial)[: good.size])


def _good_losses(trial: Trial) -> Floats:
    """Return the losses up to the divergence with gaps filled; empty if no step was validated."""
    losses = np.array([math.nan if loss is None else loss for loss in trial.losses])
    known = np.flatnonzero(np.isfinite(losses))
    if not known.size:
        return known.astype(np.float64)
    steps = np.arange(trial.steps - trial.diverged)
    before = np.searchsorted(known, steps, side="right") - 1  # -1 before the first known loss, which is used there
    return np.asarray(losses[known[np.maximum(before, 0)]])


def _extend(losses: Floats, value: float, length: int) -> Floats:
    return np.concatenate([losses, np.full(length - losses.size, value)])


def _prefix_costs(ledger: Ledger, trial: Trial) -> Floats:
    """Return the costs of the first 1, 2, … steps; the cost of failed or interrupted steps is added to each of them."""
    if ledger.budget.unit == "epochs":
        return ledger.step_price() * np.arange(1.0, trial.steps + 1.0)
    steps = np.cumsum(trial.step_costs)
    lost = max(0.0, trial.seconds - float(steps[-1])) if steps.size else 0.0
    return np.asarray((lost + steps) * ledger.budget.per_second(ledger.workers))
