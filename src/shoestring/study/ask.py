"""Ask and tell, for people who own their loop: they take orders and report on them, from any number of machines.

No lease is held. Whoever wants to append reads what others have appended, decides on that, and appends behind it; if
somebody else was quicker, all of it is done again. So an order is given out only once it is recorded, and the budget
holds across machines. `at` is the caller's wall clock here, since nobody's runner is at work. `desk` does the same for
clients of a server.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.entries import Cost, Note, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.checks import is_finite, is_number, to_plain
from shoestring.errors import StudyError
from shoestring.runners.runner import write_broken_receipt, write_receipt
from shoestring.runners.training.code import number_of
from shoestring.study.decide import Thinking, decide
from shoestring.study.journal import Journal


@dataclass(frozen=True, kw_only=True)
class Told:
    """What somebody tells about one step, checked."""

    value: float | None = None
    cost_s: float | None = None  # None: by the clock, since the step before
    failed: str | None = None  # the text of its failure
    saved: int | None = None  # the newest step that others can go on from; None: the newest one told
    worker: str = ""

    @classmethod
    def read(cls, value: Any, cost_s: Any, failed: Any, **more: Any) -> Told:
        if not isinstance(failed, str | None):
            raise StudyError(f"failed={failed!r} must be the text of the failure")
        return cls(value=read_value(value), cost_s=read_seconds(cost_s, "cost_s"), failed=failed, **more)


def ask(journal: Journal, policy: Callable[[], Policy], thinking: Thinking, patience_s: float | None) -> Order | None:
    """What to train next, recorded; None when there is nothing to buy now, or ever.

    Orders that nobody told about for `patience_s` are released first. `policy` is looked up for each ledger that is
    decided on: somebody else may have amended it.
    """
    journal.append_newest(lambda ledger: release_overdue(ledger, patience_s))
    orders = journal.append_newest(lambda ledger: next_orders(ledger, policy(), thinking))
    return next(iter(orders), None)


def next_orders(ledger: Ledger, policy: Policy, thinking: Thinking) -> list[Order]:
    """What to buy on this ledger for somebody who asks: one order, or none."""
    thinking.start_over()
    _, order = decide(ledger, policy, thinking, time.time, asked=True)
    return [] if order is None else [order]


def tell(journal: Journal, order: Order, told: Told) -> None:
    """Record that the next step of an asked order is done, or failed."""
    if not isinstance(order, Order):
        raise StudyError(f"order={order!r} must be an order that ask() gave")
    journal.append_newest(lambda ledger: [next_receipt(ledger, order, told)])


def read_value(value: Any) -> float | None:
    """A value that somebody tells, as the ledger keeps it."""
    try:
        return number_of(value)
    except Exception as error:  # whatever the object's own conversion raises
        raise StudyError(f"value={value!r} cannot be told: {error}") from None


def read_seconds(seconds: Any, what: str) -> float | None:
    """Seconds that somebody tells; None: measured."""
    plain = to_plain(seconds)
    if plain is None:
        return None
    if not (is_number(plain) and is_finite(plain) and plain >= 0):
        raise StudyError(f"{what}={seconds!r} must be seconds, 0 or more; leave it out to have the clock's")
    return float(plain)


def release_overdue(ledger: Ledger, patience_s: float | None) -> list[Note]:
    """Orders that nobody told about for so long are closed, and nothing is charged."""
    now = time.time()
    return [
        Note(topic="released", facts={"order": number})
        for number, open_order in ledger.open_orders.items()
        if open_order.order.asked and patience_s is not None and now - open_order.since > patience_s
    ]


def next_receipt(ledger: Ledger, order: Order, told: Told) -> Receipt:
    """The receipt of the next step of an asked order."""
    open_order = ledger.open_orders.get(order.number)
    if open_order is None:
        raise StudyError(f"order {order.number} is not open: all its steps were reported, or it was released meanwhile")
    if not open_order.order.asked:
        raise StudyError(f"order {order.number} was not asked for: the runner that carries it out tells about it")
    now = time.time()
    step = ledger.trials[order.trial].held + 1
    cost = Cost(train=max(0.0, now - open_order.since) if told.cost_s is None else told.cost_s)
    # Unless they say otherwise the state is the caller's, and it survives.
    if told.failed is not None:
        saved = step - 1 if told.saved is None else told.saved
        return write_broken_receipt(order, step, "failed", told.failed, cost, at=now, saved=saved, worker=told.worker)
    saved = step if told.saved is None else told.saved
    return write_receipt(order, step, told.value, cost, at=now, saved=saved, worker=told.worker)
