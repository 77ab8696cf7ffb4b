"""The books: the one view that every study needs. Trials, open orders, and what was spent on what.

    spent       charged so far, in the budget's unit
    reserved    what the open orders may still cost
    held        per trial: the step that still exists somewhere and can be gone on from
    repeated    seconds of steps that had to be run again because their state was lost

Rules of charging. In epochs: one for every step not seen before and one for every step that failed or was cut off at the
wall; validation passes that were ordered, at their listed price; one for a resume check. In seconds and dollars:
everything that took time, the policy's thinking and steps run again included, at the rate that held at the time. Epoch
counts are kept as whole numbers and priced in one multiplication, so that "never over budget" holds to the last bit.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, field
from typing import Any

from shoestring.core.entries import Amended, Entry, Lost, Note, Opened, Order, Receipt
from shoestring.core.money import Budget
from shoestring.core.space import Config
from shoestring.core.strict_json import dumps
from shoestring.errors import DecisionError, StudyError


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
    best_loss: float = math.inf
    best_step: int = 0
    best_config: Config | None = None  # that step was trained with; a run that is tuned as it goes has several
    diverged: bool = False  # at its last step
    failures: int = 0
    failure: str = ""  # text of the last one
    open_order: int | None = None
    last_order: int = 0  # its newest, open or not
    seconds: float = 0.0  # charged for it, steps that failed or were cut off included, steps run again left out

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
    order: Order
    steps_due: int  # epochs still reserved
    validations_due: int
    charged: float = 0.0  # in the budget's unit, of time and money
    checked: bool = False
    since: float = 0.0  # the runner's clock at its last receipt


@dataclass(slots=True)
class State:
    sign: float
    budget: Budget
    validate_epochs: float  # listed price of a validation pass
    workers: int
    policy: str
    settings: Any
    max_steps: int
    trials: list[Trial] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
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
    failures_in_a_row: int = 0  # receipts of one and the same failure, with no finished step between
    last_failure: str = ""  # its text
    ok_receipts: int = 0
    step_costs: list[float] = field(default_factory=list)  # seconds of all finished steps, sorted
    step_seconds: float = 0.0  # their sum
    best_trial: int | None = None
    best_loss: float = math.inf
    memo_from: int = 0  # orders before this number were another policy's: their memo means nothing to this one
    clock: float = 0.0  # the runner's clock at the newest entry
    check_ordered: bool = False  # a resume check was made, or an open order is to make it

    @property
    def spent(self) -> float:
        return self.steps + self.validations * self.validate_epochs if self.budget.unit == "epochs" else self.charged

    @property
    def reserved(self) -> float:
        """What open orders may still cost."""
        if self.budget.unit == "epochs":
            return self.steps_due + self.validations_due * self.validate_epochs
        return sum(max(0.0, opened.order.reserve - opened.charged) for opened in self.open_orders.values())

    @property
    def committed(self) -> float:
        """What cannot be taken back any more: open orders hold their epochs, while time is cut off at the wall."""
        if self.budget.unit == "epochs":
            validations = self.validations + self.validations_due
            return self.steps + self.steps_due + validations * self.validate_epochs
        return self.spent


@dataclass(frozen=True, slots=True)
class Books:
    def start(self, opened: Opened) -> State:
        return State(
            sign=1.0 if opened.direction == "min" else -1.0,
            budget=opened.budget,
            validate_epochs=opened.prices.validate_epochs,
            workers=opened.workers,
            policy=opened.policy,
            settings=opened.settings,
            max_steps=opened.max_steps,
        )

    def absorb(self, books: State, entry: Entry) -> State:
        if isinstance(entry, Receipt):
            _receipt(books, entry)
        elif isinstance(entry, Order):
            _order(books, entry)
        elif isinstance(entry, Lost):
            books.trials[entry.trial].held = entry.held
            _charge(books, "lost", entry.seconds)
        elif isinstance(entry, Amended):
            _amended(books, entry)
        elif isinstance(entry, Note):
            _note(books, entry)
        return books


def _order(books: State, order: Order) -> None:
    if order.number != len(books.orders) or not 0 <= order.trial <= len(books.trials):
        raise DecisionError(
            f"order {order.number} of trial {order.trial} does not come next: "
            f"there are {len(books.orders)} orders and {len(books.trials)} trials"
        )
    if order.trial == len(books.trials):
        key = dumps(order.config)
        books.trials.append(Trial(order.trial, order.config, limit=books.max_steps))
        books.used.add(key)
        if books.queue:
            books.queue = [config for config in books.queue if dumps(config) != key]
    trial = books.trials[order.trial]
    trial.config = order.config
    steps = order.until - trial.steps + order.check
    books.check_ordered |= order.check
    validations = order.until - trial.steps if order.validate == "each" else int(order.validate == "last")
    books.open_orders[order.number] = OpenOrder(order, steps, validations, since=order.at)
    books.orders.append(order)
    books.steps_due += steps
    books.validations_due += validations
    trial.open_order = trial.last_order = order.number
    books.clock = max(books.clock, order.at)
    _charge(books, "thinking", order.thinking_s)


def _receipt(books: State, receipt: Receipt) -> None:
    opened = books.open_orders.get(receipt.order)
    trial = books.trials[receipt.trial] if receipt.trial < len(books.trials) else None
    if opened is None or trial is None or opened.order.trial != receipt.trial:
        raise DecisionError(f"a receipt for order {receipt.order} of trial {receipt.trial}, which is not open")
    if receipt.step != trial.held + 1 or receipt.step > opened.order.until:
        raise DecisionError(
            f"a receipt for step {receipt.step} of trial {receipt.trial}, which holds step {trial.held} "
            f"and was ordered until {opened.order.until}: steps come one by one"
        )
    finished = receipt.status in ("ok", "diverged")
    repeated = receipt.step <= trial.steps
    if not (finished and repeated):
        books.steps += 1
        books.steps_due -= 1
        opened.steps_due -= 1
        trial.seconds += receipt.cost.total
    if finished and not repeated and opened.order.validates(receipt.step):
        books.validations += 1
        books.validations_due -= 1
        opened.validations_due -= 1
    opened.charged += receipt.cost.total * books.budget.per_second(books.workers)
    opened.since = receipt.at
    books.receipts += 1
    books.clock = max(books.clock, receipt.at)
    if repeated:
        _charge(books, "repeated", receipt.cost.total)
    else:
        _charge(books, "setup", receipt.cost.setup)
        _charge(books, "train", receipt.cost.train)
        _charge(books, "validate", receipt.cost.validate)
    trial.saved = receipt.saved
    if not finished:
        trial.held = min(receipt.saved, trial.steps)  # what was alive is gone; a checkpoint may be left
        if receipt.status == "failed":
            trial.failures += 1
            trial.failure = receipt.text.strip() or "failed"
            _failure(books, trial.failure)
        _close(books, receipt.order)
        return
    if receipt.status == "diverged" and receipt.value is None:
        _failure(books, receipt.text or "no value was reported")  # code that forgets to report is no bad luck
    else:
        books.failures_in_a_row, books.last_failure = 0, ""
    trial.held = receipt.step
    trial.failure = ""
    trial.diverged = receipt.status == "diverged"
    if not repeated:
        _new_step(books, trial, receipt)
    if receipt.status == "diverged" or receipt.step == opened.order.until:
        _close(books, receipt.order)


def _failure(books: State, text: str) -> None:
    same = text.splitlines()[-1] == (books.last_failure.splitlines() or [""])[-1]
    books.failures_in_a_row = books.failures_in_a_row + 1 if same else 1
    books.last_failure = text


def _new_step(books: State, trial: Trial, receipt: Receipt) -> None:
    trial.steps = receipt.step
    trial.values.append(receipt.value)
    seconds = receipt.cost.total
    trial.step_costs.append(seconds)
    insort(books.step_costs, seconds)
    books.step_seconds += seconds
    if trial.diverged:
        trial.losses.append(math.inf)
        return
    books.ok_receipts += 1
    loss = None if receipt.value is None else books.sign * receipt.value
    trial.losses.append(loss)
    if loss is not None and loss < trial.best_loss:
        trial.best_loss, trial.best_step = loss, receipt.step
        trial.best_config = books.orders[receipt.order].config
        if loss < books.best_loss:
            books.best_loss, books.best_trial = loss, trial.number


def _amended(books: State, entry: Amended) -> None:
    if entry.budget is not None and entry.budget.unit != books.budget.unit:
        raise StudyError(f"the study has a budget in {books.budget.unit}, not in {entry.budget.unit}: keep the unit")
    if entry.budget is not None and entry.budget.total < books.committed:
        open_too = " or ordered" if books.committed > books.spent else ""
        raise StudyError(
            f"the budget {entry.budget} is below the {books.budget.show(books.committed)} that the study has spent{open_too}: "
            "it can be lowered to that, not further"
        )
    books.budget = entry.budget or books.budget
    books.workers = entry.workers or books.workers
    if entry.policy is not None:
        books.policy, books.settings = entry.policy, entry.settings or {}
        books.memo_from = len(books.orders)


def _note(books: State, note: Note) -> None:
    facts = note.facts
    if note.topic == "enqueue":
        books.queue = [*books.queue, facts["config"]]
    elif note.topic == "thinking":
        _charge(books, "thinking", facts["seconds"])
    elif note.topic == "released" and facts["order"] in books.open_orders:
        _close(books, facts["order"])
    elif note.topic == "ended":
        trial = books.trials[facts["trial"]]
        trial.limit = facts["step"]
        _charge(books, "train", facts.get("seconds", 0.0))
        if facts["order"] in books.open_orders:
            if trial.limit == 0:  # charged as the failure it is, or code that never reports would run for ever
                books.steps += 1
                books.steps_due -= 1
                books.open_orders[facts["order"]].steps_due -= 1
                trial.failures += 1
                trial.failure = "the training code ended before its first step: let it report after each step"
                _failure(books, trial.failure)
            _close(books, facts["order"])
    elif note.topic == "check":
        opened = books.open_orders.get(facts["order"])
        if opened is None or not opened.order.check or opened.checked:
            raise DecisionError(f"a resume check that order {facts['order']} did not pay for")
        opened.checked = True
        books.steps += 1
        books.steps_due -= 1
        opened.steps_due -= 1
        opened.charged += facts["seconds"] * books.budget.per_second(books.workers)
        _charge(books, "check", facts["seconds"])


def _close(books: State, number: int) -> None:
    closed = books.open_orders.pop(number)
    books.steps_due -= closed.steps_due
    books.validations_due -= closed.validations_due
    books.trials[closed.order.trial].open_order = None
    if closed.order.check and not closed.checked:
        books.check_ordered = False  # it never came to it: a later order may try again


def _charge(books: State, kind: str, seconds: float) -> None:
    books.seconds += seconds
    books.charged += seconds * books.budget.per_second(books.workers)
    books.by_kind[kind] += seconds
