"""One run of a command: how it is started, what its folder holds, how it ends.

An order is one run, unless steps that were lost are run again and had other configs: then it is a run for each stretch of
steps with one config, a leg.

    ROOT/trial-0007/checkpoint/    the directory that the command may keep its state in
                    config.json, reports.jsonl, stdout.txt, stderr.txt, state.json

A step that no report mentions, because the next report is further on, was trained but not looked at: it gets a receipt
without a value and an even share of the cost, and does not count as diverged, whatever validation was bought. A report
that says `null` where a value was bought does. The receipt of the last step is held back until the command has ended,
since only then it is known whether the step was saved; the time in between is that step's.

Which step does the directory hold? What the reports say with "saved". A command that never says so is believed after a
clean exit only: then a directory that is not empty holds the last step. In all other cases nothing is known, the
directory is emptied, and the trial starts from nothing.

What is known about a trial's command between runs of ours, kept in its folder.

The file names the process that is running and when it started. A run of ours that was killed together with its watch
leaves such a process behind; the next one ends it before anything else, so that it cannot write into checkpoints that
others go on from. A process number alone proves nothing, since numbers are used again: the time it started must agree too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shoestring.core.ledger.entries import Cost, Lost, Order, Receipt
from shoestring.core.space.space import Config, Space
from shoestring.runners.checkpoints.trial_logs import STDERR, STDOUT
from shoestring.runners.command.command_line import CommandReport, Output, fill_in, make_environment
from shoestring.runners.process.process_group import ProcessGroup, end_groups
from shoestring.runners.process.worker import describe_exit
from shoestring.runners.runner import News, config_at, write_receipt

_TAIL_CHARS = 2000  # of standard error, in the text of a failure


@dataclass(eq=False, slots=True)
class CommandRun:
    """A command at work. `step` and what follows is what the runner has heard of it so far."""

    order: Order
    former: Sequence[Config]  # of steps that may have to be run again
    slot: int  # the worker that its order has
    folder: Path
    group: ProcessGroup
    process: subprocess.Popen[bytes]
    state: CommandState
    began_at: int  # the step that it went on from
    until: int  # the last step of this leg
    step: int  # the last one reported
    output: Output
    errors_from: int  # where its own part of stderr.txt begins
    since: float = 0.0  # when its present step began
    has_reported: bool = False
    bare_numbers: bool = True  # count as reports
    last: Receipt | None = None  # of its last step, held back until the command has ended
    last_by_clock: bool = True  # the command did not tell its cost

    @classmethod
    def launch(
        cls,
        argv: Sequence[str],
        space: Space,
        order: Order,
        former: Sequence[Config],
        folder: Path,
        step: int,
        slot: int,
        device: str = "",
        max_steps: int = 1,
    ) -> CommandRun:
        """Start the command where its directory holds `step`; with 0 the directory is emptied first."""
        checkpoint, config, reports = folder / "checkpoint", folder / "config.json", folder / "reports.jsonl"
        values, until = config_at(step + 1, order, former), end_of_leg(step, order, former)
        validate = "none" if order.validate == "last" and until < order.until else order.validate
        state = CommandState.of(folder)
        if step == 0 and checkpoint.is_dir():
            shutil.rmtree(checkpoint)
        checkpoint.mkdir(parents=True, exist_ok=True)
        config.write_text(json.dumps(dict(values)) + "\n", encoding="utf-8")
        reports.write_bytes(b"")
        places = {"config": str(config), "checkpoint": str(checkpoint)}
        places |= {"step": str(step), "until": str(until), "max_steps": str(max_steps)}
        # From now on the directory may change at any time; only a command that says what it saved is still believed.
        state = replace(state, saved=step if state.tells else 0)
        state.write(folder)
        with (folder / STDERR).open("ab") as errors:
            errors_from = errors.tell()
            process = subprocess.Popen(
                fill_in(argv, space, values, places),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=make_environment(places, reports, validate, device),
                start_new_session=True,  # Ctrl-C does not reach it, and its own children can be ended with it
            )
        state = replace(state, pid=process.pid, started=started_at(process.pid))
        state.write(folder)
        assert process.stdout is not None
        output, group = Output(process.stdout, folder / STDOUT, reports), ProcessGroup(process.pid, process.poll)
        return cls(order, former, slot, folder, group, process, state, step, until, step, output, errors_from)

    def take_report(self, report: CommandReport, now: float, worker: str) -> list[News]:
        """The receipts of the steps that a report is about; that of the run's last step is held back."""
        order, step = self.order, report.step or self.step + 1
        news: list[News] = []
        if step <= self.step and not self.has_reported:
            news.append(Lost(trial=order.trial, held=step - 1, why=f"the command went on from step {step - 1}"))
            self.step = step - 1
            self.remember(saved=min(self.state.saved, self.step))
        if step <= self.step:
            raise ValueError(f"the command reported step {step} after step {self.step}: steps go up")
        if step > self.until:
            raise ValueError(
                f"the command reported step {step}, but was to stop after step {self.until}: see SHOESTRING_UNTIL"
            )
        count = step - self.step
        whole = report.cost or Cost(train=max(0.0, now - self.since))
        share = Cost(setup=whole.setup / count, train=whole.train / count, validate=whole.validate / count)
        for skipped in range(self.step + 1, step):
            unseen = write_receipt(order, skipped, None, share, at=now, saved=self.state.saved, worker=worker)
            news.append(replace(unseen, status="ok", text=""))
        self.note_saved(report, step)
        paid = write_receipt(
            order, step, report.value, share, at=now, saved=self.state.saved, worker=worker, metrics=report.metrics
        )
        self.step, self.since, self.has_reported = step, now, True
        if step < self.until:
            return [*news, paid]
        self.last, self.last_by_clock = paid, report.cost is None
        return news

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
        end_groups([self.group], GRACE_S)
        self.output.pipe.close()
        self.remember(pid=0, started="")

    def exit_text(self, code: int) -> str:
        with (self.folder / STDERR).open("rb") as errors:
            size = errors.seek(0, os.SEEK_END)
            begin = self.errors_from if self.errors_from <= size else 0  # a long log was cut
            errors.seek(max(begin, size - 4 * _TAIL_CHARS))
            tail = errors.read().decode(errors="replace").strip()[-_TAIL_CHARS:]
        return f"the command {describe_exit(code)}" + (f": {tail}" if tail else "")


def end_of_leg(step: int, order: Order, former: Sequence[Config]) -> int:
    """The last step, from `step` on, that has the config of the next one."""
    config, until = config_at(step + 1, order, former), step + 1
    while until < order.until and config_at(until + 1, order, former) == config:
        until += 1
    return until


def held_step(folder: Path) -> int:
    """The step that a trial's checkpoint directory is known to hold, 0 if none."""
    return CommandState.of(folder).saved if _is_filled(folder / "checkpoint") else 0


def _is_filled(directory: Path) -> bool:
    return directory.is_dir() and any(directory.iterdir())


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
