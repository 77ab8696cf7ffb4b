"""SQLite files: how they are opened, and how those are read that must not be written.

A file on read-only media is opened for reading. When a journal was left beside it that cannot be taken in there, a copy of
both is read instead, since the newest entries are in the journal.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from shoestring.errors import StoreError

BUSY_S = 30.0  # so long a writer waits for another one
JOURNALS = ("-wal", "-journal")


@dataclass(eq=False)
class SqliteFile:
    path: Path
    options: str = ""  # SQLite's own, such as vfs=
    rescue: bool = False  # read it as far as it goes, however damaged
    has_wal: bool = False  # known to write ahead
    _copy: TemporaryDirectory[str] | None = None

    @classmethod
    def at(cls, address: str, *, rescue: bool) -> SqliteFile:
        rest = address.partition("://")[2]
        name, _, options = rest.removeprefix("/").partition("?")
        if not rest.startswith("/") or name in ("", ":memory:"):
            raise StoreError(f"the store {address!r} names no file: write sqlite:///file.db")
        return cls(Path(name).resolve(), options, rescue)

    @property
    def is_writable(self) -> bool:
        """Whether it can be written; a file that is not there yet is left to SQLite to complain about."""
        return not self.path.exists() or (os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK))

    def require_writable(self) -> None:
        if not self.is_writable:
            raise StoreError(
                f"the store {self.path} can only be read: make the file and its folder writable, or work on a copy"
            )

    def connect(self) -> sqlite3.Connection:
        if self.is_writable:
            return _open(self.path, self.options, rescue=self.rescue)
        if not any(Path(f"{self.path}{ending}").exists() for ending in JOURNALS):
            return _open(self.path, "mode=ro&immutable=1")
        try:
            return _open(self.path, "mode=ro")  # somebody who may write is at work, perhaps
        except sqlite3.OperationalError:  # the folder would have to take the journal's index
            self._copy = TemporaryDirectory(prefix="shoestring-", ignore_cleanup_errors=True)
            return _open(copy_file(self.path, Path(self._copy.name)), "")


def copy_file(path: Path, folder: Path) -> Path:
    """A copy of the file and of the journal that belongs to it."""
    copy = folder / "copy.db"
    try:
        for ending in ("", *JOURNALS):
            if not ending or Path(f"{path}{ending}").exists():
                shutil.copyfile(f"{path}{ending}", f"{copy}{ending}")
    except OSError as error:
        raise StoreError(f"{path} cannot be copied: {error.strerror}: a copy is what would be read") from None
    return copy


def is_filled(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError:
        return True  # it may be there: let SQLite say what is wrong


def _open(path: Path, options: str, *, rescue: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?{options}", uri=True, timeout=BUSY_S, check_same_thread=False
    )
    try:
        # What is rescued may be a file cut short, which is otherwise not read at all.
        connection.execute("PRAGMA writable_schema=ON" if rescue else "PRAGMA synchronous=FULL")
        if "mode=ro" in options:
            connection.execute("SELECT count(*) FROM sqlite_master")  # whether it can be read at all shows only now
    except sqlite3.Error:
        connection.close()
        raise
    return connection
