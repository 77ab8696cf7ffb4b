"""End a process together with all processes that it has started: they form one process group.

Training code starts children: data loaders, servers, shells. They belong to the group of the process that we started, which
leads a session of its own. A group can be signalled as long as any member is alive, and meanwhile the number of its leader is not
given to another process. So the group is ended when its leader is found to have exited, before the leader is reaped. A child that
begins a session of its own (`setsid`, `start_new_session=True`) cannot be reached and lives on.

Linux and macOS support all of this. Windows does not: there only the local runner works, and `require_posix` says so.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Literal

from shoestring.errors import RunnerError

IS_WINDOWS = os.name == "nt"
_POLL_S = 0.002
KILL_WAIT_S = 5.0  # for a process to end after SIGKILL: the system may first have to finish what it writes to a disk


def require_posix(what: str) -> None:
    if IS_WINDOWS:
        raise RunnerError(f"{what} does not work on Windows: use the local runner with one worker, or WSL")


class ProcessGroup:
    """A process that we started and that leads a group. `reap` returns its exit code, None while it runs."""

    def __init__(self, pid: int, reap: Callable[[], int | None]) -> None:
        self.pid, self._reap = pid, reap
        self._is_over = False

    def has_exited(self) -> bool:
        """Return whether the leader has exited; the rest of its group is ended at the same moment."""
        if not self._is_over and (seen := _look(self.pid, self._reap)) != "runs":
            self._is_over = True
            if seen == "waits" or not _exists(self.pid):  # otherwise another process may have this number by now
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
            self._reap()
        return self._is_over

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group. Its leader is not reaped yet, so the number cannot belong to another one."""
        if self.has_exited():
            return
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):  # it does not lead a session yet
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

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
    """End all of these groups, by SIGTERM and after the grace by SIGKILL."""
    for group in groups:
        group.signal(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    running = [group for group in groups if not group.join(deadline - time.monotonic())]
    for group in running:
        group.signal(signal.SIGKILL)
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


# if this process dies ------------------------------------------------------------------------------------------------

_GUARD_CODE = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""


class GroupGuard:
    """A small process that ends the groups registered with it when this process dies, however that happens.

    It reads from a pipe that only this process holds, so it notices the end at once. It leads a session of its own, so a
    signal to our session does not reach it.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, group: ProcessGroup) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _GUARD_CODE],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._write("+", group)

    def forget(self, group: ProcessGroup) -> None:
        self._write("-", group)

    def close(self) -> None:
        """End the guard; to be called when all groups are gone."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.communicate()
            self._process = None

    def _write(self, sign: str, group: ProcessGroup) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError):  # the guard was ended from outside: the study can continue without it
            self._process.stdin.write(f"{sign}{group.pid}\n".encode())
            self._process.stdin.flush()
