"""Start `shoestring run …` many times quickly: this process imports everything once, and each run is a fork of it.

It reads JSON lines (folder, words, environment, stored) from standard input and answers each with the number of the new process.
It writes `[number, exit code]` for each process that ended. It ends when its standard input is closed.
"""

from __future__ import annotations

import json
import os
import select
import sys
from typing import Any

from shoestring.cli import job, run  # noqa: F401  everything that a run imports
from shoestring.cli.main import main as run_command
from shoestring.runners import make  # noqa: F401
from shoestring.runners.command import command_runner  # noqa: F401
from shoestring.runners.local import local_runner  # noqa: F401
from shoestring.runners.process import process_runner  # noqa: F401
from shoestring.runners.simulated import recorded_table, simulated_runner  # noqa: F401
from shoestring.stores.sql import SqlStore


def serve() -> None:
    sys.stdin.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    children: set[int] = set()
    incomplete = b""
    while True:
        if select.select([0], [], [], 0.005)[0]:
            text = os.read(0, 1 << 16)
            if not text:
                return
            *lines, incomplete = (incomplete + text).split(b"\n")
            for line in lines:
                number = _fork(json.loads(line))
                children.add(number)
                _send(number)
        for number in list(children):
            ended, status = os.waitpid(number, os.WNOHANG)
            if ended:
                children.remove(number)
                _send([number, os.waitstatus_to_exitcode(status)])


def _fork(start: dict[str, Any]) -> int:
    number = os.fork()
    if number:
        return number
    code = 70
    try:
        os.setsid()
        os.chdir(start["folder"])
        os.environ.update(start["environment"])
        sys.path.insert(0, start["folder"])
        output = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream, to in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
            os.dup2(to, stream)
        log_stored_entries(start["stored"])
        run_command(start["words"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def log_stored_entries(path: str) -> None:
    """Log the numbers of entries that the store reports as stored: they must exist after a kill."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    append = SqlStore.append

    def append_and_log(self: SqlStore, *words: Any, **how: Any) -> Any:
        ledger = append(self, *words, **how)
        os.write(log, b"%d\n" % len(ledger))
        return ledger

    SqlStore.append = append_and_log  # type: ignore[method-assign]


def _send(message: Any) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    serve()
