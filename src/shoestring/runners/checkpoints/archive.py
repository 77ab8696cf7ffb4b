"""Delete and list the files of checkpoints, and pack a checkpoint into an archive.

An archive is a plain tar file of what training code wrote. Members that would lead out of its folder are refused.
"""

from __future__ import annotations

import io
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import IO

from shoestring.private_files import make_folder

_ROOT = "checkpoint"  # the name of the checkpoint inside an archive


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def list_files(path: Path) -> list[Path]:
    return [file for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()]


def pack(path: Path) -> bytes:
    """Return the bytes of an archive of this file or folder."""
    archive = io.BytesIO()
    write_archive(path, archive)
    return archive.getvalue()


def write_archive(path: Path, file: IO[bytes]) -> None:
    with tarfile.open(fileobj=file, mode="w|") as archive:
        archive.add(path, _ROOT)


def unpack(file: IO[bytes], to: Path) -> Path:
    """Unpack the file or folder of an archive to the path `to`; return that path."""
    make_folder(to.parent)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=to.parent))
    try:
        with tarfile.open(fileobj=file, mode="r|") as archive:
            archive.extractall(partial, filter="data")
        remove(to)
        (partial / _ROOT).rename(to)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return to
