"""Make files and folders that only their user can read, unless they are made in a folder that is shared with a group.

A ledger, a checkpoint, a report or a log may hold data, configurations and paths that are nobody else's business. The rule:

- A new file has mode 0600, a new folder 0700.
- In a shared folder, the group has the same access to the new file or folder as to the shared folder. A folder is shared if its
  setgid bit is set, or if its group may write and is the user's own group. A folder in which everybody may write, such as /tmp,
  is not.
- The umask may take away more. A file that exists already keeps its mode.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path


def make_folder(path: Path) -> None:
    """Make a folder, with those above it that do not exist; do nothing if it exists."""
    try:
        path.mkdir(mode=_mode_in(path.parent, 0o700))
    except FileNotFoundError:
        if path.parent == path:
            raise
        make_folder(path.parent)
        make_folder(path)
    except FileExistsError:
        if not path.is_dir():
            raise


def make_file(path: Path) -> None:
    """Make an empty file; do nothing if it exists."""
    with suppress(FileExistsError):
        os.close(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))


def write_file(path: Path, content: bytes) -> None:
    """Write a file; replace the contents of a file that exists."""
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
        file.write(content)


def open_private(path: Path, flags: int) -> int:
    """Return a descriptor of the file, as `os.open` does; a new file gets the mode of the rule."""
    return os.open(path, flags | getattr(os, "O_BINARY", 0), _mode_in(path.parent, 0o600))


def is_readable_by_others(path: Path) -> bool:
    """Return whether other users can read or change the file; False on Windows, where modes do not tell.

    The group counts as others if the file belongs to this user; a file of another user, such as the administrator, may be
    readable by a group so that this user can read it.
    """
    if not hasattr(os, "getuid"):
        return False
    found = path.stat()
    forbidden = stat.S_IRWXO | (stat.S_IRWXG if found.st_uid == os.getuid() else stat.S_IWGRP)
    return bool(found.st_mode & forbidden)


def _mode_in(folder: Path, mode: int) -> int:
    """Return the mode of something new in this folder; `mode` is the user's part of it."""
    if not hasattr(os, "getegid"):
        return mode
    try:
        shared = folder.stat()
    except OSError:  # the caller will see the same error
        return mode
    is_group_ours = bool(shared.st_mode & stat.S_IWGRP) and shared.st_gid == os.getegid()
    is_shared = bool(shared.st_mode & stat.S_ISGID) or is_group_ours
    if not is_shared or shared.st_mode & stat.S_IWOTH:
        return mode
    return mode | (shared.st_mode & stat.S_IRWXG & (mode >> 3))
