"""End a process together with all processes that it has started, and guard it while this process cannot.

Training code starts children: data loaders, servers, shells. The process that we started leads a session of its own, and what
belongs to it is found by the session and by descent (see `find_tree` in `guard`). Its number is not given to another process
before it is reaped, so its session is ended when it is found to have exited, before it is reaped. A child that begins a session
of its own (`setsid`, `start_new_session=True`) and whose parent has ended cannot be found and lives on.

Linux and macOS support all of this. Windows does not: there only the local runner works, and `require_posix` says so.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from shoestring.errors import RunnerError
from shoestring.runners.checkpoints import trial_logs
from shoestring.runners.process import guard
from shoestring.runners.process.guard import find_tree, kill_trees, send

IS_WINDOWS = os.name == "nt"
_POLL_S = 0.002
KILL_WAIT_S = 5.0  # for a process to end after SIGKILL: the system may first have to finish what it writes to a disk


def require_posix(what: str) -> None:
    if IS_WINDOWS:
        raise RunnerError(f"{what} does not work on Windows: use the local runner with one worker, or WSL")


class ProcessGroup:
    """A process that we started and that leads a session. `reap` returns its exit code, None while it runs."""

    def __init__(self, pid: int, reap: Callable[[], int | None]) -> None:
        self.pid, self._reap = pid, reap
        self._is_over = False

    def has_exited(self) -> bool:
        """Return whether the leader has exited; everything that it has started is ended at the same moment."""
        if not self._is_over and (seen := _look(self.pid, self._reap)) != "runs":
            self._is_over = True
            if seen == "waits" or not _exists(self.pid):  # otherwise another process may have this number by now
                kill_trees([self.pid])
            self._reap()
        return self._is_over

    def join(self, within_s: float) -> bool:
        """Wait for the leader to exit, or until this time has passed; return whether it has exited."""
        deadline = time.monotonic() + within_s
        while not self.has_exited():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(_POLL_S, left_s))
        return True


def end_groups(groups: Sequence[ProcessGroup], grace_s: float) -> None:
    """End all of these processes with everything that they have started, by SIGTERM and after the grace by SIGKILL."""
    # A leader that has exited is not reaped before `has_exited` sees it, so these numbers belong to no other process.
    running = [group for group in groups if not group.has_exited()]
    if not running:
        return
    tree = find_tree([group.pid for group in running])
    send(tree, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    for group in running:
        group.join(deadline - time.monotonic())
    kill_trees([group.pid for group in running if not group.has_exited()], tree)
    for group in running:
        group.join(KILL_WAIT_S)


def _look(pid: int, reap: Callable[[], int | None]) -> Literal["runs", "waits", "reaped"]:
    """Return whether a child of this process runs, has exited and waits to be reaped, or was reaped already."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return "runs" if reap() is None else "reaped"
    try:
        seen = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # other code has reaped it
        return "reaped"
    return "runs" if seen is None else "waits"


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


# while this process cannot act ---------------------------------------------------------------------------------------

GUARD_DELAY_S = (
    0.1  # after the cutoff: this process ends the steps itself at the cutoff, and lets programs save, if it can
)
_MIN_CHANGE_S = 0.01  # a cutoff that moves by less is not sent again


class End(NamedTuple):
    """How the guard saw a busy process end: when, on the monotonic clock, and whether the guard ended it."""

    moment: float
    by_guard: bool


class GroupGuard:
    """The guard, seen from this process; `guard` is the program.

    It ends the processes that are registered with it when this process dies, however that happens, and those that train a step
    at the cutoff. It notices the death at once, because it reads from a pipe that only this process holds.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._cutoff = math.inf
        self._ends: dict[int, End] = {}
        self._unread = b""

    def expect(self, environment: str) -> None:
        """Prepare for a process with this text in its environment: this process may die before it calls `add`."""
        self._start()
        self._write("expect", environment)

    def add(self, group: ProcessGroup) -> None:
        self._start()
        self._ends.pop(group.pid, None)
        self._write("add", group.pid)

    def _start(self) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            assert self._process.stdout is not None
            os.set_blocking(self._process.stdout.fileno(), False)
            if self._cutoff != math.inf:
                self._write("cutoff", self._cutoff)

    def forget(self, group: ProcessGroup) -> None:
        self._write("forget", group.pid)

    def set_busy(self, group: ProcessGroup, busy: bool) -> None:
        """Note whether this process trains a step, which has to end at the cutoff."""
        self._write("busy" if busy else "idle", group.pid)

    def set_cutoff(self, moment: float) -> None:
        """End the steps at this moment of the monotonic clock, unless another moment is set before."""
        if abs(moment - self._cutoff) >= _MIN_CHANGE_S:
            self._cutoff = moment
            self._write("cutoff", moment if moment != math.inf else None)

    def watch_files(self, group: ProcessGroup, logs: Sequence[str | Path], reports: Path | None = None) -> None:
        """Hold these logs to their size, and end the process if its reports grow over the same size."""
        names = [os.path.abspath(log) for log in logs]
        self._write("files", group.pid, trial_logs.MAX_BYTES, names, reports and os.path.abspath(reports))

    def find_end(self, group: ProcessGroup) -> End | None:
        """Return how this process ended, if it ended in a step and the guard has seen it."""
        if self._process is not None and self._process.stdout is not None:
            while read := _read_now(self._process.stdout.fileno()):
                *lines, self._unread = (self._unread + read).split(b"\n")
                for line in lines:
                    pid, moment, by_guard = json.loads(line)
                    self._ends[pid] = End(moment, by_guard)
        return self._ends.get(group.pid)

    def close(self) -> None:
        """End the guard; to be called when all groups are gone."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.communicate()
            self._process = None

    def _write(self, *line: Any) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError):  # the guard was ended from outside: the study can continue without it
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()


def _read_now(number: int) -> bytes:
    """Return what can be read at once from this file descriptor."""
    try:
        return os.read(number, 1 << 16)
    except OSError:
        return b""
