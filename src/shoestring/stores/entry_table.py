"""The table of entries: rows in and out, as they are. Whether they are sound is for `rows` to say."""

from __future__ import annotations

from sqlalchemy import Connection, func, insert, select

from shoestring.errors import Conflict
from shoestring.stores.database import Database
from shoestring.stores.lease import SqlLease
from shoestring.stores.rows import Row
from shoestring.stores.store import Heartbeat
from shoestring.stores.tables import ENTRIES

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
