"""Studies in a database: SQLite in a file of its own, or PostgreSQL for several machines.

One append-only table, keyed by (study, seq). Two writers that both want to write entry n violate that key, and one of
them gets a `Conflict`: that is the whole of compare-and-swap. A row once written is never changed.

The store remembers the checksum of every row it has verified, so whatever others append is verified from there on and
not from the start.
"""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from sqlalchemy import func, insert, select

from shoestring.core.entries import FORMAT, Entry, Note
from shoestring.core.ledger import Ledger
from shoestring.errors import Conflict, Damaged, StoreError
from shoestring.stores.database import ENTRIES, Database
from shoestring.stores.lease import SqlLease
from shoestring.stores.rows import BEGIN, Link, Row, Unsound, follow, write

_ROW = [ENTRIES.c[name] for name in Row._fields]


class Sql:
    """A store at `sqlite:///file.db` or `postgresql://…`. Nothing is made before the first entry is stored."""

    def __init__(self, address: str, *, rescue: bool = False) -> None:
        self.database = Database(address, rescue=rescue)
        self.address = self.database.address  # opens the same store again, from any folder; with the password, if any
        self._lock = self.database.lock
        self._links: dict[str, list[Link]] = {}  # of every row verified

    @property
    def path(self) -> Path | None:
        """SQLite's file, None for a server."""
        return self.database.path

    @property
    def where(self) -> str:
        return self.database.where

    @property
    def notices(self) -> list[str]:
        """What the user should know about this store, once it has been used."""
        return self.database.notices

    # the store -------------------------------------------------------------------------------------------------------

    def studies(self) -> list[str]:
        with self._lock:
            if not self.database.has_entries():
                return []
            with self.database.transaction() as connection:
                first = select(ENTRIES.c.study).where(ENTRIES.c.seq == 0).order_by(ENTRIES.c.at, ENTRIES.c.study)
                return list(connection.execute(first).scalars())

    def load(self, study: str) -> Ledger | None:
        with self._lock:
            rows = self._rows(study, 0)
            return self._follow(study, None, rows) if rows else None

    def refresh(self, study: str, ledger: Ledger) -> Ledger:
        with self._lock:
            if len(self._links.get(study, ())) < len(ledger):  # it was read through another object
                loaded = self.load(study)
                if loaded is None:
                    raise StoreError(
                        f"the study {study!r} is not in {self.database.where}: has the file been replaced?"
                    )
                return loaded
            return self._follow(study, ledger, self._rows(study, len(ledger)))

    def append(self, study: str, ledger: Ledger | None, *entries: Entry) -> Ledger:
        if not _is_name(study):
            raise StoreError(f"the study cannot be named {study!r}: a name is one line of printable characters")
        with self._lock:
            seq, link = self._tail(study, ledger)
            if entries and seq > 0 and link.format != FORMAT:  # from here on another format: see core/formats.py
                entries = (Note(topic="format", facts={"format": FORMAT}), *entries)
            at = time.time()
            rows, links = [], []
            for number, entry in enumerate(entries, seq):
                ledger = Ledger([entry]) if ledger is None else ledger.append(entry)  # the rules come first
                row, link = write(study, number, entry, link, at)
                rows.append(row)
                links.append(link)
            if ledger is None:
                raise StoreError(f"the study {study!r} cannot begin without an entry")
            if rows:
                self.insert(rows)
                self._links.setdefault(study, [])[seq:] = links
            return ledger

    def lease(self, study: str) -> SqlLease:
        self.database.make_tables()
        return SqlLease(self.database, study, self.load)

    def close(self) -> None:
        """Let go of the database; a store that nobody uses any more does so by itself."""
        self.database.close()

    # single rows, for `repair` too -----------------------------------------------------------------------------------

    def row(self, study: str, seq: int) -> Row | None:
        """One row, unverified."""
        with self.database.transaction() as connection:
            at_key = select(*_ROW).where(ENTRIES.c.study == study, ENTRIES.c.seq == seq)
            found = connection.execute(at_key).one_or_none()
            return None if found is None else Row(*found)

    def count(self, study: str) -> int:
        """How many rows can be seen, sound or not."""
        with self.database.transaction() as connection:
            rows = select(func.count()).select_from(ENTRIES).where(ENTRIES.c.study == study)
            return connection.execute(rows).scalar_one()

    def insert(self, rows: list[Row]) -> None:
        """All of these rows of one study, or none."""
        self.database.make_tables()
        try:
            with self.database.transaction() as connection:
                connection.execute(insert(ENTRIES), [row._asdict() for row in rows])
        except Conflict:
            raise _grown(rows[0].study) from None

    # reading ---------------------------------------------------------------------------------------------------------

    def _rows(self, study: str, start: int) -> list[Row]:
        try:
            if not _is_name(study) or not self.database.has_entries():
                return []
            with self.database.transaction() as connection:
                later = select(*_ROW).where(ENTRIES.c.study == study, ENTRIES.c.seq >= start).order_by(ENTRIES.c.seq)
                return [Row(*row) for row in connection.execute(later)]
        except Damaged:
            from shoestring.stores.repair import good_entries

            good, why = good_entries(self, study)
            raise self._damaged(study, good, why) from None

    def _follow(self, study: str, ledger: Ledger | None, rows: list[Row]) -> Ledger:
        links = self._links.setdefault(study, [])
        count = len(ledger) if ledger is not None else 0
        begin = links[count - 1] if count else BEGIN
        try:
            for _, grown, link in follow(study, rows, ledger, begin):
                ledger = grown
                links[count:] = [link]
                count += 1
        except Unsound as error:
            raise self._damaged(study, count, str(error)) from None
        assert ledger is not None
        return ledger

    def _tail(self, study: str, ledger: Ledger | None) -> tuple[int, Link]:
        """Where the next entry belongs, and what it is chained to. Rows known to lie there already are a conflict."""
        count = len(ledger) if ledger is not None else 0
        if len(self._links.get(study, ())) < count:  # the ledger was read through another object
            self.load(study)
        links = self._links.get(study, [])
        if len(links) != count:
            raise _grown(study)
        return count, links[-1] if links else BEGIN

    def _damaged(self, study: str, good: int, why: str) -> Damaged:
        kept = f"the last good one is entry {good - 1}" if good else "none before it is left"
        command = shlex.join(["shoestring", "repair", study, "--store", self.where, "-o", "NEW"])
        remedy = f"`{command}` copies all up to it" if good else "restore the store from a copy"
        return Damaged(f"the study {study!r} in {self.database.where} is damaged: {why}; {kept}: {remedy}", good - 1)


def _is_name(study: str) -> bool:
    return study != "" and study.isprintable()


def _grown(study: str) -> Conflict:
    return Conflict(f"the study {study!r} has grown since it was read: reload and decide again")
