"""One run of a command: how it is started, what its folder holds, how it ends.

An order is one run. If steps that were lost are trained again and had other configs, it is one run for each stretch of steps
with the same config, called a leg.

    ROOT/trial-0007/checkpoint/    the directory in which the command may keep its state
                    config.json, reports.jsonl, stdout.txt, stderr.txt, state.json

A step that no report mentions, because the next report is for a later step, was trained but not validated: it gets a receipt
without a value and an even share of the cost. It does not count as diverged, even if its validation was ordered; a step for
which `null` is reported where a value was ordered does. The receipt of the last step is held back until the command has ended,
because only then is it known whether the step was saved; the time in between belongs to that step.

The reports say with "saved" which step the directory holds. A command that never says so is trusted only after a clean exit:
then a directory that is not empty holds the last step. In all other cases nothing is known: the directory is emptied, and the
trial begins from the start.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoestring.core.ledger.entries import Cost, Order, Receipt, StateLoss
from shoestring.core.space.space import Config, Space
from shoestring.private_files import make_folder
from shoestring.runners.checkpoints.trial_logs import STDERR, STDOUT
from shoestring.runners.command.command_line import CommandReport, Output, fill_in, make_environment
from shoestring.runners.command.command_state import GRACE_S, CommandState, is_filled, started_at
from shoestring.runners.process.process_group import GroupGuard, ProcessGroup, end_groups
from shoestring.runners.process.worker import describe_exit
from shoestring.runners.runner import RunnerEvent, config_at, write_receipt

_TAIL_CHARS = 2000  # of standard error, in the text of a failure


@dataclass(eq=False, slots=True)
class CommandRun:
    """A running command. `step` and the fields below it are what the runner knows of it so far."""

    order: Order
    former_configs: Sequence[Config]  # configs of steps that may have to be trained again
    worker_number: int  # number of the worker that carries out its order
    folder: Path
    group: ProcessGroup
    process: subprocess.Popen[bytes]
    state: CommandState
    start_step: int  # the step that it continued from
    until: int  # the last step of this leg
    step: int  # last step that was reported
    output: Output
    errors_from: int  # where its own part of stderr.txt begins
    since: float = 0.0  # when its present step began
    has_reported: bool = False
    bare_numbers: bool = True  # whether bare numbers count as reports
    last: Receipt | None = None  # receipt of its last step, held back until the command has ended
    last_by_clock: bool = True  # whether the cost in `last` was measured, not reported

    @classmethod
    def launch(
        cls,
        argv: Sequence[str],
        space: Space,
        order: Order,
        former_configs: Sequence[Config],
        folder: Path,
        step: int,
        worker_number: int,
        guard: GroupGuard,
        device: str = "",
        max_steps: int = 1,
    ) -> CommandRun:
        """Start the command from the `step` that its directory holds; for 0 the directory is emptied first."""
        checkpoint, config, reports = folder / "checkpoint", folder / "config.json", folder / "reports.jsonl"
        values, until = config_at(step + 1, order, former_configs), end_of_leg(step, order, former_configs)
        validate = "none" if order.validate == "last" and until < order.until else order.validate
        state = CommandState.read(folder)
        if step == 0 and checkpoint.is_dir():
            shutil.rmtree(checkpoint)
        make_folder(checkpoint)
        config.write_text(json.dumps(dict(values)) + "\n", encoding="utf-8")
        reports.write_bytes(b"")
        places = {"config": str(config), "checkpoint": str(checkpoint)}
        places |= {"step": str(step), "until": str(until), "max_steps": str(max_steps)}
        # From now on the directory may change at any time; only a command that reports what it saved is trusted before its exit.
        state = replace(state, saved_step=step if state.reports_saves else 0)
        state.write(folder)
        with (folder / STDERR).open("ab") as errors:
            errors_from = errors.tell()
            guard.expect(f"SHOESTRING_REPORT={reports}")
            process = subprocess.Popen(
                fill_in(argv, space, values, places),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=make_environment(places, reports, validate, device),
                start_new_session=True,  # Ctrl-C does not reach it, and its own children can be ended with it
            )
        group = ProcessGroup(process.pid, process.poll)
        guard.add(group)
        state = replace(state, pid=process.pid, started=started_at(process.pid))
        state.write(folder)
        assert process.stdout is not None
        output = Output(process.stdout, folder / STDOUT, reports)
        return cls(
            order, former_configs, worker_number, folder, group, process, state, step, until, step, output, errors_from
        )

    def take_report(self, report: CommandReport, now: float, worker: str) -> list[RunnerEvent]:
        """Return the receipts of the steps that a report is about; the receipt of the run's last step is held back."""
        order, step = self.order, report.step or self.step + 1
        events: list[RunnerEvent] = []
        if step <= self.step and not self.has_reported:
            events.append(
                StateLoss(trial=order.trial, resumable_step=step - 1, why=f"the command continued from step {step - 1}")
            )
            self.step = step - 1
            self.update_state(saved_step=min(self.state.saved_step, self.step))
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
            skipped_receipt = write_receipt(
                order, skipped, None, share, at=now, saved_step=self.state.saved_step, worker=worker
            )
            events.append(replace(skipped_receipt, status="ok", text=""))
        self.note_saved(report, step)
        receipt = write_receipt(
            order,
            step,
            report.value,
            share,
            at=now,
            saved_step=self.state.saved_step,
            worker=worker,
            metrics=report.metrics,
        )
        self.step, self.since, self.has_reported = step, now, True
        if step < self.until:
            return [*events, receipt]
        self.last, self.last_by_clock = receipt, report.cost is None
        return events

    def note_saved(self, report: CommandReport, step: int) -> None:
        """Note what a report for `step` says about the checkpoint directory."""
        if report.saved is False:
            return
        saved = step if report.saved is True else report.saved
        if saved > step:
            raise ValueError(f"the command saved step {saved}, but has reported {step} only: report it first")
        self.update_state(saved_step=saved, reports_saves=True)

    def note_clean_exit(self) -> None:
        """Note a clean exit: a command that never reported what it saved is trusted now."""
        if not self.state.reports_saves and is_filled(self.folder / "checkpoint"):
            self.update_state(saved_step=self.step)

    def update_state(self, **facts: Any) -> None:
        before, self.state = self.state, replace(self.state, **facts)
        if self.state != before:
            self.state.write(self.folder)

    def reports_size(self) -> int:
        """Return the size of the file with its reports, 0 if it has deleted that file."""
        try:
            return self.output.reports.stat().st_size
        except OSError:
            return 0

    def end(self) -> None:
        """End the command if it still runs, and record in its folder, for the next run, that it has ended."""
        end_groups([self.group], GRACE_S)
        self.output.pipe.close()
        self.update_state(pid=0, started="")

    def describe_exit(self, code: int) -> str:
        """Return how the command ended, and the end of its standard error."""
        with (self.folder / STDERR).open("rb") as errors:
            size = errors.seek(0, os.SEEK_END)
            begin = self.errors_from if self.errors_from <= size else 0  # a long log was cut
            errors.seek(max(begin, size - 4 * _TAIL_CHARS))
            tail = errors.read(4 * _TAIL_CHARS).decode(errors="replace").strip()[-_TAIL_CHARS:]
        return f"the command {describe_exit(code)}" + (f": {tail}" if tail else "")


def end_of_leg(step: int, order: Order, former_configs: Sequence[Config]) -> int:
    """Return the last of the steps after `step` that have the same config as the next one."""
    config, until = config_at(step + 1, order, former_configs), step + 1
    while until < order.until and config_at(until + 1, order, former_configs) == config:
        until += 1
    return until
