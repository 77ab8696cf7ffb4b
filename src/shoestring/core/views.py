"""Views: exact folds over the entries of a ledger that are carried forward as entries are added.

A view is a frozen, hashable description of what to fold; its state is built entry by entry through `absorb`, always by
the same code, so a state folded at once equals one carried along. Anything fitted or sampled belongs into an order's
memo instead: a view holds exact sums, tables and factors only.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from typing import Protocol, TypeVar

from shoestring.core.entries import Entry, Note, Opened, Order, Receipt

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


@dataclass(frozen=True, slots=True)
class UnderWay:
    """Trials that were ordered and have neither come to one of the `stops` since, nor ended: running or cut short."""

    stops: tuple[int, ...]

    def start(self, opened: Opened) -> dict[int, None]:
        return {}

    def absorb(self, state: dict[int, None], entry: Entry) -> dict[int, None]:
        if isinstance(entry, Order):
            state[entry.trial] = None
        elif isinstance(entry, Receipt):
            if entry.status in ("failed", "diverged") or entry.step in self.stops:
                state.pop(entry.trial, None)
        elif isinstance(entry, Note) and entry.topic == "ended":
            state.pop(entry.facts["trial"], None)
        return state
