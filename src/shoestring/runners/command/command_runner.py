"""The command runner: any executable, in any language, run without a shell.

`command_line` describes the arguments and the reports of a command. An order is one run of it (`command_run`), from the step that
its checkpoint directory holds to the last step that was ordered; or several runs, when steps that had other configs are trained
again. If a signal that this runner did not send ends a command, the step is lost, and its order goes back to the loop.
"""

from __future__ import annotations

import math
import selectors
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from shoestring.core.ledger.entries import Cost, Order, Receipt, StateLoss
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config, Space
from shoestring.runners.checkpoints import trial_logs
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.checkpoints.trial_logs import STDERR, STDOUT, cut_long_logs
from shoestring.runners.command.command_line import CommandReport, check_arguments, read_line
from shoestring.runners.command.command_run import CommandRun
from shoestring.runners.command.command_state import GRACE_S, end_leftover, read_saved_step
from shoestring.runners.devices import Devices, NumberedWorkers, count_workers, parse_devices
from shoestring.runners.process.process_group import GroupGuard, end_groups, require_posix
from shoestring.runners.remote.silence_limit import SilenceLimit
from shoestring.runners.runner import (
    CUTOFF_DELAY_S,
    Clock,
    RunnerEvent,
    RunningSteps,
    WaitingOrders,
    note_end,
    note_release,
    write_incomplete_receipt,
)

_POLL_S = 0.05  # how often the report file and the exit code are checked; standard output is read at once
_LAST_POLL_S = 0.005  # the same, once a command has closed its standard output
_WHAT_TO_PRINT = (
    'the command ended without a report: let it print a line like {"value": 0.3} after each step, '
    "or append it to the file in SHOESTRING_REPORT"
)


class CommandRunner:
    """Trains with any program; see the module.

    Parameters
    ----------
    argv : sequence of str
        The command and its arguments, with placeholders such as `{lr}`.
    space : Space
        The space of the study.
    folder : Path
        Where the trials' checkpoint directories and logs are.
    workers : int, optional
        How many commands run at the same time; by default one for each device.
    hung_after_s : float, optional
        After how many silent seconds a command counts as hung; by default 10 times the longest step plus one minute.
    devices : str or sequence, optional
        The devices that workers use in turn, as in `"0,1"`.
    """

    simulated = False
    check_start_s = 0.0
    saving_reserve_s = 0.0

    def __init__(
        self,
        argv: Sequence[str],
        space: Space,
        folder: Path,
        workers: int | None = None,
        hung_after_s: float | None = None,
        devices: Devices | None = None,
    ) -> None:
        require_posix("the command runner")
        check_arguments(argv, space)
        device_names = parse_devices(devices)
        self.argv, self.space, self.workers = list(argv), space, count_workers(workers, device_names)
        self.can_save: bool | None = None
        self._folders = Checkpoints(folder)
        self._numbered_workers, self._guard = NumberedWorkers(self.workers, device_names), GroupGuard()
        self._waiting = WaitingOrders()
        self._runs: dict[int, CommandRun] = {}  # by order
        self._running = RunningSteps()
        self._cutoff_why = ""
        self._in_one_run: set[int] = set()  # orders whose command did not save at the end of a leg
        self._events: list[RunnerEvent] = []
        self._max_steps = 0
        self._silence = SilenceLimit(hung_after_s)
        self._clock = Clock()

    def now(self) -> float:
        return self._clock.now()

    def start(self, ledger: Ledger) -> Mapping[int, int]:
        for folder in self._folders.root.glob("trial-*"):
            end_leftover(folder)
        self._max_steps = ledger.max_steps
        self._folders.start(ledger)
        self._clock.start(ledger)
        survivors = {trial.number: read_saved_step(self._folders.folder(trial.number)) for trial in ledger.trials}
        # The ledger cannot name a checkpoint beyond the last recorded step, so that trial starts from its first step.
        return {trial: step for trial, step in survivors.items() if 0 < step <= ledger.trials[trial].steps}

    def submit(self, order: Order, resumable_step: int, former_configs: Sequence[Config] = ()) -> None:
        if order.number not in self._runs:
            self._waiting.put(order, resumable_step, former_configs)
            self._begin_waiting()

    def running(self) -> Mapping[int, float]:
        return self._running

    def set_cutoff(self, moment: float, why: str) -> None:
        """See `KeepsCutoff.set_cutoff`."""
        self._cutoff_why = why
        self._guard.set_cutoff(self._clock.to_monotonic(moment) + CUTOFF_DELAY_S)

    def wait(self, until: float) -> list[RunnerEvent]:
        while True:
            events, self._events = self._events, []
            self._listen(0.0 if events else min(max(0.0, until - self.now()), _POLL_S))
            for run in list(self._runs.values()):
                events += self._read_events(run)
            self._begin_waiting()
            events, self._events = [*events, *self._events], []
            if events or not self._runs or self.now() >= until:
                return events

    def interrupt(self, why: str) -> list[RunnerEvent]:
        cut_at, runs = self.now(), list(self._runs.values())
        # The guard waits until this has ended the commands, and only acts if it does not.
        self.set_cutoff(cut_at + GRACE_S, why)
        cuts_at = {run.order.number: min(cut_at, self._last_moment(run)) for run in runs}
        end_groups([run.group for run in runs], GRACE_S)
        ended_at = self.now()
        events, self._events = [*self._events, *self._waiting.release(why)], []
        for run in runs:
            if run.last is not None:
                events += [self._record_last_step(run, run.last, ended_at), *self._end_run(run, why)]
                if run.until < run.order.until:
                    events.append(note_release(run.order, why))
            else:
                events.append(self._break_off(run, "interrupted", why, at=cuts_at[run.order.number]))
        self.set_cutoff(math.inf, why)
        return events

    def pause(self) -> float:
        return 0.0

    def close(self, pause: bool = True) -> None:
        runs = list(self._runs.values())
        end_groups([run.group for run in runs], GRACE_S)
        for run in runs:
            self._forget(run)
        self._events.clear()
        self._waiting.clear()
        self._guard.close()
        if pause:  # otherwise another process has taken over the folders
            self._folders.close()

    # beginning -------------------------------------------------------------------------------------------------------

    def _begin_waiting(self) -> None:
        """Begin the orders for which a worker is free by now."""
        for order, resumable_step, former_configs in self._waiting:
            number = self._numbered_workers.find_free()
            if number is None:
                return
            self._waiting.remove(order)
            step = resumable_step if read_saved_step(self._folders.folder(order.trial)) == resumable_step else 0
            if step != resumable_step:
                self._events.append(
                    StateLoss(trial=order.trial, resumable_step=0, why="its checkpoint directory is not what it was")
                )
            self._numbered_workers.occupy(number)
            self._events += self._launch(order, step, former_configs, number)

    def _launch(self, order: Order, step: int, former_configs: Sequence[Config], number: int) -> list[RunnerEvent]:
        """Start the next leg of an order in this worker."""
        former_configs = () if order.number in self._in_one_run else former_configs
        folder, device = self._folders.folder(order.trial), self._numbered_workers.devices[number]
        try:
            run = CommandRun.launch(
                self.argv, self.space, order, former_configs, folder, step, number, self._guard, device, self._max_steps
            )
        except OSError as error:
            self._numbered_workers.release(number)
            text = f"the command {self.argv[0]!r} cannot be started: {error.strerror or error}"
            worker = self._numbered_workers.name_of(number)
            return [
                write_incomplete_receipt(
                    order, step + 1, "failed", text, Cost(), at=self.now(), saved_step=step, worker=worker
                )
            ]
        self._guard.set_busy(run.group, True)
        self._guard.watch_files(run.group, [folder / STDOUT, folder / STDERR], run.output.reports)
        self._runs[order.number] = run
        run.since = self.now()
        self._running.begin(order.number, run.since)
        return []

    # one run ---------------------------------------------------------------------------------------------------------

    def _listen(self, timeout_s: float) -> None:
        """Sleep until a command prints something, or until `timeout_s` has passed."""
        open_outputs = [run.output.pipe for run in self._runs.values() if not run.output.pipe.closed]
        if len(open_outputs) < len(self._runs):  # one has closed its output and will be gone in a moment
            timeout_s = min(timeout_s, _LAST_POLL_S)
        with selectors.DefaultSelector() as selector:
            for pipe in open_outputs:
                selector.register(pipe, selectors.EVENT_READ)
            if open_outputs:
                selector.select(timeout_s)
            else:
                time.sleep(timeout_s)

    def _read_events(self, run: CommandRun) -> list[RunnerEvent]:
        """Return what one command has reported and done since the last call."""
        exited = run.group.has_exited()  # checked before reading, so that what is read below is everything
        events: list[RunnerEvent] = []
        try:
            for line in run.output.lines(exited):
                report = read_line(line)
                if report is None or (report.is_bare and not run.bare_numbers):
                    continue
                run.bare_numbers = report.is_bare or not report.has_value
                events += self._take_report(run, report)
                if run.order.number not in self._runs:
                    return events
        except ValueError as error:
            return events + self._fail(run, str(error))
        silent_s = self.now() - run.since
        if run.reports_size() > trial_logs.MAX_BYTES:
            size = f"{trial_logs.MAX_BYTES / 1e6:g} MB"
            events += self._fail(
                run, f"the command wrote more than {size} of reports: let it report once after each step"
            )
        elif exited and run.output.is_drained:
            events += self._handle_exit(run)
        elif not exited and self._silence.is_over(silent_s):
            events += self._fail(run, self._silence.describe(silent_s))
        return events

    def _last_moment(self, run: CommandRun) -> float:
        """Return the present moment; for a command that has ended while this process did not look, the moment of its end."""
        end = self._guard.find_end(run.group)
        return self.now() if end is None else min(self.now(), max(run.since, self._clock.from_monotonic(end.moment)))

    def _take_report(self, run: CommandRun, report: CommandReport) -> list[RunnerEvent]:
        if not report.has_value:
            run.note_saved(report, run.step)
            return []
        if run.last is not None:
            return self._fail(
                run, f"the command continued after step {run.until}, the last that was ordered: see SHOESTRING_UNTIL"
            )
        now = self._last_moment(run)
        self._silence.note_step(now - run.since)
        events = run.take_report(report, now, self._numbered_workers.name_of(run.worker_number))
        self._running.begin(run.order.number, now)
        has_diverged = any(isinstance(event, Receipt) and event.status == "diverged" for event in events)
        return events + self._end_run(run, "it diverged") if has_diverged else events

    def _handle_exit(self, run: CommandRun) -> list[RunnerEvent]:
        code, end = run.process.returncode, self._guard.find_end(run.group)
        if end is not None and end.by_guard and run.last is None:
            return [self._break_off(run, "interrupted", self._cutoff_why, at=self._last_moment(run))]
        if code == 0 and run.has_reported:
            run.note_clean_exit()
            self.can_save = run.state.saved_step > 0
        if code < 0 and run.last is None:
            return [self._lose(run, run.describe_exit(code))]
        if code != 0:
            return self._fail(run, run.describe_exit(code))
        if not run.has_reported:
            return self._fail(run, _WHAT_TO_PRINT)
        if run.last is not None:
            return self._end_leg(run, run.last, "the command did not save it")
        ended = note_end(run.order, run.step, self._last_moment(run) - run.since)
        self._forget(run)
        return [ended]

    def _end_leg(self, run: CommandRun, last: Receipt, why: str) -> list[RunnerEvent]:
        """Record the last step of a run, also if its state was not saved; then start the next leg, if there is one."""
        events: list[RunnerEvent] = [self._record_last_step(run, last), *self._end_run(run, why)]
        if run.until == run.order.until or last.status == "diverged":
            return events
        if run.state.saved_step <= run.start_step:
            # Legs that save nothing make no progress: train all steps in one run, with the newest config.
            self._in_one_run.add(run.order.number)
        self._numbered_workers.occupy(run.worker_number)
        return events + self._launch(run.order, run.state.saved_step, run.former_configs, run.worker_number)

    def _record_last_step(self, run: CommandRun, last: Receipt, ended_at: float = math.inf) -> Receipt:
        tail_s = max(0.0, min(ended_at, self._last_moment(run)) - run.since) if run.last_by_clock else 0.0
        cost = replace(last.cost, setup=last.cost.setup + tail_s)
        return replace(last, saved_step=run.state.saved_step, cost=cost, at=self.now())

    def _end_run(self, run: CommandRun, why: str) -> list[RunnerEvent]:
        """End the run; return the loss of what was not saved, which a complete trial does not need."""
        self._forget(run)
        if run.state.saved_step == run.step or run.step >= self._max_steps:
            return []
        return [StateLoss(trial=run.order.trial, resumable_step=run.state.saved_step, why=why)]

    def _lose(self, run: CommandRun, how: str) -> StateLoss:
        """Return the loss of a command that died in a step by itself."""
        seconds = max(0.0, self._last_moment(run) - run.since)
        worker = self._numbered_workers.name_of(run.worker_number)
        self._forget(run)
        trial, saved_step = run.order.trial, run.state.saved_step
        return StateLoss(trial=trial, resumable_step=saved_step, seconds=seconds, why=how, death=True, worker=worker)

    def _fail(self, run: CommandRun, text: str) -> list[RunnerEvent]:
        if run.last is not None:  # all its steps were finished before
            return self._end_leg(run, run.last, text)
        return [self._break_off(run, "failed", text, at=self._last_moment(run))]

    def _break_off(self, run: CommandRun, status: Literal["failed", "interrupted"], text: str, *, at: float) -> Receipt:
        cost, worker = Cost(train=max(0.0, at - run.since)), self._numbered_workers.name_of(run.worker_number)
        self._forget(run)
        return write_incomplete_receipt(
            run.order, run.step + 1, status, text, cost, at=self.now(), saved_step=run.state.saved_step, worker=worker
        )

    def _forget(self, run: CommandRun) -> None:
        """End the command if it still runs, and record in its folder that it has ended."""
        run.end()
        cut_long_logs([run.folder])
        self._guard.forget(run.group)
        self._numbered_workers.release(run.worker_number)
        self._running.end(run.order.number)
        del self._runs[run.order.number]
