"""Files and folders as the keepers of checkpoints need them: deleted, listed, temporary, and as one archive.

An archive is a plain tar of what training code wrote; members that would lead out of its folder are refused.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import IO

_TEMPORARY = "shoestring-checkpoints-"
_ROOT = "checkpoint"  # what a checkpoint is called inside an archive


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def list_files(path: Path) -> list[Path]:
    return [file for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()]


def temporary_folder(owner: object) -> Path:
    """A folder that goes with its owner. The process is in its name: what one that was killed left can be told."""
    folder = Path(tempfile.mkdtemp(prefix=f"{_TEMPORARY}{os.getpid()}-"))
    weakref.finalize(owner, _remove_own, folder, os.getpid())
    return folder


def remove_leftovers() -> None:
    """Delete the temporary folders of processes that were killed on this machine."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_TEMPORARY}*"):
        pid = folder.name.removeprefix(_TEMPORARY).partition("-")[0]
        if pid.isdigit() and Path("/proc/self").exists() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _remove_own(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked child, at its end, must not delete what its parent uses
        shutil.rmtree(folder, ignore_errors=True)


def remove_empty_folders(folders: Iterable[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):  # it holds something
            folder.rmdir()


def pack(path: Path) -> bytes:
    """A file or folder as the bytes of an archive."""
    archive = io.BytesIO()
    write_archive(path, archive)
    return archive.getvalue()


def write_archive(path: Path, file: IO[bytes]) -> None:
    with tarfile.open(fileobj=file, mode="w|") as archive:
        archive.add(path, _ROOT)


def unpack(file: IO[bytes], to: Path) -> Path:
    """The file or folder of an archive, at the path `to`; members that lead out of it are refused."""
    to.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=".half-", dir=to.parent))
    try:
        with tarfile.open(fileobj=file, mode="r|") as archive:
            archive.extractall(half, filter="data")
        remove(to)
        (half / _ROOT).rename(to)
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return to
