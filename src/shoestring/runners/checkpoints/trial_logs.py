"""What training code printed, in the folder of its trial: `ROOT/trial-0007/stdout.txt` and `stderr.txt`.

The oldest half of a file that grows over `MAX_BYTES` is cut off, and its first line says so. The writer does not notice, since
it appends.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

STDOUT, STDERR = "stdout.txt", "stderr.txt"
CHECK = "resume-check.txt"  # what the copy of a trial prints in a resume check
MAX_BYTES = 10_000_000  # of one file
_READ_BYTES = 1_000_000  # of a log that is read, by default


def log_files(folder: Path) -> list[Path]:
    """Return the logs in a trial's folder (`Checkpoints(root).folder(trial)`) that are not empty."""
    return [file for name in (STDOUT, STDERR) if (file := folder / name).is_file() and file.stat().st_size]


def read_log(file: Path, tail: int | None = None, at_most_bytes: int = _READ_BYTES) -> str:
    """Return the last `tail` lines of a log (None: all lines), taken from its last `at_most_bytes`."""
    with file.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - at_most_bytes))
        text = log.read(at_most_bytes)
    if size > at_most_bytes:
        text = text.partition(b"\n")[2] or text  # begin with a whole line
    lines = text.decode(errors="replace").splitlines(keepends=True)
    shown = lines if tail is None else lines[max(0, len(lines) - tail) :]
    is_cut = size > at_most_bytes and len(shown) == len(lines)
    return "".join([f"[the first {size - len(text)} bytes are left out]\n"] * is_cut + shown)


def cut_long_logs(folders: Iterable[Path], max_bytes: int = MAX_BYTES) -> None:
    """Cut the oldest part off logs that have grown too long. What is printed at the same moment may be lost."""
    for folder in folders:
        for name in (STDOUT, STDERR, CHECK):
            with contextlib.suppress(OSError):  # no such log, or a full disk: it is only a log
                if (folder / name).stat().st_size > max_bytes:
                    _cut(folder / name, max_bytes // 2)


def remove_empty_logs(folders: Iterable[Path]) -> None:
    for file in (folder / name for folder in folders for name in (STDOUT, STDERR, CHECK)):
        with contextlib.suppress(OSError):  # no such log
            if not file.stat().st_size:
                file.unlink()


def remove_empty_folders(folders: Iterable[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):  # the folder is not empty
            folder.rmdir()


def _cut(file: Path, keep_bytes: int) -> None:
    with file.open("r+b") as log:
        cut = log.seek(-keep_bytes, os.SEEK_END)
        rest = log.read()
        log.seek(0)
        log.truncate()
        log.write(f"[the log grew too long: {cut} bytes were cut off here]\n".encode() + rest)
