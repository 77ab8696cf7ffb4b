"""Snapshots: the books of a study at one row, so that opening a long study reads only what came after.

A snapshot is believed only if its own checksum, the layout of its books, and the checksums of row 0 and of its last row all
fit; the chain of checksums then stands for every row in between. Anything else is ignored, and the study is read from its
beginning. The rows before are verified when somebody asks for their entries, and by `repair`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from shoestring.core.ledger import snapshot
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.state import Books
from shoestring.errors import StoreError
from shoestring.stores.database import SNAPSHOTS, Database
from shoestring.stores.rows import Link, Row

_FEWEST = 5_000  # entries behind the last snapshot, and
_SHARE = 0.1  # of all entries: writing one takes longer the longer the study is
_FEWEST_AT_REST = 500  # at the end of a run, when nobody waits
_flat = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


class Snapshot(NamedTuple):
    study: str
    seq: int
    first_sum: str
    sum: str
    format: int
    layout: str
    body: str
    seal: str

    @property
    def link(self) -> Link:
        return Link(self.sum, self.format)

    def fits(self, first: Row, last: Row) -> bool:
        """Whether it was written behind these rows."""
        return (first.sum, last.seq, last.sum) == (self.first_sum, self.seq, self.sum)

    def read_books(self, fetch_orders: Callable[[int], list[Order]]) -> Books | None:
        """None if the text is not what it seemed to be."""
        try:
            return snapshot.read(self.body, fetch_orders)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return None


def is_due(entries: int, last: int, *, at_rest: bool = False) -> bool:
    """Whether a study of so many entries wants a new snapshot, when the last one was written at `last`."""
    return entries - last >= (_FEWEST_AT_REST if at_rest else _FEWEST + _SHARE * last)


def write(database: Database, study: str, books: Books, seq: int, first_sum: str, link: Link) -> None:
    """Replace the study's snapshot by one of its books behind row `seq`."""
    assert link.format is not None
    words = (study, seq, first_sum, link.sum, link.format, snapshot.LAYOUT, snapshot.write(books))
    made = Snapshot(*words, seal=_seal(*words))

    def replace(connection: Connection) -> None:
        connection.execute(delete(SNAPSHOTS).where(SNAPSHOTS.c.study == study))
        connection.execute(insert(SNAPSHOTS), made._asdict())

    database.attempt(replace)


def read(database: Database, study: str) -> Snapshot | None:
    """The study's snapshot, if there is a sound one of the present layout."""
    wanted = select(*(SNAPSHOTS.c[name] for name in Snapshot._fields)).where(SNAPSHOTS.c.study == study)
    try:
        if not database.has_table(SNAPSHOTS):
            return None
        found = database.attempt(lambda connection: connection.execute(wanted).one_or_none())
        kept = None if found is None else Snapshot(*found)
        is_sound = kept is not None and kept.layout == snapshot.LAYOUT and kept.seal == _seal(*kept[:-1])
    except (StoreError, TypeError, ValueError):  # in a damaged part of the file, or of other types than were written
        return None
    return kept if is_sound else None


def _seal(*words: object) -> str:
    return blake2b(_flat(words).encode(), digest_size=16).hexdigest()
