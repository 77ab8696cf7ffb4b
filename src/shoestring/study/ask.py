"""Ask and tell, for people who own their loop: they take orders and report on them, from any number of machines.

No lease is held. Whoever wants to append reads what others have appended, decides on that, and appends behind it; if
somebody else was quicker, all of it is done again. So an order is given out only once it is recorded, and the budget
holds across machines. `at` is the caller's wall clock here, since nobody's runner is at work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from shoestring.core.entries import Cost, Note, Order, Receipt
from shoestring.core.ledger import Ledger
from shoestring.core.policy import Policy
from shoestring.core.values import is_finite, is_number, to_plain
from shoestring.errors import StudyError
from shoestring.runners.runner import write_broken_receipt, write_receipt
from shoestring.runners.training import number_of
from shoestring.study.decide import Thinking, decide
from shoestring.study.journal import Journal


def ask(journal: Journal, policy: Callable[[], Policy], thinking: Thinking, patience_s: float | None) -> Order | None:
    """What to train next, recorded; None when there is nothing to buy now, or ever.

    Orders that nobody told about for `patience_s` are released first. `policy` is looked up for each ledger that is
    decided on: somebody else may have amended it.
    """
    journal.append_newest(lambda ledger: release_overdue(ledger, patience_s))

    def next_order(ledger: Ledger) -> list[Order]:
        thinking.start_over()
        _, order = decide(ledger, policy(), thinking, time.time, asked=True)
        return [] if order is None else [order]

    return next(iter(journal.append_newest(next_order)), None)


def tell(journal: Journal, order: Order, value: float | None, cost_s: float | None, failed: str | None) -> None:
    """Record that the next step of an asked order is done, or failed."""
    if not isinstance(order, Order):
        raise StudyError(f"order={order!r} must be an order that ask() gave")
    if not isinstance(failed, str | None):
        raise StudyError(f"failed={failed!r} must be the text of the failure")
    told, seconds = read_value(value), read_seconds(cost_s, "cost_s")
    journal.append_newest(lambda ledger: [next_receipt(ledger, order, told, seconds, failed)])


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


def next_receipt(
    ledger: Ledger, order: Order, value: float | None, cost_s: float | None, failed: str | None
) -> Receipt:
    """The receipt of the next step of an asked order."""
    open_order = ledger.open_orders.get(order.number)
    if open_order is None:
        raise StudyError(f"order {order.number} is not open: all its steps were reported, or it was released meanwhile")
    if not open_order.order.asked:
        raise StudyError(f"order {order.number} was not asked for: the runner that carries it out tells about it")
    now = time.time()
    step = ledger.trials[order.trial].held + 1
    cost = Cost(train=max(0.0, now - open_order.since) if cost_s is None else cost_s)
    if failed is not None:
        return write_broken_receipt(order, step, "failed", failed, cost, at=now, saved=step - 1)
    return write_receipt(order, step, value, cost, at=now, saved=step)  # the state is the caller's: it survives
