"""A ledger store in a database: a SQLite file, or PostgreSQL for several machines.

An append passes three layers. `study/journal.py` knows the newest ledger of the study in this process. `SqlStore` applies the
entries to the ledger, which checks the rules, and then turns them into rows. `Database` runs one transaction, and repeats it
while the database does not answer.

There is one append-only table with the key (study, seq). If two writers want to write entry n, one of them violates the key and
gets a `Conflict`, so no other lock is needed. A row is never changed after it was written, but a whole study may be deleted or
renamed.

The store remembers the checksum of every row that it has verified. So only the rows that others append are verified, not all rows
again. A long study is opened from a snapshot (see `snapshots.py`); its earlier rows are read when they are needed.
"""

from __future__ import annotations

import gc
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial

from sqlalchemy import Connection, delete, func, insert, select, update

from shoestring.core.ledger.entries import Entry, Order, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import Conflict, DamagedStore, StoreError
from shoestring.stores import snapshots
from shoestring.stores.addresses import PASSWORD_VARIABLE
from shoestring.stores.database import ENTRIES, LEASES, SNAPSHOTS, Database
from shoestring.stores.lease import SqlLease
from shoestring.stores.ledger_store import Heartbeat, miss_study, refuse_name
from shoestring.stores.rows import NO_SUM, BadRow, Row, checksum, follow, verify, write
from shoestring.stores.snapshots import Snapshot

_ROW = [ENTRIES.c[name] for name in Row._fields]


@dataclass
class _KnownRows:
    """What this store knows about the rows of one study."""

    sums: list[str | None] = field(default_factory=list)  # checksum by row; None: covered by a snapshot, not verified
    first_sum: str = ""
    snapshot_at: int = 0  # number of entries that the last snapshot covers


class SqlStore:
    """A ledger store at `sqlite:///file.db` or `postgresql://…`. Nothing is created before the first entry is stored.

    Parameters
    ----------
    address : str
        The address of the database.
    rescue : bool
        Read as much as possible of a damaged SQLite file. Use this only for copies.

    Raises
    ------
    StoreError
        If the address cannot be used.
    """

    def __init__(self, address: str, *, rescue: bool = False) -> None:
        self.database = Database(address, rescue=rescue)
        self.path = self.database.path  # the file of SQLite; None for a server
        self.has_password = self.database.has_password  # whether the address has a password, which `where` leaves out
        self.address = self.database.address  # opens the same store from any folder; includes the password
        self.notices = self.database.notices  # texts for the user; filled when the store is used
        self._lock = self.database.lock
        self._known: dict[str, _KnownRows] = {}

    @property
    def where(self) -> str:
        """The address, for messages: without a password."""
        return self.database.where

    @property
    def on_outage(self) -> Callable[[str], None]:
        """The function that is called with one line when the store stops or starts to answer; by default it issues a warning."""
        return self.database.on_outage

    @on_outage.setter
    def on_outage(self, report: Callable[[str], None]) -> None:
        self.database.on_outage = report

    def find_times(self, study: str) -> tuple[float, float] | None:
        """Return when the first and the last entry were stored, in seconds since 1970; None if there is no such study."""
        times = select(func.min(ENTRIES.c.at), func.max(ENTRIES.c.at)).where(ENTRIES.c.study == study)
        with self._lock:
            if not self.database.has_table(ENTRIES):
                return None
            began, last = self.database.attempt(lambda connection: connection.execute(times).one())
        return None if began is None else (began, last)

    # the contract of a ledger store ----------------------------------------------------------------------------------

    def studies(self) -> list[str]:
        """Return the names of all studies, in the order in which they were opened."""
        first = select(ENTRIES.c.study).where(ENTRIES.c.seq == 0).order_by(ENTRIES.c.at, ENTRIES.c.study)
        with self._lock:
            if not self.database.has_table(ENTRIES):
                return []
            return self.database.attempt(lambda connection: list(connection.execute(first).scalars()))

    def load(self, study: str) -> Ledger | None:
        """Return the study's ledger, with every checksum verified; None if there is no such study."""
        with self._lock, _without_collector():
            # These are read before the rows, because others may append meanwhile.
            snapshot = snapshots.read(self.database, study) if _is_name(study) else None
            least = self._read_least_length(study, snapshot)
            ledger = self._load_snapshot(snapshot) if snapshot is not None else None
            if ledger is None and (rows := self._read_rows(study, 0)):
                ledger = self._follow(study, None, rows)
            if (count := len(ledger) if ledger is not None else 0) < least:
                raise self._describe_damage(study, count, f"entry {count} is missing, of {least:,} that were stored")
            return ledger

    def refresh(self, study: str, ledger: Ledger) -> Ledger:
        """Return the ledger with all entries that others have appended since it was read."""
        with self._lock:
            if (last_sum := self._last_sum(study, len(ledger))) is None:  # the ledger was read through another object
                if (loaded := self.load(study)) is None:
                    raise miss_study(study, self)
                return loaded
            if ledger.is_consumed:  # another user of this ledger in the same process has appended to it
                ledger = ledger.fork()
            rows = self._read_rows(
                study, len(ledger) - 1
            )  # with the last known row: the study may be deleted or renamed
            is_gone = rows[0].sum != last_sum if rows else not self._read_rows(study, 0, 1)
            if is_gone:
                raise miss_study(study, self)
            grown = self._follow(study, ledger, rows[1:])
            if (count := len(grown)) < (stored := len(self._known[study].sums)):
                raise self._describe_damage(study, count, f"entry {count} is missing, of {stored:,} that were stored")
            return grown

    def append(
        self,
        study: str,
        ledger: Ledger | None,
        *entries: Entry,
        heartbeat: Heartbeat | None = None,
        durable: bool = True,
    ) -> Ledger:
        """Store all of these entries after the last entry of `ledger`, or none; see `LedgerStore.append`."""
        _require_name(study)
        with self._lock:
            seq, previous = self._find_end(study, ledger)
            at, grown, rows = time.time(), ledger, []
            for number, entry in enumerate(entries, seq):
                # The entry is only proposed: if the rows cannot be stored, `ledger` can still be used.
                grown = Ledger([entry]) if grown is None else grown.propose(entry)
                row = write(study, number, entry, previous, at)
                previous = row.sum
                rows.append(row)
            if grown is None:
                raise StoreError(f"the study {study!r} cannot begin without an entry")
            if rows:
                self.insert_rows(rows, heartbeat=heartbeat, durable=durable)
                known = self._known.setdefault(study, _KnownRows())
                known.sums[seq:] = [row.sum for row in rows]
                known.first_sum = known.first_sum or rows[0].sum
                if ledger is not None:
                    ledger.consume()
                self._write_due_snapshot(study, grown)
            return grown

    def finish_run(self, study: str, ledger: Ledger) -> None:
        """Write a snapshot if the study has grown enough, so that it opens quickly next time."""
        with self._lock:
            self._write_due_snapshot(study, ledger, run_ended=True)

    def rename(self, study: str, new: str) -> None:
        """Give a study another name: its rows are written again, because their checksums include the name."""
        _require_name(new)
        with self._lock:
            if self.load(study) is None:  # or raises an error if the study is damaged
                raise miss_study(study, self)
            renamed, previous = [], NO_SUM
            for row in self._read_rows(study, 0):
                previous = checksum(previous, new, row.seq, row.kind, row.body, row.at)
                renamed.append(row._replace(study=new, sum=previous))

            def work(connection: Connection) -> None:
                connection.execute(delete(LEASES).where(LEASES.c.study == new))  # of a study that never began
                connection.execute(insert(ENTRIES), [row._asdict() for row in renamed])
                if connection.execute(delete(ENTRIES).where(ENTRIES.c.study == study)).rowcount != len(renamed):
                    raise _conflict(study)
                connection.execute(delete(SNAPSHOTS).where(SNAPSHOTS.c.study.in_((study, new))))
                # The seconds under way of a holder that died are still to be charged.
                connection.execute(update(LEASES).where(LEASES.c.study == study).values(study=new, holder=""))

            try:
                self.database.attempt(work)
            except Conflict:
                if new in self.studies():
                    raise refuse_name(study, new, self) from None
                raise
            self._known.pop(study, None)

    def delete(self, study: str) -> None:
        """Delete a study with all its rows."""

        def work(connection: Connection) -> None:
            for table in (ENTRIES, SNAPSHOTS, LEASES):
                connection.execute(delete(table).where(table.c.study == study))

        with self._lock:
            self.database.make_tables()
            self.database.attempt(work)
            self._known.pop(study, None)

    def lease(self, study: str) -> SqlLease:
        """Return the lease of this study; raise StudyInUse if a living process has it."""
        self.database.make_tables()
        self.database.check_file()
        return SqlLease(self.database, study, self.load)

    def close(self) -> None:
        """Close the connection to the database. It is also closed when the store is deleted."""
        self.database.close()

    # rows without checks ---------------------------------------------------------------------------------------------

    def insert_rows(self, rows: list[Row], *, heartbeat: Heartbeat | None = None, durable: bool = True) -> None:
        """Store all of these rows of one study, or none, and a heartbeat with them."""
        self.database.make_tables()
        tries = 0

        def work(connection: Connection) -> None:
            nonlocal tries
            tries += 1
            connection.execute(insert(ENTRIES), [row._asdict() for row in rows])
            if heartbeat is not None:
                assert isinstance(heartbeat.lease, SqlLease)
                heartbeat.lease.beat_with(connection, rows[-1].seq + 1, *heartbeat[1:])

        try:
            self.database.attempt(work, durable=durable)
        except Conflict:
            last = self.read_row(rows[-1].study, rows[-1].seq) if tries > 1 else None
            if last is None or last.sum != rows[-1].sum:
                raise _conflict(rows[0].study) from None
            # The rows are stored: an earlier attempt succeeded, but its answer was lost with the connection.
        if heartbeat is not None:
            assert isinstance(heartbeat.lease, SqlLease)
            heartbeat.lease.mark_charged()

    def read_row(self, study: str, seq: int) -> Row | None:
        """Return one row without verifying it; None if there is none."""
        at_key = select(*_ROW).where(ENTRIES.c.study == study, ENTRIES.c.seq == seq)
        found = self.database.attempt(lambda connection: connection.execute(at_key).one_or_none())
        return None if found is None else Row(*found)

    def count_rows(self, study: str) -> int:
        """Return the number of rows of this study, damaged ones included."""
        rows = select(func.count()).select_from(ENTRIES).where(ENTRIES.c.study == study)
        return self.database.attempt(lambda connection: connection.execute(rows).scalar_one())

    def read_least_length(self, study: str) -> int:
        """Return how many entries the study has at least, as far as its last heartbeat and its snapshot know."""
        return self._read_least_length(study, snapshots.read(self.database, study))

    def _read_least_length(self, study: str, snapshot: Snapshot | None) -> int:
        covered = snapshot.seq + 1 if snapshot is not None else 0
        wanted = select(LEASES.c.entries).where(LEASES.c.study == study)
        try:
            if not _is_name(study) or not self.database.has_table(LEASES):
                return covered
            leased = self.database.attempt(lambda connection: connection.execute(wanted).scalar_one_or_none())
        except DamagedStore:
            return covered  # a heartbeat in a damaged part of the file must not block the study
        return max(covered, leased) if isinstance(leased, int) else covered

    def _read_rows(self, study: str, start: int, end: int | None = None) -> list[Row]:
        wanted = select(*_ROW).where(ENTRIES.c.study == study, ENTRIES.c.seq >= start).order_by(ENTRIES.c.seq)
        if end is not None:
            wanted = wanted.where(ENTRIES.c.seq < end)
        try:
            if not _is_name(study) or not self.database.has_table(ENTRIES):
                return []
            return self.database.attempt(lambda connection: [Row(*row) for row in connection.execute(wanted)])
        except DamagedStore:
            from shoestring.stores.repair import count_good_entries

            n_good, reason = count_good_entries(self, study)
            raise self._describe_damage(study, n_good, reason) from None

    # verified rows ---------------------------------------------------------------------------------------------------

    def _follow(self, study: str, ledger: Ledger | None, rows: list[Row]) -> Ledger:
        """Return the ledger extended by these rows; `ledger` is consumed if all rows are good."""
        known = self._known.setdefault(study, _KnownRows())
        count = len(ledger) if ledger is not None else 0
        previous = self._last_sum(study, count)
        assert previous is not None
        grown = ledger
        try:
            for row, after in follow(study, rows, ledger, previous):
                grown = after
                known.sums[count:] = [row.sum]
                if count == 0:
                    known.first_sum = row.sum
                count += 1
        except BadRow as error:
            raise self._describe_damage(study, count, str(error)) from None
        assert grown is not None
        if ledger is not None and grown is not ledger:
            ledger.consume()
        return grown

    def _last_sum(self, study: str, count: int) -> str | None:
        """Return the checksum of the last of the first `count` rows; None if this object does not know it."""
        sums = self._known[study].sums if study in self._known else []
        return NO_SUM if count == 0 else sums[count - 1] if count <= len(sums) else None

    def _find_end(self, study: str, ledger: Ledger | None) -> tuple[int, str]:
        """Return the number of the next entry and the checksum before it; raise Conflict if that entry is known to exist."""
        count = len(ledger) if ledger is not None else 0
        if self._last_sum(study, count) is None:  # the ledger was read through another object
            self.load(study)
        previous, known = self._last_sum(study, count), self._known.get(study)
        if previous is None or len(known.sums if known else ()) != count:
            raise _conflict(study)
        return count, previous

    # snapshots -------------------------------------------------------------------------------------------------------

    def _load_snapshot(self, found: Snapshot) -> Ledger | None:
        """Return the ledger made from a snapshot and the later rows; None if the snapshot does not fit the rows."""
        study = found.study
        fetch = cache(partial(self._read_covered_entries, found))
        state = found.read_state(lambda n: [entry for entry in fetch() if isinstance(entry, Order)][:n])
        try:
            rows = self._read_rows(study, found.seq)
            ((first, definition),) = verify(study, self._read_rows(study, 0, 1))
        except (DamagedStore, BadRow, ValueError):
            return None  # reading from the first row will show what is wrong
        fits = bool(rows) and found.fits(first, rows[0])
        if state is None or not fits or not isinstance(definition, StudyDefinition):
            return None
        self._known[study] = _KnownRows([*[None] * found.seq, found.sum], found.first_sum, found.seq + 1)
        ledger = Ledger.restore(definition, state, found.seq + 1, fetch)
        return self._follow(study, ledger, rows[1:])

    def _read_covered_entries(self, snapshot: Snapshot) -> list[Entry]:
        """Verify and return the entries that a snapshot covers."""
        entries: list[Entry] = []
        with self._lock, _without_collector():
            rows = self._read_rows(snapshot.study, 0, snapshot.seq + 1)
            if not rows:
                raise miss_study(snapshot.study, self)
            try:
                for _, entry in verify(snapshot.study, rows):
                    entries.append(entry)
            except BadRow as error:
                raise self._describe_damage(snapshot.study, len(entries), str(error)) from None
            if len(rows) != snapshot.seq + 1 or rows[-1].sum != snapshot.sum:
                raise self._describe_damage(
                    snapshot.study, len(entries), "its rows have changed since they were first read"
                )
        return entries

    def _write_due_snapshot(self, study: str, ledger: Ledger, *, run_ended: bool = False) -> None:
        known, count = self._known.get(study), len(ledger)
        if (
            known is None
            or len(known.sums) != count
            or not snapshots.is_due(count, known.snapshot_at, run_ended=run_ended)
        ):
            return
        known.snapshot_at = count  # also if writing fails, because the study can be opened without a snapshot
        last_sum = known.sums[-1]
        assert last_sum is not None
        with suppress(StoreError), _without_collector():
            snapshots.write(self.database, study, ledger.state, count - 1, known.first_sum, last_sum)

    def _describe_damage(self, study: str, n_good: int, reason: str) -> DamagedStore:
        last_good = f"the last good one is entry {n_good - 1}" if n_good else "none before it is left"
        command = shlex.join(["shoestring", "repair", "--study", study, "--store", self.where, "-o", "NEW"])
        secret = f" with the password in {PASSWORD_VARIABLE}" if self.has_password else ""
        remedy = f"`{command}`{secret} copies all entries up to it" if n_good else "restore the store from a copy"
        text = f"the study {study!r} in {self.database.where} is damaged: {reason}; {last_good}: {remedy}"
        return DamagedStore(text, n_good - 1)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Switch Python's garbage collector off: all objects that are made here stay, and searching them would take half the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _is_name(study: str) -> bool:
    return study != "" and study.isprintable()


def _require_name(study: str) -> None:
    if not _is_name(study):
        raise StoreError(f"the study cannot be named {study!r}: a name is one line of printable characters")


def _conflict(study: str) -> Conflict:
    return Conflict(f"the study {study!r} has grown since it was read: reload and decide again")
