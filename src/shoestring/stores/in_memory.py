"""A store that forgets when the process ends: for simulations, tests, and people who want no file."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from shoestring.core.ledger.entries import Entry
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import Conflict, Leased, StoreError
from shoestring.stores.store import Heartbeat


class Memory:
    """Ledgers by name, in this process only."""

    where = "memory"

    def __init__(self) -> None:
        self._ledgers: dict[str, Ledger] = {}
        self.leased: set[str] = set()

    def studies(self) -> list[str]:
        return list(self._ledgers)

    def load(self, study: str) -> Ledger | None:
        return self._ledgers.get(study)

    def refresh(self, study: str, ledger: Ledger) -> Ledger:
        return self._ledgers[study]

    def append(
        self, study: str, ledger: Ledger | None, *entries: Entry, beat: Heartbeat | None = None, durable: bool = True
    ) -> Ledger:
        current = self._ledgers.get(study)
        if (len(current) if current else 0) != (len(ledger) if ledger else 0):
            raise Conflict(f"the study {study!r} has grown since it was read: reload and decide again")
        for entry in entries:
            ledger = Ledger([entry]) if ledger is None else ledger.append(entry)
        if ledger is None:
            raise StoreError(f"the study {study!r} cannot begin without an entry")
        self._ledgers[study] = ledger
        return ledger

    def settle(self, study: str, ledger: Ledger) -> None:
        pass

    def lease(self, study: str) -> MemoryLease:
        if study in self.leased:
            raise Leased(f"the study {study!r} is being run in this process already")
        return MemoryLease(self, study)


class MemoryLease:
    lost = False
    cut_off: Mapping[int, float] = {}  # nothing outlives the process

    def __init__(self, store: Memory, study: str) -> None:
        self._store, self._study = store, study

    def beat(self, entries: int, running_s: Mapping[int, float]) -> None:
        pass

    def __enter__(self) -> MemoryLease:
        self._store.leased.add(self._study)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.leased.discard(self._study)
