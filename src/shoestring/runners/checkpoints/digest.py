"""Compute the digest of a checkpoint: the ledger keeps it, and a checkpoint whose digest differs is not loaded.

The digest covers the names of all files and folders in the checkpoint and the contents of all files. Each file is hashed in parts
of a fixed size. A large checkpoint is hashed by several threads, while the caller waits for the disk or the network: `hashlib`
does not hold Python's lock meanwhile.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

_PART_BYTES = 8 << 20  # part of the definition of a digest: another size gives other digests
_READ_BYTES = 1 << 20
_MAX_THREADS = 4  # more would take processors away from training


@dataclass(frozen=True, slots=True)
class _Part:
    file: Path
    offset: int

    def hash(self) -> bytes:
        digest, left = hashlib.sha256(), _PART_BYTES
        with self.file.open("rb", buffering=0) as opened:
            opened.seek(self.offset)
            while left and (block := opened.read(min(left, _READ_BYTES))):
                digest.update(block)
                left -= len(block)
        return digest.digest()


class Digest:
    """The digest of a file or folder, computed while the body of the `with` statement runs; the body must not change the files.

    After that, `text` is the digest.
    """

    text = ""

    def __init__(self, path: Path) -> None:
        self._entries = list(_list_entries(path))
        parts = [_Part(file, at) for _, _, file, size in self._entries for at in range(0, size, _PART_BYTES) if file]
        threads = min(_MAX_THREADS, os.cpu_count() or 1, len(parts))
        # Starting threads takes longer than to hash a small checkpoint.
        self._pool = ThreadPoolExecutor(threads, "shoestring-digest") if len(parts) > 1 and threads > 1 else None
        self._parts: list[tuple[_Part, Future[bytes] | bytes]] = [
            (part, self._pool.submit(part.hash) if self._pool else part.hash()) for part in parts
        ]

    def __enter__(self) -> Digest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=error is not None)
        if error is None:
            self.text = self._combine()

    def _combine(self) -> str:
        """Return the digest of everything. Each item follows its length, so that no two checkpoints give the same bytes."""
        whole = hashlib.sha256()
        parts = iter(self._parts)
        for kind, name, file, size in self._entries:
            hashes = [next(parts)[1] for _ in range(0, size, _PART_BYTES)] if file else []
            contents = b"".join(one if isinstance(one, bytes) else one.result() for one in hashes)
            for item in (kind, name, str(size).encode(), contents):
                whole.update(len(item).to_bytes(8, "big") + item)
        return whole.hexdigest()


def compute_digest(path: Path) -> str:
    """Return the digest of a file or folder; raise FileNotFoundError if it does not exist."""
    with Digest(path) as digest:
        pass
    return digest.text


def _list_entries(path: Path) -> Iterator[tuple[bytes, bytes, Path | None, int]]:
    """Yield (kind, name, file to read, size) of everything in a checkpoint, sorted by name. What is no file has no contents."""
    path.lstat()  # raises FileNotFoundError
    found = [(b"", path), *((os.fsencode(one.relative_to(path).as_posix()), one) for one in path.rglob("*"))]
    for name, one in sorted(found):
        if one.is_symlink():
            yield b"link", name + b"\0" + os.fsencode(os.readlink(one)), None, 0
        if one.is_file():
            yield b"file", name, one, one.stat().st_size
        elif one.is_dir() and not one.is_symlink():
            yield b"folder", name, None, 0
