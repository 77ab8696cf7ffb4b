"""SQLite files: how they are opened, and how read-only files are read.

A read-only file is opened for reading. If SQLite would first have to merge a journal into the file, a copy of both is read
instead, because the newest entries are in the journal.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from urllib.parse import quote

from shoestring.core.values.credentials import hide_credentials
from shoestring.errors import StoreError
from shoestring.private_files import make_file

BUSY_S = 30.0  # how long a writer waits for another writer
JOURNALS = ("-wal", "-journal")


@dataclass(eq=False)
class SqliteFile:
    """A SQLite file and how to open it."""

    path: Path
    options: str = ""  # SQLite's own options, such as vfs=
    rescue: bool = False  # whether to read as much as possible of a damaged file
    has_wal: bool = False  # whether the file is known to have a write-ahead log
    _copy: TemporaryDirectory[str] | None = None

    @classmethod
    def at(cls, address: str, *, rescue: bool) -> SqliteFile:
        """Return the file at an address such as `sqlite:///file.db`."""
        rest = address.partition("://")[2]
        name, _, options = rest.removeprefix("/").partition("?")
        if not rest.startswith("/") or name in ("", ":memory:"):
            raise StoreError(f"the store {hide_credentials(address)!r} names no file: write sqlite:///file.db")
        return cls(Path(name).resolve(), options, rescue)

    @property
    def is_writable(self) -> bool:
        """Whether the file can be written; True for a file that does not exist yet, where SQLite itself reports problems."""
        return not self.path.exists() or (os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK))

    def require_writable(self) -> None:
        """Raise StoreError if the file cannot be written."""
        if not self.is_writable:
            raise StoreError(
                f"the store {self.path} can only be read: make the file and its folder writable, or work on a copy"
            )

    def make(self) -> None:
        """Make the file, empty, if it does not exist. SQLite gives its journals the same mode."""
        with suppress(OSError):  # SQLite will report what is wrong
            make_file(self.path)

    def connect(self) -> sqlite3.Connection:
        """Return a connection to the file, or to a copy of it if it can only be read that way."""
        if self.is_writable:
            return _open(self.path, self.options, rescue=self.rescue)
        if not any(Path(f"{self.path}{ending}").exists() for ending in JOURNALS):
            return _open(self.path, "mode=ro&immutable=1")
        try:
            return _open(self.path, "mode=ro")  # works while another process, which may write, has it open
        except sqlite3.OperationalError:  # SQLite would have to write the index of the journal into the folder
            self._copy = TemporaryDirectory(prefix="shoestring-", ignore_cleanup_errors=True)
            return _open(copy_file(self.path, Path(self._copy.name)), "")


def copy_file(path: Path, folder: Path) -> Path:
    """Copy the file and its journal into a folder; return the path of the copy."""
    copy = folder / "copy.db"
    try:
        for ending in ("", *JOURNALS):
            if not ending or Path(f"{path}{ending}").exists():
                shutil.copyfile(f"{path}{ending}", f"{copy}{ending}")
    except OSError as error:
        raise StoreError(
            f"{path} cannot be copied: {error.strerror}; it is read from a copy, because it cannot be written"
        ) from None
    return copy


def identify(path: Path) -> tuple[int, int] | None:
    """Return two numbers that no other file on this machine has; None if there is no such file."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def rescue(connection: sqlite3.Connection, path: Path) -> Path | None:
    """Copy the file that this connection has open, although it is no longer at `path`; return the copy, None if there is no room.

    The copy is made beside that place, else in the current folder, else in the folder for temporary files.
    """
    for folder in (path.parent, Path.cwd(), Path(gettempdir())):
        names = (f"{path.name}.rescued{ending}" for ending in ("", *(f"-{number}" for number in range(2, 100))))
        copy = next((folder / name for name in names if not (folder / name).exists()), None)
        if copy is None:
            continue
        try:
            make_file(copy)
            with closing(sqlite3.connect(copy)) as target:
                connection.backup(target)
        except (sqlite3.Error, OSError):
            with suppress(OSError):
                copy.unlink(missing_ok=True)
            continue
        return copy
    return None


def remove_journals(path: Path) -> None:
    """Delete the journals of a deleted file: SQLite would apply them to any file that is put in its place."""
    if identify(path) is None:
        for ending in ("-shm", *JOURNALS):
            with suppress(OSError):
                Path(f"{path}{ending}").unlink(missing_ok=True)


def is_filled(path: Path) -> bool:
    """Return whether the file exists and is not empty; True if that cannot be known."""
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError:
        return True  # it may exist, and SQLite will report what is wrong


def _open(path: Path, options: str, *, rescue: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?{options}", uri=True, timeout=BUSY_S, check_same_thread=False
    )
    try:
        # A damaged file may be too short; without this setting SQLite would not read it at all.
        connection.execute("PRAGMA writable_schema=ON" if rescue else "PRAGMA synchronous=FULL")
        if "mode=ro" in options:
            connection.execute("SELECT count(*) FROM sqlite_master")  # SQLite reads the file only now
    except sqlite3.Error:
        connection.close()
        raise
    return connection
