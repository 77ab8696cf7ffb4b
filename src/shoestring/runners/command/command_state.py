"""Remember a trial's command from one run of the study to the next, in a file in the trial's folder.

The file names the process that is running and when it started. A run that was killed together with its guard (see `GroupGuard`)
leaves such a process behind. The next run ends it first, so that it cannot write into checkpoints that others continue from. A
process number alone proves nothing, since numbers are used again: the time it started must agree too.
"""

from __future__ import annotations

import json
import signal
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from shoestring.runners.process.guard import find_tree, kill_trees, look_at, send
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
    found = look_at(pid)
    return "" if found is None or found.is_zombie else found.started


def end_leftover(folder: Path) -> None:
    """End the command that a killed run left running for this trial, with everything that it has started."""
    state = CommandState.read(folder)
    if not state.pid:
        return
    if started_at(state.pid) == state.started != "":
        tree = find_tree([state.pid])
        send(tree, signal.SIGTERM)
        _wait_for_end(state, GRACE_S)
        kill_trees([state.pid], tree)
        _wait_for_end(state, KILL_WAIT_S)
    replace(state, pid=0, started="").write(folder)


def _wait_for_end(state: CommandState, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while started_at(state.pid) == state.started and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def read_saved_step(folder: Path) -> int:
    """Return the step that a trial's checkpoint directory is known to hold, 0 if none."""
    return CommandState.read(folder).saved_step if is_filled(folder / "checkpoint") else 0


def is_filled(directory: Path) -> bool:
    return directory.is_dir() and any(directory.iterdir())
