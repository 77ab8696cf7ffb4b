"""Files for studies whose user named no store, and the rule by which they are deleted.

Each study has a folder of its own, which only its user can read, with the file `study.db` and the checkpoints beside it. These
folders lie in a temporary folder of the user, or in the one that SHOESTRING_STUDIES names.

When a new folder is made, older ones are deleted: those in which nothing was written for two weeks, and beyond the newest fifty
those in which nothing was written for a day. A folder stays as long as a process uses it: as long as its file is open anywhere,
and until the process that last ran the study has ended.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from shoestring.errors import StoreError

FOLDER_VARIABLE = "SHOESTRING_STUDIES"
MAX_AGE_DAYS = 14
_MAX_FOLDERS = 50
_MIN_AGE_DAYS = 1
_DAY_S = 86_400.0
_FILE = "study.db"
_OURS = re.compile(r".*-\d{8}-\d{6}-\w{8}")  # the name of a study, the time of its start, and a random part


def make_unnamed_file(name: str) -> Path:
    """Return a new, empty file for a study of this name, and delete old ones.

    Raises
    ------
    StoreError
        If no folder can be made.
    """
    plain = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:40]
    try:
        parent = _make_parent()
        folder = Path(tempfile.mkdtemp(prefix=time.strftime(f"{plain}-%Y%m%d-%H%M%S-"), dir=parent))
        file = folder / _FILE
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))  # SQLite's other files get the same mode
    except OSError as error:
        raise StoreError(
            f"no temporary file can be made for the study: {error}; pass store=…, or name another folder in {FOLDER_VARIABLE}"
        ) from None
    _delete_old(parent)
    return file


def delete_unnamed(file: Path) -> None:
    """Delete the folder of a study that did not begin."""
    shutil.rmtree(file.parent, ignore_errors=True)


def list_unnamed() -> Iterator[Path]:
    """Yield the files of these studies, the newest first."""
    parent = _find_parent()
    if parent.is_dir() and _is_private(parent):
        yield from (folder / _FILE for _, folder in sorted(_list_ages(parent)))


def is_unnamed(file: Path | None) -> bool:
    """Return whether `make_unnamed_file` made this file."""
    return file is not None and file.name == _FILE and _OURS.fullmatch(file.parent.name) is not None


def _find_parent() -> Path:
    if given := os.environ.get(FOLDER_VARIABLE):
        return Path(given)
    user = f"-{os.getuid()}" if hasattr(os, "getuid") else ""  # on Windows, each user has a temporary folder
    return Path(tempfile.gettempdir()) / f"shoestring-studies{user}"


def _make_parent() -> Path:
    folder = _find_parent()
    if os.environ.get(FOLDER_VARIABLE):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    # Where all users share one temporary folder, another user may have made a folder of this name.
    return folder if _is_private(folder) else Path(tempfile.mkdtemp(prefix="shoestring-studies-"))


def _is_private(folder: Path) -> bool:
    """Return whether this is a folder, not a link, that only this user can read and write."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return False
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o077)


# deleting ------------------------------------------------------------------------------------------------------------


def _delete_old(parent: Path) -> None:
    newest_first = sorted(_list_ages(parent))
    for count, (age_days, folder) in enumerate(newest_first, start=1):
        is_old = age_days > MAX_AGE_DAYS or (count > _MAX_FOLDERS and age_days > _MIN_AGE_DAYS)
        if is_old and not _is_in_use(folder / _FILE):
            shutil.rmtree(folder, ignore_errors=True)


def _list_ages(parent: Path) -> Iterator[tuple[float, Path]]:
    """Yield (days since something was written, folder) of each study in this folder."""
    now = time.time()
    with suppress(OSError):
        for folder in parent.iterdir():
            if _OURS.fullmatch(folder.name) and not folder.is_symlink():
                with suppress(OSError):  # another process deletes it at this moment
                    files = [*folder.glob(f"{_FILE}*")] or [folder]  # reading a file changes the folder, not the file
                    yield (now - max(file.stat().st_mtime for file in files)) / _DAY_S, folder


def _is_in_use(file: Path) -> bool:
    """Return whether a process has this file open, or the process that last ran its study still exists."""
    from shoestring.stores.lease import Process

    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=rw", uri=True, timeout=0.0)) as connection:
            holders = connection.execute("SELECT host, pid, machine, started FROM leases").fetchall()
            if any(Process(*holder).is_running() for holder in holders):
                return True
            # SQLite leaves the write-ahead log only if no other connection exists.
            connection.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the upper bits are details
        return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)  # other errors: it holds no study
    return False
