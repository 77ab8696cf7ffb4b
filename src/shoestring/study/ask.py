"""Ask and tell: users who train in their own loop ask for orders and report on them, from any number of machines.

No process holds the lease. Each call reads what other processes have appended, decides on that ledger, and appends; if another
process has appended in the meantime, it starts again. So an order is recorded before it is returned, and all machines together
stay within the budget. The time of entries (`at`) is the clock of the machine, because there is no runner. But steps are timed by
a clock that cannot be set: see `OrderTimes`.
`serving/session.py` does the same for the workers of `shoestring serve`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.entries import Cost, Note, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.notes import OrderRelease
from shoestring.core.ledger.state import OpenOrder
from shoestring.core.values.checks import is_finite, is_number, to_number, to_plain
from shoestring.core.values.text import show_value
from shoestring.errors import StudyError
from shoestring.runners.runner import write_incomplete_receipt, write_receipt
from shoestring.study.decide import Thinking, decide
from shoestring.study.journal import Journal


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """A checked report on one step."""

    value: float | None = None
    cost_s: float | None = None  # None: the time since the step before
    failed: str | None = None  # the text of the failure, if the step failed
    saved_step: int | None = None  # the newest step from which others can continue; None: the reported step
    worker: str = ""

    @classmethod
    def read(cls, value: Any, cost_s: Any, failed: Any, **more: Any) -> StepReport:
        """Return the report with these values; raise StudyError if one of them is wrong."""
        if not isinstance(failed, str | None):
            raise StudyError(f"failed={failed!r} must be the text of the failure")
        return cls(value=read_value(value), cost_s=read_seconds(cost_s, "cost_s"), failed=failed, **more)


class OrderTimes:
    """How long the present step of each open order has taken: since this process gave the order out, or last reported a step.

    This is measured by the monotonic clock. Only for orders of other processes it is the difference of two clock times.
    """

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def begin(self, number: int, before_s: float = 0.0) -> None:
        """Note that a step of this order begins now, or has taken `before_s` in another process."""
        self._since[number] = time.monotonic() - before_s

    def seconds(self, open_order: OpenOrder) -> float:
        """Return the seconds of the present step of an open order."""
        since = self._since.get(open_order.order.number)
        return max(0.0, time.time() - open_order.since) if since is None else time.monotonic() - since

    def copy(self) -> OrderTimes:
        copied = OrderTimes()
        copied._since = self._since.copy()
        return copied


def ask(
    journal: Journal, policy: Callable[[], Policy], thinking: Thinking, times: OrderTimes, patience_s: float | None
) -> Order | None:
    """Record and return the next order; None if there is nothing to train now.

    Orders without a report for `patience_s` are released first. `policy` is called before each decision, because another
    process may have changed the policy.
    """
    journal.append_newest(lambda ledger: release_overdue(ledger, times, patience_s))
    orders = journal.append_newest(lambda ledger: next_orders(ledger, policy(), thinking))
    for order in orders:
        times.begin(order.number)
    return next(iter(orders), None)


def next_orders(ledger: Ledger, policy: Policy, thinking: Thinking) -> list[Order]:
    """Return a list with the next order; an empty list if there is nothing to train now."""
    thinking.start_over()
    _, order = decide(ledger, policy, thinking, time.time, is_external=True)
    return [] if order is None else [order]


def tell(journal: Journal, order: Order, report: StepReport, times: OrderTimes) -> None:
    """Record that the next step of an order is finished, or that it failed."""
    if not isinstance(order, Order):
        raise StudyError(f"order={order!r} must be an order that ask() returned")
    journal.append_newest(lambda ledger: [next_receipt(ledger, order, report, times)])
    times.begin(order.number)


def read_value(value: Any) -> float | None:
    """Return a reported value as the ledger stores it; raise StudyError if it is not a number or None."""
    try:
        return None if value is None else to_number(value)
    except Exception as error:  # whatever the object's own conversion raises
        raise StudyError(f"value={show_value(value)} must be a number, or None if there is none: {error}") from None


def read_seconds(seconds: Any, what: str) -> float | None:
    """Return the reported seconds; None if they are to be measured."""
    plain = to_plain(seconds)
    if plain is None:
        return None
    if not (is_number(plain) and is_finite(plain) and plain >= 0):
        raise StudyError(f"{what}={seconds!r} must be seconds, 0 or more; leave it out to have them measured")
    return float(plain)


def release_overdue(ledger: Ledger, times: OrderTimes, patience_s: float | None) -> list[Note]:
    """Return notes that release the orders without a report for `patience_s`. Released orders are not charged."""
    return [
        OrderRelease(order=number).to_note()
        for number, open_order in ledger.open_orders.items()
        if open_order.order.is_external and patience_s is not None and times.seconds(open_order) > patience_s
    ]


def next_receipt(ledger: Ledger, order: Order, report: StepReport, times: OrderTimes) -> Receipt:
    """Return the receipt of the next step of an order that a user asked for."""
    open_order = ledger.open_orders.get(order.number)
    if open_order is None:
        raise StudyError(f"order {order.number} is not open: all its steps were reported, or it was released")
    if not open_order.order.is_external:
        raise StudyError(f"order {order.number} was not given out by ask(): a runner carries it out and reports on it")
    now = time.time()
    step = ledger.trials[order.trial].resumable_step + 1
    cost = Cost(train=times.seconds(open_order) if report.cost_s is None else report.cost_s)
    # Unless the report says otherwise, the user can continue the trial from every step that was reported.
    if report.failed is not None:
        saved = step - 1 if report.saved_step is None else report.saved_step
        return write_incomplete_receipt(
            order, step, "failed", report.failed, cost, at=now, saved_step=saved, worker=report.worker
        )
    saved = step if report.saved_step is None else report.saved_step
    return write_receipt(order, step, report.value, cost, at=now, saved_step=saved, worker=report.worker)
