"""The active runs, and how they are stored in the memo from decision to decision.

A run is the training of one trial, step by step, until it ends or is stopped. The trial of a stopped run is paused, never
closed. The memo of every order holds four lists of equal length, with one entry per active run:

    run_trials            trial
    run_iterations        0, 1, 2, ... for runs after the initial design; -1 for a run that is never stopped
    run_orders            order that started the run; the memo of that order holds what was known then
    run_goals             step to which the run is trained

and in addition

    started               number of runs after the initial design
    error_bounds          see `error_range`; missing until the initial design is complete
    stopped, predicted    stopped trials, and the losses at full training that were forecast for them
    ...                   lists of the policy: the parameters of its kernel, and others

A decision checks every idle run before it starts a new one. So a run that is missing from the lists has ended or was stopped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from shoestring.core.deciding.memo import Lists, pick
from shoestring.policies.stopping.error_range import ErrorRange
from shoestring.policy import NO_WHY, Ledger, Memo, Trial, Why

_NEVER_STOPPED = -1
INCOMPLETE_CURVE: Why = {"phase": "no stopping check", "reason": "a step was not validated"}


@dataclass(frozen=True, slots=True)
class ContinueRun:
    """The decision to train a run up to a step, and the reason."""

    until: int
    why: Why = field(default_factory=lambda: NO_WHY)


@dataclass(frozen=True, slots=True)
class StopRun:
    """The decision to stop a run, and the reason."""

    why: Why
    predicted: float | None = None  # forecast of the loss at full training; None: the surrogate uses the observed loss


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """One entry of the lists in the memo."""

    trial: int
    iteration: int
    order: int
    goal: int

    @property
    def may_be_stopped(self) -> bool:
        return self.iteration != _NEVER_STOPPED


@dataclass(slots=True)
class ActiveRuns:
    """Active runs as a decision reads them from the memo of the last order and stores them in its own memo."""

    active: list[ActiveRun]
    started: int
    error_range: ErrorRange | None
    predicted: dict[int, float]  # forecast of the loss at full training, by stopped trial
    lists: Lists  # other lists of the policy

    @classmethod
    def read(cls, memo: Memo, names: Iterable[str]) -> ActiveRuns:
        """Return the active runs that a memo stores; `names` are those of the policy's own lists."""
        lists = [[int(v) for v in memo.get(f"run_{name}", ())] for name in ("trials", "iterations", "orders", "goals")]
        bounds = memo.get("error_bounds")
        return cls(
            [ActiveRun(*four) for four in zip(*lists, strict=True)],
            int(memo.get("started", (0.0,))[0]),
            ErrorRange(*bounds) if bounds else None,
            {int(t): v for t, v in zip(memo.get("stopped", ()), memo.get("predicted", ()), strict=True)},
            pick(memo, names),
        )

    def memo(self) -> Lists:
        """Return the lists to store in the memo."""
        memo: Lists = {
            "run_trials": [float(run.trial) for run in self.active],
            "run_iterations": [float(run.iteration) for run in self.active],
            "run_orders": [float(run.order) for run in self.active],
            "run_goals": [float(run.goal) for run in self.active],
            "started": [float(self.started)],
            **self.lists,
        }
        if self.error_range is not None:
            memo["error_bounds"] = list(self.error_range)
        if self.predicted:
            memo["stopped"] = [float(trial) for trial in self.predicted]
            memo["predicted"] = list(self.predicted.values())
        return memo

    def start_run(self, ledger: Ledger, trial: int, goal: int) -> None:
        """Add a run after the initial design, which the next order starts."""
        self.active.append(ActiveRun(trial, self.started, len(ledger.orders), goal))
        self.started += 1

    def start_full_run(self, ledger: Ledger, trial: int, goal: int) -> None:
        """Add a run that is never stopped, which the next order starts."""
        self.active.append(ActiveRun(trial, _NEVER_STOPPED, len(ledger.orders), goal))

    def find_paused(self, ledger: Ledger) -> list[Trial]:
        """Return trials that have been trained, can be continued, and belong to no active run."""
        active = {run.trial for run in self.active}
        return [trial for trial in ledger.trials if trial.can_continue and trial.steps and trial.number not in active]


def curve_of(trial: Trial) -> list[float]:
    """Return the loss after each step, or an empty list if a step was not validated: the rules need complete curves."""
    losses = [loss for loss in trial.losses if loss is not None]
    return losses if len(losses) == trial.steps else []


def find_incumbent(ledger: Ledger, trial: int) -> float:
    """Return the best loss of all other trials, or inf if there is none."""
    return min((other.best_loss for other in ledger.trials if other.number != trial), default=math.inf)
