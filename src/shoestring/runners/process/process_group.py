"""A process that leads a session of its own, with everything that it started: ended together, on every way out.

Training code starts children: loaders, servers, shells. They belong to the group of the process that we started, and a
group can be signalled as long as any member lives, its leader's number being kept from others meanwhile. So the group is
ended at the moment its leader is seen to be gone, before the leader is reaped. A child that leaves for a session of its
own (`setsid`, `start_new_session=True`) is out of our reach and lives on.

Linux and macOS have all of this. Windows has not: there the local runner works, and `require_posix` says so.
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
_LOOK_S = 0.002


def require_posix(what: str) -> None:
    if IS_WINDOWS:
        raise RunnerError(f"{what} does not work on Windows: use the local runner with one worker, or WSL")


class ProcessGroup:
    """A process that we started, leading a group, and how to wait for it: `reap` gives None while it runs."""

    def __init__(self, pid: int, reap: Callable[[], int | None]) -> None:
        self.pid, self._reap = pid, reap
        self._is_over = False

    def has_exited(self) -> bool:
        """Whether the leader is gone; what it left of its group goes at the same moment."""
        if not self._is_over and (seen := _look(self.pid, self._reap)) != "runs":
            self._is_over = True
            if seen == "waits" or not _exists(self.pid):  # else the number is another's by now, and so is the group
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
            self._reap()
        return self._is_over

    def signal(self, number: signal.Signals) -> None:
        """To all of the group. Its leader is not reaped yet, so the number cannot be another's."""
        if self.has_exited():
            return
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):  # it has not got as far as leading a session
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def join(self, within_s: float) -> bool:
        """Wait so long for it to be gone; whether it is."""
        deadline = time.monotonic() + within_s
        while not self.has_exited():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(_LOOK_S, left_s))
        return True


def end_groups(groups: Sequence[ProcessGroup], grace_s: float) -> None:
    """End them all: asked by SIGTERM, and after the grace by SIGKILL."""
    for group in groups:
        group.signal(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    stubborn = [group for group in groups if not group.join(deadline - time.monotonic())]
    for group in stubborn:
        group.signal(signal.SIGKILL)
    for group in stubborn:
        group.join(5.0)


def _look(pid: int, reap: Callable[[], int | None]) -> Literal["runs", "waits", "reaped"]:
    """Whether a child of ours runs, has exited and waits to be reaped, or was reaped already."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return "runs" if reap() is None else "reaped"
    try:
        seen = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # by somebody else
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


# if we die ourselves ---------------------------------------------------------------------------------------------------

_WATCHING = """
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


class Watch:
    """A small process that ends the groups it was told of when this process dies, however that happens.

    It reads from a pipe that only we hold, so it sees our end at once, and it leads a session of its own, so a signal to
    ours does not reach it.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, group: ProcessGroup) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _WATCHING],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._tell("+", group)

    def forget(self, group: ProcessGroup) -> None:
        self._tell("-", group)

    def close(self) -> None:
        """When all groups are gone."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.communicate()
            self._process = None

    def _tell(self, sign: str, group: ProcessGroup) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError):  # somebody has ended it: a precaution less
            self._process.stdin.write(f"{sign}{group.pid}\n".encode())
            self._process.stdin.flush()
