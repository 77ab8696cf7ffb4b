"""One study from its first start to its end: killed at random moments with all its workers, looked at, and resumed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from benchmarks.kill.studies import VictimStudy
from shoestring.errors import ShoestringError

_LONGEST_LIFE_S = {"simulated": 1.0, "local": 1.2, "command": 1.5, "process": 2.5}
_PATIENCE_S = 300.0


class Nursery:
    """The process that starts runs, from here."""

    def __enter__(self) -> Nursery:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.kill.nursery"],
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

    def start(self, study: VictimStudy) -> int:
        assert self._process.stdin is not None
        start = {"folder": str(study.folder), "words": study.words, "environment": study.environment}
        self._process.stdin.write(json.dumps({**start, "stored": str(study.stored)}).encode() + b"\n")
        self._process.stdin.flush()
        deadline = time.monotonic() + _PATIENCE_S
        while not self._started:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the nursery does not answer")
            self.listen(0.05)
        return self._started.pop()

    def listen(self, within_s: float) -> None:
        """Take in what it says about runs that began or ended."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], within_s)[0]:
            return
        *lines, self._waiting = (self._waiting + os.read(self._process.stdout.fileno(), 1 << 16)).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if isinstance(said, int):
                self._started.append(said)
            else:
                self._codes[said[0]] = said[1]

    def exit_code(self, number: int) -> int | None:
        """None while it runs; a number is asked for once."""
        return self._codes.pop(number, None)

    def wait_for(self, number: int) -> int:
        deadline = time.monotonic() + _PATIENCE_S
        while (code := self.exit_code(number)) is None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"process {number} does not end")
            self.listen(0.05)
        return code

    def run_to_its_end(self, study: VictimStudy) -> None:
        code = self.wait_for(self.start(study))
        if code != 0:
            raise RuntimeError(f"a study that nobody killed ended with {code}: {_output(study)}")


class Life:
    """A study and its kills so far; `troubles` are what should not have happened."""

    def __init__(self, study: VictimStudy, nursery: Nursery, chance: random.Random, most_kills: int) -> None:
        self.study, self._nursery, self._chance, self._most_kills = study, nursery, chance, most_kills
        self.kills, self.is_over = 0, False
        self.lost_entries = 0
        self.troubles: list[str] = []
        self._known: list[str] = []  # bodies of all entries seen in the store
        self._patience = 1.0
        self._start()

    def go_on(self, *, may_kill: bool) -> int:
        """Look at it: 1 if it was killed just now."""
        code = self._nursery.exit_code(self._number)
        if code is not None:
            self.is_over = True
            if code != 0:
                self.troubles.append(f"it ended with {code}: {_output(self.study)}")
            self._look()
            return 0
        if not may_kill or self.kills >= self._most_kills:
            return 0
        if time.monotonic() < self._kill_at:
            return 0
        kill_tree(self._number)
        was_killed = self._nursery.wait_for(self._number) == -signal.SIGKILL
        self.kills += was_killed
        before = len(self._known)
        self._look()
        # A run that gets nowhere because the machine is busy is given more time.
        self._patience = 1.0 if len(self._known) > before else min(8.0, 1.5 * self._patience)
        self._start()
        return int(was_killed)

    def _start(self) -> None:
        self._number = self._nursery.start(self.study)
        longest_s = _LONGEST_LIFE_S[self.study.case.kind] * self._patience
        self._kill_at = time.monotonic() + self._chance.uniform(0.0, longest_s)

    def _look(self) -> None:
        """Everything that was seen before, or that the store said to have, must be there and be the same."""
        try:
            ledger = self.study.read()
        except ShoestringError as error:
            self.troubles.append(str(error))
            return
        found = [repr(entry) for entry in ledger.entries()] if ledger is not None else []
        said = max((int(line) for line in _whole_lines(self.study.stored)), default=0)
        same = sum(1 for mine, theirs in zip(self._known, found, strict=False) if mine == theirs)
        self.lost_entries += max(len(self._known) - same, said - len(found), 0)
        self._known = found


def kill_tree(number: int) -> None:
    """SIGKILL for a process and all that come from it: stopped first, so that none is overlooked."""
    killed: set[int] = set()
    for _ in range(20):
        family = _family(number) - killed
        if not family:
            break
        for member in sorted(family):
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGSTOP)
        if _family(number) - killed == family:
            break
    for member in sorted(_family(number)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)


def _family(number: int) -> set[int]:
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


def _whole_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    *whole, _ = path.read_text().split("\n")  # the last one may be cut off
    return whole


def work_done_s(study: VictimStudy) -> tuple[float, float]:
    """By the training code's own log: all of it, and the longest step."""
    lines = _whole_lines(study.log)
    steps = [float(line.removeprefix("step ")) for line in lines if line.startswith("step ")]
    return sum(float(line) for line in lines if not line.startswith("step ")), max(steps, default=0.0)


def _output(study: VictimStudy) -> str:
    path = study.folder / "output.txt"
    return " ".join(path.read_text(errors="replace").split())[-600:] if path.exists() else "it said nothing"
