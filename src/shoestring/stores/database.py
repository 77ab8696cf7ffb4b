"""A connection to SQLite or PostgreSQL, the two tables, and what the drivers' errors mean to the user.

One connection serves all threads of a process, one at a time: the main thread appends, another one beats the heart.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Double,
    Engine,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
    func,
    inspect,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.pool import StaticPool
from sqlalchemy.schema import CreateTable

from shoestring.errors import Conflict, Damaged, MissingExtra, StoreError

BUSY_S = 30.0  # so long a writer waits for another one
_MAKING_TABLES = int.from_bytes(b"shoestr", "big")  # a lock's number, which other programs are unlikely to use
_METADATA = MetaData()
ENTRIES = Table(  # see rows.py
    "entries",
    _METADATA,
    Column("study", Text, primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("sum", Text, nullable=False),
    Column("at", Double, nullable=False),
    sqlite_with_rowid=False,  # the key is the table: one tree to write, one tree that can break
)
LEASES = Table(  # see lease.py
    "leases",
    _METADATA,
    Column("study", Text, primary_key=True),
    Column("holder", Text, nullable=False),  # drawn anew for each lease; empty once it is given back
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("machine", Text, nullable=False),  # where the pid means something
    Column("started", Text, nullable=False),  # tells the holder from a later process with its pid
    Column("heard_at", Double, nullable=False),
    Column("entries", Integer, nullable=False),  # in the ledger at the last heartbeat
    Column("running", Text, nullable=False),  # {order: seconds} at the last heartbeat
)


class Database:
    """`path` is SQLite's file, None for a server. `notices`: what the user should know.

    `rescue`: read a SQLite file as far as it goes, however damaged; for copies only.
    """

    def __init__(self, address: str, *, rescue: bool = False) -> None:
        scheme, _, rest = address.partition("://")
        self.path: Path | None = None
        self.notices: list[str] = []
        if scheme.split("+")[0] == "sqlite":
            name, _, options = rest.removeprefix("/").partition("?")  # the options are SQLite's own, such as vfs=
            if not rest.startswith("/") or name in ("", ":memory:"):
                raise StoreError(f"the store {address!r} names no file: write sqlite:///file.db")
            self.path = Path(name).resolve()
            self.where = str(self.path)
            address = f"sqlite:///{self.path}" + (f"?{options}" if options else "")
            # No bound method: the engine must not keep this object alive, or it would never be closed.
            opener = partial(_open_file, f"file:{quote(self.where)}?{options}", rescue)
            self._engine = create_engine("sqlite://", creator=opener, poolclass=StaticPool)
        else:
            url = _server_url(address)
            self.where = url.render_as_string(hide_password=True)
            self._engine = _server_engine(url)
        self.address = address  # as it was given, a password included; the file of SQLite with its whole path
        self._connection: Connection | None = None
        self._has_entries, self._made_tables = False, False
        self.lock = threading.RLock()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A connection whose work is stored as a whole or not at all; what the driver raises comes out as our errors."""
        with self.lock:
            try:
                if self._connection is None:
                    self._connection = self._engine.connect()
                    self._end = weakref.finalize(self, _close, self._connection, self._engine)
                with self._connection.begin():
                    yield self._connection
            except IntegrityError:
                raise Conflict(f"another process wrote to {self.where} first") from None
            except DBAPIError as error:
                raise self._explained(error) from None

    def has_entries(self) -> bool:
        """Whether there is a table to read; asking makes neither file nor table, and leaves another program's file alone."""
        if not self._has_entries and (self.path is None or _is_filled(self.path)):
            with self.transaction() as connection:
                self._has_entries = inspect(connection).has_table(ENTRIES.name)
        return self._has_entries

    def make_tables(self) -> None:
        if self._made_tables:
            return
        if self.path:
            self._log_ahead()
        # One transaction a table: in SQLite, reading that one is there and then writing another fails beside other writers.
        for table in _METADATA.sorted_tables:
            with self.transaction() as connection:
                if not self.path:
                    # "If not exists" does not help two processes that make a PostgreSQL table at one moment: take turns.
                    connection.execute(select(func.pg_advisory_xact_lock(_MAKING_TABLES)))
                connection.execute(CreateTable(table, if_not_exists=True))
        self._has_entries = self._made_tables = True

    def _log_ahead(self) -> None:
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                with self.transaction() as connection:
                    journal = connection.exec_driver_sql("PRAGMA journal_mode=WAL").scalar_one()
                break
            except _Busy:  # for this statement SQLite does not wait by itself: somebody else makes the same file now
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        if journal != "wal":
            self.notices.append(
                f"{self.path} lies on a disk without write-ahead logging (network disks have none): "
                "a rollback journal is used, which is as safe but slower"
            )

    def now(self, connection: Connection) -> float:
        """The one clock that all users of the database can read: the server's, or that of the file's machine."""
        if self.path:
            return time.time()
        return float(connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())

    def close(self) -> None:
        with self.lock:
            if self._connection is not None:
                self._end()
                self._connection = None

    def _explained(self, error: DBAPIError) -> StoreError:
        said = " ".join(str(error.orig).split())
        if not self.path:
            return StoreError(f"the store {self.where} failed: {said}: check the address, and that its server runs")
        code = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the upper bits are details
        if code == sqlite3.SQLITE_CORRUPT or said.startswith("Could not decode"):
            return Damaged(f"{self.where} is damaged: {said}: `shoestring repair STUDY -o NEW` copies what is good", -1)
        kind = _Busy if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) else StoreError
        return kind(f"the store {self.where} failed: {said}: {_REMEDIES.get(code, 'give another --store')}")


class _Busy(StoreError):
    """Another program holds the file."""


_REMEDIES = {
    sqlite3.SQLITE_FULL: "free some space on its disk and give the same command again; what was stored is safe",
    sqlite3.SQLITE_IOERR: "check its disk and give the same command again; what was stored is safe",
    sqlite3.SQLITE_BUSY: "another program holds it; close that one and give the same command again",
    sqlite3.SQLITE_LOCKED: "another program holds it; close that one and give the same command again",
    sqlite3.SQLITE_READONLY: "make the file and its folder writable, or work on a copy",
    sqlite3.SQLITE_CANTOPEN: "its folder must exist, and both must be yours to read and write",
    sqlite3.SQLITE_NOTADB: "the file is something else, or its very beginning is destroyed; give another --store",
}


def _open_file(name: str, rescue: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(name, uri=True, timeout=BUSY_S, check_same_thread=False)
    try:
        # What is rescued may be a file cut short, which is otherwise not read at all.
        connection.execute("PRAGMA writable_schema=ON" if rescue else "PRAGMA synchronous=FULL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _is_filled(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError:
        return True  # it may be there: let SQLite say what is wrong


def _server_url(address: str) -> URL:
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        raise StoreError(
            f"the store {address!r} is not an address: write sqlite:///file.db or postgresql://…"
        ) from None
    if url.get_backend_name() != "postgresql":
        raise StoreError(f"the store {address!r} must begin with sqlite:/// or postgresql://")
    return url.set(drivername="postgresql+psycopg")


def _server_engine(url: URL) -> Engine:
    try:
        return create_engine(url, connect_args={"connect_timeout": int(BUSY_S)})
    except ModuleNotFoundError:
        raise MissingExtra("the PostgreSQL store", "psycopg", "postgresql") from None


def _close(connection: Connection, engine: Engine) -> None:
    connection.close()
    engine.dispose()
