"""One worker process, seen from this side of its pipe; `worker_child` is the other side. Messages are JSON text.

    parent → child   begin {config, step, checkpoint, logs}   step {config, until, validate}   save {path}   end
    child → parent   ready {can_save, reusable}   unusable {text}   saved {seconds}
                     stepped {value, cost, cost_reported, can_save, is_exact, metrics}   ended   failed {text}

The child imports the training code before it says `ready`, so a spare one starts a trial at once. It leads a session of
its own: Ctrl-C does not reach it, and its own children go when it is ended, or has ended by itself (see `groups`). Where
devices are named it has one for life, since a process sees its devices when it first imports what uses them.
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
from shoestring.runners.process.process_group import ProcessGroup, Watch, end_groups
from shoestring.runners.process.worker_child import serve

UNGUARDED = 76  # exit code of a child that was about to tune again because the main script is not guarded
_HUNG_FACTOR, _HUNG_EXTRA_S = 10, 60.0  # steps vary, and some load data: rather wait too long than end good work
_present: weakref.WeakSet[Worker] = weakref.WeakSet()


class Worker:
    """A process that carries out steps."""

    group: ProcessGroup

    def __init__(self, target: bytes, watch: Watch, device: str = "") -> None:
        self.device = device
        self.ready = False  # has imported the training code
        self.reusable = False  # keeps nothing of a finished trial
        self.started_at = time.monotonic()
        self._watch = watch
        spawn = multiprocessing.get_context("spawn")
        self.connection, theirs = spawn.Pipe()
        self._process = spawn.Process(target=serve, args=(theirs, target), name="shoestring-worker")
        resource_tracker.ensure_running()  # before signals are blocked: it unblocks them
        for other in list(_present):  # starting a process reaps those that have ended: their groups must go before
            other.group.has_exited()
        with _ctrl_c_blocked(), _environment(device_variables(device)):
            self._process.start()  # Ctrl-C must not hit the child before it can ignore it
        theirs.close()
        assert self._process.pid is not None
        self.group = ProcessGroup(self._process.pid, lambda: self._process.exitcode)
        watch.add(self.group)
        _present.add(self)

    @property
    def alive(self) -> bool:
        return not self.connection.closed and not self.group.has_exited()

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
        self.group.join(1.0)
        return describe_exit(self._process.exitcode)

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    def join(self, within_s: float) -> bool:
        """Whether the process has ended and everything of it is cleared away."""
        if self.connection.closed:
            return True
        if not self.group.join(within_s):
            return False
        self._watch.forget(self.group)
        self._process.join()
        self._process.close()
        self.connection.close()
        return True


def leave_if_importing_main() -> None:
    """A child that imports an unguarded main script gets here as its parent did; the parent tells the user."""
    if getattr(process.current_process(), "_inheriting", False):
        os._exit(UNGUARDED)


def stop(workers: Sequence[Worker], grace_s: float) -> None:
    """End them all: asked by SIGTERM, and after the grace by SIGKILL."""
    end_groups([worker.group for worker in workers if not worker.connection.closed], grace_s)
    for worker in workers:
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


@contextlib.contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """What is started meanwhile inherits that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """What is started meanwhile finds these: the main script is imported before any code of ours could set them."""
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
