"""Repair a damaged store: copy every entry up to the last good one into a new store.

The damaged file is copied first, together with its journal, and only the copy is opened, because even reading a SQLite file may
write to it if a crash has left a journal. Then the rows are read one by one, each by its key. So if a page cannot be read, the
entries from there on are lost, but none before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from shoestring.core.values.credentials import hide_credentials
from shoestring.errors import Conflict, DamagedStore, StoreError, did_you_mean
from shoestring.stores.addresses import open_store
from shoestring.stores.rows import BadRow, Row, follow
from shoestring.stores.sql import SqlStore
from shoestring.stores.sqlite_file import JOURNALS, copy_file


@dataclass(frozen=True)
class RepairResult:
    """What `repair` did."""

    n_copied: int  # entries in the new store
    n_dropped: int | None  # later entries that were not copied; None if they cannot be counted
    reason: str  # what is wrong with the first entry that was not copied; empty if all were copied


def repair(address: str, study: str, new_address: str) -> RepairResult:
    """Copy the good entries of a study into a new store, and return what was copied. The damaged store is not changed."""
    damaged, new = _open_sql_store(address, must_exist=True), _open_sql_store(new_address)
    if new.path is not None and new.path.exists():
        raise StoreError(f"{new.path} exists: give the repaired study a file of its own with -o NEW")
    with _readable(damaged) as source:
        good_rows, reason = _read_good_rows(source, study)
        if not good_rows:
            reason = reason or _explain_missing(source, study)
            raise StoreError(f"nothing of the study {study!r} can be copied from {damaged.database.where}: {reason}")
        n_dropped = _count_dropped(source, study, len(good_rows))
    try:
        new.insert_rows(good_rows)
    except Conflict:
        raise StoreError(f"{new.database.where} holds a study {study!r} already: give another -o NEW") from None
    except StoreError:
        new.close()
        if new.path is not None:
            for ending in ("", "-shm", *JOURNALS):  # the file did not exist before
                Path(f"{new.path}{ending}").unlink(missing_ok=True)
        raise
    missing = f"entry {len(good_rows)} is missing" if n_dropped else ""
    return RepairResult(len(good_rows), n_dropped, reason or missing)


def count_good_entries(store: SqlStore, study: str) -> tuple[int, str]:
    """Return how many entries `repair` would copy, and what is wrong with the next one."""
    with _readable(store) as source:
        good_rows, reason = _read_good_rows(source, study)
    return len(good_rows), reason or f"entry {len(good_rows)} lies in a destroyed part of the file"


@contextmanager
def _readable(store: SqlStore) -> Iterator[SqlStore]:
    """Yield a store that has the same rows and may be opened: a copy of the file, or the server itself."""
    if store.path is None:
        yield store
        return
    with TemporaryDirectory(prefix="shoestring-") as folder:
        source = SqlStore(f"sqlite:///{copy_file(store.path, Path(folder))}", rescue=True)
        source.database.where = store.database.where
        try:
            yield source
        finally:
            source.close()


def _read_good_rows(source: SqlStore, study: str) -> tuple[list[Row], str]:
    good_rows = []
    try:
        for row, _ in follow(study, _each_row(source, study)):
            good_rows.append(row)
    except BadRow as error:
        return good_rows, str(error)
    return good_rows, ""


def _each_row(source: SqlStore, study: str) -> Iterator[Row]:
    for seq in count():
        try:
            row = source.read_row(study, seq)
        except StoreError:
            if source.path is None:
                raise  # a server that does not answer is not damaged
            raise BadRow(f"entry {seq} lies in a destroyed part of the file") from None
        if row is None:
            return
        yield row


def _count_dropped(source: SqlStore, study: str, n_good: int) -> int | None:
    try:
        return max(source.count_rows(study), source.read_least_length(study)) - n_good
    except DamagedStore:
        return None


def _explain_missing(source: SqlStore, study: str) -> str:
    try:
        return f"there is no such study. {did_you_mean(study, source.studies())}"
    except DamagedStore:
        return "what is left of the file does not hold its beginning"


def _open_sql_store(address: str, *, must_exist: bool = False) -> SqlStore:
    store = open_store(address, must_exist=must_exist)
    if not isinstance(store, SqlStore):
        raise StoreError(f"the store {hide_credentials(address)!r} has nothing to repair: name a database")
    return store
