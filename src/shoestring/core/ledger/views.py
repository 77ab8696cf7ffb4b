"""Views: exact folds over the entries of a ledger that are carried forward as entries are added.

A view is a frozen, hashable description of what to fold; its state is built entry by entry through `absorb`, always by
the same code, so a state folded at once equals one carried along. Anything fitted or sampled belongs into an order's
memo instead: a view holds exact sums, tables and factors only.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from shoestring.core.ledger.entries import Entry, Note, Opened, Order, Receipt

S = TypeVar("S")


class View(Protocol[S]):
    def start(self, opened: Opened) -> S:
        """The state of a ledger that holds nothing but its `opened` entry."""
        ...

    def absorb(self, state: S, entry: Entry) -> S:
        """The state after one more entry; may change `state` in place and return it."""
        ...


@dataclass(frozen=True, slots=True)
class LossesAt:
    """Trials that reported a loss at exactly `step`, best first: a sorted list of (loss, trial)."""

    step: int

    def start(self, opened: Opened) -> tuple[float, list[tuple[float, int]], set[int]]:
        return opened.sign, [], set()

    def absorb(
        self, state: tuple[float, list[tuple[float, int]], set[int]], entry: Entry
    ) -> tuple[float, list[tuple[float, int]], set[int]]:
        if isinstance(entry, Receipt) and entry.step == self.step and entry.is_finished:
            sign, ranked, seen = state
            if entry.trial not in seen:  # a step that was run again keeps what it had at first, be it nothing
                seen.add(entry.trial)
                if entry.status == "ok" and entry.value is not None:
                    insort(ranked, (sign * entry.value, entry.trial))
        return state


@dataclass(slots=True)
class Standstill:
    """Trials between two stops. Nearly all of them are being trained, so those that stand still are kept apart."""

    since: dict[int, int] = field(default_factory=dict)  # trial -> number of the order that set it on its way
    idle: set[int] = field(default_factory=set)
    open: dict[int, Order] = field(default_factory=dict)  # by number

    def close(self, number: int) -> None:
        """The order is closed: if its trial is still on its way, it stands still."""
        order = self.open.pop(number, None)
        if order is not None and order.trial in self.since:
            self.idle.add(order.trial)

    def arrive(self, trial: int) -> None:
        self.since.pop(trial, None)
        self.idle.discard(trial)


@dataclass(frozen=True, slots=True)
class UnderWay:
    """Trials that were ordered and have neither come to one of the `stops` since, nor ended: running or cut short."""

    stops: tuple[int, ...]

    def start(self, opened: Opened) -> Standstill:
        return Standstill()

    def absorb(self, state: Standstill, entry: Entry) -> Standstill:
        if isinstance(entry, Order):
            state.since.setdefault(entry.trial, entry.number)
            state.idle.discard(entry.trial)
            state.open[entry.number] = entry
        elif isinstance(entry, Receipt):
            # A step that was cut off at the wall is none.
            if entry.status in ("failed", "diverged") or (entry.status == "ok" and entry.step in self.stops):
                state.arrive(entry.trial)
            if entry.status != "ok" or entry.step == state.open[entry.order].until:
                state.close(entry.order)
        elif isinstance(entry, Note) and entry.topic in ("ended", "released"):
            if entry.topic == "ended":
                state.arrive(entry.facts["trial"])
            state.close(entry.facts["order"])
        return state


@dataclass(slots=True)
class Standing:
    sign: float
    waiting: list[tuple[float, int]] = field(default_factory=list)  # (loss, trial), best first
    losses: dict[int, float] = field(default_factory=dict)  # of all trials that came by; inf: none was told
    ordered: dict[int, int] = field(default_factory=dict)  # the furthest step asked for


@dataclass(frozen=True, slots=True)
class Waiting:
    """Trials that reported a loss at `step` and were never ordered beyond it, best first."""

    step: int

    def start(self, opened: Opened) -> Standing:
        return Standing(opened.sign)

    def absorb(self, state: Standing, entry: Entry) -> Standing:
        if isinstance(entry, Order):
            was = state.ordered.get(entry.trial, 0)
            state.ordered[entry.trial] = max(was, entry.until)
            if was <= self.step < entry.until and math.isfinite(loss := state.losses.get(entry.trial, math.inf)):
                del state.waiting[bisect_left(state.waiting, (loss, entry.trial))]
        elif isinstance(entry, Receipt) and entry.step == self.step and entry.is_finished:
            if entry.trial in state.losses:
                return state  # a step that was run again keeps its first value
            has_loss = entry.status == "ok" and entry.value is not None
            state.losses[entry.trial] = state.sign * (entry.value or 0.0) if has_loss else math.inf
            if has_loss and state.ordered[entry.trial] <= self.step:
                insort(state.waiting, (state.losses[entry.trial], entry.trial))
        return state
