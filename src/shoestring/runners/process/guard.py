"""The guard: a small process that ends training when the process that started it cannot, and holds its logs to their size.

This file is also a program. `GroupGuard` in `process_group` starts it without the package, because importing that takes long, and
sends it lines of JSON through a pipe that nobody else holds:

    ["expect", TEXT]              a process with this text in its environment is about to be started
    ["add", PID]                  a leader: a process that leads a session of its own; nothing is expected any more
    ["forget", PID]               it has ended
    ["busy", PID], ["idle", PID]  it trains a step; it does not
    ["cutoff", SECONDS]           the moment, on the monotonic clock, at which all busy leaders are to be ended; null: none
    ["files", PID, MAX_BYTES, [LOG, …], REPORTS]   files that it writes; REPORTS may be null

The guard answers with a line [PID, SECONDS, BY_GUARD] for each busy leader that has ended, and when. It ends leaders with all
that they have started (see `find_tree`): at the cutoff, when a file with reports grows over MAX_BYTES, and, all of them, when the
pipe is closed, because then the process that holds it has died. A log that grows over MAX_BYTES loses its oldest part. The guard
leads a session of its own, so a signal to our session does not reach it, and it waits for nobody: the cutoff holds also while
our process is stopped, or waits for a database.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

_TICK_S = 0.05  # how often files and busy leaders are looked at
_IDLE_TICK_S = 0.5  # how often the files of paused trials are looked at
_MAX_ROUNDS = 20  # of looking for processes that were started meanwhile
_HAS_PROC = os.path.exists("/proc/self/stat")


# processes that belong together --------------------------------------------------------------------------------------


class Found(NamedTuple):
    """A process in the list of all processes."""

    parent: int
    session: int
    started: str  # text that no other process with its number has
    is_zombie: bool


def look_at(pid: int) -> Found | None:
    """Return what the system says about a process; None if there is none."""
    if not _HAS_PROC:
        return dict(_ask_ps("-p", str(pid))).get(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return Found(int(fields[1]), int(fields[3]), fields[19].decode(), fields[0] in (b"Z", b"X"))


def list_processes() -> dict[int, Found]:
    """Return all processes that can be seen, by number."""
    if not _HAS_PROC:
        return dict(_ask_ps("-A"))
    seen = ((int(name), look_at(int(name))) for name in os.listdir("/proc") if name.isdigit())
    return {pid: found for pid, found in seen if found is not None}


def _ask_ps(*which: str) -> Iterator[tuple[int, Found]]:
    """Yield (number, process) where there is no /proc, as on macOS."""
    columns = ["-o", "pid=", "-o", "ppid=", "-o", "stat=", "-o", "lstart="]
    listed = subprocess.run(["ps", *which, *columns], capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        pid, parent, state, started = line.split(None, 3)
        try:
            session = os.getsid(int(pid))
        except OSError:
            session = 0
        yield int(pid), Found(int(parent), session, started.strip(), state.startswith("Z"))


def find_tree(leaders: Collection[int]) -> dict[int, str]:
    """Return the living processes that belong to these leaders, as {number: start}; the leaders are among them.

    These are all processes of their sessions, whatever their groups, and all descendants of those. Only a process that began a
    session of its own, and whose parent has ended, cannot be found.
    """
    processes = list_processes()
    tree = {pid for pid, found in processes.items() if pid in leaders or found.session in leaders}
    children: dict[int, list[int]] = {}
    for pid, found in processes.items():
        children.setdefault(found.parent, []).append(pid)
    todo = list(tree)
    while todo:
        new = [pid for pid in children.get(todo.pop(), ()) if pid not in tree]
        tree.update(new)
        todo += new
    return {pid: processes[pid].started for pid in tree if not processes[pid].is_zombie}


def find_by_environment(text: str) -> list[int]:
    """Return the processes that were started with this text in their environment; none where there is no /proc."""
    found: list[int] = []
    for pid in list_processes() if _HAS_PROC else ():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as environment:
            found += [pid] if text.encode() in environment.read().split(b"\0") else []
    return found


def send(pids: Collection[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_trees(leaders: Collection[int], seen: Mapping[int, str] | None = None, *, spare: int = 0) -> None:
    """Kill all processes that belong to these leaders, except `spare`, and those of `seen` (number: start) that still live.

    They are stopped before any of them is killed. Otherwise one could start another one unseen, and a child that leads a session
    could not be found once its parent is gone.
    """
    stopped = {pid for pid, started in (seen or {}).items() if (found := look_at(pid)) and found.started == started}
    send(stopped, signal.SIGSTOP)
    for _ in range(_MAX_ROUNDS):
        new = find_tree(leaders).keys() - stopped - {spare}
        if not new:
            break
        send(new, signal.SIGSTOP)
        stopped |= new
    send(stopped, signal.SIGKILL)


def kill_own_tree() -> None:
    """Kill everything that this process has started, and then this process with its group."""
    kill_trees([os.getpid()], spare=os.getpid())
    os.killpg(0, signal.SIGKILL)


# files ---------------------------------------------------------------------------------------------------------------


def cut_file(path: str, max_bytes: int) -> None:
    """Cut the oldest part off a file that is longer than this. What is written to it at the same moment may be lost."""
    with contextlib.suppress(OSError):  # no such file, or a full disk: it is only a log
        if os.path.getsize(path) <= max_bytes:
            return
        with open(path, "r+b") as file:
            keep = max_bytes // 2
            cut = file.seek(-keep, os.SEEK_END)
            rest = file.read(keep)  # not up to the end, which may move on as fast as it is read
            file.seek(0)
            file.write(b"[the log grew too long: %d bytes were cut off here]\n" % cut + rest)
            file.truncate()  # last, so that nobody finds an empty log


# the program ---------------------------------------------------------------------------------------------------------


class Guard:
    """The leaders, and what is to be done with them."""

    def __init__(self) -> None:
        self._leaders: dict[int, str] = {}  # their starts, by number
        self._busy: set[int] = set()
        self._files: dict[int, tuple[int, list[str], str | None]] = {}
        self._cutoff: float | None = None
        self._expected = ""

    def run(self) -> None:
        """Carry out the lines on standard input until it is closed; then end all leaders."""
        rest = b""
        while True:
            if select.select([0], [], [], self._patience_s())[0]:
                if not (read := os.read(0, 1 << 16)):
                    break
                *lines, rest = (rest + read).split(b"\n")
                for line in lines:
                    self._take(*json.loads(line))
            self._look()
        unknown = find_by_environment(self._expected) if self._expected else []
        kill_trees([*unknown, *(pid for pid in self._leaders if self._is_same(pid))])

    def _take(self, do: str, what: Any, *more: Any) -> None:
        if do == "cutoff":
            self._cutoff = what
        elif do == "add":
            found = look_at(what)
            self._leaders[what] = found.started if found else ""
            self._expected = ""
        elif do == "expect":
            self._expected = what
        elif do == "forget":
            self._leaders.pop(what, None)
            self._files.pop(what, None)
            self._busy.discard(what)
        elif do == "files":
            self._files[what] = (more[0], more[1], more[2])
        elif do == "busy":
            self._busy.add(what)
        else:
            self._busy.discard(what)

    def _patience_s(self) -> float | None:
        if not self._busy:
            return _IDLE_TICK_S if self._files else None
        return _TICK_S if self._cutoff is None else max(0.0, min(_TICK_S, self._cutoff - time.monotonic()))

    def _look(self) -> None:
        """End the busy leaders if the cutoff has come; report those that have ended; hold files to their size."""
        now = time.monotonic()
        if self._busy and self._cutoff is not None and now >= self._cutoff:
            self._end(self._busy)
        gone = {pid for pid in self._busy if (found := look_at(pid)) is None or found.is_zombie}
        for pid in gone:  # a moment after the look, because the leader may have begun its step and ended since `now`
            self._report(pid, time.monotonic(), False)
        self._busy -= gone
        for pid, (max_bytes, logs, reports) in self._files.items():
            for log in logs:
                cut_file(log, max_bytes)
            if reports is not None and pid in self._busy and _size(reports) > max_bytes:
                self._end({pid})

    def _end(self, leaders: set[int]) -> None:
        ended = [pid for pid in leaders if self._is_same(pid)]
        for pid in ended:  # first, because our process may see the end before the next line is executed
            self._report(pid, time.monotonic(), True)
        kill_trees(ended)
        for pid in ended:
            self._report(pid, time.monotonic(), True)
        self._busy -= set(leaders)

    def _is_same(self, pid: int) -> bool:
        """Return whether the number of this leader does not belong to another process by now."""
        found = look_at(pid)
        return found is None or found.started == self._leaders.get(pid)

    def _report(self, pid: int, moment: float, by_guard: bool) -> None:
        with contextlib.suppress(OSError):  # nobody reads
            os.write(1, json.dumps([pid, moment, by_guard]).encode() + b"\n")


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


if __name__ == "__main__":
    os.set_blocking(sys.stdout.fileno(), False)
    Guard().run()
