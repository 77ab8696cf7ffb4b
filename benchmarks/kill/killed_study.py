"""One study from its first start to its end: at random times it is killed and resumed, or something else happens to it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from benchmarks.kill.studies import StudyToKill
from shoestring.errors import ShoestringError
from shoestring.runners.command.command_state import started_at

_MAX_RUN_S = {"simulated": 1.0, "local": 1.2, "command": 1.5, "process": 2.5}
_TIMEOUT_S = 300.0
_OUTAGE_S = (1.0, 9.0)  # for how long a store is away, or a driver stopped
_GONE_S = 30.0  # for children to end after their study; on a busy machine even that takes a moment


class ForkServer:
    """The client of the process in `fork_server.py`, which starts runs."""

    def __enter__(self) -> ForkServer:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.kill.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)},
            start_new_session=True,
        )
        self._codes: dict[int, int] = {}
        self._waiting = b""
        self._started: list[int] = []
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def start(self, study: StudyToKill) -> int:
        assert self._process.stdin is not None
        start = {"folder": str(study.folder), "words": study.words, "environment": study.environment}
        self._process.stdin.write(json.dumps({**start, "stored": str(study.stored)}).encode() + b"\n")
        self._process.stdin.flush()
        deadline = time.monotonic() + _TIMEOUT_S
        while not self._started:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the fork server does not answer")
            self.listen(0.05)
        return self._started.pop()

    def listen(self, within_s: float) -> None:
        """Read its messages about runs that began or ended."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], within_s)[0]:
            return
        *lines, self._waiting = (self._waiting + os.read(self._process.stdout.fileno(), 1 << 16)).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if isinstance(message, int):
                self._started.append(message)
            else:
                number, code = message
                self._codes[number] = code

    def exit_code(self, number: int) -> int | None:
        """Return the exit code of a run, None while it runs. Each number can be read once."""
        return self._codes.pop(number, None)

    def wait_for(self, number: int) -> int:
        deadline = time.monotonic() + _TIMEOUT_S
        while (code := self.exit_code(number)) is None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"process {number} does not end")
            self.listen(0.05)
        return code

    def run_to_end(self, study: StudyToKill) -> None:
        code = self.wait_for(self.start(study))
        if code != 0:
            raise RuntimeError(f"a study without kills ended with {code}: {_output(study)}")


class KilledStudy:
    """A study and its kills so far; `troubles` are the violations that were found."""

    def __init__(self, study: StudyToKill, fork_server: ForkServer, chance: random.Random, max_kills: int) -> None:
        self.study, self._fork_server, self._chance, self._most_kills = study, fork_server, chance, max_kills
        self.kills, self.is_over = 0, False
        self.lost_entries = 0
        self.troubles: list[str] = []
        self._seen_bodies: list[str] = []  # bodies of all entries seen in the store
        self._slowdown = 1.0
        self._end_outage: Callable[[], None] | None = None
        self._outage_until = self._look_at = 0.0
        self.largest_log_bytes = 0
        self._start()

    def advance(self, *, may_kill: bool) -> int:
        """Check the study, and kill or resume it. Return 1 if it was killed, or something else happened to it, in this call."""
        self._look_at_logs()
        if self._end_outage is not None and time.monotonic() >= self._outage_until:
            self._end_outage()
            self._end_outage = None
            self._kill_at = time.monotonic() + self._chance.uniform(0.5, _MAX_RUN_S[self.study.case.kind])
        code = self._fork_server.exit_code(self._number)
        if code is not None:
            self.is_over = True
            if self._end_outage is not None:
                self._end_outage()
            # In a flood most steps have no end, and kills may use up a budget of time: then a study has no result.
            if code not in ((0, 3) if self.study.case.unit == "seconds" else (0,)):
                self.troubles.append(f"it ended with {code}: {_output(self.study)}")
            self._check_entries()
            self._check_children()
            return 0
        if not may_kill or self.kills >= self._most_kills:
            return 0
        if time.monotonic() < self._kill_at or self._end_outage is not None:
            return 0
        if self.study.case.world in ("away", "stop"):
            if not _complete_lines(self.study.stored):  # a store that never answered is an error
                return 0
            begun = self._begin_outage()
            self.kills += begun
            return int(begun)
        if self.study.case.world == "children":
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._number, signal.SIGKILL)
        else:
            kill_tree(self._number)
        was_killed = self._fork_server.wait_for(self._number) == -signal.SIGKILL
        self.kills += was_killed
        before = len(self._seen_bodies)
        self._check_entries()
        self._check_children()
        # A run that makes no progress because the machine is busy gets more time.
        self._slowdown = 1.0 if len(self._seen_bodies) > before else min(8.0, 1.5 * self._slowdown)
        self._start()
        return int(was_killed)

    def _start(self) -> None:
        self._number = self._fork_server.start(self.study)
        longest_s = _MAX_RUN_S[self.study.case.kind] * self._slowdown
        self._kill_at = time.monotonic() + self._chance.uniform(0.0, longest_s)

    def _begin_outage(self) -> bool:
        """Stop the driver, lock its SQLite file, or stop its server, for some seconds; return False if that is not possible."""
        number, server = self._number, self.study.server
        if self.study.case.world == "stop":
            os.kill(number, signal.SIGSTOP)
            self._end_outage = lambda: _send(number, signal.SIGCONT)
        elif server is not None:
            server.stop()
            self._end_outage = server.launch
        else:
            path = self.study.folder / "store.db"
            if not path.exists():
                return False
            lock = sqlite3.connect(path, timeout=0.2, isolation_level=None)
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:
                lock.close()
                return False
            self._end_outage = lock.close
        self._outage_until = time.monotonic() + self._chance.uniform(*_OUTAGE_S)
        return True

    def _check_children(self) -> None:
        """Check that nothing that the training code has started outlives it."""
        deadline = time.monotonic() + _GONE_S
        while alive := [pid for pid in self.study.children if started_at(pid)]:
            if time.monotonic() > deadline:
                self.troubles.append(f"{len(alive)} children live on")
                return
            time.sleep(0.05)

    def _look_at_logs(self) -> None:
        if self.study.case.world == "flood" and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + 0.1
            for log in self.study.folder.rglob("std*.txt"):
                with contextlib.suppress(OSError):
                    self.largest_log_bytes = max(self.largest_log_bytes, log.stat().st_size)

    def _check_entries(self) -> None:
        """Check that all entries that were seen before, or reported as stored, exist and are the same."""
        try:
            ledger = self.study.read()
        except ShoestringError as error:
            self.troubles.append(str(error))
            return
        found = [repr(entry) for entry in ledger.entries()] if ledger is not None else []
        reported = max((int(line) for line in _complete_lines(self.study.stored)), default=0)
        same = sum(1 for mine, theirs in zip(self._seen_bodies, found, strict=False) if mine == theirs)
        self.lost_entries += max(len(self._seen_bodies) - same, reported - len(found), 0)
        self._seen_bodies = found


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_tree(number: int) -> None:
    """Send SIGKILL to a process and all its descendants; stop them first, so that no new one is missed."""
    killed: set[int] = set()
    for _ in range(20):
        tree = _process_tree(number) - killed
        if not tree:
            break
        for member in sorted(tree):
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGSTOP)
        if _process_tree(number) - killed == tree:
            break
    for member in sorted(_process_tree(number)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)


def _process_tree(number: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                after_name = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(after_name[1]), []).append(int(entry))
    found, todo = set(), [number]
    while todo:
        member = todo.pop()
        found.add(member)
        todo += children.get(member, [])
    return found


def _complete_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    *complete, _ = path.read_text().split("\n")  # the last line may be incomplete
    return complete


def work_done_s(study: StudyToKill) -> tuple[float, float]:
    """Return the seconds of all work in the training code's log, and those of the longest step."""
    lines = _complete_lines(study.log)
    steps = [float(line.removeprefix("step ")) for line in lines if line.startswith("step ")]
    return sum(float(line) for line in lines if not line.startswith("step ")), max(steps, default=0.0)


def _output(study: StudyToKill) -> str:
    path = study.folder / "output.txt"
    return " ".join(path.read_text(errors="replace").split())[-600:] if path.exists() else "no output"
