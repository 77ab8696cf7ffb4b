"""Which runs are under way, and how that travels from decision to decision.

A run is the training of one trial, step by step, until it ends or is given up; one that was given up is frozen, never closed.
The memo of every order holds four lists of equal length, an entry for each run under way,

    run_trials            trial
    run_iterations        0, 1, 2, … for runs after the initial design; -1 for one that is never given up
    run_orders            order that opened the run; its memo holds what was known at that time
    run_goals             step to train it to

and beside them

    begun                 runs after the design so far
    error_bounds          see `error_range`; missing until the design is complete
    given_up, predicted   trials given up, and the losses at full training that were forecast for them
    —                     lists that the policy names: its kernel's parameters, and what else it carries

Every idle run is asked about before a new one is opened, so a run that is missing from the lists has ended or was given up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from shoestring.core.deciding.decision import NO_WHY, Memo, Why
from shoestring.core.deciding.memo import Lists, pick
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.policies.stopping.error_range import ErrorRange

_UNJUDGED = -1
WITH_GAPS: Why = {"phase": "not judged", "reason": "a step was not validated"}


@dataclass(frozen=True, slots=True)
class GoOn:
    """Train the run up to this step, for this reason."""

    until: int
    why: Why = field(default_factory=lambda: NO_WHY)


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Freeze the run, for this reason."""

    why: Why
    predicted: float | None = None  # loss at full training to tell the model, if not what was seen


@dataclass(frozen=True, slots=True)
class ActiveRun:
    trial: int
    iteration: int
    order: int
    goal: int

    @property
    def is_judged(self) -> bool:
        return self.iteration != _UNJUDGED


@dataclass(slots=True)
class RunsUnderWay:
    """What a decision reads from the last order's memo, and leaves in its own."""

    active: list[ActiveRun]
    begun: int
    error_range: ErrorRange | None
    predicted: dict[int, float]  # loss at full training, of trials that were given up
    lists: Lists  # what the policy carries besides

    @classmethod
    def read(cls, memo: Memo, names: Iterable[str]) -> RunsUnderWay:
        """`names` are those of the policy's own lists."""
        lists = [[int(v) for v in memo.get(f"run_{name}", ())] for name in ("trials", "iterations", "orders", "goals")]
        bounds = memo.get("error_bounds")
        return cls(
            [ActiveRun(*four) for four in zip(*lists, strict=True)],
            int(memo.get("begun", (0.0,))[0]),
            ErrorRange(*bounds) if bounds else None,
            {int(t): v for t, v in zip(memo.get("given_up", ()), memo.get("predicted", ()), strict=True)},
            pick(memo, names),
        )

    def memo(self) -> Lists:
        memo: Lists = {
            "run_trials": [float(run.trial) for run in self.active],
            "run_iterations": [float(run.iteration) for run in self.active],
            "run_orders": [float(run.order) for run in self.active],
            "run_goals": [float(run.goal) for run in self.active],
            "begun": [float(self.begun)],
            **self.lists,
        }
        if self.error_range is not None:
            memo["error_bounds"] = list(self.error_range)
        if self.predicted:
            memo["given_up"] = [float(trial) for trial in self.predicted]
            memo["predicted"] = list(self.predicted.values())
        return memo

    def begin(self, ledger: Ledger, trial: int, goal: int) -> None:
        """A run after the initial design, opened by the next order."""
        self.active.append(ActiveRun(trial, self.begun, len(ledger.orders), goal))
        self.begun += 1

    def begin_unjudged(self, ledger: Ledger, trial: int, goal: int) -> None:
        """A run that is never given up, opened by the next order."""
        self.active.append(ActiveRun(trial, _UNJUDGED, len(ledger.orders), goal))

    def find_frozen(self, ledger: Ledger) -> list[Trial]:
        """Trials that were trained for a while, could go on, and belong to no run."""
        active = {run.trial for run in self.active}
        return [trial for trial in ledger.trials if trial.can_go_on and trial.steps and trial.number not in active]


def curve_of(trial: Trial) -> list[float]:
    """Its loss after each step; empty if a step was not validated: a curve with gaps cannot be judged."""
    losses = [loss for loss in trial.losses if loss is not None]
    return losses if len(losses) == trial.steps else []


def find_incumbent(ledger: Ledger, trial: int) -> float:
    """The best loss of all the other trials; inf if there is none."""
    return min((other.best_loss for other in ledger.trials if other.number != trial), default=math.inf)
