"""One run of a command for one order: how it is started, what its folder holds, how it ends.

    ROOT/trial-0007/checkpoint/    the directory that the command may keep its state in
                    config.json, reports.jsonl, stdout.txt, stderr.txt, state.json

Which step does the directory hold? What the reports say with "saved". A command that never says so is believed after a
clean exit only: then a directory that is not empty holds the last step. In all other cases nothing is known, the
directory is emptied, and the trial starts from nothing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoestring.core.entries import Order, Receipt
from shoestring.core.space import Space
from shoestring.runners.command_line import CommandReport, Output, fill_in, make_environment
from shoestring.runners.command_state import CommandState, end_groups, started_at
from shoestring.runners.worker import describe_exit

_TAIL_CHARS = 2000  # of standard error, in the text of a failure


@dataclass(eq=False, slots=True)
class CommandRun:
    """A command at work. `step` and what follows is what the runner has heard of it so far."""

    order: Order
    folder: Path
    process: subprocess.Popen[bytes]
    state: CommandState
    step: int  # the last one reported
    output: Output
    errors_from: int  # where its own part of stderr.txt begins
    since: float = 0.0  # when its present step began
    has_reported: bool = False
    bare_numbers: bool = True  # count as reports
    last: Receipt | None = None  # of the order's last step, held back until the command has ended
    last_by_clock: bool = True  # the command did not tell its cost

    @classmethod
    def launch(cls, argv: Sequence[str], space: Space, order: Order, folder: Path, step: int) -> CommandRun:
        """Start the command where its directory holds `step`; with 0 the directory is emptied first."""
        checkpoint, config, reports = folder / "checkpoint", folder / "config.json", folder / "reports.jsonl"
        state = CommandState.of(folder)
        if step == 0 and checkpoint.is_dir():
            shutil.rmtree(checkpoint)
        checkpoint.mkdir(parents=True, exist_ok=True)
        config.write_text(json.dumps(dict(order.config)) + "\n", encoding="utf-8")
        reports.write_bytes(b"")
        places = {"config": str(config), "checkpoint": str(checkpoint), "step": str(step), "until": str(order.until)}
        # From now on the directory may change at any time; only a command that says what it saved is still believed.
        state = replace(state, saved=step if state.tells else 0)
        state.write(folder)
        with (folder / "stderr.txt").open("ab") as errors:
            errors_from = errors.tell()
            process = subprocess.Popen(
                fill_in(argv, space, order.config, places),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=make_environment(order, config, checkpoint, step, reports),
                start_new_session=True,  # Ctrl-C does not reach it, and its own children can be ended with it
            )
        state = replace(state, pid=process.pid, started=started_at(process.pid))
        state.write(folder)
        assert process.stdout is not None
        output = Output(process.stdout, folder / "stdout.txt", reports)
        return cls(order, folder, process, state, step, output, errors_from)

    def note_saved(self, report: CommandReport, step: int) -> None:
        """What a report says about the checkpoint directory, at `step`."""
        if report.saved is False:
            return
        saved = step if report.saved is True else report.saved
        if saved > step:
            raise ValueError(f"the command saved step {saved}, but has reported {step} only: report it first")
        self.remember(saved=saved, tells=True)

    def trust_its_exit(self) -> None:
        """It ended well: a command that never says what it saved is believed now."""
        if not self.state.tells and _is_filled(self.folder / "checkpoint"):
            self.remember(saved=self.step)

    def remember(self, **facts: Any) -> None:
        self.state = replace(self.state, **facts)
        self.state.write(self.folder)

    def end(self) -> None:
        """Make sure that it has ended, and that this is known to whoever comes after us."""
        end_groups([self.process])
        self.output.pipe.close()
        self.remember(pid=0, started="")

    def exit_text(self, code: int) -> str:
        with (self.folder / "stderr.txt").open("rb") as errors:
            errors.seek(self.errors_from)
            tail = errors.read().decode(errors="replace").strip()[-_TAIL_CHARS:]
        return f"the command {describe_exit(code)}" + (f": {tail}" if tail else "")


def held_step(folder: Path) -> int:
    """The step that a trial's checkpoint directory is known to hold, 0 if none."""
    return CommandState.of(folder).saved if _is_filled(folder / "checkpoint") else 0


def _is_filled(directory: Path) -> bool:
    return directory.is_dir() and any(directory.iterdir())
