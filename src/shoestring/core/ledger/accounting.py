"""Accounting: how each entry of the ledger changes the state of the study, and what is charged for it.

A budget in epochs is charged

- one epoch for every new step, and for every step that failed or was cut off at the budget limit;
- the listed price of every validation pass that was ordered for a new step;
- one epoch for a resume check;
- one epoch for a trial that failed without a receipt: its process died too often, or its code ended before the first step.

A budget in seconds or dollars is charged for everything that took time, at the rate that was valid at that time. This includes
the policy's decisions and steps that were run again.

Epochs and validation passes are counted in whole numbers, and multiplied by their prices only at the end. So the charges have no
rounding errors, and a study never exceeds its budget by one.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import dataclass

from shoestring.core.ledger.entries import Amendment, Entry, Note, Order, Receipt, StateLoss, StudyDefinition
from shoestring.core.ledger.failures import kind_of_failure
from shoestring.core.ledger.notes import (
    ChangedCheckpoint,
    CheckpointSeal,
    Overhead,
    QueuedConfig,
    ResumeCheck,
    TrainingEnd,
)
from shoestring.core.ledger.order_closing import CLOSING_TOPICS, MAX_DEATHS, receipt_closes
from shoestring.core.ledger.state import OpenOrder, StudyState, Trial
from shoestring.core.values.strict_json import dumps
from shoestring.core.values.text import count
from shoestring.errors import DecisionError, StudyError


@dataclass(frozen=True, slots=True)
class StudyStateView:
    """The view that computes the state of the study; every ledger carries it."""

    def start(self, definition: StudyDefinition) -> StudyState:
        """Return the state of a study that has only been opened."""
        return StudyState(
            sign=definition.sign,
            budget=definition.budget,
            validate_epochs=definition.prices.validate_epochs,
            workers=definition.workers,
            policy=definition.policy,
            settings=definition.settings,
            max_steps=definition.max_steps,
        )

    def absorb(self, state: StudyState, entry: Entry) -> StudyState:
        """Update the state in place with one more entry, and return it."""
        if isinstance(entry, Receipt):
            _enter_receipt(state, entry)
        elif isinstance(entry, Order):
            _enter_order(state, entry)
        elif isinstance(entry, StateLoss):
            _enter_loss(state, entry)
        elif isinstance(entry, Amendment):
            _enter_amendment(state, entry)
        elif isinstance(entry, Note):
            _enter_note(state, entry)
        return state


# orders --------------------------------------------------------------------------------------------------------------


def _enter_order(state: StudyState, order: Order) -> None:
    if order.number != len(state.orders) or not 0 <= order.trial <= len(state.trials):
        raise DecisionError(
            f"order {order.number} of trial {order.trial} is not the next one: "
            f"the study has {count(len(state.orders), 'order')} and {count(len(state.trials), 'trial')}"
        )
    if order.trial == len(state.trials):
        key = dumps(order.config)
        state.trials.append(Trial(order.trial, order.config, limit=state.max_steps))
        state.used.add(key)
        if state.queue:
            state.queue = [config for config in state.queue if dumps(config) != key]
    trial = state.trials[order.trial]
    _leave_idle(state, trial)
    trial.is_retuned |= order.config is not trial.config and order.config != trial.config
    trial.config = order.config
    steps = order.until - trial.steps + order.check
    state.check_ordered |= order.check
    validations = order.until - trial.steps if order.validate == "each" else int(order.validate == "last")
    state.open_orders[order.number] = open_order = OpenOrder(order, steps, validations, since=order.at)
    state.open_external += order.is_external
    state.open_reserve += open_order.reserve
    state.orders.append(order)
    state.steps_due += steps
    state.validations_due += validations
    trial.open_order = trial.last_order = order.number
    state.clock = max(state.clock, order.at)
    _charge_time(state, "thinking", order.thinking_s)


def _close_order(state: StudyState, number: int) -> None:
    """Close an order. Update its trial before this call, because the trial can be ordered again afterwards."""
    closed = state.open_orders.pop(number)
    state.open_external -= closed.order.is_external
    state.open_reserve -= closed.reserve
    state.steps_due -= closed.steps_due
    state.validations_due -= closed.validations_due
    trial = state.trials[closed.order.trial]
    trial.open_order = None
    if trial.can_continue:
        insort(state.idle, (trial.last_loss, trial.number))
    if closed.order.check and not closed.checked:
        state.check_ordered = False  # the check was never made, so a later order may make it


def _leave_idle(state: StudyState, trial: Trial) -> None:
    """Remove a trial from the idle list. Call this before the trial changes, because it is found by its old loss."""
    if trial.can_continue and state.idle:
        place = bisect_left(state.idle, key := (trial.last_loss, trial.number))
        if state.idle[place : place + 1] == [key]:
            del state.idle[place]


# receipts ------------------------------------------------------------------------------------------------------------


def _enter_receipt(state: StudyState, receipt: Receipt) -> None:
    open_order = _order_of(state, receipt)
    trial = state.trials[receipt.trial]
    is_finished = receipt.is_finished
    is_repeated = receipt.step <= trial.steps
    _charge_step(state, open_order, trial, receipt, is_finished=is_finished, is_repeated=is_repeated)
    state.receipts += 1
    state.clock = max(state.clock, receipt.at)
    open_order.since = receipt.at
    trial.saved_step = receipt.saved_step
    if receipt.saved_step and not trial.digests and not open_order.order.is_external:
        state.has_unsealed_saves = True
    if not is_finished:
        _enter_broken_step(state, trial, receipt)
        _close_order(state, receipt.order)
        return
    if receipt.status == "diverged" and receipt.value is None:
        # Code that reports no value is wrong, so this counts as a failure.
        _count_failure(state, receipt.text or "no value was reported")
    else:
        state.failures_in_a_row, state.failure_kind, state.last_failure = 0, "", ""
    state.diverged_in_a_row = state.diverged_in_a_row + 1 if receipt.status == "diverged" else 0
    trial.resumable_step = receipt.step
    trial.failure = ""
    trial.diverged = receipt.status == "diverged"
    if not is_repeated:
        trial.deaths = 0  # only after a new step: code that always dies at one step must not be trained for ever
        _enter_new_step(state, trial, receipt)
    if receipt_closes(receipt, open_order.order):
        _close_order(state, receipt.order)


def _order_of(state: StudyState, receipt: Receipt) -> OpenOrder:
    """Return the open order that a receipt belongs to; raise DecisionError if there is none."""
    open_order = state.open_orders.get(receipt.order)
    if open_order is None or open_order.order.trial != receipt.trial:
        raise DecisionError(
            f"the receipt is for order {receipt.order} of trial {receipt.trial}, but that order is not open"
        )
    resumable_step = state.trials[receipt.trial].resumable_step
    if receipt.step != resumable_step + 1 or receipt.step > open_order.order.until:
        raise DecisionError(
            f"the receipt is for step {receipt.step} of trial {receipt.trial}, but the trial continues from step "
            f"{resumable_step} and was ordered until step {open_order.order.until}: steps are recorded one by one"
        )
    return open_order


def _enter_broken_step(state: StudyState, trial: Trial, receipt: Receipt) -> None:
    trial.resumable_step = min(receipt.saved_step, trial.steps)  # the live state is gone; a checkpoint may exist
    if receipt.status == "failed":
        _fail_trial(state, trial, receipt.text.strip() or "failed")


def _enter_new_step(state: StudyState, trial: Trial, receipt: Receipt) -> None:
    trial.steps = receipt.step
    trial.values.append(receipt.value)
    seconds = receipt.cost.total
    trial.step_costs.append(seconds)
    trial.step_orders.append(receipt.order)
    state.step_costs.add(seconds)
    state.step_seconds += seconds
    if trial.steps == 1:
        state.max_start_s = max(state.max_start_s, seconds)
    if trial.diverged:
        trial.losses.append(math.inf)
        return
    state.ok_receipts += 1
    loss = None if receipt.value is None else state.sign * receipt.value
    trial.losses.append(loss)
    if loss is not None and loss < trial.best_loss:
        trial.best_loss, trial.best_step = loss, receipt.step
        trial.best_config = state.orders[receipt.order].config
        if loss < state.best_loss:
            state.best_loss, state.best_trial = loss, trial.number


def _fail_trial(state: StudyState, trial: Trial, text: str) -> None:
    trial.failures += 1
    trial.failure = text
    _count_failure(state, text)


def _count_failure(state: StudyState, text: str) -> None:
    kind = kind_of_failure(text)
    state.failures_in_a_row = state.failures_in_a_row + 1 if kind == state.failure_kind else 1
    state.failure_kind, state.last_failure = kind, text


def _enter_loss(state: StudyState, loss: StateLoss) -> None:
    trial = state.trials[loss.trial]
    trial.resumable_step = loss.resumable_step
    _charge_time(state, "lost", loss.seconds, loss.price_factor)
    if not loss.death:
        return
    trial.deaths += 1
    if trial.deaths < MAX_DEATHS:
        _count_failure(state, loss.why)  # not yet a failure of the trial, but the code may be the cause
        return
    trial.deaths = 0
    _leave_idle(state, trial)
    _fail_trial(state, trial, loss.why)
    if trial.open_order is not None:
        _charge_epoch(state, state.open_orders[trial.open_order])
        _close_order(state, trial.open_order)


# changes and notes ---------------------------------------------------------------------------------------------------


def _enter_amendment(state: StudyState, entry: Amendment) -> None:
    if entry.budget is not None and entry.budget.unit != state.budget.unit:
        raise StudyError(f"the study has a budget in {state.budget.unit}, not in {entry.budget.unit}: keep the unit")
    if entry.budget is not None:
        entry.budget.require_fit(state.max_steps, state.validate_epochs)
    if entry.budget is not None and entry.budget.total < state.committed:
        open_too = " or ordered" if state.committed > state.spent else ""
        raise StudyError(
            f"the budget {entry.budget} is below the {state.budget.show(state.committed)} that the study has spent{open_too}: "
            "it can be lowered to that amount, but not below it"
        )
    state.budget = entry.budget or state.budget
    state.workers = entry.workers or state.workers
    if entry.policy is not None:
        state.policy, state.settings = entry.policy, entry.settings or {}
        state.first_own_order = len(state.orders)


def _enter_note(state: StudyState, note: Note) -> None:
    match note.topic:
        case QueuedConfig.topic:
            state.queue = [*state.queue, QueuedConfig.from_note(note).config]
        case Overhead.topic:
            overhead = Overhead.from_note(note)
            _charge_time(state, overhead.kind, overhead.seconds)
        case TrainingEnd.topic:
            _enter_end(state, TrainingEnd.from_note(note))
        case ResumeCheck.topic:
            _enter_check(state, ResumeCheck.from_note(note))
        case CheckpointSeal.topic:
            seal = CheckpointSeal.from_note(note)
            state.trials[seal.trial].digests[seal.step] = seal.digest
        case ChangedCheckpoint.topic:
            changed = ChangedCheckpoint.from_note(note)
            state.trials[changed.trial].digests[changed.step] = ""  # it equals no digest, so it is never read
    if note.topic in CLOSING_TOPICS and (number := note.facts["order"]) in state.open_orders:
        _close_order(state, number)


def _enter_end(state: StudyState, end: TrainingEnd) -> None:
    trial = state.trials[end.trial]
    _leave_idle(state, trial)
    trial.limit = end.step
    _charge_time(state, "train", end.seconds, end.price_factor)
    open_order = state.open_orders.get(end.order)
    if open_order is not None and trial.limit == 0:
        _charge_epoch(state, open_order)  # otherwise code that never reports would be trained for ever
        _fail_trial(state, trial, "the training code ended before its first step: let it report after each step")


def _enter_check(state: StudyState, check: ResumeCheck) -> None:
    open_order = state.open_orders.get(check.order)
    if open_order is None or not open_order.order.check or open_order.checked:
        raise DecisionError(f"order {check.order} does not include a resume check, or the check was made before")
    open_order.checked = True
    _charge_epoch(state, open_order)
    _charge_order(state, open_order, check.seconds, check.price_factor)
    _charge_time(state, "check", check.seconds, check.price_factor)


# charges -------------------------------------------------------------------------------------------------------------


def _charge_step(
    state: StudyState, open_order: OpenOrder, trial: Trial, receipt: Receipt, *, is_finished: bool, is_repeated: bool
) -> None:
    if not (is_finished and is_repeated):
        _charge_epoch(state, open_order)
        trial.seconds += receipt.cost.total
    if is_finished and not is_repeated and open_order.order.validates(receipt.step):
        state.validations += 1
        state.validations_due -= 1
        open_order.validations_due -= 1
    factor = receipt.price_factor
    _charge_order(state, open_order, receipt.cost.total, factor)
    if is_repeated:
        _charge_time(state, "repeated", receipt.cost.total, factor)
    else:
        _charge_time(state, "setup", receipt.cost.setup, factor)
        _charge_time(state, "train", receipt.cost.train, factor)
        _charge_time(state, "validate", receipt.cost.validate, factor)


def _charge_epoch(state: StudyState, open_order: OpenOrder) -> None:
    state.steps += 1
    state.steps_due -= 1
    open_order.steps_due -= 1


def _charge_time(state: StudyState, kind: str, seconds: float, price_factor: float = 1.0) -> None:
    state.seconds += seconds
    state.charged += seconds * _rate(state, price_factor)
    state.by_kind[kind] += seconds


def _rate(state: StudyState, price_factor: float) -> float:
    """Return the price of one second of a worker in the budget's unit; only in dollars do workers differ in price."""
    rate = state.budget.per_second(state.workers)
    return rate * price_factor if state.budget.unit == "dollars" else rate


def _charge_order(state: StudyState, open_order: OpenOrder, seconds: float, price_factor: float = 1.0) -> None:
    """Reduce the reserve of an order by the time or money that was charged for it."""
    if (charge := seconds * _rate(state, price_factor)) > 0.0:
        before = open_order.reserve
        open_order.charged += charge
        state.open_reserve += open_order.reserve - before
