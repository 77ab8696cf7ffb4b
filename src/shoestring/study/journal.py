"""A study's ledger in its store: the one place where it is held while a process works with it.

The loop, `ask` and `tell`, online tuning and reports all look at `journal.ledger`; nobody keeps a copy. Others may append
to the same study in the store at the same time: `append` then raises `Conflict`, `refresh` shows what they wrote, and
`append_newest` does both until it was the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from shoestring.core.ledger.entries import Amended, Entry
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import Conflict
from shoestring.stores.in_memory import Memory
from shoestring.stores.store import Heartbeat, Store

E = TypeVar("E", bound=Entry)


class Journal:
    """`ledger` is always the newest that this process has seen or written.

    `change`: what this process changed about the study when it took it up.
    """

    def __init__(self, store: Store, name: str, ledger: Ledger, change: Amended | None = None) -> None:
        self.store, self.name, self.ledger, self.change = store, name, ledger, change

    @classmethod
    def in_memory(cls, ledger: Ledger, store: Store | None = None) -> Journal:
        """A ledger that goes on in a store of its own and is forgotten with it: for simulations."""
        store = store or Memory()
        return cls(store, "study", store.append("study", None, *ledger.entries()))

    def append(
        self, *entries: Entry, after: Ledger | None = None, beat: Heartbeat | None = None, durable: bool = True
    ) -> None:
        """Store all of these entries, or none and raise `Conflict` if somebody else has appended meanwhile.

        `after` is the ledger that the entries were decided on: another thread may have moved this journal on since.
        `beat` and `durable`: see `Store.append`.
        """
        self.ledger = self.store.append(self.name, after or self.ledger, *entries, beat=beat, durable=durable)

    def settle(self) -> None:
        """A run is over: let the store make the next opening quick."""
        self.store.settle(self.name, self.ledger)

    def refresh(self) -> Ledger:
        """Read what others have appended."""
        self.ledger = self.store.refresh(self.name, self.ledger)
        return self.ledger

    def append_newest(self, entries_for: Callable[[Ledger], Sequence[E]]) -> Sequence[E]:
        """Append what the newest ledger calls for; if somebody else was quicker, ask again what theirs calls for."""
        while True:
            newest = self.refresh()
            entries = entries_for(newest)
            try:
                if entries:
                    self.append(*entries, after=newest)
                return entries
            except Conflict:
                continue
