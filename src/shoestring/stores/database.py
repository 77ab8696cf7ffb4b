"""The database of a ledger store, SQLite or PostgreSQL: its tables, its connection, transactions that are repeated, and errors.

All threads of a process share one connection and use it one at a time: the main thread appends, another one writes heartbeats.
Work is repeated for up to a minute while a server restarts or another program locks the file. Errors of the driver are turned
into errors of this package, with a remedy. The last part of the file is for PostgreSQL: it turns an address into an engine, finds
the password, and recognises errors that mean that the server has gone away.
"""

from __future__ import annotations

import os
import shlex
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

from shoestring.core.values.credentials import HIDDEN, hide_credentials, is_secret_name
from shoestring.errors import Conflict, DamagedStore, MissingExtra, StoreError
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
    sqlite_with_rowid=False,  # rows are stored in the index of the key: one tree to write, one tree that can be damaged
)
LEASES = Table(  # see lease.py
    "leases",
    METADATA,
    Column("study", Text, primary_key=True),
    Column("holder", Text, nullable=False),  # a random text for each lease; empty after the lease was released
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("machine", Text, nullable=False),  # the machine and namespace in which the pid is valid
    Column("started", Text, nullable=False),  # distinguishes the holder from a later process with its pid
    Column("heard_at", Double, nullable=False),
    Column("entries", Integer, nullable=False),  # number of entries in the ledger at the last heartbeat
    Column("running", Text, nullable=False),  # {order: seconds, or [seconds, price factor]} at the last heartbeat
)
SNAPSHOTS = Table(  # see snapshots.py
    "snapshots",
    METADATA,
    Column("study", Text, primary_key=True),
    Column("seq", Integer, nullable=False),  # the last row that the snapshot includes
    Column("first_sum", Text, nullable=False),  # checksum of row 0
    Column("sum", Text, nullable=False),  # checksum of row `seq`
    Column("layout", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("seal", Text, nullable=False),  # checksum of the other columns
)


T = TypeVar("T")
RETRY_S = 60.0  # how long work is repeated while the server does not answer; most restarts take less
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.05, 2.0
_CHECK_S = 2.0  # how long the structure of a SQLite file is checked; a file of a gigabyte takes about this long
_CHECK_INSTRUCTIONS = 10_000  # of SQLite's machine, between two looks at the clock
_TABLES_LOCK = int.from_bytes(b"shoestr", "big")  # the number of a lock that other programs are unlikely to use


class Database:
    """A connection to the database at an address.

    `path` is the file of SQLite, None for a server. `notices` are texts for the user. `on_outage` is called with a text
    when the database does not answer, and when it answers again. With `rescue`, as much as possible of a damaged SQLite file is
    read; use it only for copies.
    """

    def __init__(self, address: str, *, rescue: bool = False) -> None:
        self.path: Path | None = None
        self.notices: list[str] = []
        self.on_outage: Callable[[str], None] = warnings.warn
        self.has_password = False
        self._file: SqliteFile | None = None
        if address.partition("://")[0].split("+")[0] == "sqlite":
            self._file = SqliteFile.at(address, rescue=rescue)
            self.path = self._file.path
            self.where = str(self.path)
            address = f"sqlite:///{self.path}" + (f"?{self._file.options}" if self._file.options else "")
            # The creator is not a method of this object, or the engine would refer to the object, which would never be deleted.
            self._engine = create_engine("sqlite://", creator=self._file.connect, poolclass=StaticPool)
        else:
            url = read_server_address(address)
            self.has_password = url.password is not None
            secrets = [name for name in url.query if is_secret_name(name)]
            self.where = url.difference_update_query(secrets)._replace(password=None).render_as_string()
            self._engine = make_server_engine(url)
        self.address = address  # as given, password included; for SQLite with the whole path of the file
        self._connection: Connection | None = None
        self._tables: set[str] = set()  # names of tables that are known to exist
        self._made_tables, self._was_connected, self._is_durable = False, False, True
        self._identity: tuple[int, int] | None = (
            None  # of the file that this object writes to; see `sqlite_file.identify`
        )
        self._loss: StoreLost | None = None
        self.lock = threading.RLock()

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[Connection]:
        """Yield a connection whose work is stored completely or not at all. Errors of the driver become errors of this package.

        A transaction that is not `durable` does not wait for the disk: a power cut may undo it, but nothing before it.
        """
        with self.lock:
            self._require_file()
            try:
                if self._connection is None:
                    self._connection = self._engine.connect()
                    self._end = weakref.finalize(self, _close, self._connection, self._engine)
                    self._is_durable = True
                with self._connection.begin():
                    self._wait_for_disk(self._connection, durable)
                    yield self._connection
                self._was_connected = True
                if self._made_tables and self.path is not None and self._identity is None:
                    self._identity = self._identify(self.path)
            except IntegrityError:
                raise Conflict(f"another process wrote to {self.where} first") from None
            except DBAPIError as error:
                raise self._explain(error) from None
            except SQLAlchemyError as error:
                self.close()
                raise StoreError(f"the store {self.where} failed: {' '.join(str(error).split())}") from None

    def attempt(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Do this work in a transaction and return its result; repeat it for up to a minute while the database does not answer.

        The work may have been stored although the connection broke, so it must recognise that; see `SqlStore.insert_rows`.
        """
        since: float | None = None
        pause_s = _FIRST_RETRY_S
        while True:
            try:
                with self.transaction(durable=durable) as connection:
                    done = work(connection)
            except StoreUnavailable as error:
                now = time.monotonic()
                if since is None:
                    since = now
                    self.on_outage(f"{error}. Trying again for {RETRY_S:.0f} s; training goes on meanwhile")
                if now + pause_s > since + RETRY_S:
                    raise
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_RETRY_S)
            else:
                if since is not None:
                    self.on_outage(f"the store {self.where} answers again, after {time.monotonic() - since:.0f} s")
                return done

    def _require_file(self) -> None:
        """Raise StoreLost if the file that this object writes to was deleted or replaced; copy what it held beside its place.

        SQLite would go on writing to the deleted file, and all of it would be gone with this process.
        """
        if self._loss is None and self.path is not None and self._identity not in (None, self._identify(self.path)):
            copy = None
            if self._connection is not None:
                driver = self._connection.connection.driver_connection
                assert isinstance(driver, sqlite3.Connection)
                copy = files.rescue(driver, self.path)
                self.close()
                files.remove_journals(self.path)
            self._loss = StoreLost(_describe_loss(self.path, copy))
        if self._loss is not None:
            raise self._loss

    def _identify(self, path: Path) -> tuple[int, int] | None:
        try:
            return files.identify(path)
        except OSError:  # the disk does not answer now; that does not mean that the file is gone
            return self._identity

    def _wait_for_disk(self, connection: Connection, durable: bool) -> None:
        if self.path is None:
            if not durable:
                connection.execute(text("SET LOCAL synchronous_commit = off"))
        elif durable != self._is_durable and self._file is not None and self._file.has_wal:
            # Without a write-ahead log, a power cut after a commit that did not wait could damage the file.
            connection.exec_driver_sql(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._is_durable = durable

    def has_table(self, table: Table) -> bool:
        """Return whether there is a table to read, without creating a file or a table."""
        if table.name not in self._tables and self.path is not None and not is_filled(self.path):
            return False
        if table.name in self._tables or self.attempt(lambda connection: inspect(connection).has_table(table.name)):
            self._tables.add(table.name)
        return table.name in self._tables

    def make_tables(self) -> None:
        """Create the file and all tables that do not exist yet."""
        if self._made_tables:
            return
        if self._file is not None:
            self._file.require_writable()
            self._file.make()
            self._enable_write_ahead_log(self._file)
        # One transaction per table, because in SQLite a transaction that first reads and then writes fails if others write.
        for table in METADATA.sorted_tables:
            self.attempt(partial(self._make_table, table))
            self._tables.add(table.name)
        self._made_tables = True

    def _make_table(self, table: Table, connection: Connection) -> None:
        if not self.path:
            # In PostgreSQL, "if not exists" fails if two processes create the table at the same time; the lock prevents that.
            connection.execute(select(func.pg_advisory_xact_lock(_TABLES_LOCK)))
        connection.execute(CreateTable(table, if_not_exists=True))

    def _enable_write_ahead_log(self, file: SqliteFile) -> None:
        """Switch the file to a write-ahead log; if its disk does not support one, note that for the user."""
        deadline = time.monotonic() + files.BUSY_S
        while True:
            try:
                with self.transaction() as connection:
                    journal = connection.exec_driver_sql("PRAGMA journal_mode=WAL").scalar_one()
                break
            except StoreUnavailable:
                # Another process is creating the same file, and SQLite does not wait for this statement.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        file.has_wal = journal == "wal"
        if not file.has_wal:
            self.notices.append(
                f"{self.path} lies on a disk without write-ahead logging (network disks have none): "
                "a rollback journal is used instead, which is as safe but slower"
            )

    def check_file(self) -> None:
        """Raise DamagedStore if SQLite finds that the structure of its file is damaged; a server checks its own files.

        The check reads the whole file, so it ends after `_CHECK_S`: what it has not read by then is not checked.
        """
        if self.path is None or not is_filled(self.path):
            return
        found = self.attempt(self._find_damage)
        if found != "ok":
            raise self._describe_damage(found)

    def _find_damage(self, connection: Connection) -> str:
        """Return what SQLite finds wrong with the file; "ok" if nothing."""
        driver, end = connection.connection.driver_connection, time.monotonic() + _CHECK_S
        assert isinstance(driver, sqlite3.Connection)
        driver.set_progress_handler(lambda: time.monotonic() > end, _CHECK_INSTRUCTIONS)
        try:
            return " ".join(str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()).split())
        except OperationalError as error:
            if getattr(error.orig, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
                raise
            return "ok"
        finally:
            driver.set_progress_handler(None, 0)

    def now(self, connection: Connection) -> float:
        """Return the time on the clock that all users of the database share: the server's, or for a file this machine's."""
        if self.path:
            return time.time()
        return float(connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())

    def close(self) -> None:
        """Close the connection; it is opened again when it is needed."""
        with self.lock:
            if self._connection is not None:
                self._end()
                self._connection, self._identity = None, None

    def _explain(self, error: DBAPIError) -> StoreError:
        message = " ".join(str(error.orig).split())
        if not self.path:
            is_away = self._was_connected and is_gone(error)  # if the address never worked, it is wrong
            if is_away:
                self.close()
            kind = StoreUnavailable if is_away else StoreError
            return kind(f"the store {self.where} failed: {message}: check the address, and that its server runs")
        code = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the upper bits are details
        if code == sqlite3.SQLITE_CORRUPT or message.startswith("Could not decode"):
            return self._describe_damage(message)
        kind = StoreUnavailable if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) else StoreError
        return kind(f"the store {self.where} failed: {message}: {_REMEDIES.get(code, 'give another store')}")

    def _describe_damage(self, found: str) -> DamagedStore:
        command = shlex.join(["shoestring", "repair", "--study", "NAME", "--store", self.where, "-o", "NEW"])
        return DamagedStore(f"{self.where} is damaged: {found}: `{command}` copies the good entries", -1)


class StoreUnavailable(StoreError):
    """Another program locks the file, or the server does not answer; trying again may help."""


class StoreLost(StoreError):
    """The file of the store was deleted or replaced while this process wrote to it."""


def _describe_loss(path: Path, copy: Path | None) -> str:
    what = f"the store {path} was deleted or replaced by another program, and this process stops"
    if copy is None:
        return f"{what}: what it held could not be copied; go on from a copy of your own"
    command = shlex.join(["mv", str(copy), str(path)])
    return f"{what}: all that it held is in {copy}; to go on, `{command}`, and give the same command again"


_REMEDIES = {
    sqlite3.SQLITE_FULL: "free some space on its disk and give the same command again; stored entries are safe",
    sqlite3.SQLITE_IOERR: "check its disk and give the same command again; stored entries are safe",
    sqlite3.SQLITE_BUSY: "another program has locked it; close that program and give the same command again",
    sqlite3.SQLITE_LOCKED: "another program has locked it; close that program and give the same command again",
    sqlite3.SQLITE_READONLY: "make the file and its folder writable, or work on a copy",
    sqlite3.SQLITE_CANTOPEN: "its folder must exist, and you must be allowed to read and write both",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite file, or its beginning is destroyed; give another store",
}


def _close(connection: Connection, engine: Engine) -> None:
    connection.close()
    engine.dispose()


# PostgreSQL ----------------------------------------------------------------------------------------------------------

_CONNECT_S = 30
_GONE = ("57P01", "57P02", "57P03", "08")  # SQLSTATE: shutting down, crashed, starting up, connection lost


def read_server_address(address: str) -> URL:
    """Return the address with its password: from `user:password@`, from `?password=`, or from the environment."""
    shown = hide_credentials(address)
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        raise StoreError(f"the store {shown!r} is not an address: write sqlite:///file.db or postgresql://…") from None
    if url.get_backend_name() != "postgresql":
        raise StoreError(f"the store {shown!r} must begin with sqlite:/// or postgresql://")
    before, _, query = address.partition("?")
    if before.count("@") > 1 or "@" in query:  # a part of the password would be read as the host, and shown
        raise StoreError(
            f"the store {shown!r} cannot be read with certainty: except before the host, write @ as %40, and ? in a password as "
            f"%3F, or put the password into {PASSWORD_VARIABLE}"
        )
    if given := url.normalized_query.get("password"):
        url = url.difference_update_query(["password"]).set(password=given[-1])
    if url.password in (None, "", HIDDEN):
        password = os.environ.get(PASSWORD_VARIABLE)
        if password is None and url.password == HIDDEN:
            raise StoreError(f"the store {shown!r} hides its password: put it into {PASSWORD_VARIABLE}")
        url = url.set(password=password)
    return url.set(drivername="postgresql+psycopg")


def make_server_engine(url: URL) -> Engine:
    """Return the engine for a server; raise MissingExtra if its driver is not installed."""
    try:
        return create_engine(url, connect_args={"connect_timeout": _CONNECT_S})
    except ModuleNotFoundError:
        raise MissingExtra("the PostgreSQL store", "psycopg", "postgresql") from None


def is_gone(error: DBAPIError) -> bool:
    """Return whether the server has gone away and may come back; False if it answered with an error."""
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return str(state).startswith(_GONE)
    return error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)
