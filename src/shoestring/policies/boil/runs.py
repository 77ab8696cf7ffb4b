"""Trials at rest as BOIL sees them: a config as a point of the unit cube, a curve of losses, what each prefix of it cost.

A run that diverged, or failed before it was `min_steps` long, is bad to the end of training; one whose training code came to
its own end keeps its last loss until then. Other runs shorter than `min_steps` say nothing. A step that was not validated is
as good as the one before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoestring.core.books import Trial
from shoestring.core.encoding import Encoding, Points
from shoestring.core.ledger import Ledger
from shoestring.core.parameters import Choice
from shoestring.policies.outcomes import Table

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    trial: int
    steps: int  # really trained, at most; those after a divergence do not count
    losses: Array  # (length,), inf from the divergence on
    costs: Array  # (steps,), of its first 1, 2, … steps, in the budget's unit

    @property
    def length(self) -> int:
        return self.losses.size

    @property
    def is_bad(self) -> bool:
        return not math.isfinite(self.losses[-1])


def finished_runs(ledger: Ledger, table: Table, min_steps: int) -> list[Run]:
    found = (_run(ledger, table, trial, min_steps) for trial in ledger.trials if trial.open_order is None)
    return [run for run in found if run is not None]


def _run(ledger: Ledger, table: Table, trial: Trial, min_steps: int) -> Run | None:
    known = np.array([math.nan if loss is None else loss for loss in trial.losses])
    numbered = np.flatnonzero(np.isfinite(known))
    is_bad = trial.diverged or (bool(trial.failure) and trial.steps < min_steps)
    if not numbered.size and not is_bad:
        return None
    good = known[: trial.steps - trial.diverged]
    if numbered.size:  # a step that was not validated is as good as the one before, or the first that was
        good = good[numbered[np.maximum(np.searchsorted(numbered, np.arange(good.size), side="right") - 1, 0)]]
    else:
        good = good[:0]
    if is_bad:
        losses = np.concatenate([good, np.full(ledger.max_steps - good.size, math.inf)])
    elif trial.steps >= trial.limit:
        losses = np.concatenate([good, np.full(ledger.max_steps - good.size, good[-1])])
    else:
        losses = good
    if losses.size < min_steps:
        return None
    return Run(trial.number, good.size, losses, _costs(ledger, table, trial)[: good.size])


def _costs(ledger: Ledger, table: Table, trial: Trial) -> Array:
    if ledger.budget.unit == "epochs":
        return ledger.step_price() * np.arange(1.0, trial.steps + 1.0)
    steps = np.cumsum(trial.step_costs)
    setup = max(0.0, table.facts[trial.number].seconds - float(steps[-1])) if steps.size else 0.0
    return np.asarray((setup + steps) * ledger.budget.per_second(ledger.workers))


def inputs(encoding: Encoding, points: Points) -> Array:
    """Configs as rows of the unit cube, (m, d): two options of a choice are as far apart as the ends of a number's range."""
    features = encoding.features(points)
    space = encoding.space
    sizes = [len(p.options) for p in (space.parameters[name] for name in space.cube_names) if isinstance(p, Choice)]
    plain = encoding.n_columns - len(sizes)
    spread = [(features[:, plain + j, None] == np.arange(size)) * math.sqrt(0.5) for j, size in enumerate(sizes)]
    return np.hstack([features[:, :plain], *spread])
