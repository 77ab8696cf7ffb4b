"""Views: tables computed from the entries of a ledger, and updated as entries are added.

A view is a frozen, hashable description of what to compute. Its state is built entry by entry through `absorb`, always by the
same code, so a state computed from all entries equals a state that was updated entry by entry. A view holds only exact sums,
tables and factors. Numbers that are fitted or sampled belong in the memo of an order.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from shoestring.core.ledger.entries import Entry, Note, Order, Receipt, StateLoss, StudyDefinition
from shoestring.core.ledger.notes import TrainingEnd
from shoestring.core.ledger.order_closing import OpenOrders

S = TypeVar("S")


class View(Protocol[S]):
    """What `Ledger.view` computes from all entries. It must be hashable, and equal for equal descriptions."""

    def start(self, definition: StudyDefinition) -> S:
        """Return the state of a ledger that has no entry but `opened`.

        Parameters
        ----------
        definition : StudyDefinition
            The first entry.

        Returns
        -------
        S
            The state.
        """
        ...

    def absorb(self, state: S, entry: Entry) -> S:
        """Return the state after one more entry.

        Parameters
        ----------
        state : S
            The state before it; may be changed in place and returned.
        entry : Entry
            The entry.

        Returns
        -------
        S
            The state with it.
        """
        ...


@dataclass(frozen=True, slots=True)
class LossesAt:
    """The trials that reported a loss at exactly `step`: (sign of values, [(loss, trial), best first], trials seen)."""

    step: int

    def start(self, definition: StudyDefinition) -> tuple[float, list[tuple[float, int]], set[int]]:
        return definition.sign, [], set()

    def absorb(
        self, state: tuple[float, list[tuple[float, int]], set[int]], entry: Entry
    ) -> tuple[float, list[tuple[float, int]], set[int]]:
        if isinstance(entry, Receipt) and entry.step == self.step and entry.is_finished:
            sign, ranked, seen = state
            if entry.trial not in seen:  # a repeated step keeps its first loss, or no loss if it had none
                seen.add(entry.trial)
                if entry.status == "ok" and entry.value is not None:
                    insort(ranked, (sign * entry.value, entry.trial))
        return state


@dataclass(slots=True)
class TrialsBetweenStops:
    """State of `BetweenStops`. Nearly all of these trials are being trained, so the idle ones are listed separately."""

    since: dict[int, int] = field(default_factory=dict)  # {trial: number of the order with which it left its last stop}
    idle: set[int] = field(default_factory=set)
    open_orders: OpenOrders = field(default_factory=OpenOrders)

    def close(self, order: Order) -> None:
        """Mark the trial of a closed order as idle, unless it has reached a stop or ended."""
        if order.trial in self.since:
            self.idle.add(order.trial)

    def arrive(self, trial: int) -> None:
        """Remove a trial, because it has reached a stop or ended."""
        self.since.pop(trial, None)
        self.idle.discard(trial)


@dataclass(frozen=True, slots=True)
class BetweenStops:
    """The trials between two of the steps in `stops`: they were ordered, and since then have neither reached a stop nor ended."""

    stops: tuple[int, ...]

    def start(self, definition: StudyDefinition) -> TrialsBetweenStops:
        return TrialsBetweenStops()

    def absorb(self, state: TrialsBetweenStops, entry: Entry) -> TrialsBetweenStops:
        if isinstance(entry, Order):
            state.since.setdefault(entry.trial, entry.number)
            state.idle.discard(entry.trial)
        elif isinstance(entry, Receipt):
            # A step that was cut off at the budget limit does not count as reached.
            if entry.status in ("failed", "diverged") or (entry.status == "ok" and entry.step in self.stops):
                state.arrive(entry.trial)
        elif isinstance(entry, Note) and entry.topic == TrainingEnd.topic:
            state.arrive(TrainingEnd.from_note(entry).trial)
        if (closed := state.open_orders.absorb(entry)) is not None:
            if isinstance(entry, StateLoss):  # its process died too often, so the trial has failed
                state.arrive(closed.trial)
            state.close(closed)
        return state
