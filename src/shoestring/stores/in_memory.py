"""A ledger store in the memory of this process: for simulations, tests, and users who want no file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import TracebackType

from shoestring.core.ledger.entries import Entry
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import Conflict, StoreError, StudyInUse
from shoestring.stores.ledger_store import Heartbeat, miss_study, refuse_name


class MemoryStore:
    """Stores the entries of studies in the memory of this process. The methods are those of `LedgerStore`.

    Every caller gets a ledger of its own, as from a database, so an append consumes the ledger of only one caller.
    """

    where = "memory"

    def __init__(self) -> None:
        self._entries: dict[str, list[Entry]] = {}
        self.leased: set[str] = set()

    def studies(self) -> list[str]:
        """Return the names of all studies, in the order in which they were opened."""
        return list(self._entries)

    def load(self, study: str) -> Ledger | None:
        """Return the study's ledger; None if there is no such study."""
        return Ledger(self._entries[study]) if study in self._entries else None

    def refresh(self, study: str, ledger: Ledger) -> Ledger:
        """Return the ledger with all entries that others have appended since."""
        if study not in self._entries:
            raise miss_study(study, self)
        if ledger.is_consumed:
            ledger = ledger.fork()
        for entry in self._entries[study][len(ledger) :]:
            ledger = ledger.append(entry)
        return ledger

    def append(
        self,
        study: str,
        ledger: Ledger | None,
        *entries: Entry,
        heartbeat: Heartbeat | None = None,
        durable: bool = True,
    ) -> Ledger:
        """Add all of these entries after the last entry of `ledger`, or none; see `LedgerStore.append`."""
        stored = self._entries.get(study, [])
        if len(stored) != (len(ledger) if ledger else 0):
            raise Conflict(f"the study {study!r} has grown since it was read: reload and decide again")
        grown = ledger
        for entry in entries:  # only proposed: if one of them breaks a rule, `ledger` can still be used
            grown = Ledger([entry]) if grown is None else grown.propose(entry)
        if grown is None:
            raise StoreError(f"the study {study!r} cannot begin without an entry")
        if ledger is not None and entries:
            ledger.consume()
        self._entries[study] = stored
        stored.extend(entries)
        return grown

    def finish_run(self, study: str, ledger: Ledger) -> None:
        """Do nothing: a study in memory is not opened again."""

    def rename(self, study: str, new: str) -> None:
        """Give a study another name."""
        if study not in self._entries or new in self._entries:
            raise refuse_name(study, new, self)
        self._entries = {new if name == study else name: entries for name, entries in self._entries.items()}

    def delete(self, study: str) -> None:
        """Delete a study with all its entries."""
        self._entries.pop(study, None)

    def lease(self, study: str) -> MemoryLease:
        """Return the lease of this study; raise StudyInUse if another run in this process has it."""
        if study in self.leased:
            raise StudyInUse(f"the study {study!r} is being run in this process already")
        return MemoryLease(self, study)


class MemoryLease:
    """The right to run a study of a `MemoryStore`."""

    lost = False
    uncharged_s: Mapping[int, float] = {}  # nothing survives the end of the process

    def __init__(self, store: MemoryStore, study: str) -> None:
        self._store, self._study = store, study

    def beat(self, entries: int, running_s: Mapping[int, float], until_cutoff_s: float = math.inf) -> None:
        """Do nothing: nobody can take this lease over."""

    def __enter__(self) -> MemoryLease:
        self._store.leased.add(self._study)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.leased.discard(self._study)
