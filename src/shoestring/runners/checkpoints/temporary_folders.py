"""Temporary folders that are deleted together with the object they were made for."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path

_PREFIX = "shoestring-checkpoints-"
_folders: weakref.WeakKeyDictionary[object, Path] = weakref.WeakKeyDictionary()


def get_temporary_folder(owner: object) -> Path:
    """Return the temporary folder of `owner`, the same one each time.

    It is deleted when the owner is, at the latest when the process ends. Its name holds the process number, so that the folders
    of killed processes can be recognised.
    """
    if owner not in _folders:
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        _folders[owner] = folder
        weakref.finalize(owner, _remove_own, folder, os.getpid())
    return _folders[owner]


def remove_leftover_folders() -> None:
    """Delete the temporary folders of processes that were killed on this machine."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and Path("/proc/self").exists() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _remove_own(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked child, at its end, must not delete what its parent uses
        shutil.rmtree(folder, ignore_errors=True)
