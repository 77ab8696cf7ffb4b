"""How every entry of the ledger changes the books, and what is charged for it.

In epochs: one for every step not seen before and one for every step that failed or was cut off at the wall; validation
passes that were ordered, at their listed price; one for a resume check. In seconds and dollars: everything that took time,
the policy's thinking and steps run again included, at the rate that held at the time. Epoch counts are whole numbers,
priced in one multiplication, so that "never over budget" holds to the last bit.

What an entry charges: epochs, and seconds at the rate that holds at the time.

Whoever reads `core/ledger/accounting.py` for what an entry means may take these for granted.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shoestring.core.ledger.entries import Amended, Entry, Lost, Note, Opened, Order, Receipt
from shoestring.core.ledger.failures import kind_of_failure
from shoestring.core.ledger.state import Books, OpenOrder, Trial
from shoestring.core.values.strict_json import dumps
from shoestring.errors import DecisionError, StudyError

MOST_DEATHS = 3  # of one trial's process in a row: then the trial is what kills it


@dataclass(frozen=True, slots=True)
class BooksView:
    """The one view that every ledger carries."""

    def start(self, opened: Opened) -> Books:
        return Books(
            sign=opened.sign,
            budget=opened.budget,
            validate_epochs=opened.prices.validate_epochs,
            workers=opened.workers,
            policy=opened.policy,
            settings=opened.settings,
            max_steps=opened.max_steps,
        )

    def absorb(self, books: Books, entry: Entry) -> Books:
        if isinstance(entry, Receipt):
            _enter_receipt(books, entry)
        elif isinstance(entry, Order):
            _enter_order(books, entry)
        elif isinstance(entry, Lost):
            _enter_loss(books, entry)
        elif isinstance(entry, Amended):
            _enter_change(books, entry)
        elif isinstance(entry, Note):
            _enter_note(books, entry)
        return books


# orders --------------------------------------------------------------------------------------------------------------


def _enter_order(books: Books, order: Order) -> None:
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
    _leave_idle(books, trial)
    trial.is_retuned |= order.config is not trial.config and order.config != trial.config
    trial.config = order.config
    steps = order.until - trial.steps + order.check
    books.check_ordered |= order.check
    validations = order.until - trial.steps if order.validate == "each" else int(order.validate == "last")
    books.open_orders[order.number] = open_order = OpenOrder(order, steps, validations, since=order.at)
    books.asked_open += order.asked
    books.open_reserve += open_order.reserve
    books.orders.append(order)
    books.steps_due += steps
    books.validations_due += validations
    trial.open_order = trial.last_order = order.number
    books.clock = max(books.clock, order.at)
    charge_time(books, "thinking", order.thinking_s)


def _close_order(books: Books, number: int) -> None:
    """To be called when the trial is as the order leaves it: from here on it may be bought again."""
    closed = books.open_orders.pop(number)
    books.asked_open -= closed.order.asked
    books.open_reserve -= closed.reserve
    books.steps_due -= closed.steps_due
    books.validations_due -= closed.validations_due
    trial = books.trials[closed.order.trial]
    trial.open_order = None
    if trial.can_go_on:
        insort(books.idle, (trial.last_loss, trial.number))
    if closed.order.check and not closed.checked:
        books.check_ordered = False  # the check was never made: a later order may try again


def _leave_idle(books: Books, trial: Trial) -> None:
    """Before anything about an idle trial changes: it is found by what it was."""
    if trial.can_go_on and books.idle:
        place = bisect_left(books.idle, key := (trial.last_loss, trial.number))
        if books.idle[place : place + 1] == [key]:
            del books.idle[place]


# receipts ------------------------------------------------------------------------------------------------------------


def _enter_receipt(books: Books, receipt: Receipt) -> None:
    open_order = _order_of(books, receipt)
    trial = books.trials[receipt.trial]
    is_finished = receipt.is_finished
    is_repeated = receipt.step <= trial.steps
    charge_step(books, open_order, trial, receipt, is_finished=is_finished, is_repeated=is_repeated)
    books.receipts += 1
    books.clock = max(books.clock, receipt.at)
    open_order.since = receipt.at
    trial.saved = receipt.saved
    if not is_finished:
        _enter_broken_step(books, trial, receipt)
        _close_order(books, receipt.order)
        return
    if receipt.status == "diverged" and receipt.value is None:
        # Code that forgets to report is a mistake, not bad luck.
        _count_failure(books, receipt.text or "no value was reported")
    else:
        books.failures_in_a_row, books.failure_kind, books.last_failure = 0, "", ""
    books.diverged_in_a_row = books.diverged_in_a_row + 1 if receipt.status == "diverged" else 0
    trial.held = receipt.step
    trial.failure = ""
    trial.diverged = receipt.status == "diverged"
    if not is_repeated:
        trial.deaths = 0  # steps run again are no progress: code that dies at one step must not be bought for ever
        _enter_new_step(books, trial, receipt)
    if trial.diverged or receipt.step == open_order.order.until:
        _close_order(books, receipt.order)


def _order_of(books: Books, receipt: Receipt) -> OpenOrder:
    """The open order that a receipt belongs to; a receipt that no order asked for is refused."""
    open_order = books.open_orders.get(receipt.order)
    if open_order is None or open_order.order.trial != receipt.trial:
        raise DecisionError(f"a receipt for order {receipt.order} of trial {receipt.trial}, which is not open")
    held = books.trials[receipt.trial].held
    if receipt.step != held + 1 or receipt.step > open_order.order.until:
        raise DecisionError(
            f"a receipt for step {receipt.step} of trial {receipt.trial}, which holds step {held} "
            f"and was ordered until {open_order.order.until}: steps come one by one"
        )
    return open_order


def _enter_broken_step(books: Books, trial: Trial, receipt: Receipt) -> None:
    trial.held = min(receipt.saved, trial.steps)  # what was alive is gone; a checkpoint may be left
    if receipt.status == "failed":
        _fail_trial(books, trial, receipt.text.strip() or "failed")


def _enter_new_step(books: Books, trial: Trial, receipt: Receipt) -> None:
    trial.steps = receipt.step
    trial.values.append(receipt.value)
    seconds = receipt.cost.total
    trial.step_costs.append(seconds)
    trial.step_orders.append(receipt.order)
    books.step_costs.add(seconds)
    books.step_seconds += seconds
    if trial.steps == 1:
        books.dearest_start_s = max(books.dearest_start_s, seconds)
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


def _fail_trial(books: Books, trial: Trial, text: str) -> None:
    trial.failures += 1
    trial.failure = text
    _count_failure(books, text)


def _count_failure(books: Books, text: str) -> None:
    kind = kind_of_failure(text)
    books.failures_in_a_row = books.failures_in_a_row + 1 if kind == books.failure_kind else 1
    books.failure_kind, books.last_failure = kind, text


def _enter_loss(books: Books, loss: Lost) -> None:
    trial = books.trials[loss.trial]
    trial.held = loss.held
    charge_time(books, "lost", loss.seconds, loss.price_factor)
    if not loss.death:
        return
    trial.deaths += 1
    if trial.deaths < MOST_DEATHS:
        _count_failure(books, loss.why)  # not the trial's yet, but the code may be what kills
        return
    trial.deaths = 0
    _leave_idle(books, trial)
    _fail_trial(books, trial, loss.why)
    if trial.open_order is not None:
        charge_epoch(books, books.open_orders[trial.open_order])
        _close_order(books, trial.open_order)


# changes and notes ---------------------------------------------------------------------------------------------------


def _enter_change(books: Books, entry: Amended) -> None:
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


def _enter_note(books: Books, note: Note) -> None:
    facts = note.facts
    if note.topic == "enqueue":
        books.queue = [*books.queue, facts["config"]]
    elif note.topic == "thinking":
        charge_time(books, facts.get("kind", "thinking"), facts["seconds"])
    elif note.topic == "released" and facts["order"] in books.open_orders:
        _close_order(books, facts["order"])
    elif note.topic == "ended":
        _enter_end(books, facts)
    elif note.topic == "check":
        _enter_check(books, facts)


def _enter_end(books: Books, facts: Mapping[str, Any]) -> None:
    trial = books.trials[facts["trial"]]
    _leave_idle(books, trial)
    trial.limit = facts["step"]
    charge_time(books, "train", facts.get("seconds", 0.0), facts.get("price_factor", 1.0))
    open_order = books.open_orders.get(facts["order"])
    if open_order is None:
        return
    if trial.limit == 0:  # charged as the failure it is, or code that never reports would run for ever
        charge_epoch(books, open_order)
        _fail_trial(books, trial, "the training code ended before its first step: let it report after each step")
    _close_order(books, facts["order"])


def _enter_check(books: Books, facts: Mapping[str, Any]) -> None:
    open_order = books.open_orders.get(facts["order"])
    if open_order is None or not open_order.order.check or open_order.checked:
        raise DecisionError(f"a resume check that order {facts['order']} did not pay for")
    open_order.checked = True
    charge_epoch(books, open_order)
    price_factor = facts.get("price_factor", 1.0)
    charge_order(books, open_order, facts["seconds"], price_factor)
    charge_time(books, "check", facts["seconds"], price_factor)


def charge_step(
    books: Books, open_order: OpenOrder, trial: Trial, receipt: Receipt, *, is_finished: bool, is_repeated: bool
) -> None:
    if not (is_finished and is_repeated):
        charge_epoch(books, open_order)
        trial.seconds += receipt.cost.total
    if is_finished and not is_repeated and open_order.order.validates(receipt.step):
        books.validations += 1
        books.validations_due -= 1
        open_order.validations_due -= 1
    factor = receipt.price_factor
    charge_order(books, open_order, receipt.cost.total, factor)
    if is_repeated:
        charge_time(books, "repeated", receipt.cost.total, factor)
    else:
        charge_time(books, "setup", receipt.cost.setup, factor)
        charge_time(books, "train", receipt.cost.train, factor)
        charge_time(books, "validate", receipt.cost.validate, factor)


def charge_epoch(books: Books, open_order: OpenOrder) -> None:
    books.steps += 1
    books.steps_due -= 1
    open_order.steps_due -= 1


def charge_time(books: Books, kind: str, seconds: float, price_factor: float = 1.0) -> None:
    books.seconds += seconds
    books.charged += seconds * _rate(books, price_factor)
    books.by_kind[kind] += seconds


def _rate(books: Books, price_factor: float) -> float:
    """What a second of a worker costs in the budget's unit; seconds are seconds, whoever spends them."""
    rate = books.budget.per_second(books.workers)
    return rate * price_factor if books.budget.unit == "dollars" else rate


def charge_order(books: Books, open_order: OpenOrder, seconds: float, price_factor: float = 1.0) -> None:
    """Time and money that an order has used of its reserve."""
    if (charge := seconds * _rate(books, price_factor)) > 0.0:
        before = open_order.reserve
        open_order.charged += charge
        books.open_reserve += open_order.reserve - before
