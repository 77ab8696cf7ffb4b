"""The books of a study: its trials, its open orders, and what was spent on what. `core/ledger/accounting.py` writes them.

spent       charged so far, in the budget's unit
reserved    what the open orders may still cost
held        per trial: the newest step that still exists somewhere, from which training can continue
repeated    seconds of steps that had to be run again because their state was lost
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.lazy_list import LateList
from shoestring.core.ledger.running_totals import StepTimes, to_exact, to_float
from shoestring.core.space.space import Config


@dataclass(slots=True)
class Trial:
    """One config being trained. Read it, never write it: it belongs to the ledger."""

    number: int
    config: Config
    limit: int  # no step beyond this one exists: max_steps, or where the training code came to its own end
    steps: int = 0  # how far it has ever been seen
    held: int = 0
    saved: int = 0
    values: list[float | None] = field(default_factory=list)  # by step, as reported; None: not validated, or no number
    losses: list[float | None] = field(default_factory=list)  # by step, smaller is better; inf: diverged
    step_costs: list[float] = field(default_factory=list)  # seconds of each finished step, setting up included
    step_orders: list[int] = field(default_factory=list)  # the order that bought each finished step
    best_loss: float = math.inf
    best_step: int = 0
    best_config: Config | None = None  # of that step; a run that is tuned while it trains has several
    diverged: bool = False  # at its last step
    failures: int = 0
    failure: str = ""  # text of the last one
    deaths: int = 0  # of its process, with no finished step between
    is_retuned: bool = False  # its config changed on the way
    open_order: int | None = None
    last_order: int = 0  # its newest, open or not
    seconds: float = 0.0  # charged for it, steps that failed or were cut off included, steps run again left out

    @property
    def best_value(self) -> float | None:
        """The value at its best step, as reported; None before the first."""
        return self.values[self.best_step - 1] if self.best_step else None

    @property
    def last_loss(self) -> float:
        """The newest known loss; infinite for a trial that diverged, failed since, or was never validated."""
        if self.diverged or self.failure:
            return math.inf
        return next((loss for loss in reversed(self.losses) if loss is not None), math.inf)

    @property
    def is_stuck(self) -> bool:
        """Whether buying more of it is pointless: it diverged, failed, or is at its end."""
        return self.diverged or bool(self.failure) or self.steps >= self.limit

    @property
    def can_go_on(self) -> bool:
        """Whether more of it can be bought now: it is not being trained, and not stuck."""
        return self.open_order is None and not self.is_stuck


@dataclass(slots=True)
class OpenOrder:
    """An order whose last step has not been reported yet."""

    order: Order
    steps_due: int  # epochs still reserved
    validations_due: int
    charged: float = 0.0  # in the budget's unit, of time and money
    checked: bool = False
    since: float = 0.0  # the runner's clock at its last receipt

    @property
    def reserve(self) -> int:
        """What it may still cost in time or money, as an exact sum counts it."""
        return to_exact(max(0.0, self.order.reserve - self.charged))


@dataclass(slots=True)
class Books:
    """What follows from all entries so far. Read it, never write it: it belongs to the ledger."""

    sign: float
    budget: Budget
    validate_epochs: float  # listed price of a validation pass
    workers: int
    policy: str
    settings: Any
    max_steps: int
    trials: list[Trial] = field(default_factory=list)
    orders: list[Order] | LateList[Order] = field(default_factory=list)
    open_orders: dict[int, OpenOrder] = field(default_factory=dict)
    queue: list[Config] = field(default_factory=list)  # configs the user wants tried first
    used: set[str] = field(default_factory=set)  # keys of all configs tried
    steps: int = 0  # epochs charged
    validations: int = 0
    steps_due: int = 0  # epochs reserved by open orders
    validations_due: int = 0
    seconds: float = 0.0  # charged, all kinds together
    charged: float = 0.0  # what these seconds cost in the budget's unit; 0 for epochs
    by_kind: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(
            ("setup", "train", "validate", "repeated", "check", "thinking", "lost"), 0.0
        )
    )
    receipts: int = 0
    failures_in_a_row: int = 0  # of one and the same kind, with no finished step between
    failure_kind: str = ""  # see core/ledger/failures.py
    last_failure: str = ""  # its text
    diverged_in_a_row: int = 0  # steps whose value was no number, with no good step between
    ok_receipts: int = 0
    step_costs: StepTimes = field(default_factory=StepTimes)  # of all finished steps
    step_seconds: float = 0.0  # their sum
    dearest_start_s: float = 0.0  # of all first steps, setting up included
    best_trial: int | None = None
    best_loss: float = math.inf
    memo_from: int = 0  # orders before this number were another policy's: their memo means nothing to this one
    clock: float = 0.0  # the runner's clock at the newest entry
    check_ordered: bool = False  # a resume check was made, or an open order is to make it
    # Kept beside the trials and orders that they follow from, so that no decision looks through all of these:
    idle: list[tuple[float, int]] = field(init=False)  # (newest loss, trial) of those that can go on, best first
    asked_open: int = field(init=False)  # open orders that somebody asked for
    open_reserve: int = field(init=False)  # what the open orders may still cost in time or money, exactly

    def __post_init__(self) -> None:
        self.idle = sorted((trial.last_loss, trial.number) for trial in self.trials if trial.can_go_on)
        self.asked_open = sum(one.order.asked for one in self.open_orders.values())
        self.open_reserve = sum(one.reserve for one in self.open_orders.values())

    @property
    def spent(self) -> float:
        return self.steps + self.validations * self.validate_epochs if self.budget.unit == "epochs" else self.charged

    @property
    def training_share(self) -> float | None:
        """Of all seconds charged: those of training and validating steps that were wanted. None before the first."""
        return (self.by_kind["train"] + self.by_kind["validate"]) / self.seconds if self.seconds else None

    @property
    def reserved(self) -> float:
        """What open orders may still cost."""
        if self.budget.unit == "epochs":
            return self.steps_due + self.validations_due * self.validate_epochs
        return to_float(self.open_reserve)

    @property
    def committed(self) -> float:
        """What cannot be taken back any more: open orders hold their epochs, while time is cut off at the wall."""
        if self.budget.unit == "epochs":
            validations = self.validations + self.validations_due
            return self.steps + self.steps_due + validations * self.validate_epochs
        return self.spent
