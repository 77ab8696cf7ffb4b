"""One worker process, seen from the process that started it; `worker_child` is the other side. Messages are JSON text.

    parent → child   begin {config, step, max_steps, trial, checkpoint, logs}   step {config, until, validate}   save {path}   end
    child → parent   ready {can_save, reusable}   unusable {text}   saved {seconds}
                     stepped {value, cost, cost_reported, can_save, is_exact, metrics}   ended   failed {text}

Every answer has `at`, its moment on the monotonic clock, which all processes of a machine share.

The child imports the training code before it says `ready`, so a spare one begins a trial at once. It leads a session of its own:
Ctrl-C does not reach it, and its own children are ended with it (see `process_group`). Where devices are named, a child keeps
its device for life, because a process reads the list of devices when it first imports a library that uses them.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import process, resource_tracker
from typing import Any

from shoestring.core.values.strict_json import dumps, loads
from shoestring.runners.devices import device_variables
from shoestring.runners.process.process_group import KILL_WAIT_S, GroupGuard, ProcessGroup, end_groups
from shoestring.runners.process.worker_child import serve

UNGUARDED = 76  # exit code of a child that was about to start the tuning again, because the main script is not guarded
_existing: weakref.WeakSet[WorkerProcess] = weakref.WeakSet()


class WorkerProcess:
    """A process that carries out steps."""

    group: ProcessGroup

    def __init__(self, target: bytes, guard: GroupGuard, device: str = "") -> None:
        self.device = device
        self.ready = False  # it has imported the training code
        self.reusable = False  # it keeps nothing of a finished trial
        self.started_at = time.monotonic()
        self.guard = guard
        spawn = multiprocessing.get_context("spawn")
        self.connection, theirs = spawn.Pipe()
        self._process = spawn.Process(target=serve, args=(theirs, target), name="shoestring-worker")
        resource_tracker.ensure_running()  # before signals are blocked: it unblocks them
        for other in list(_existing):
            # Starting a process reaps the children that have exited; their groups must be ended before that.
            other.group.has_exited()
        with _block_ctrl_c(), _set_environment(device_variables(device)):
            self._process.start()  # Ctrl-C must not reach the child before it ignores it
        theirs.close()
        assert self._process.pid is not None
        self.group = ProcessGroup(self._process.pid, lambda: self._process.exitcode)
        guard.add(self.group)
        _existing.add(self)

    @property
    def alive(self) -> bool:
        return not self.connection.closed and not self.group.has_exited()

    @property
    def died_silently(self) -> bool:
        """Whether it has exited and nothing is left to read, not even the end: its own children may keep the pipe open."""
        return not self.alive and not self.connection.poll(0)

    def note_ready(self, message: Mapping[str, Any]) -> None:
        """Note that the process has imported the training code."""
        self.ready, self.reusable = True, message["reusable"]

    def send(self, do: str, **details: Any) -> None:
        with contextlib.suppress(OSError):  # a child that has exited is noticed by `receive`
            self.connection.send_bytes(dumps({"do": do, **details}).encode())

    def receive(self, within_s: float | None = None) -> Mapping[str, Any] | None:
        """Return the next message; None when the process has exited, or was silent for `within_s`."""
        try:
            if within_s is not None and not self.connection.poll(max(0.0, within_s)):
                return None
            message: Mapping[str, Any] = loads(self.connection.recv_bytes().decode())
            return message
        except (EOFError, OSError):
            return None

    def describe_exit(self) -> str:
        """Return how a process whose pipe is closed has ended: its exit code or signal in words."""
        self.group.join(1.0)
        return describe_exit(self._process.exitcode)

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    def join(self, within_s: float) -> bool:
        """Wait for the process to end; return whether it has ended in this time. Then it is cleared away with its children."""
        if self.connection.closed:
            return True
        if not self.group.join(within_s):
            return False
        self.guard.forget(self.group)
        self._process.join()
        self._process.close()
        self.connection.close()
        return True


def leave_if_importing_main() -> None:
    """Exit if this worker is importing an unguarded main script, which would tune here again; its parent explains the error."""
    if getattr(process.current_process(), "_inheriting", False):
        os._exit(UNGUARDED)


def stop(workers: Sequence[WorkerProcess], grace_s: float) -> None:
    """End all of these processes, by SIGTERM and after the grace by SIGKILL."""
    end_groups([worker.group for worker in workers if not worker.connection.closed], grace_s)
    for worker in workers:
        worker.join(KILL_WAIT_S)


def describe_exit(code: int | None) -> str:
    if code is None:
        return "closed its pipe"
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


@contextlib.contextmanager
def _block_ctrl_c() -> Iterator[None]:
    """Block Ctrl-C; processes that are started meanwhile inherit the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _set_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set these variables for processes that are started meanwhile: they import the main script before any code of ours runs."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
