"""Temporary folders that are deleted together with the object they were made for.

The folders of processes that were killed are deleted by others. Each folder holds a file that its process has locked: the system
releases the lock when the process ends, however that happens. So a lock that can be taken shows that the process has ended, also
if it ran in a container, whose process numbers mean nothing here. The file names the boot of its machine: folders of another
machine, on a disk that both share, are left alone.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: folders that are left over stay
    fcntl = None  # type: ignore[assignment]

_PREFIX = "shoestring-checkpoints-"
_LOCK = ".in-use"
_folders: weakref.WeakKeyDictionary[object, Path] = weakref.WeakKeyDictionary()


def get_temporary_folder(owner: object) -> Path:
    """Return the temporary folder of `owner`, the same one each time.

    It is deleted when the owner is, at the latest when the process ends.
    """
    if owner not in _folders:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        _folders[owner] = folder
        weakref.finalize(owner, _remove_own, folder, _lock_new(folder / _LOCK), os.getpid())
    return _folders[owner]


def remove_leftover_folders() -> None:
    """Delete the temporary folders of processes on this machine that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if _is_left_over(folder / _LOCK):
            shutil.rmtree(folder, ignore_errors=True)


def _is_left_over(lock: Path) -> bool:
    """Return whether the process that locked this file has certainly ended; False if there is no such file."""
    if fcntl is None:
        return False
    try:
        with lock.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file.read() == _identify_machine()
    except OSError:  # it is locked; or it does not exist: another release made the folder, or it is being made now
        return False


def _lock_new(lock: Path) -> int | None:
    """Make and lock this file. Return its descriptor, which holds the lock; None if that is not possible here."""
    if fcntl is None:
        return None
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, _identify_machine())  # written only now: an empty file belongs to nobody
    except OSError:  # this disk has no locks
        os.close(descriptor)
        return None
    return descriptor


def _identify_machine() -> bytes:
    """Return the boot of this machine, which its containers share; elsewhere than on Linux, its name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        return socket.gethostname().encode()


def _remove_own(folder: Path, lock: int | None, pid: int) -> None:
    if os.getpid() == pid:  # a forked child, at its end, must not delete what its parent uses
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            with suppress(OSError):
                os.close(lock)
