"""Who took which order at a desk, what was told about it last, and what may be told now."""

from __future__ import annotations

from dataclasses import dataclass, field

from shoestring.core.ledger.entries import Entry, Note, Opened, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.checks import is_finite
from shoestring.errors import StudyError
from shoestring.study.ask import Told


class OrderGone(StudyError):
    """An order that its client cannot go on with: it asks for another one."""


@dataclass(slots=True)
class Taken:
    """What the ledger says about orders that clients took."""

    clients: dict[int, str] = field(default_factory=dict)  # by order: who took it
    last: dict[int, Receipt] = field(default_factory=dict)  # by order: its newest receipt


@dataclass(frozen=True, slots=True)
class TakenView:
    def start(self, opened: Opened) -> Taken:
        return Taken()

    def absorb(self, taken: Taken, entry: Entry) -> Taken:
        match entry:
            case Receipt():
                taken.last[entry.order] = entry
            case Note(topic="taken"):
                taken.clients[entry.facts["order"]] = entry.facts["client"]
        return taken


def require_open(ledger: Ledger, number: int) -> None:
    if number not in ledger.open_orders:
        raise OrderGone(f"order {number} is not open any more: it was told to its end, or given up; ask for another")
    if not ledger.orders[number].asked:
        raise StudyError(f"order {number} was not asked for: the runner that carries it out tells about it")


def require_same(last: Receipt, step: int, told: Told) -> None:
    """A step that is told again must be the same step: another value means that a client counts wrongly."""
    if step != last.step or last.value is None or told.value is None or not is_finite(told.value):
        return
    if told.value != last.value:
        raise StudyError(
            f"value={told.value!r} is told for step {step} of order {last.order}, which was told as {last.value!r}: a step is "
            "told once; count on to the next"
        )
