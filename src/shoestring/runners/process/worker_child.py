"""The code that runs in a worker process; `worker` is the side that starts it, and lists the messages.

What the training code prints, from C code too, goes to the logs of its trial. The process ends when its parent does, however
that happens: a thread waits for it, so a child in the middle of a long step ends too, together with its own children.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from multiprocessing import connection
from pathlib import Path
from typing import Any

from shoestring.core.values.strict_json import dumps, loads
from shoestring.core.values.text import shorten
from shoestring.private_files import make_folder, open_private
from shoestring.runners.process.guard import kill_own_tree
from shoestring.runners.training.code import RAISED, EndOfTraining, LiveTrial, can_save, shape_of
from shoestring.runners.training.targets import unpack_code


def serve(pipe: connection.Connection, pickled: bytes) -> None:
    """Carry out requests until the parent sends `end` or exits."""
    first_stderr = _prepare_process()
    try:
        target = unpack_code(pickled)
        ready = {"is": "ready", "can_save": can_save(target), "reusable": shape_of(target) == "function"}
    except Exception as error:
        ready = {"is": "unusable", "text": f"{type(error).__name__}: {error}".splitlines()[0]}
    live: LiveTrial | None = None
    is_alone = True
    with contextlib.suppress(EOFError, OSError):  # the parent has exited, or closed the pipe
        pipe.send_bytes(_encode(ready))
        while (message := loads(pipe.recv_bytes().decode()))["do"] != "end":
            if message["do"] == "begin":
                if live is not None:
                    live.close()
                print_to(message["logs"], first_stderr)
                checkpoint = Path(message["checkpoint"]) if message["checkpoint"] else None
                begin = (message["config"], message["step"], checkpoint, message["max_steps"], message["trial"])
                live = LiveTrial(target, *begin)
            else:
                assert live is not None
                answer = _encode(carry_out(live, message))
                _flush()
                pipe.send_bytes(answer)
        is_alone = False
    if live is not None:
        live.close()
    if is_alone:  # no other process is left to end what the training code has started
        kill_own_tree()


def _encode(answer: Mapping[str, Any]) -> bytes:
    """Return the message with the present moment: it may wait for the parent, which must not count that time."""
    return dumps({**answer, "at": time.monotonic()}).encode()


def carry_out(live: LiveTrial, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to `step` or `save`; what the training code raises is an answer too."""
    try:
        if message["do"] == "save":
            began = time.perf_counter()
            live.save(Path(message["path"]))
            return {"is": "saved", "seconds": time.perf_counter() - began}
        result = live.advance(message["config"], message["until"], message["validate"])
        cost = [result.cost.setup, result.cost.train, result.cost.validate]
        answer = {"value": result.value, "cost": cost, "cost_reported": result.cost_reported, "metrics": result.metrics}
        return {"is": "stepped", "can_save": live.can_save, "is_exact": live.is_exact, **answer}
    except EndOfTraining:
        return {"is": "ended"}
    except RAISED as error:
        return {"is": "failed", "text": shorten("".join(traceback.format_exception(error)).strip())}


def _prepare_process() -> int:
    """Prepare this process; return a copy of its first standard error."""
    os.setsid()
    # This process was spawned, and its children would be too: data loaders would import everything again in every epoch.
    multiprocessing.set_start_method(None, force=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.dup2(2, 1)  # standard output belongs to results, not to what is printed by imports
    for name, number in (("stdout", 1), ("stderr", 2)):  # line by line: a process that dies must not lose lines
        setattr(sys, name, open(number, "w", buffering=1, errors="backslashreplace", closefd=False))  # noqa: SIM115
    threading.Thread(target=_end_with_parent, daemon=True, name="shoestring-parent-watch").start()
    return os.dup(2)


def print_to(logs: list[str], otherwise: int) -> None:
    """Append standard output and error to these two files from now on."""
    _flush()
    for number, log in zip((1, 2), logs, strict=True):
        try:
            make_folder(Path(log).parent)
            file = open_private(Path(log), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        except OSError:  # training does not need a log
            os.dup2(otherwise, number)
        else:
            os.dup2(file, number)
            os.close(file)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed or replaced by the training code
            stream.flush()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    kill_own_tree()
