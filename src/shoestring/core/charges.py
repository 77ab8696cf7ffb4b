"""What an entry charges: epochs, and seconds at the rate that holds at the time.

Whoever reads `core/bookkeeping.py` for what an entry means may take these for granted.
"""

from __future__ import annotations

from shoestring.core.books import Books, OpenOrder, Trial
from shoestring.core.entries import Receipt


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
