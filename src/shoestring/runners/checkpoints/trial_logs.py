"""What training code printed, in the folder of its trial: `ROOT/trial-0007/stdout.txt` and `stderr.txt`.

The oldest half of a file that grows over `MAX_BYTES` is cut off, and its first line says so. The writer does not notice, since
it appends. For processes on this machine the guard does this while they run, many times a second.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from shoestring.runners.process.guard import cut_file

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


def cut_long_logs(folders: Iterable[Path], max_bytes: int | None = None) -> None:
    """Cut the oldest part off logs that have grown too long. What is printed at the same moment may be lost."""
    for folder in folders:
        for name in (STDOUT, STDERR, CHECK):
            cut_file(str(folder / name), max_bytes or MAX_BYTES)


def remove_empty_logs(folders: Iterable[Path]) -> None:
    for file in (folder / name for folder in folders for name in (STDOUT, STDERR, CHECK)):
        with contextlib.suppress(OSError):  # no such log
            if not file.stat().st_size:
                file.unlink()


def remove_empty_folders(folders: Iterable[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):  # the folder is not empty
            folder.rmdir()
