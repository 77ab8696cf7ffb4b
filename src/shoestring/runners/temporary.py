"""A folder that lives as long as some object does: for the checkpoints of studies that are kept in memory only."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path

_folders: weakref.WeakKeyDictionary[object, Path] = weakref.WeakKeyDictionary()


def temporary_folder(owner: object) -> Path:
    """The same folder each time it is asked for; deleted when the owner goes, at the latest when the process ends."""
    if owner not in _folders:
        folder = Path(tempfile.mkdtemp(prefix="shoestring-"))
        _folders[owner] = folder
        weakref.finalize(owner, _remove_own, folder, os.getpid())
    return _folders[owner]


def _remove_own(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked child, at its end, must not delete what its parent uses
        shutil.rmtree(folder, ignore_errors=True)
