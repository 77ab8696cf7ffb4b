"""A study that one process serves to many workers: `ServeSession` answers their requests.

The process holds the study's lease and decides for all workers; `cli/serve` adds a small HTTP server. A worker can send a request
again if its answer was lost, and no step is ordered or charged twice:

    ask        a worker has at most one open order; if it asks again, it gets the same order
    tell       a step is identified by its order and its number; a step that is reported again gets the answer "new": false
    heartbeat  the worker says that it is still training its order
    lose       the trial can continue only from an earlier step; the steps after it are trained again

All requests that are waiting are answered in one batch. Each request is answered with the entries of the requests before it, and
all new entries are stored with one write to the disk before any request of the batch is answered.

The worker of an order is recorded in the ledger with the order, so a new server knows it too. If a worker sends nothing for
`give_up_after_s`, its order is closed, and its trial can continue only from its last saved step. The seconds of the unfinished
step are charged up to the last heartbeat, plus at most one `heartbeat_s`. These seconds are stored with the heartbeats of the
lease, so they are known even if the server is killed: then the present steps are charged up to the last heartbeat of the killed
server, and from the start of the next one. All times are measured by the monotonic clock, which cannot be set. If training fails
again and again, no more orders are placed, as in a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shoestring.core.ledger.entries import Entry, Note, Order, Receipt, StateLoss, StudyDefinition
from shoestring.core.ledger.failures import FailureLimit, describe_failure
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.notes import OrderAssignment, OrderRelease
from shoestring.core.values.checks import check_whole, is_finite
from shoestring.core.values.text import printable
from shoestring.errors import Conflict, StudyError
from shoestring.reports import facts
from shoestring.stores.ledger_store import Heartbeat, HeartbeatThread, Lease
from shoestring.study.ask import OrderTimes, StepReport, next_orders, next_receipt
from shoestring.study.decide import Thinking
from shoestring.study.study import Study

HEARTBEATS_PER_TIMEOUT = 5  # so that a worker keeps its order if a few heartbeats are lost
MAX_WORKER_NAME_CHARS = 100
_BATCH_LIMIT_S = 0.05  # a batch starts no further request after this time, so that one slow decision delays few workers
_RETRY_AFTER_S = 1.0  # when a worker that got no order may ask again


class OrderNotOpen(StudyError):
    """The order is not open any more; its worker must ask for another one."""


@dataclass(slots=True)
class WorkerOrders:
    """The worker and the last receipt of each order, by the number of the order."""

    workers: dict[int, str] = field(default_factory=dict)
    last_receipts: dict[int, Receipt] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerOrdersView:
    """The view that computes `WorkerOrders`."""

    def start(self, definition: StudyDefinition) -> WorkerOrders:
        return WorkerOrders()

    def absorb(self, orders: WorkerOrders, entry: Entry) -> WorkerOrders:
        match entry:
            case Receipt():
                orders.last_receipts[entry.order] = entry
            case Note(topic=OrderAssignment.topic):
                assigned = OrderAssignment.from_note(entry)
                orders.workers[assigned.order] = assigned.worker
        return orders


@dataclass(slots=True)
class LastContact:
    """The last message of the worker of an open order."""

    at: float
    worked_s: float = 0.0  # seconds that it has spent on its present step, up to its last heartbeat


class ServeSession:
    """Answers the workers of one study. Only one thread may use it, but any thread may call `write_heartbeat`."""

    def __init__(self, study: Study, lease: Lease, give_up_after_s: float) -> None:
        self.study, self.lease, self.give_up_after_s = study, lease, give_up_after_s
        self.heartbeat_s = give_up_after_s / HEARTBEATS_PER_TIMEOUT
        self._thinking = Thinking()
        self._contacts: dict[int, LastContact] = {}  # by number of the open order
        self._times = OrderTimes()  # of steps, as far as they are stored
        self._batch_times = self._times  # includes those of the present batch
        self.ledger = study.journal.refresh()  # includes entries that are not stored yet
        self._unstored: list[Entry] = []
        self._policy = study.policy
        self._failure_limit = FailureLimit(self.ledger.state)
        now = time.monotonic()
        for number in self._workers_of_open_orders():  # of an earlier server; their workers get the full time again
            before_s = float(lease.uncharged_s.get(number, 0.0))
            self._contacts[number] = LastContact(now, before_s)
            self._times.begin(number, before_s)
        self._heart = HeartbeatThread(self.write_heartbeat)

    def close(self) -> None:
        self._heart.stop()
        self.write_heartbeat()
        self.study.journal.finish_run()

    def run_batch(self, requests: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run these calls of the methods below, store what they recorded, and return their answers.

        The answer of a request that fails is its exception. The list is shorter than `requests` if the time of a batch is
        over. The other requests then belong in the next batch, so that a slow decision does not delay the answers before it.
        """
        journal = self.study.journal
        while True:
            start = self.ledger = journal.refresh()
            # Read the policy before an entry is proposed, because the proposed ledger takes the views of the stored one.
            self._policy = self.study.policy
            answers: list[Any] = []
            self._unstored, batch_end_s = [], time.monotonic() + _BATCH_LIMIT_S
            self._batch_times = self._times.copy()
            for request in requests:
                if answers and time.monotonic() > batch_end_s:
                    break
                answers.append(_result_or_error(request))
            try:
                if self._unstored:
                    journal.append(*self._unstored, after=start, heartbeat=self._heartbeat_after(self._unstored))
            except Conflict:  # another process has appended in the meantime: decide again
                continue
            self.ledger, self._times = journal.ledger, self._batch_times
            for number in [number for number in self._contacts if number not in self.ledger.open_orders]:
                del self._contacts[number]
            return answers

    # requests of workers ---------------------------------------------------------------------------------------------

    def ask(self, worker: str) -> dict[str, Any]:
        """Return the open order of this worker, or a new one; "order" is None if there is nothing to train now."""
        _require_worker_name(worker)
        self._add(*self._give_up_silent_workers())
        order, failing = self._open_order_of(worker), self._failure_limit.reason_to_stop(self.ledger.state)
        for new_order in [] if order or failing else next_orders(self.ledger, self._policy, self._thinking):
            self._add(new_order, OrderAssignment(order=new_order.number, worker=worker).to_note())
            self._batch_times.begin(new_order.number)
            order = new_order
        if order is None:
            is_over = not self.ledger.open_orders
            retry = {"retry_after_s": None if is_over else _RETRY_AFTER_S}
            why = {"failing": describe_failure(failing)} if failing else {}
            return {"order": None, "over": is_over, **retry, **why, **self._budget_facts()}
        self._record_contact(order.number)
        shown = {"number": order.number, "trial": order.trial, "config": dict(order.config)}
        shown |= {
            "resumable_step": self._resumable_step(order.number),
            "until": order.until,
            "validate": order.validate,
        }
        return {"order": shown, "over": False, "heartbeat_s": self.heartbeat_s, **self._budget_facts()}

    def tell(self, number: int, step: int, report: StepReport) -> dict[str, Any]:
        """Record that a step of an order is finished, or that it failed."""
        number, step = self._require_order(number), check_whole("step", step, 1)
        if report.saved_step is not None and not 0 <= check_whole("saved_step", report.saved_step, 0) <= step:
            raise StudyError(f"saved_step={report.saved_step} must be a step up to {step}, the one that is reported")
        receipts = self._receipts_for(number, step, report)
        self._add(*receipts)
        if receipts:
            self._batch_times.begin(number)
        if number in self.ledger.open_orders:
            self._record_contact(number)
        return {"new": bool(receipts), **self._order_facts(number), **self._budget_facts()}

    def heartbeat(self, number: int) -> dict[str, Any]:
        """Record that the worker of this order is training."""
        number = self._require_open(number)
        self._record_contact(number, is_training=True)
        return self._order_facts(number)

    def lose(self, number: int, resumable_step: int) -> dict[str, Any]:
        """Record that the trial of this order can continue only from `resumable_step`; later steps are trained again."""
        number, resumable_step = self._require_open(number), check_whole("resumable_step", resumable_step, 0)
        trial, before = self.ledger.orders[number].trial, self._resumable_step(number)
        if resumable_step > before:
            raise StudyError(
                f"resumable_step={resumable_step} must be at most {before}: no later step of trial {trial} was reported"
            )
        worker = self._workers().get(number, "")
        if resumable_step < before:
            why = f"{worker or 'a worker'} cannot continue from step {before}"
            self._add(StateLoss(trial=trial, resumable_step=resumable_step, why=why, worker=worker))
        self._record_contact(number)
        return self._order_facts(number)

    def status(self) -> dict[str, Any]:
        now = time.monotonic()
        workers = [
            {"worker": worker, "order": number, "silent_s": max(0.0, now - self._contacts[number].at)}
            for number, worker in self._workers_of_open_orders().items()
            if number in self._contacts
        ]
        return facts.summary(self.study.name, self.ledger, None) | {
            "open_orders": [facts.order_facts(one.order) for one in self.ledger.open_orders.values()],
            "busy_workers": workers,
            "give_up_after_s": self.give_up_after_s,
        }

    def best(self) -> dict[str, Any]:
        return {"best": facts.summary(self.study.name, self.ledger, None)["best"], **self._budget_facts()}

    # the ledger ------------------------------------------------------------------------------------------------------

    def _add(self, *entries: Entry) -> None:
        for entry in entries:
            self.ledger = self.ledger.propose(entry)
            self._unstored.append(entry)

    def _receipts_for(self, number: int, step: int, report: StepReport) -> list[Receipt]:
        """Return a list with the receipt of this step; an empty list if the step was reported before."""
        ledger, resumable_step = self.ledger, self._resumable_step(number)
        last = ledger.view(WorkerOrdersView()).last_receipts.get(number)
        if last is not None and step <= last.step and (step <= resumable_step or number not in ledger.open_orders):
            _require_same_value(last, step, report)
            return []
        _require_open(ledger, number)
        if step != resumable_step + 1:
            raise StudyError(
                f"step={step} of order {number} must be {resumable_step + 1}: steps are reported one by one, in order"
            )
        report = replace(report, worker=self._workers().get(number, ""))
        return [next_receipt(ledger, ledger.orders[number], report, self._batch_times)]

    def _give_up_silent_workers(self) -> list[StateLoss | Note]:
        """Return the entries that close the orders of workers that have sent nothing for too long."""
        entries: list[StateLoss | Note] = []
        now = time.monotonic()
        for number, worker in self._workers_of_open_orders().items():
            contact = self._contacts.setdefault(number, LastContact(now))
            silent_s = now - contact.at
            if silent_s <= self.give_up_after_s:
                continue
            trial = self.ledger.trials[self.ledger.orders[number].trial]
            why = f"{worker} sent nothing for {silent_s:.0f} s"
            seconds = contact.worked_s + min(silent_s, self.heartbeat_s)
            step = min(trial.saved_step, trial.resumable_step)
            entries.append(
                StateLoss(trial=trial.number, resumable_step=step, seconds=seconds, why=why, death=True, worker=worker)
            )
            entries.append(OrderRelease(order=number, why=why).to_note())
        return entries

    def _heartbeat_after(self, entries: Sequence[Entry]) -> Heartbeat:
        """Return the heartbeat to store with these entries; in the orders that they change, a new step begins now."""
        changed = [entry.order for entry in entries if isinstance(entry, Receipt)]
        changed += [entry.facts["order"] for entry in entries if isinstance(entry, Note)]
        for number in changed:
            if number in self._contacts:
                self._contacts[number].worked_s = 0.0
        return Heartbeat(self.lease, self._worked_s())

    def write_heartbeat(self) -> None:
        """Store a heartbeat of the lease. It is safe to call this from another thread."""
        count = len(self.study.ledger)  # counted first: entries that are added meanwhile are newer than these seconds
        self.lease.beat(count, self._worked_s())

    def _worked_s(self) -> dict[int, float]:
        return {number: contact.worked_s for number, contact in list(self._contacts.items())}

    # workers and their orders ----------------------------------------------------------------------------------------

    def _record_contact(self, number: int, *, is_training: bool = False) -> None:
        """Record a message. Only a heartbeat (`is_training`) counts as work: a worker that asks again may have restarted."""
        contact, now = self._contacts.setdefault(number, LastContact(0.0)), time.monotonic()
        contact.at = now
        if is_training:
            contact.worked_s = max(contact.worked_s, self._batch_times.seconds(self.ledger.open_orders[number]))

    def _workers(self) -> Mapping[int, str]:
        return self.ledger.view(WorkerOrdersView()).workers

    def _workers_of_open_orders(self) -> Mapping[int, str]:
        workers = self._workers()  # orders that `Study.ask` returned have no worker here
        return {number: workers[number] for number in self.ledger.open_orders if number in workers}

    def _open_order_of(self, worker: str) -> Order | None:
        numbers = (number for number, name in self._workers_of_open_orders().items() if name == worker)
        return next((self.ledger.orders[number] for number in numbers), None)

    def _resumable_step(self, number: int) -> int:
        return self.ledger.trials[self.ledger.orders[number].trial].resumable_step

    def _order_facts(self, number: int) -> dict[str, Any]:
        is_open = number in self.ledger.open_orders
        next_step = self._resumable_step(number) + 1 if is_open else None
        return {"number": number, "open": is_open, "next_step": next_step}

    def _budget_facts(self) -> dict[str, Any]:
        ledger = self.ledger
        return {"unit": ledger.budget.unit, "spent": ledger.spent, "left": ledger.left}

    def _require_order(self, given: Any) -> int:
        count, number = len(self.ledger.orders), check_whole("order", given, 0)
        if number >= count:
            known = f"orders 0 to {count - 1}" if count else "no orders yet"
            raise StudyError(f"order={number} is unknown: there are {known}; give the number that /ask returned")
        return number

    def _require_open(self, given: Any) -> int:
        number = self._require_order(given)
        _require_open(self.ledger, number)
        return number


def _require_worker_name(worker: Any) -> None:
    if not isinstance(worker, str) or not 0 < len(worker) <= MAX_WORKER_NAME_CHARS or not worker.isprintable():
        shown = printable(str(worker))[:40]
        raise StudyError(
            f"worker={shown!r} must be a name of 1 to {MAX_WORKER_NAME_CHARS} printable characters, a different one for each "
            "worker, as 'gpu-7'"
        )


def _require_open(ledger: Ledger, number: int) -> None:
    if number not in ledger.open_orders:
        raise OrderNotOpen(
            f"order {number} is not open any more: its last step was reported, or it was given up; ask again"
        )
    if not ledger.orders[number].is_external:
        raise StudyError(f"order {number} belongs to a run: only its runner reports its steps")


def _require_same_value(last: Receipt, step: int, report: StepReport) -> None:
    """Raise an error if a step is reported again with another value: its worker counts the steps wrongly."""
    if step != last.step or last.value is None or report.value is None or not is_finite(report.value):
        return
    if report.value != last.value:
        raise StudyError(
            f"value={report.value!r} differs from {last.value!r}, the value that was reported before for step {step} of order "
            f"{last.order}: report each step once, then continue with the next"
        )


def _result_or_error(request: Callable[[], Any]) -> Any:
    try:
        return request()
    except Exception as error:  # it concerns only this request
        return error
