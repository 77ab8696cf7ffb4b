"""The table that a model of whole trials is fitted to: every config as numbers, its loss, and what it cost.

One view, carried along with the ledger: configs are encoded once, when their trial is opened. A space that is listed, or
small enough to list, also has the table of all its configs with a mark at those already tried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoestring.core.books import Trial
from shoestring.core.encoding import Encoding, Points
from shoestring.core.entries import Amended, Entry, Opened, Order, Receipt
from shoestring.core.ledger import Ledger
from shoestring.core.space import Config, Space
from shoestring.models.cost_aware.features import CostFeatures

Array = NDArray[np.float64]
_ENUMERABLE = 10_000  # configs: a finite space up to this size is scored as a whole
_DIGITS = 9  # two places in the cube closer than this are one config


class Table:
    """The encoded trials of a study; read it, never write it."""

    def __init__(self, space: Space) -> None:
        self.encoding = Encoding(space)
        self.cost_features = CostFeatures(self.encoding)
        self.rows: Sequence[Config] | None = space.rows
        if self.rows is None and space.size <= _ENUMERABLE:
            self.rows = list(space.grid(_ENUMERABLE + 1))
        self.row_points = self.encoding.points(self.rows) if self.rows is not None else None
        self._row_of = {space.key(row): number for number, row in enumerate(self.rows or ())}
        self.unused = np.ones(len(self.rows or ()), dtype=bool)
        self.trials: list[Points] = []
        self.tried: set[bytes] = set()  # places of all trials, rounded
        self.facts: list[TrialFacts] = []
        self.policy_since = 0  # number of the first trial order of the policy at work
        self.orders = 0

    def is_tried(self, points: Points) -> NDArray[np.bool_]:
        """(m,): whether a trial has, up to rounding, this very config."""
        return np.array([key in self.tried for key in _keys(points)], dtype=bool)

    def open(self, config: Config) -> None:
        points = self.encoding.points([config])
        self.trials.append(points)
        self.tried.update(_keys(points))
        self.facts.append(TrialFacts())
        if self.rows is not None:
            number = self._row_of.get(self.encoding.space.key(config))
            if number is not None:
                self.unused[number] = False

    def stacked(self, numbers: Sequence[int]) -> Points:
        """The trials of these numbers."""
        chosen = [self.trials[number] for number in numbers]
        return Points(np.vstack([p.cube for p in chosen]), np.vstack([p.active for p in chosen]))


@dataclass(slots=True)
class TrialFacts:
    seconds: float = 0.0  # charged for steps run the first time, their setup included
    steps: int = 0
    interrupted: bool = False  # its last receipt was cut off at the wall
    order: int = 0  # its newest
    design: bool = False  # belongs to the initial design


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The view; an order belongs to the initial design when its `why` names that phase."""

    design_phase: str

    def start(self, opened: Opened) -> Table:
        return Table(opened.space)

    def absorb(self, table: Table, entry: Entry) -> Table:
        if isinstance(entry, Order):
            if entry.trial == len(table.trials):
                table.open(entry.config)
            facts = table.facts[entry.trial]
            facts.order = entry.number
            facts.design |= entry.why.get("phase") == self.design_phase
            table.orders += 1
        elif isinstance(entry, Receipt):
            facts = table.facts[entry.trial]
            finished = entry.status in ("ok", "diverged")
            if not (finished and entry.step <= facts.steps):
                facts.seconds += entry.cost.total
            if finished:
                facts.steps = max(facts.steps, entry.step)
            facts.interrupted = entry.status == "interrupted"
        elif isinstance(entry, Amended) and entry.policy is not None:
            table.policy_since = table.orders
        return table


def results(ledger: Ledger) -> tuple[list[int], Array]:
    """Trials that say something about their config, and their losses; inf for one that failed or diverged at once.

    A trial counts with the best loss it ever had: that is what the study would keep of it. One that another policy stopped
    early counts too; its loss is too high, but better than nothing.
    """
    numbers, losses = [], []
    for trial in ledger.trials:
        if trial.open_order is not None:
            continue
        if math.isfinite(trial.best_loss) or trial.diverged or trial.failure:
            numbers.append(trial.number)
            losses.append(trial.best_loss)
    return numbers, np.array(losses)


def whole_costs(ledger: Ledger, table: Table) -> tuple[list[int], Array]:
    """Trials that were trained to their end, and what each cost in all: seconds, or epochs where the budget counts them."""
    numbers = [t.number for t in ledger.trials if t.steps >= t.limit and t.steps > 0]
    if ledger.budget.unit == "epochs":
        per_step = ledger.step_price()
        return numbers, np.array([per_step * ledger.trials[number].steps for number in numbers])
    return numbers, np.array([table.facts[number].seconds for number in numbers])


def unfinished(ledger: Ledger, table: Table) -> Trial | None:
    """A trial that this policy began and the wall, or a shortened order, kept from its end."""
    return next(
        (
            trial
            for trial in ledger.trials
            if trial.open_order is None
            and not trial.is_stuck
            and (trial.steps > 0 or table.facts[trial.number].interrupted)
            and table.facts[trial.number].order >= table.policy_since
        ),
        None,
    )


def _keys(points: Points) -> list[bytes]:
    rounded = np.round(points.cube, _DIGITS) + 0.0  # + 0.0 turns -0.0 into 0.0
    rows = np.hstack([rounded, points.active]) if points.active.size else rounded
    return [row.tobytes() for row in rows]
