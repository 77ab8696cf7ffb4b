"""Ask and tell, for people who own their loop: orders are taken and reported on, from any number of machines.

No lease is held. Whoever wants to append reads what others have appended, decides on that, and appends behind it; if
somebody else was quicker, all of it is done again. So an order is given out only once it is recorded, and the budget
holds across machines. `at` is the caller's wall clock here, since nobody's runner is at work.
"""

from __future__ import annotations

import time
from dataclasses import replace

from shoestring.core.decision import Train
from shoestring.core.entries import Cost, Note, Order, Receipt
from shoestring.core.ledger import Ledger
from shoestring.core.policy import Policy
from shoestring.errors import StudyError
from shoestring.runners.runner import receipt, unfinished
from shoestring.runners.training import number_of


def overdue(ledger: Ledger, patience_s: float | None) -> list[Note]:
    """Orders that nobody told about for so long are released: they are closed, and nothing is charged."""
    now = time.time()
    return [
        Note(topic="released", facts={"order": number})
        for number, opened in ledger.open_orders.items()
        if opened.order.asked and patience_s is not None and now - opened.since > patience_s
    ]


def next_order(ledger: Ledger, policy: Policy) -> Order | None:
    """What to train next; None when there is nothing to buy now, or ever."""
    began = time.perf_counter()
    decision = policy.decide(ledger, ledger.decision_rng())
    if not isinstance(decision, Train):
        return None
    order = ledger.accept(decision, at=time.time(), thinking_s=time.perf_counter() - began)
    return None if order is None else replace(order, asked=True)


def next_receipt(
    ledger: Ledger, order: Order, value: float | None, cost_s: float | None, failed: str | None
) -> Receipt:
    """The receipt of the next step of an asked order."""
    opened = ledger.open_orders.get(order.number)
    if opened is None:
        raise StudyError(f"order {order.number} is not open: it was told about to its end, or released meanwhile")
    if not opened.order.asked:
        raise StudyError(f"order {order.number} was not asked for: the runner that carries it out tells about it")
    if cost_s is not None and not 0 <= cost_s < float("inf"):
        raise StudyError(f"cost_s={cost_s!r} must be seconds, 0 or more; leave it out to have the clock's")
    try:
        value = number_of(value)
    except TypeError as error:
        raise StudyError(f"value={value!r} cannot be told: {error}") from None
    now = time.time()
    step = ledger.trials[order.trial].held + 1
    cost = Cost(train=max(0.0, now - opened.since) if cost_s is None else cost_s)
    if failed is not None:
        return unfinished(order, step, "failed", failed, cost, at=now, saved=step - 1)
    return receipt(order, step, value, cost, at=now, saved=step)  # the state is the caller's: it survives
