"""The rules for when an order is closed.

An order is closed by

- the receipt of its last step, or of a step that failed, diverged or was interrupted (`receipt_closes`);
- the note `ended` (the training code ended by itself) or `released` (no report came for a long time, or the run was interrupted
  while no step of the order was running), which are `CLOSING_TOPICS`;
- the third death in a row (`MAX_DEATHS`) of the process that trains its trial, without a new step in between. A step that is
  trained again does not count as new, because code that always dies at one step must not be trained for ever.

Views and the simulated runner follow the open orders with `OpenOrders`. The state of the study (accounting.py) uses the same
three names, but follows the open orders itself, because it also charges them and counts the deaths of each trial. A test compares
the two after every entry (tests/unit/core/test_order_closing.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoestring.core.ledger.entries import Entry, Note, Order, Receipt, StateLoss
from shoestring.core.ledger.notes import OrderRelease, TrainingEnd

MAX_DEATHS = 3  # after so many deaths of its process in a row, the trial itself is probably the cause
CLOSING_TOPICS = (TrainingEnd.topic, OrderRelease.topic)  # topics of the notes that close an order


def receipt_closes(receipt: Receipt, order: Order) -> bool:
    """Return whether this receipt closes its order."""
    return receipt.status != "ok" or receipt.step == order.until


@dataclass(slots=True)
class OpenOrders:
    """The open orders of a ledger, updated entry by entry."""

    by_number: dict[int, Order] = field(default_factory=dict)  # {number: order}
    _steps: dict[int, int] = field(default_factory=dict)  # {trial: its newest step}
    _deaths: dict[int, int] = field(default_factory=dict)  # {trial: deaths since that step}

    def absorb(self, entry: Entry) -> Order | None:
        """Update the open orders with one more entry, and return the order that it closes; None if it closes none."""
        if isinstance(entry, Order):
            self.by_number[entry.number] = entry
        elif isinstance(entry, Receipt):
            return self._absorb_receipt(entry)
        elif isinstance(entry, Note) and entry.topic in CLOSING_TOPICS:
            return self.by_number.pop(entry.facts["order"], None)
        elif isinstance(entry, StateLoss) and entry.death:
            return self._absorb_death(entry.trial)
        return None

    def _absorb_receipt(self, receipt: Receipt) -> Order | None:
        if receipt.is_finished and receipt.step > self._steps.get(receipt.trial, 0):
            self._steps[receipt.trial] = receipt.step
            self._deaths.pop(receipt.trial, None)
        order = self.by_number.get(receipt.order)
        if order is None or not receipt_closes(receipt, order):
            return None
        return self.by_number.pop(receipt.order)

    def _absorb_death(self, trial: int) -> Order | None:
        deaths = self._deaths.get(trial, 0) + 1
        self._deaths[trial] = deaths % MAX_DEATHS
        if deaths < MAX_DEATHS:
            return None
        number = next((number for number, order in self.by_number.items() if order.trial == trial), None)
        return None if number is None else self.by_number.pop(number)
