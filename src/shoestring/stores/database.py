"""A connection to SQLite or PostgreSQL: transactions, patience with a server that restarts, and what errors mean to the user.

One connection serves all threads of a process, one at a time: the main thread appends, another one beats the heart.

PostgreSQL: from an address to an engine, where its password comes from, and which errors mean that it went away.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

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
    text,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import StaticPool
from sqlalchemy.schema import CreateTable

from shoestring.errors import Conflict, Damaged, MissingExtra, StoreError
from shoestring.stores import sqlite_file as files
from shoestring.stores.addresses import PASSWORD_VARIABLE
from shoestring.stores.sqlite_file import SqliteFile, is_filled

METADATA = MetaData()
ENTRIES = Table(  # see rows.py
    "entries",
    METADATA,
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
    METADATA,
    Column("study", Text, primary_key=True),
    Column("holder", Text, nullable=False),  # drawn anew for each lease; empty once it is given back
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("machine", Text, nullable=False),  # where the pid means something
    Column("started", Text, nullable=False),  # tells the holder from a later process with its pid
    Column("heard_at", Double, nullable=False),
    Column("entries", Integer, nullable=False),  # in the ledger at the last heartbeat
    Column("running", Text, nullable=False),  # {order: seconds, or [seconds, their price]} at the last heartbeat
)
SNAPSHOTS = Table(  # see snapshots.py
    "snapshots",
    METADATA,
    Column("study", Text, primary_key=True),
    Column("seq", Integer, nullable=False),  # the row that the books were written behind
    Column("first_sum", Text, nullable=False),  # checksum of row 0, which says what the study is
    Column("sum", Text, nullable=False),  # checksum of row `seq`
    Column("format", Integer, nullable=False),  # of the rows that follow
    Column("layout", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("seal", Text, nullable=False),  # checksum of all this
)


T = TypeVar("T")
RETRY_S = 60.0  # so long a server that went away is waited for: most restarts take less
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.05, 2.0
_MAKING_TABLES = int.from_bytes(b"shoestr", "big")  # a lock's number, which other programs are unlikely to use


class Database:
    """`path` is SQLite's file, None for a server. `notices`: what the user should know. `on_trouble` is told of retries.

    `rescue`: read a SQLite file as far as it goes, however damaged; for copies only.
    """

    def __init__(self, address: str, *, rescue: bool = False) -> None:
        self.path: Path | None = None
        self.notices: list[str] = []
        self.on_trouble: Callable[[str], None] = warnings.warn
        self.has_password = False
        self._file: SqliteFile | None = None
        if address.partition("://")[0].split("+")[0] == "sqlite":
            self._file = SqliteFile.at(address, rescue=rescue)
            self.path = self._file.path
            self.where = str(self.path)
            address = f"sqlite:///{self.path}" + (f"?{self._file.options}" if self._file.options else "")
            # No bound method of ours: the engine must not keep this object alive, or it would never be closed.
            self._engine = create_engine("sqlite://", creator=self._file.connect, poolclass=StaticPool)
        else:
            url = read_server_address(address)
            self.has_password = url.password is not None
            self.where = url._replace(password=None).render_as_string()
            self._engine = make_server_engine(url)
        self.address = address  # as it was given, a password included; the file of SQLite with its whole path
        self._connection: Connection | None = None
        self._tables: set[str] = set()  # known to be there
        self._made_tables, self._was_connected, self._is_durable = False, False, True
        self.lock = threading.RLock()

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[Connection]:
        """A connection whose work is stored as a whole or not at all; what the driver raises comes out as our errors.

        What is not `durable` does not wait for the disk: a power cut may take it, but never something before it.
        """
        with self.lock:
            try:
                if self._connection is None:
                    self._connection = self._engine.connect()
                    self._end = weakref.finalize(self, _close, self._connection, self._engine)
                    self._is_durable = True
                with self._connection.begin():
                    self._wait_for_disk(self._connection, durable)
                    yield self._connection
                self._was_connected = True
            except IntegrityError:
                raise Conflict(f"another process wrote to {self.where} first") from None
            except DBAPIError as error:
                raise self._explained(error) from None
            except SQLAlchemyError as error:
                self.close()
                raise StoreError(f"the store {self.where} failed: {' '.join(str(error).split())}") from None

    def attempt(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Do this work in a transaction of its own; again, for up to a minute, while the store is away or held by others.

        Work that may have been stored before the connection broke must be able to tell: see `Sql.insert`.
        """
        since: float | None = None
        pause_s = _FIRST_RETRY_S
        while True:
            try:
                with self.transaction(durable=durable) as connection:
                    done = work(connection)
            except Away as error:
                now = time.monotonic()
                if since is None:
                    since = now
                    self.on_trouble(f"{error}. Trying again for {RETRY_S:.0f} s; what is under way goes on")
                if now + pause_s > since + RETRY_S:
                    raise
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_RETRY_S)
            else:
                if since is not None:
                    self.on_trouble(f"the store {self.where} answers again, after {time.monotonic() - since:.0f} s")
                return done

    def _wait_for_disk(self, connection: Connection, durable: bool) -> None:
        if self.path is None:
            if not durable:
                connection.execute(text("SET LOCAL synchronous_commit = off"))
        elif durable != self._is_durable and self._file is not None and self._file.has_wal:
            # Without a write-ahead log a commit that does not wait could break the file in a power cut.
            connection.exec_driver_sql(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._is_durable = durable

    def has_table(self, table: Table) -> bool:
        """Whether there is a table to read; asking makes neither file nor table, and leaves another program's file alone."""
        if table.name not in self._tables and self.path is not None and not is_filled(self.path):
            return False
        if table.name in self._tables or self.attempt(lambda connection: inspect(connection).has_table(table.name)):
            self._tables.add(table.name)
        return table.name in self._tables

    def make_tables(self) -> None:
        if self._made_tables:
            return
        if self._file is not None:
            self._file.require_writable()
            self._log_ahead(self._file)
        # One transaction a table: in SQLite, reading that one is there and then writing another fails beside other writers.
        for table in METADATA.sorted_tables:
            self.attempt(partial(self._make_table, table))
            self._tables.add(table.name)
        self._made_tables = True

    def _make_table(self, table: Table, connection: Connection) -> None:
        if not self.path:
            # "If not exists" does not help two processes that make a PostgreSQL table at one moment: take turns.
            connection.execute(select(func.pg_advisory_xact_lock(_MAKING_TABLES)))
        connection.execute(CreateTable(table, if_not_exists=True))

    def _log_ahead(self, file: SqliteFile) -> None:
        deadline = time.monotonic() + files.BUSY_S
        while True:
            try:
                with self.transaction() as connection:
                    journal = connection.exec_driver_sql("PRAGMA journal_mode=WAL").scalar_one()
                break
            except Away:  # for this statement SQLite does not wait by itself: somebody else makes the same file now
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        file.has_wal = journal == "wal"
        if not file.has_wal:
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
            is_away = self._was_connected and is_gone(error)  # an address that never worked is a wrong one
            if is_away:
                self.close()
            kind = Away if is_away else StoreError
            return kind(f"the store {self.where} failed: {said}: check the address, and that its server runs")
        code = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the upper bits are details
        if code == sqlite3.SQLITE_CORRUPT or said.startswith("Could not decode"):
            return Damaged(f"{self.where} is damaged: {said}: `shoestring repair STUDY -o NEW` copies what is good", -1)
        kind = Away if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) else StoreError
        return kind(f"the store {self.where} failed: {said}: {_REMEDIES.get(code, 'give another --store')}")


class Away(StoreError):
    """Another program holds the file, or the server is not there: it may be soon."""


_REMEDIES = {
    sqlite3.SQLITE_FULL: "free some space on its disk and give the same command again; what was stored is safe",
    sqlite3.SQLITE_IOERR: "check its disk and give the same command again; what was stored is safe",
    sqlite3.SQLITE_BUSY: "another program holds it; close that one and give the same command again",
    sqlite3.SQLITE_LOCKED: "another program holds it; close that one and give the same command again",
    sqlite3.SQLITE_READONLY: "make the file and its folder writable, or work on a copy",
    sqlite3.SQLITE_CANTOPEN: "its folder must exist, and both must be yours to read and write",
    sqlite3.SQLITE_NOTADB: "the file is something else, or its very beginning is destroyed; give another --store",
}


def _close(connection: Connection, engine: Engine) -> None:
    connection.close()
    engine.dispose()


_HIDDEN = "***"  # what other programs print in place of a password
_CONNECT_S = 30
_GONE = ("57P01", "57P02", "57P03", "08")  # SQLSTATE: shutting down, crashed, starting up, connection lost


def read_server_address(address: str) -> URL:
    """The address with its password: its own, or that of the environment."""
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        raise StoreError(
            f"the store {address!r} is not an address: write sqlite:///file.db or postgresql://…"
        ) from None
    if url.get_backend_name() != "postgresql":
        raise StoreError(f"the store {address!r} must begin with sqlite:/// or postgresql://")
    if url.password in (None, "", _HIDDEN):
        password = os.environ.get(PASSWORD_VARIABLE)
        if password is None and url.password == _HIDDEN:
            raise StoreError(f"the store {address!r} hides its password: put it into {PASSWORD_VARIABLE}")
        url = url.set(password=password)
    return url.set(drivername="postgresql+psycopg")


def make_server_engine(url: URL) -> Engine:
    try:
        return create_engine(url, connect_args={"connect_timeout": _CONNECT_S})
    except ModuleNotFoundError:
        raise MissingExtra("the PostgreSQL store", "psycopg", "postgresql") from None


def is_gone(error: DBAPIError) -> bool:
    """Whether the server has gone away, and may come back: not when it answers that it will not do something."""
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return str(state).startswith(_GONE)
    return error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)
