"""What is known about a trial's command between runs of ours, kept in its folder.

The file names the process that is running and when it started. A run of ours that was killed together with its watch
leaves such a process behind; the next one ends it before anything else, so that it cannot write into checkpoints that
others go on from. A process number alone proves nothing, since numbers are used again: the time it started must agree too.
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

GRACE_S = 0.5  # between SIGTERM and SIGKILL
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
    return _ask_ps(pid)


def _ask_ps(pid: int) -> str:
    """The same where there is no /proc, as on macOS."""
    columns = ["-o", "stat=", "-o", "lstart="]
    listed = subprocess.run(["ps", *columns, "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = listed.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else started.strip()


def end_leftover(folder: Path) -> None:
    """End the command that a killed run of ours left running for this trial."""
    state = CommandState.of(folder)
    if not state.pid:
        return
    for number, patience_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + patience_s
        if started_at(state.pid) == state.started != "":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(state.pid, number)
        while started_at(state.pid) == state.started != "" and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
    replace(state, pid=0, started="").write(folder)
