"""The state of a study: its trials, its open orders, and what was spent on what. `accounting.py` updates it.

spent           charged so far, in the budget's unit
reserved        what the open orders may still cost
resumable_step  per trial: the newest step from which training can continue, because its state still exists somewhere
repeated        seconds of steps that had to be run again because their state was lost
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.lazy_list import LazyList
from shoestring.core.ledger.running_totals import StepTimes, to_exact, to_float
from shoestring.core.space.space import Config


@dataclass(slots=True)
class Trial:
    """One configuration and its training so far. It belongs to the ledger: read it, never change it."""

    number: int  # trials are numbered from 0
    config: Config  # its configuration, the newest if it changed
    limit: int  # the last possible step: `max_steps`, or the step after which the training code ended by itself
    steps: int = 0  # the furthest step that was reported
    resumable_step: int = 0  # the newest step from which training can continue
    saved_step: int = 0  # the newest step with a checkpoint
    values: list[float | None] = field(default_factory=list)  # values by step; None: not validated, or not a number
    losses: list[float | None] = field(default_factory=list)  # losses by step, smaller is better; inf: diverged
    step_costs: list[float] = field(default_factory=list)  # seconds of each finished step, setup included
    step_orders: list[int] = field(default_factory=list)  # the order of each finished step
    best_loss: float = math.inf  # the smallest loss
    best_step: int = 0  # the step of that loss; 0 before the first loss
    best_config: Config | None = None  # the config at its best step; in online tuning it differs from step to step
    diverged: bool = False  # its last step diverged
    failures: int = 0  # number of failures
    failure: str = ""  # text of the last failure; empty after a later good step
    deaths: int = 0  # times that its process died since its last new step
    is_retuned: bool = False  # its config changed during training
    open_order: int | None = None  # number of its open order
    last_order: int = 0  # its newest order, open or not
    seconds: float = 0.0  # seconds charged for it, with failed and interrupted steps, without repeated ones
    digests: dict[int, str] = field(default_factory=dict)  # digest of the checkpoint of each saved step

    @property
    def best_value(self) -> float | None:
        """The value at its best step, as reported; None before the first value."""
        return self.values[self.best_step - 1] if self.best_step else None

    @property
    def last_loss(self) -> float:
        """The newest known loss; infinite if the trial diverged, failed since, or was never validated."""
        if self.diverged or self.failure:
            return math.inf
        return next((loss for loss in reversed(self.losses) if loss is not None), math.inf)

    @property
    def is_ended(self) -> bool:
        """Whether it cannot be trained further: it diverged, failed, or reached its limit."""
        return self.diverged or bool(self.failure) or self.steps >= self.limit

    @property
    def can_continue(self) -> bool:
        """Whether it can be ordered now: it has no open order and has not ended."""
        return self.open_order is None and not self.is_ended


@dataclass(slots=True)
class OpenOrder:
    """An order whose last step has not been reported yet."""

    order: Order  # the order
    steps_due: int  # epochs that are still reserved for it
    validations_due: int  # validation passes that are still reserved for it
    charged: float = 0.0  # what was charged for it in time or money, in the budget's unit
    checked: bool = False  # its resume check was made
    since: float = 0.0  # time on the runner's clock of its last receipt, or of the order itself

    @property
    def reserve(self) -> int:
        """What it may still cost in time or money, in the units of `to_exact`."""
        return to_exact(max(0.0, self.order.reserve - self.charged))


KINDS_OF_TIME = ("setup", "train", "validate", "repeated", "check", "thinking", "lost")


@dataclass(slots=True)
class StudyState:
    """The totals of all entries so far. They belong to the ledger: read them, never change them."""

    sign: float  # 1 if small values are good, -1 if large values are
    budget: Budget  # the budget, as last amended
    validate_epochs: float  # the listed price of a validation pass
    workers: int  # the number of workers, as last amended
    policy: str  # name of the present policy
    settings: Any  # its settings
    max_steps: int  # steps of a full training
    trials: list[Trial] = field(default_factory=list)  # all trials by number
    orders: list[Order] | LazyList[Order] = field(default_factory=list)  # all orders by number
    open_orders: dict[int, OpenOrder] = field(default_factory=dict)  # open orders by number
    queue: list[Config] = field(default_factory=list)  # configs that the user wants tried first
    used: set[str] = field(default_factory=set)  # keys of all configs that were tried
    steps: int = 0  # epochs that were charged
    validations: int = 0  # validation passes that were charged
    steps_due: int = 0  # epochs that open orders reserve
    validations_due: int = 0  # validation passes that open orders reserve
    seconds: float = 0.0  # all charged seconds together
    charged: float = 0.0  # what these seconds cost in the budget's unit; 0 for epochs
    by_kind: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS_OF_TIME, 0.0))  # seconds by kind
    receipts: int = 0  # number of receipts
    failures_in_a_row: int = 0  # failures of the same kind since the last finished step
    failure_kind: str = ""  # their kind; see failures.py
    last_failure: str = ""  # text of the last failure
    diverged_in_a_row: int = 0  # steps whose value was not a number, since the last good step
    ok_receipts: int = 0  # number of receipts with a good value, or with none
    step_costs: StepTimes = field(default_factory=StepTimes)  # seconds of all finished steps
    step_seconds: float = 0.0  # their sum
    max_start_s: float = 0.0  # seconds of the longest first step of a trial, setup included
    best_trial: int | None = None  # number of the best trial
    best_loss: float = math.inf  # the smallest loss
    first_own_order: int = 0  # number of the first order of the present policy; earlier memos belong to other policies
    clock: float = 0.0  # time on the runner's clock of the newest entry
    has_unsealed_saves: bool = False  # checkpoints were saved without a digest: by a command, or by an older release
    check_ordered: bool = False  # a resume check was made, or an open order will make it
    # These follow from the trials and orders. They are stored so that no decision has to search all of them:
    idle: list[tuple[float, int]] = field(init=False)  # (newest loss, trial) of trials that can continue, best first
    open_external: int = field(init=False)  # number of open orders that the user carries out, not a runner
    open_reserve: int = field(init=False)  # what open orders may still cost in time or money, in units of `to_exact`

    def __post_init__(self) -> None:
        self.idle = sorted((trial.last_loss, trial.number) for trial in self.trials if trial.can_continue)
        self.open_external = sum(one.order.is_external for one in self.open_orders.values())
        self.open_reserve = sum(one.reserve for one in self.open_orders.values())

    @property
    def spent(self) -> float:
        """What was charged so far, in the budget's unit."""
        return self.steps + self.validations * self.validate_epochs if self.budget.unit == "epochs" else self.charged

    def find_digest(self, trial: int, step: int) -> str | None:
        """Return the digest that the checkpoint of a step must have.

        Parameters
        ----------
        trial : int
            The number of the trial.
        step : int
            The step.

        Returns
        -------
        str or None
            None if the checkpoint may not be read, because it was not recorded or was changed. Empty if it may be read unchecked,
            because its trial has been saved without digests so far.
        """
        digests = self.trials[trial].digests
        return (digests.get(step) or None) if digests or not self.has_unsealed_saves else ""

    @property
    def training_share(self) -> float | None:
        """The share of all charged seconds that was spent on training and validating new steps; None before the first second."""
        return (self.by_kind["train"] + self.by_kind["validate"]) / self.seconds if self.seconds else None

    @property
    def reserved(self) -> float:
        """What open orders may still cost, in the budget's unit."""
        if self.budget.unit == "epochs":
            return self.steps_due + self.validations_due * self.validate_epochs
        return to_float(self.open_reserve)

    @property
    def committed(self) -> float:
        """The smallest total to which the budget may be lowered, in its unit.

        Epochs of open orders count, because they will be charged. Time and money of open orders do not count, because their
        steps are interrupted at the budget limit.
        """
        if self.budget.unit == "epochs":
            validations = self.validations + self.validations_due
            return self.steps + self.steps_due + validations * self.validate_epochs
        return self.spent
