"""Remember a trial's command from one run of the study to the next, in a file in the trial's folder.

The file names the process that is running and when it started. A run that was killed together with its guard (see `GroupGuard`)
leaves such a process behind. The next run ends it first, so that it cannot write into checkpoints that others continue from. A
process number alone proves nothing, since numbers are used again: the time it started must agree too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from shoestring.runners.process.process_group import KILL_WAIT_S

GRACE_S = 0.5  # between SIGTERM and SIGKILL
_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class CommandState:
    """The contents of the file."""

    saved_step: int = 0  # the step that the checkpoint directory is known to hold
    reports_saves: bool = False  # the command reports what it saved, so it is trusted before its exit, too
    pid: int = 0
    started: str = ""

    @classmethod
    def read(cls, folder: Path) -> CommandState:
        """Return the state in this folder; if the file is missing or damaged, a state that says that nothing is known."""
        try:
            found = cls(**json.loads((folder / "state.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls()
        kinds = [type(value) for value in asdict(found).values()]
        is_valid = kinds == [int, bool, int, str] and min(found.saved_step, found.pid) >= 0
        return found if is_valid else cls()

    def write(self, folder: Path) -> None:
        new = folder / "state.json.new"
        new.write_text(json.dumps(asdict(self)), encoding="utf-8")
        new.replace(folder / "state.json")


def started_at(pid: int) -> str:
    """Return when a process started, as text that no other process with its number has; empty when it is gone."""
    if Path("/proc/self/stat").exists():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if fields[0] == "Z" else fields[19]
    return _ask_ps(pid)


def _ask_ps(pid: int) -> str:
    """Return what `started_at` returns, where there is no /proc, as on macOS."""
    columns = ["-o", "stat=", "-o", "lstart="]
    listed = subprocess.run(["ps", *columns, "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = listed.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else started.strip()


def end_leftover(folder: Path) -> None:
    """End the command that a killed run left running for this trial."""
    state = CommandState.read(folder)
    if not state.pid:
        return
    for number, grace_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, KILL_WAIT_S)):
        deadline = time.monotonic() + grace_s
        if started_at(state.pid) == state.started != "":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(state.pid, number)
        while started_at(state.pid) == state.started != "" and time.monotonic() < deadline:
            time.sleep(_POLL_S)
    replace(state, pid=0, started="").write(folder)


def read_saved_step(folder: Path) -> int:
    """Return the step that a trial's checkpoint directory is known to hold, 0 if none."""
    return CommandState.read(folder).saved_step if is_filled(folder / "checkpoint") else 0


def is_filled(directory: Path) -> bool:
    return directory.is_dir() and any(directory.iterdir())
