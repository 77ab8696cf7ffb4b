"""Snapshots: the state of a study after one row, stored so that only the later rows are read when a long study is opened.

A snapshot is trusted only if its own checksum, its layout, and the checksums of row 0 and of its last row are all right. A row's
checksum depends on the row before it, so all rows in between are then right too. Any other snapshot is ignored, and the study
is read from its first row.
The rows that a snapshot covers are verified when their entries are needed, and by `repair`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from shoestring.core.ledger import snapshot
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.state import StudyState
from shoestring.errors import StoreError
from shoestring.stores.database import SNAPSHOTS, Database
from shoestring.stores.rows import Row

# A new snapshot is due after this many new entries, plus a share of the entries that the last one covers: the longer the study
# is, the longer it takes to write a snapshot.
_MIN_NEW_ENTRIES = 5_000
_SHARE_OF_COVERED = 0.1
_MIN_NEW_ENTRIES_AT_END = 500  # when a run has ended, and nothing waits for the store
_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


class Snapshot(NamedTuple):
    """A row of the table of snapshots."""

    study: str
    seq: int
    first_sum: str
    sum: str
    layout: str
    body: str
    seal: str

    def fits(self, first: Row, last: Row) -> bool:
        """Return whether these are the first row and the last row that the snapshot covers."""
        return (first.sum, last.seq, last.sum) == (self.first_sum, self.seq, self.sum)

    def read_state(self, fetch_orders: Callable[[int], list[Order]]) -> StudyState | None:
        """Return the state of the study; None if the text is damaged. `fetch_orders(n)` returns the first n orders."""
        try:
            return snapshot.read(self.body, fetch_orders)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return None


def is_due(entries: int, last: int, *, run_ended: bool = False) -> bool:
    """Return whether a study with this number of entries needs a new snapshot, if the last one covers `last` entries."""
    return entries - last >= (_MIN_NEW_ENTRIES_AT_END if run_ended else _MIN_NEW_ENTRIES + _SHARE_OF_COVERED * last)


def write(database: Database, study: str, state: StudyState, seq: int, first_sum: str, last_sum: str) -> None:
    """Replace the study's snapshot by one of its state after row `seq`."""
    fields = (study, seq, first_sum, last_sum, snapshot.LAYOUT, snapshot.write(state))
    made = Snapshot(*fields, seal=_seal(*fields))

    def replace(connection: Connection) -> None:
        connection.execute(delete(SNAPSHOTS).where(SNAPSHOTS.c.study == study))
        connection.execute(insert(SNAPSHOTS), made._asdict())

    database.attempt(replace)


def read(database: Database, study: str) -> Snapshot | None:
    """Return the study's snapshot; None if there is none, or it is damaged, or has another layout."""
    wanted = select(*(SNAPSHOTS.c[name] for name in Snapshot._fields)).where(SNAPSHOTS.c.study == study)
    try:
        if not database.has_table(SNAPSHOTS):
            return None
        row = database.attempt(lambda connection: connection.execute(wanted).one_or_none())
        found = None if row is None else Snapshot(*row)
        is_sound = found is not None and found.layout == snapshot.LAYOUT and found.seal == _seal(*found[:-1])
    except (StoreError, TypeError, ValueError):  # the row is in a damaged part of the file, or has wrong types
        return None
    return found if is_sound else None


def _seal(*fields: object) -> str:
    return blake2b(_encode(fields).encode(), digest_size=16).hexdigest()
