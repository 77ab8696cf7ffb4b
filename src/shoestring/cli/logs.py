"""What a trial printed: `stdout.txt` and `stderr.txt` in its folder, beside its checkpoints."""

from __future__ import annotations

import sys

from shoestring.cli.printing import print_line
from shoestring.cli.show import find_trial
from shoestring.core.strict_json import dumps
from shoestring.core.texts import printable
from shoestring.errors import StoreError, StudyError
from shoestring.runners.checkpoints import Checkpoints
from shoestring.runners.logs import MOST_BYTES, STDERR, STDOUT, log_files, read_log
from shoestring.study.study import Study


def show_logs(trial: int, store: str, name: str | None, stderr: bool, tail: int | None, as_json: bool) -> None:
    if tail is not None and tail < 0:
        raise StudyError(f"--tail {tail} must be 0 or more: the number of lines, counted from the end")
    study = Study.open(name, store)
    number = find_trial(study, trial).number
    folder = Checkpoints(study.checkpoints).folder(number)
    file = folder / (STDERR if stderr else STDOUT)
    if not file.is_file():
        other = next(iter(log_files(folder)), None)
        hint = f"there is {other.name}, though" if other else "only worker processes and commands keep a log"
        raise StudyError(f"trial {number} has left nothing in {file}: {hint}")
    try:
        text = read_log(file, tail, at_most_bytes=2 * MOST_BYTES)  # all of it: a longer log has been cut
    except OSError as error:
        raise StoreError(f"the log {str(file)!r} cannot be read: {error.strerror or error}") from None
    if as_json:
        print_line(dumps({"trial": number, "file": str(file), "text": text}))
    else:
        # Bars that draw themselves anew end their lines with a bare carriage return.
        sys.stdout.write(printable(text.replace("\r\n", "\n").replace("\r", "\n"), lines=True))
        if text and not text.endswith(("\n", "\r")):
            sys.stdout.write("\n")
