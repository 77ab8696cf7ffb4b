"""What is known about a trial's command between runs of ours, kept in its folder; and how commands are ended.

The file names the process that is running and when it started. A run of ours that was killed leaves such a process behind;
the next one ends it before anything else, so that it cannot write into checkpoints that others go on from. A process
number alone proves nothing, since numbers are used again: the time it started must agree too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

_GRACE_S = 0.5  # between SIGTERM and SIGKILL
_LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class CommandState:
    """What a trial's folder says about its command."""

    saved: int = 0  # the step that the checkpoint directory is known to hold
    tells: bool = False  # the command reports what it saved, so it is believed while it runs, too
    pid: int = 0
    started: str = ""

    @classmethod
    def of(cls, folder: Path) -> CommandState:
        try:
            found = cls(**json.loads((folder / "state.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):  # none, or cut short: nothing is known
            return cls()
        kinds = [type(value) for value in asdict(found).values()]
        return found if kinds == [int, bool, int, str] and min(found.saved, found.pid) >= 0 else cls()  # or damaged

    def write(self, folder: Path) -> None:
        new = folder / "state.json.new"
        new.write_text(json.dumps(asdict(self)), encoding="utf-8")
        new.replace(folder / "state.json")


def started_at(pid: int) -> str:
    """Text that tells this process from any other that had its number before; empty when it is gone."""
    if Path("/proc/self/stat").exists():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if fields[0] == "Z" else fields[19]
    listed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.strip()


def end_leftover(folder: Path) -> None:
    """End the command that a killed run of ours left running for this trial."""
    state = CommandState.of(folder)
    if not state.pid:
        return
    for number, patience_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + patience_s
        if started_at(state.pid) == state.started != "":
            _signal(state.pid, number)
        while started_at(state.pid) == state.started != "" and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
    replace(state, pid=0, started="").write(folder)


def has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Without reaping it: its number, and that of its group, stay its own until `end_groups`."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def end_groups(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End commands and whatever they started, and reap them."""
    present = [process for process in processes if process.returncode is None]
    for process in present:
        _signal(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_S
    while not all(has_exited(process) for process in present) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    for process in present:
        _signal(process.pid, signal.SIGKILL)
        process.wait()


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
