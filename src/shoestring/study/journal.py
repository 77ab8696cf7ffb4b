"""Where a study is stored: its ledger with the store (`Journal`), and the place of its checkpoints.

The loop, `ask` and `tell`, online tuning and reports all read `journal.ledger`, and none of them stores a copy. Other processes
may append to the same study at the same time. Then `append` raises `Conflict`, `refresh` reads what they wrote, and
`append_newest` repeats both until it succeeds. A conflict without a new entry to read is damage, so no repetition is endless.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

from shoestring.core.ledger.entries import Amendment, Entry
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import Conflict, DamagedStore
from shoestring.runners.checkpoints.temporary_folders import get_temporary_folder
from shoestring.stores.in_memory import MemoryStore
from shoestring.stores.ledger_store import Heartbeat, LedgerStore

E = TypeVar("E", bound=Entry)
_MAX_CONFLICTS = 100  # of one number of entries; several threads may have one each


class ConflictLimit:
    """Ends the repetition of appends: if an entry can neither be stored nor read, the store is damaged."""

    def __init__(self, store: LedgerStore, name: str) -> None:
        self._store, self._name = store, name
        self._entries, self._conflicts = 0, 0

    def add(self, entries: int) -> None:
        """Count a conflict of an append after this number of entries; raise DamagedStore if there were too many."""
        self._conflicts = self._conflicts + 1 if entries == self._entries else 1
        self._entries = entries
        if self._conflicts >= _MAX_CONFLICTS:
            raise DamagedStore(
                f"the study {self._name!r} in {self._store.where} is damaged: entry {entries} exists, but cannot be read: "
                "`shoestring repair` copies the entries before it",
                entries - 1,
            )


class Journal:
    """A ledger and its store. `ledger` is the newest one that this process has read or written.

    `change` is the amendment that this process made when it began the study, or None. Several threads may use a journal.
    """

    def __init__(self, store: LedgerStore, name: str, ledger: Ledger, change: Amendment | None = None) -> None:
        self.store, self.name, self._ledger, self.change = store, name, ledger, change
        self._conflicts = ConflictLimit(store, name)
        self.lock = threading.RLock()  # no two threads may append to the same ledger: the first consumes it

    @property
    def ledger(self) -> Ledger:
        if self._ledger.is_consumed:  # another thread is appending, or an append was interrupted before it returned
            with self.lock:
                if self._ledger.is_consumed:
                    self._ledger = self.store.refresh(self.name, self._ledger)
        return self._ledger

    @classmethod
    def in_memory(cls, ledger: Ledger, store: LedgerStore | None = None) -> Journal:
        """Return a journal that stores the entries of this ledger in memory (or in `store`), for simulations."""
        store = store or MemoryStore()
        return cls(store, "study", store.append("study", None, *ledger.entries()))

    def append(
        self, *entries: Entry, after: Ledger | None = None, heartbeat: Heartbeat | None = None, durable: bool = True
    ) -> None:
        """Store all of these entries; or store none and raise `Conflict` if another process has appended in the meantime.

        `after` is the ledger on which the entries were decided; another thread may have changed `self.ledger` since then.
        `heartbeat` and `durable` are explained at `LedgerStore.append`.
        """
        with self.lock:
            before = after or self.ledger
            try:
                self._ledger = self.store.append(self.name, before, *entries, heartbeat=heartbeat, durable=durable)
            except Conflict:
                self._conflicts.add(len(before))
                raise

    def finish_run(self) -> None:
        """Let the store prepare, at the end of a run, for the next time that the study is opened."""
        self.store.finish_run(self.name, self.ledger)

    def refresh(self) -> Ledger:
        """Read what other processes have appended, and return the ledger."""
        with self.lock:
            self._ledger = self.store.refresh(self.name, self._ledger)
            return self._ledger

    def append_newest(self, entries_for: Callable[[Ledger], Sequence[E]]) -> Sequence[E]:
        """Append and return `entries_for(newest ledger)`; call it again if another process has appended in the meantime."""
        while True:
            with self.lock:
                newest = self.refresh()
                entries = entries_for(newest)
                try:
                    if entries:
                        self.append(*entries, after=newest)
                    return entries
                except Conflict:
                    continue


def locate_checkpoints(store: LedgerStore, name: str, place: str | None) -> Path | str:
    """Return where a study's checkpoints are stored: in `place` (a folder or `s3://bucket/runs`), else the default folder."""
    if place is None:
        return default_checkpoint_folder(store, name)
    leaf = "-".join(part for part in _split_name(name) if part)
    return f"{place.rstrip('/')}/{leaf}" if "://" in place else Path(place) / leaf


def default_checkpoint_folder(store: LedgerStore, name: str) -> Path:
    """Return the default folder for a study's checkpoints.

    It is beside the file of a SQLite store, in the current folder for a server, and temporary for a study in memory. Only
    the temporary folder is made here.
    """
    plain, suffix = _split_name(name)
    if database := getattr(store, "path", None):
        folder = Path(f"{database}.checkpoints")
    elif store.where == MemoryStore.where:
        folder = get_temporary_folder(store)
    else:
        folder, suffix = Path("shoestring.checkpoints"), _hash(f"{store.where} {name}")
    return folder / (f"{plain}-{suffix}" if suffix else plain)


def _split_name(name: str) -> tuple[str, str]:
    """Return a study's name as a file name, and a suffix if it had to be changed, so that no two studies share a folder."""
    plain = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
    return plain, "" if plain == name else _hash(name)


def _hash(text: str) -> str:
    return blake2b(text.encode(), digest_size=4).hexdigest()
