"""Studies in a database: SQLite in a file of its own, or PostgreSQL for several machines.

One append-only table, keyed by (study, seq). Two writers that both want to write entry n violate that key, and one of
them gets a `Conflict`: that is the whole of compare-and-swap. A row once written is never changed.

The store remembers the checksum of every row it has verified, so whatever others append is verified from there on and
not from the start. A long study is opened from a snapshot (see `snapshots`), and its earlier rows when they are asked for.

The table of entries: rows in and out, as they are. Whether they are sound is for `rows` to say.
"""

from __future__ import annotations

import gc
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial

from sqlalchemy import Connection, func, insert, select

from shoestring.core.ledger.entries import FORMAT, Entry, Note, Opened, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import Conflict, Damaged, StoreError
from shoestring.stores import snapshots
from shoestring.stores.addresses import PASSWORD_VARIABLE
from shoestring.stores.database import ENTRIES, Database
from shoestring.stores.lease import SqlLease
from shoestring.stores.rows import BEGIN, Link, Row, Unsound, follow, verify, write
from shoestring.stores.snapshots import Snapshot
from shoestring.stores.store import Heartbeat


@dataclass
class Chain:
    """What is known of a study's rows."""

    links: list[Link | None] = field(default_factory=list)  # by row; None: in front of a snapshot, not verified
    first_sum: str = ""
    snapshot_at: int = 0  # entries that the last snapshot covers


class Sql:
    """A store at `sqlite:///file.db` or `postgresql://…`. Nothing is made before the first entry is stored."""

    def __init__(self, address: str, *, rescue: bool = False) -> None:
        self.database = Database(address, rescue=rescue)
        self.path = self.database.path  # SQLite's file, None for a server
        self.has_password = self.database.has_password  # which `where` leaves out
        self.address = self.database.address  # opens the same store again, from any folder; with the password, if any
        self.notices = self.database.notices  # what the user should know about it, once it has been used
        self._lock = self.database.lock
        self.table = EntryTable(self.database)
        self._chains: dict[str, Chain] = {}

    @property
    def where(self) -> str:
        return self.database.where

    @property
    def on_trouble(self) -> Callable[[str], None]:
        """Is told, in one line, when the store does not answer and when it does again. By default a warning."""
        return self.database.on_trouble

    @on_trouble.setter
    def on_trouble(self, tell: Callable[[str], None]) -> None:
        self.database.on_trouble = tell

    # the store -------------------------------------------------------------------------------------------------------

    def studies(self) -> list[str]:
        with self._lock:
            return self.table.studies() if self.table.exists() else []

    def load(self, study: str) -> Ledger | None:
        with self._lock, _without_collector():
            ledger = self._load_snapshot(study)
            if ledger is not None:
                return ledger
            rows = self._rows(study, 0)
            return self._follow(study, None, rows) if rows else None

    def refresh(self, study: str, ledger: Ledger) -> Ledger:
        with self._lock:
            if self._link(study, len(ledger)) is None:  # it was read through another object
                loaded = self.load(study)
                if loaded is None:
                    raise StoreError(
                        f"the study {study!r} is not in {self.database.where}: has the file been replaced?"
                    )
                return loaded
            return self._follow(study, ledger, self._rows(study, len(ledger)))

    def append(
        self, study: str, ledger: Ledger | None, *entries: Entry, beat: Heartbeat | None = None, durable: bool = True
    ) -> Ledger:
        if not _is_name(study):
            raise StoreError(f"the study cannot be named {study!r}: a name is one line of printable characters")
        with self._lock:
            seq, link = self._tail(study, ledger)
            if entries and seq > 0 and link.format != FORMAT:  # from here on another format: see core/ledger/formats.py
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
                self.table.insert(rows, beat=beat, durable=durable)
                chain = self._chains.setdefault(study, Chain())
                chain.links[seq:] = links
                chain.first_sum = chain.first_sum or rows[0].sum
                self._keep_snapshot(study, ledger)
            return ledger

    def settle(self, study: str, ledger: Ledger) -> None:
        with self._lock:
            self._keep_snapshot(study, ledger, at_rest=True)

    def lease(self, study: str) -> SqlLease:
        self.database.make_tables()
        return SqlLease(self.database, study, self.load)

    def close(self) -> None:
        """Let go of the database; a store that nobody uses any more does so by itself."""
        self.database.close()

    # reading ---------------------------------------------------------------------------------------------------------

    def _rows(self, study: str, start: int, end: int | None = None) -> list[Row]:
        try:
            return self.table.rows(study, start, end) if _is_name(study) and self.table.exists() else []
        except Damaged:
            from shoestring.stores.repair import good_entries

            good, why = good_entries(self, study)
            raise self._damaged(study, good, why) from None

    def _follow(self, study: str, ledger: Ledger | None, rows: list[Row]) -> Ledger:
        chain = self._chains.setdefault(study, Chain())
        count = len(ledger) if ledger is not None else 0
        begin = self._link(study, count)
        assert begin is not None
        try:
            for row, grown, link in follow(study, rows, ledger, begin):
                ledger = grown
                chain.links[count:] = [link]
                if count == 0:
                    chain.first_sum = row.sum
                count += 1
        except Unsound as error:
            raise self._damaged(study, count, str(error)) from None
        assert ledger is not None
        return ledger

    def _link(self, study: str, count: int) -> Link | None:
        """What the row behind the first `count` is chained to; None: not known here."""
        links = self._chains[study].links if study in self._chains else []
        return BEGIN if count == 0 else links[count - 1] if count <= len(links) else None

    def _tail(self, study: str, ledger: Ledger | None) -> tuple[int, Link]:
        """Where the next entry belongs, and what it is chained to. Rows known to lie there already are a conflict."""
        count = len(ledger) if ledger is not None else 0
        if self._link(study, count) is None:  # the ledger was read through another object
            self.load(study)
        link, chain = self._link(study, count), self._chains.get(study)
        if link is None or len(chain.links if chain else ()) != count:
            raise Conflict(grown(study))
        return count, link

    # snapshots -------------------------------------------------------------------------------------------------------

    def _load_snapshot(self, study: str) -> Ledger | None:
        """The ledger from its snapshot and what came after; None if there is none that can be believed."""
        kept = snapshots.read(self.database, study) if _is_name(study) else None
        if kept is None:
            return None
        fetch = cache(partial(self._earlier, kept))
        books = kept.read_books(lambda n: [entry for entry in fetch() if isinstance(entry, Order)][:n])
        try:
            rows = self._rows(study, kept.seq)
            ((first, opened, _),) = verify(study, self._rows(study, 0, 1))
        except (Damaged, Unsound, ValueError):
            return None  # reading from the beginning says what is wrong
        fits = bool(rows) and kept.fits(first, rows[0])
        if books is None or not fits or not isinstance(opened, Opened):
            return None
        self._chains[study] = Chain([*[None] * kept.seq, kept.link], kept.first_sum, kept.seq + 1)
        ledger = Ledger.restored(opened, books, kept.seq + 1, fetch)
        return self._follow(study, ledger, rows[1:])

    def _earlier(self, kept: Snapshot) -> list[Entry]:
        """The entries that a snapshot covers, each of them verified."""
        entries: list[Entry] = []
        with self._lock, _without_collector():
            rows = self._rows(kept.study, 0, kept.seq + 1)
            try:
                for _, entry, _ in verify(kept.study, rows):
                    entries.append(entry)
            except Unsound as error:
                raise self._damaged(kept.study, len(entries), str(error)) from None
            if len(rows) != kept.seq + 1 or rows[-1].sum != kept.sum:
                raise self._damaged(kept.study, len(entries), "its rows have changed since they were first read")
        return entries

    def _keep_snapshot(self, study: str, ledger: Ledger, *, at_rest: bool = False) -> None:
        chain, count = self._chains.get(study), len(ledger)
        if (
            chain is None
            or len(chain.links) != count
            or not snapshots.is_due(count, chain.snapshot_at, at_rest=at_rest)
        ):
            return
        chain.snapshot_at = count  # also when it fails: it is only a convenience
        link = chain.links[-1]
        assert link is not None
        with suppress(StoreError), _without_collector():
            snapshots.write(self.database, study, ledger.books, count - 1, chain.first_sum, link)

    def _damaged(self, study: str, good: int, why: str) -> Damaged:
        kept = f"the last good one is entry {good - 1}" if good else "none before it is left"
        command = shlex.join(["shoestring", "repair", study, "--store", self.where, "-o", "NEW"])
        secret = f" with the password in {PASSWORD_VARIABLE}" if self.has_password else ""
        remedy = f"`{command}`{secret} copies all up to it" if good else "restore the store from a copy"
        return Damaged(f"the study {study!r} in {self.database.where} is damaged: {why}; {kept}: {remedy}", good - 1)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Many objects are made that all stay: looking for garbage among them again and again would take half the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _is_name(study: str) -> bool:
    return study != "" and study.isprintable()


_ROW = [ENTRIES.c[name] for name in Row._fields]


class EntryTable:
    """All rows of all studies in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def exists(self) -> bool:
        return self._database.has_table(ENTRIES)

    def studies(self) -> list[str]:
        """In the order they were opened."""
        first = select(ENTRIES.c.study).where(ENTRIES.c.seq == 0).order_by(ENTRIES.c.at, ENTRIES.c.study)
        return self._database.attempt(lambda connection: list(connection.execute(first).scalars()))

    def rows(self, study: str, start: int, end: int | None = None) -> list[Row]:
        wanted = select(*_ROW).where(ENTRIES.c.study == study, ENTRIES.c.seq >= start).order_by(ENTRIES.c.seq)
        if end is not None:
            wanted = wanted.where(ENTRIES.c.seq < end)
        return self._database.attempt(lambda connection: [Row(*row) for row in connection.execute(wanted)])

    def row(self, study: str, seq: int) -> Row | None:
        """One row, unverified."""
        at_key = select(*_ROW).where(ENTRIES.c.study == study, ENTRIES.c.seq == seq)
        found = self._database.attempt(lambda connection: connection.execute(at_key).one_or_none())
        return None if found is None else Row(*found)

    def count(self, study: str) -> int:
        """How many rows can be seen, sound or not."""
        rows = select(func.count()).select_from(ENTRIES).where(ENTRIES.c.study == study)
        return self._database.attempt(lambda connection: connection.execute(rows).scalar_one())

    def insert(self, rows: list[Row], *, beat: Heartbeat | None = None, durable: bool = True) -> None:
        """All of these rows of one study, or none; a heartbeat with them."""
        self._database.make_tables()
        tries = 0

        def work(connection: Connection) -> None:
            nonlocal tries
            tries += 1
            connection.execute(insert(ENTRIES), [row._asdict() for row in rows])
            if beat is not None:
                assert isinstance(beat.lease, SqlLease)
                beat.lease.beat_with(connection, rows[-1].seq + 1, beat.running_s)

        try:
            self._database.attempt(work, durable=durable)
        except Conflict:
            last = self.row(rows[-1].study, rows[-1].seq) if tries > 1 else None
            if last is None or last.sum != rows[-1].sum:
                raise Conflict(grown(rows[0].study)) from None
            # They are ours: stored by a try whose answer was lost with the connection.
        if beat is not None:
            assert isinstance(beat.lease, SqlLease)
            beat.lease.charged()


def grown(study: str) -> str:
    return f"the study {study!r} has grown since it was read: reload and decide again"
