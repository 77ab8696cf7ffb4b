"""Find the stores that a user may have meant: files near the present folder, and the newest of those without a name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from shoestring.stores.unnamed import list_unnamed

_MAX_SHOWN = 4
_MAX_UNNAMED = 2
_MAX_DEPTH = 2  # folders below the present one, as in out/demo/demo.db
_MAX_ENTRIES = 5_000  # files and folders that are looked at, so that an error message never takes long
_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_TABLE = b"CREATE TABLE entries"  # SQLite stores the statements that made its tables in the first page
_FIRST_BYTES = 65_536


def describe_stores() -> str:
    """Return the end of a message about a store that does not exist: those that do; empty if none was found."""
    unnamed = [str(file) for file in islice(list_unnamed(), _MAX_UNNAMED)]
    newest = f"without a name, the newest: {', '.join(unnamed)}" if unnamed else ""
    return "; ".join(filter(None, (describe_nearby(), newest)))


def describe_nearby() -> str:
    """Return the stores in and around the present folder; empty if there are none."""
    here = [os.path.relpath(file) for file in islice(_find(), _MAX_SHOWN)]
    return f"nearby: {', '.join(here)}" if here else ""


def _find() -> Iterator[Path]:
    """Yield the stores in this folder, those below it, and those beside it."""
    folder = Path.cwd()
    left = iter(range(_MAX_ENTRIES))
    yield from _find_below(folder, _MAX_DEPTH, left)
    yield from _find_below(folder.parent, 0, left)


def _find_below(folder: Path, depth: int, left: Iterator[int]) -> Iterator[Path]:
    with suppress(OSError):  # a folder that cannot be read
        entries = sorted((entry for entry, _ in zip(os.scandir(folder), left, strict=False)), key=lambda e: e.name)
        yield from (Path(e.path) for e in entries if e.name.endswith(_SUFFIXES) and _is_store(Path(e.path)))
        if depth:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                    yield from _find_below(Path(entry.path), depth - 1, left)


def _is_store(file: Path) -> bool:
    for part in (file, Path(f"{file}-wal")):  # a new store may have its tables only in the write-ahead log
        with suppress(OSError), part.open("rb") as opened:
            if _TABLE in opened.read(_FIRST_BYTES):
                return True
    return False
