"""What training code printed, trial by trial, beside its checkpoints: `ROOT/trial-0007/stdout.txt` and `stderr.txt`.

A file that grows over `MOST_BYTES` loses its oldest half, and says so in its first line. The writer need not know: it
appends, wherever the end is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

STDOUT, STDERR = "stdout.txt", "stderr.txt"
CHECK = "resume-check.txt"  # what the copy of a trial prints that tries resuming out
MOST_BYTES = 10_000_000  # a file
_READ_BYTES = 1_000_000  # shown at most, unless asked for more


def log_files(folder: Path) -> list[Path]:
    """The logs in a trial's folder (`Checkpoints(root).folder(trial)`) that hold something."""
    return [file for name in (STDOUT, STDERR) if (file := folder / name).is_file() and file.stat().st_size]


def read_log(file: Path, tail: int | None = None, at_most_bytes: int = _READ_BYTES) -> str:
    """The end of a log: its last `tail` lines, all of them if None, of its last `at_most_bytes`."""
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


def cut_long_logs(folders: Iterable[Path], most_bytes: int = MOST_BYTES) -> None:
    """Cut the oldest part off logs that have grown too long. What is printed at this very moment may go with it."""
    for folder in folders:
        for name in (STDOUT, STDERR, CHECK):
            with contextlib.suppress(OSError):  # no such log, or a full disk: it is only a log
                if (folder / name).stat().st_size > most_bytes:
                    _cut(folder / name, most_bytes // 2)


def remove_empty_logs(folders: Iterable[Path]) -> None:
    for file in (folder / name for folder in folders for name in (STDOUT, STDERR, CHECK)):
        with contextlib.suppress(OSError):  # none
            if not file.stat().st_size:
                file.unlink()


def _cut(file: Path, keep_bytes: int) -> None:
    with file.open("r+b") as log:
        cut = log.seek(-keep_bytes, os.SEEK_END)
        kept = log.read()
        log.seek(0)
        log.truncate()
        log.write(f"[the log grew too long: {cut} bytes were cut off here]\n".encode() + kept)
