"""The ledger: the whole past of a study, append-only, and everything that follows from it.

`append` returns the successor and hands it the views carried so far, so one more entry costs its increment. A ledger
itself never changes: asked again after its successor was made, it folds its views afresh. `fork(n)` is the ledger as it
was after its first n entries (for replay and what-if); it shares entries, never views.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from shoestring.core.deciding.decision import Memo, Train
from shoestring.core.ledger.accounting import BooksView
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Entry, Opened, Order, from_stored
from shoestring.core.ledger.lazy_list import LateList
from shoestring.core.ledger.pricing import can_pay, price
from shoestring.core.ledger.state import Books, OpenOrder, Trial
from shoestring.core.ledger.views import LossesAt, View
from shoestring.core.space.space import Config, Space
from shoestring.core.values.randomness import stream
from shoestring.errors import StudyError

S = TypeVar("S")
_BOOKS = BooksView()


class Ledger:
    """All entries of a study up to now; `append` makes the next one."""

    __slots__ = ("_books", "_count", "_entries", "_next", "_views", "opened")

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries: list[Entry] | LateList[Entry] = list(entries)
        self._count = len(self._entries)
        self._views: dict[Any, tuple[Any, int]] = {}
        self._next: tuple[Entry, Ledger] | None = None  # an entry that was proposed, and what came of it
        self._books: Books | None = None  # asked for dozens of times per decision: no look-up among the views
        first = self._entries[0] if self._entries else None
        if not isinstance(first, Opened):
            raise StudyError("a ledger begins with an `opened` entry")
        self.opened = first

    @classmethod
    def restored(cls, opened: Opened, books: Books, count: int, load: Callable[[], list[Entry]]) -> Ledger:
        """A ledger of `count` entries whose books are known; the entries are loaded when somebody asks for one of them."""
        ledger = cls([opened])
        ledger._entries, ledger._count = LateList(count, load), count
        ledger._views[_BOOKS] = (books, count)
        return ledger

    # entries ---------------------------------------------------------------------------------------------------------

    def append(self, entry: Entry) -> Ledger:
        """The ledger with one more entry."""
        if self._next is not None and self._next[0] is entry:
            (_, successor), self._next = self._next, None
            return successor
        successor = object.__new__(Ledger)
        successor.opened = self.opened
        # The list is shared along one line of descent; a second successor of the same ledger gets a copy of its own.
        entries: list[Entry] | LateList[Entry]
        entries = self._entries if len(self._entries) == self._count else self._entries[: self._count]
        entries.append(entry)
        successor._entries, successor._count = entries, self._count + 1
        successor._views, self._views = self._views, {}
        successor._books = self._books = successor._next = None
        try:  # an entry that breaks a rule is refused here, before anything is stored
            successor._books = successor.view(_BOOKS)
        except Exception:
            entries.pop()
            raise
        return successor

    def propose(self, entry: Entry) -> Ledger:
        """The same, while it is not stored yet: appending that very entry then gives this ledger, not a second one."""
        successor = self.append(entry)
        self._next = entry, successor
        return successor

    def fork(self, count: int) -> Ledger:
        return Ledger(self._entries[: min(count, self._count)])

    def __len__(self) -> int:
        return self._count

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as the bodies of its entries; views are folded afresh."""
        return _from_bodies, ([(entry.kind, entry.body()) for entry in self.entries()],)

    def entries(self, start: int = 0) -> list[Entry]:
        return self._entries[start : self._count]

    def view(self, view: View[S]) -> S:
        found = self._views.get(view)
        state, done = found if found is not None else (view.start(self.opened), 1)
        if done < self._count:
            absorb = view.absorb
            for i in range(done, self._count):
                state = absorb(state, self._entries[i])
            self._views[view] = (state, self._count)
        elif found is None:
            self._views[view] = (state, done)
        return state

    # what the study is -----------------------------------------------------------------------------------------------

    @property
    def books(self) -> Books:
        if self._books is None:
            self._books = self.view(_BOOKS)
        return self._books

    @property
    def space(self) -> Space:
        return self.opened.space

    @property
    def max_steps(self) -> int:
        return self.opened.max_steps

    @property
    def budget(self) -> Budget:
        return self.books.budget

    @property
    def workers(self) -> int:
        return self.books.workers

    # what happened ---------------------------------------------------------------------------------------------------

    @property
    def trials(self) -> Sequence[Trial]:
        return self.books.trials

    @property
    def orders(self) -> Sequence[Order]:
        return self.books.orders

    @property
    def open_orders(self) -> dict[int, OpenOrder]:
        return self.books.open_orders

    @property
    def best(self) -> Trial | None:
        """The trial with the best value so far (the earliest of equals); its step is `best_step`."""
        books = self.books
        return None if books.best_trial is None else books.trials[books.best_trial]

    @property
    def memo(self) -> Memo:
        """What this policy's last order left for the next decision."""
        books = self.books
        return books.orders[-1].memo if len(books.orders) > books.memo_from else {}

    def former_configs(self, trial: int) -> list[Config]:
        """By finished step, for a trial whose config changed on the way: steps that are lost are run again with these.

        Empty for all other trials.
        """
        books = self.books
        past = books.trials[trial]
        return [books.orders[number].config for number in past.step_orders] if past.is_retuned else []

    def losses_at(self, step: int) -> list[tuple[float, int]]:
        """(loss, trial) of all trials validated at exactly `step`, best first."""
        return self.view(LossesAt(step))[1]

    # money -----------------------------------------------------------------------------------------------------------

    @property
    def spent(self) -> float:
        return self.books.spent

    @property
    def reserved(self) -> float:
        """What open orders may still cost."""
        return self.books.reserved

    @property
    def left(self) -> float:
        """What a further order may cost: neither spent nor reserved."""
        return max(0.0, self.budget.total - self.spent - self.reserved)

    def accept(
        self, decision: Train, *, at: float = 0.0, thinking_s: float = 0.0, check_start_s: float | None = None
    ) -> Order | None:
        """The order that this decision becomes: checked, priced, shortened to what can be paid. None: nothing fits.

        `check_start_s`: the training code can save, so an order may test resuming, and a copy of a trial is ready to start
        after so many seconds. None: it cannot.
        """
        return price(self, decision, at=at, thinking_s=thinking_s, check_start_s=check_start_s)

    def can_pay(self, thinking_s: float = 0.0) -> bool:
        """Whether any further order could be paid, however small: if not, no policy need be asked."""
        return can_pay(self, thinking_s)

    def step_price(self, trial: int | None = None) -> float:
        """Mean price of one more step in the budget's unit: of the trial's own if it has any, else of all; nan before the first.

        Thinking, bookkeeping and repeated steps are spread over all steps as they were so far, so a plan made with it holds.
        """
        books = self.books
        if books.budget.unit == "epochs":
            return 1.0 + self.opened.prices.validate_epochs
        rate = books.budget.per_second(books.workers)
        if not books.step_costs:
            return math.nan
        price = books.seconds / len(books.step_costs) * rate
        if trial is not None and trial < len(books.trials) and (own := books.trials[trial].step_costs):
            mean = books.step_seconds / len(books.step_costs)
            return price * (math.fsum(own) / len(own) / mean) if mean > 0 else price
        return price

    # randomness ------------------------------------------------------------------------------------------------------

    def rng(self, name: str, *numbers: int) -> np.random.Generator:
        """The stream of that name: for what is drawn once in a study."""
        return stream(self.opened.seed, name, *numbers)

    def decision_rng(self) -> np.random.Generator:
        """The stream of the next decision."""
        return stream(self.opened.seed, "decide", len(self.orders))

    # configs ---------------------------------------------------------------------------------------------------------

    @property
    def queue(self) -> Sequence[Config]:
        """Configs that the user wants tried before the policy's own."""
        return self.books.queue


def _from_bodies(bodies: list[tuple[str, dict[str, Any]]]) -> Ledger:
    return Ledger(from_stored(kind, body) for kind, body in bodies)
