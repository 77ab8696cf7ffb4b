"""The active trials, and how they are stored in the memo from decision to decision.

A trial is active from the order that starts it until it ends or is stopped. A stopped trial is paused, never closed. (BOCA also
continues paused trials, which are then active again.) The memo of every order holds four lists of equal length, with one entry
per active trial:

    run_trials            number of the trial
    run_iterations        0, 1, 2, ... for trials after the initial design; -1 for a trial that is never stopped
    run_orders            order that made the trial active; the memo of that order holds what was known then
    run_goals             step to which the trial is trained

and in addition

    started               number of times that a trial became active after the initial design
    error_bounds          see `error_range`; missing until the initial design is complete
    stopped, predicted    stopped trials, and the losses at full training that were forecast for them
    ...                   lists of the policy: the parameters of its kernel, and others

The names that begin with `run_` cannot change, because they are stored in ledgers.

A decision checks every idle trial before it starts a new one. So a trial that is missing from the lists has ended or was
stopped.
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
class ContinueTrial:
    """The decision to train a trial up to a step, and the reason."""

    until: int
    why: Why = field(default_factory=lambda: NO_WHY)


@dataclass(frozen=True, slots=True)
class StopTrial:
    """The decision to stop a trial, and the reason."""

    why: Why
    predicted: float | None = None  # forecast of the loss at full training; None: the surrogate uses the observed loss


@dataclass(frozen=True, slots=True)
class ActiveTrial:
    """One entry of the lists in the memo."""

    number: int  # of the trial
    iteration: int
    order: int
    goal: int

    @property
    def may_be_stopped(self) -> bool:
        return self.iteration != _NEVER_STOPPED


@dataclass(slots=True)
class ActiveTrials:
    """Active trials as a decision reads them from the memo of the last order and stores them in its own memo."""

    trials: list[ActiveTrial]
    started: int
    error_range: ErrorRange | None
    predicted: dict[int, float]  # forecast of the loss at full training, by stopped trial
    lists: Lists  # other lists of the policy

    @classmethod
    def read(cls, memo: Memo, names: Iterable[str]) -> ActiveTrials:
        """Return the active trials that a memo stores; `names` are those of the policy's own lists."""
        lists = [[int(v) for v in memo.get(f"run_{name}", ())] for name in ("trials", "iterations", "orders", "goals")]
        bounds = memo.get("error_bounds")
        return cls(
            [ActiveTrial(*four) for four in zip(*lists, strict=True)],
            int(memo.get("started", (0.0,))[0]),
            ErrorRange(*bounds) if bounds else None,
            {int(t): v for t, v in zip(memo.get("stopped", ()), memo.get("predicted", ()), strict=True)},
            pick(memo, names),
        )

    def memo(self) -> Lists:
        """Return the lists to store in the memo."""
        memo: Lists = {
            "run_trials": [float(one.number) for one in self.trials],
            "run_iterations": [float(one.iteration) for one in self.trials],
            "run_orders": [float(one.order) for one in self.trials],
            "run_goals": [float(one.goal) for one in self.trials],
            "started": [float(self.started)],
            **self.lists,
        }
        if self.error_range is not None:
            memo["error_bounds"] = list(self.error_range)
        if self.predicted:
            memo["stopped"] = [float(trial) for trial in self.predicted]
            memo["predicted"] = list(self.predicted.values())
        return memo

    def add(self, ledger: Ledger, trial: int, goal: int) -> None:
        """Add a trial after the initial design; the next order trains it."""
        self.trials.append(ActiveTrial(trial, self.started, len(ledger.orders), goal))
        self.started += 1

    def add_never_stopped(self, ledger: Ledger, trial: int, goal: int) -> None:
        """Add a trial that is never stopped; the next order trains it."""
        self.trials.append(ActiveTrial(trial, _NEVER_STOPPED, len(ledger.orders), goal))

    def find_paused(self, ledger: Ledger) -> list[Trial]:
        """Return trials that have been trained, can be continued, and are not active."""
        active = {one.number for one in self.trials}
        return [trial for trial in ledger.trials if trial.can_continue and trial.steps and trial.number not in active]


def curve_of(trial: Trial) -> list[float]:
    """Return the loss after each step, or an empty list if a step was not validated: the rules need complete curves."""
    losses = [loss for loss in trial.losses if loss is not None]
    return losses if len(losses) == trial.steps else []


def find_incumbent(ledger: Ledger, trial: int) -> float:
    """Return the best loss of all other trials, or inf if there is none."""
    return min((other.best_loss for other in ledger.trials if other.number != trial), default=math.inf)
