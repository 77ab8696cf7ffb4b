"""What a trial printed: `stdout.txt` and `stderr.txt` in its folder, beside its checkpoints."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path

from shoestring.cli.printing import print_line
from shoestring.cli.show import find_trial
from shoestring.core.strict_json import dumps
from shoestring.core.texts import printable
from shoestring.errors import StoreError, StudyError
from shoestring.study.study import Study


def show_logs(trial: int, store: str, name: str | None, stderr: bool, tail: int | None, as_json: bool) -> None:
    if tail is not None and tail < 0:
        raise StudyError(f"--tail {tail} must be 0 or more: the number of lines, counted from the end")
    study = Study.open(name, store)
    number = find_trial(study, trial).number
    file = study.checkpoints / f"trial-{number:04d}" / ("stderr.txt" if stderr else "stdout.txt")
    if not file.is_file():
        other = file.with_name("stdout.txt" if stderr else "stderr.txt")
        hint = f"there is {other.name}, though" if other.is_file() else "only worker processes and commands keep a log"
        raise StudyError(f"trial {number} has left nothing in {file}: {hint}")
    text = _read(file, tail)
    if as_json:
        print_line(dumps({"trial": number, "file": str(file), "text": text}))
    else:
        # Bars that draw themselves anew end their lines with a bare carriage return.
        sys.stdout.write(printable(text.replace("\r\n", "\n").replace("\r", "\n"), lines=True))
        if text and not text.endswith(("\n", "\r")):
            sys.stdout.write("\n")


def _read(file: Path, tail: int | None) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace", newline="\n") as lines:
            return lines.read() if tail is None else "".join(deque(lines, maxlen=tail))
    except OSError as error:
        raise StoreError(f"the log {str(file)!r} cannot be read: {error.strerror or error}") from None
