"""One worker process, both ends of its pipe. Messages are JSON text.

    parent → child   begin {config, step, checkpoint}   step {config, until, validate}   save {path}   end
    child → parent   ready {can_save, reusable}   unusable {text}   saved {seconds}
                     stepped {value, cost, cost_reported, can_save, is_exact}   ended   failed {text}

The child imports the training code before it says `ready`, so a spare one starts a trial at once. It leads a session of
its own: Ctrl-C does not reach it, and its own children go when it is ended. What it prints to standard output goes to
standard error. It ends with its parent, however that dies: a thread of its own waits for that, so a child in the middle of
a long step goes too (one that never lets other threads run goes when the step is over).
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
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import connection, process, resource_tracker
from pathlib import Path
from typing import Any

from shoestring.core.strict_json import dumps, loads
from shoestring.runners.targets import unpack_code
from shoestring.runners.training import Ended, Live, can_save, shape_of

UNGUARDED = 76  # exit code of a child that was about to tune again because the main script is not guarded
_SPAWN = multiprocessing.get_context("spawn")
_HUNG_FACTOR, _HUNG_EXTRA_S = 10, 60.0  # steps vary, and some load data: rather wait too long than end good work


class Worker:
    """The parent's end."""

    def __init__(self, target: bytes) -> None:
        self.ready = False  # has imported the training code
        self.reusable = False  # keeps nothing of a finished trial
        self.connection, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=serve, args=(theirs, target), name="shoestring-worker")
        resource_tracker.ensure_running()  # before signals are blocked: it unblocks them
        with _ctrl_c_blocked():  # inherited: Ctrl-C must not hit the child before it can ignore it
            self._process.start()
        theirs.close()

    @property
    def alive(self) -> bool:
        return not self.connection.closed and self._process.is_alive()

    @property
    def died_silently(self) -> bool:
        """Gone, with nothing left to be read, not even the end: children of its own may keep the pipe open."""
        return not self.alive and not self.connection.poll(0)

    def send(self, do: str, **details: Any) -> None:
        with contextlib.suppress(OSError):  # a child that is gone is noticed by `receive`
            self.connection.send_bytes(dumps({"do": do, **details}).encode())

    def receive(self, within_s: float | None = None) -> Mapping[str, Any] | None:
        """The next message; None when the process is gone, or silent for `within_s`."""
        try:
            if within_s is not None and not self.connection.poll(max(0.0, within_s)):
                return None
            message: Mapping[str, Any] = loads(self.connection.recv_bytes().decode())
            return message
        except (EOFError, OSError):
            return None

    def how_it_ended(self) -> str:
        """For a process whose pipe is closed: its exit code or signal in words."""
        self._process.join(1.0)
        return describe_exit(self._process.exitcode)

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    def signal(self, number: signal.Signals) -> None:
        """To the process and its own children; it is not reaped yet, so its number cannot be another's."""
        if self.alive and self._process.pid is not None:
            try:
                os.killpg(self._process.pid, number)
            except (ProcessLookupError, PermissionError):  # it has not got as far as leading a session
                os.kill(self._process.pid, number)

    def join(self, within_s: float) -> bool:
        """Whether the process has ended and everything of it is cleared away."""
        if self.connection.closed:
            return True
        self._process.join(max(0.0, within_s))
        if self._process.is_alive():
            return False
        self._process.close()
        self.connection.close()
        return True


def leave_if_importing_main() -> None:
    """A child that imports an unguarded main script gets here as its parent did; the parent tells the user."""
    if getattr(process.current_process(), "_inheriting", False):
        os._exit(UNGUARDED)


def stop(workers: Sequence[Worker], grace_s: float) -> None:
    """End them all: asked by SIGTERM, and after the grace by SIGKILL."""
    for worker in workers:
        worker.signal(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    stubborn = [worker for worker in workers if not worker.join(deadline - time.monotonic())]
    for worker in stubborn:
        worker.signal(signal.SIGKILL)
    for worker in stubborn:
        worker.join(5.0)


class Patience:
    """How long a worker may go without a report: as told, else 10 times the longest step seen and a minute.

    Before any step was seen there is nothing to measure against, and the limit is the wall alone.
    """

    def __init__(self, hung_after_s: float | None) -> None:
        self._limit_s, self._longest_s = hung_after_s, 0.0

    def note_step(self, step_s: float) -> None:
        self._longest_s = max(self._longest_s, step_s)

    def is_over(self, silent_s: float) -> bool:
        if self._limit_s is not None:
            return silent_s > self._limit_s
        return self._longest_s > 0 and silent_s > _HUNG_FACTOR * self._longest_s + _HUNG_EXTRA_S

    def text(self, silent_s: float) -> str:
        rule = (
            f"10 times the longest step, {self._longest_s:.3g} s, and a minute"
            if self._limit_s is None
            else "its limit"
        )
        return f"no report for {silent_s:.3g} s, which is over {rule}: the step was taken for hung and ended"


def describe_exit(code: int | None) -> str:
    if code is None:
        return "closed its pipe"
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


# the child's end -----------------------------------------------------------------------------------------------------


def serve(pipe: connection.Connection, pickled: bytes) -> None:
    """What a worker process does all its life."""
    _settle_in()
    try:
        target = unpack_code(pickled)
        ready = {"is": "ready", "can_save": can_save(target), "reusable": shape_of(target) == "function"}
    except Exception as error:
        ready = {"is": "unusable", "text": f"{type(error).__name__}: {error}".splitlines()[0]}
    live: Live | None = None
    with contextlib.suppress(EOFError, OSError):  # the parent has gone, or closed the pipe: the end
        pipe.send_bytes(dumps(ready).encode())
        while (message := loads(pipe.recv_bytes().decode()))["do"] != "end":
            if message["do"] == "begin":
                if live is not None:
                    live.close()
                checkpoint = Path(message["checkpoint"]) if message["checkpoint"] else None
                live = Live(target, message["config"], message["step"], checkpoint)
            else:
                assert live is not None
                pipe.send_bytes(dumps(_answer(live, message)).encode())
    if live is not None:
        live.close()


def _answer(live: Live, message: Mapping[str, Any]) -> dict[str, Any]:
    try:
        if message["do"] == "save":
            began = time.perf_counter()
            live.save(Path(message["path"]))
            return {"is": "saved", "seconds": time.perf_counter() - began}
        result = live.advance(message["config"], message["until"], message["validate"])
        cost = [result.cost.setup, result.cost.train, result.cost.validate]
        answer = {"value": result.value, "cost": cost, "cost_reported": result.cost_reported}
        return {"is": "stepped", "can_save": live.can_save, "is_exact": live.is_exact, **answer}
    except Ended:
        return {"is": "ended"}
    except (Exception, SystemExit) as error:
        return {"is": "failed", "text": "".join(traceback.format_exception(error)).strip()}


def _settle_in() -> None:
    os.setsid()
    # We were spawned, and our children would be too: loading processes would import everything anew, every epoch.
    multiprocessing.set_start_method(None, force=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.dup2(2, 1)  # standard output belongs to results; what training code prints is narration
    sys.stdout = sys.stderr
    threading.Thread(target=_end_with_parent, daemon=True, name="shoestring-parent-watch").start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os.killpg(0, signal.SIGKILL)


@contextlib.contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
