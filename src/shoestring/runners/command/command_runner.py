"""The command runner: any executable, in any language, run without a shell.

`command_line` says what goes into a command and what comes out. An order is one run of it (`command_run`), from the step
that its checkpoint directory holds up to the step that is paid for; or several, one after the other, when steps that had
other configs are run again. A command that a signal ends, not ours, is lost, and its order is given back to the loop.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from shoestring.core.ledger.entries import Cost, Lost, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config, Space
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.checkpoints.trial_logs import cut_long_logs
from shoestring.runners.command.command_line import CommandReport, check_arguments, read_line
from shoestring.runners.command.command_run import GRACE_S, CommandRun, end_leftover, held_step
from shoestring.runners.devices import Devices, Slots, WaitingOrders, count_workers, parse_devices
from shoestring.runners.process.process_group import Watch, end_groups, require_posix
from shoestring.runners.process.worker import Patience
from shoestring.runners.runner import Clock, News, note_end, note_release, write_broken_receipt

_LOOK_S = 0.05  # how often the report file and the exit are looked at; standard output is heard at once
_LAST_LOOK_S = 0.005
_WHAT_TO_PRINT = (
    'the command ended without a report: let it print a line like {"value": 0.3} after each step, '
    "or append it to the file in SHOESTRING_REPORT"
)


class Commands:
    """Any program; see the module."""

    simulated = False
    check_start_s = 0.0
    freezing_s = 0.0

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
        named = parse_devices(devices)
        self.argv, self.space, self.workers = list(argv), space, count_workers(workers, named)
        self.can_save: bool | None = None
        self._folders = Checkpoints(folder)
        self._slots, self._watch = Slots(self.workers, named), Watch()
        self._waiting = WaitingOrders()
        self._runs: dict[int, CommandRun] = {}  # by order
        self._since: dict[int, float] = {}
        self._in_one_run: set[int] = set()  # orders whose command did not save at the end of a leg
        self._news: list[News] = []
        self._max_steps = 0
        self._patience = Patience(hung_after_s)
        self._clock = Clock()

    def now(self) -> float:
        return self._clock.now()

    def start(self, ledger: Ledger) -> Mapping[int, int]:
        for folder in self._folders.root.glob("trial-*"):
            end_leftover(folder)
        self._max_steps = ledger.max_steps
        self._folders.start(ledger)
        self._clock.start(ledger)
        survivors = {trial.number: held_step(self._folders.folder(trial.number)) for trial in ledger.trials}
        # A checkpoint beyond what was recorded cannot be named in the ledger: that trial starts from nothing.
        return {trial: step for trial, step in survivors.items() if 0 < step <= ledger.trials[trial].steps}

    def submit(self, order: Order, held: int, former: Sequence[Config] = ()) -> None:
        if order.number not in self._runs:
            self._waiting.put(order, held, former)
            self._begin_waiting()

    def running(self) -> Mapping[int, float]:
        return dict(self._since)

    def wait(self, until: float) -> list[News]:
        while True:
            news, self._news = self._news, []
            self._listen(0.0 if news else min(max(0.0, until - self.now()), _LOOK_S))
            for run in list(self._runs.values()):
                news += self._hear(run)
            cut_long_logs(run.folder for run in self._runs.values())
            self._begin_waiting()
            news, self._news = [*news, *self._news], []
            if news or not self._runs or self.now() >= until:
                return news

    def interrupt(self, why: str) -> list[News]:
        cut_at, runs = self.now(), list(self._runs.values())
        end_groups([run.group for run in runs], GRACE_S)
        news, self._news = [*self._news, *self._waiting.release(why)], []
        for run in runs:
            if run.last is not None:
                news += [self._pay_last(run, run.last), *self._end_run(run, why)]
                if run.until < run.order.until:
                    news.append(note_release(run.order, why))
            else:
                news.append(self._break_off(run, "interrupted", why, at=cut_at))
        return news

    def freeze(self) -> float:
        return 0.0

    def close(self, freeze: bool = True) -> None:
        runs = list(self._runs.values())
        end_groups([run.group for run in runs], GRACE_S)
        for run in runs:
            self._forget(run)
        self._news.clear()
        self._waiting.clear()
        self._watch.close()
        if freeze:  # else they are another's by now
            self._folders.close()

    # beginning ---------------------------------------------------------------------------------------------------------

    def _begin_waiting(self) -> None:
        """Begin the orders for which a worker is free by now."""
        for order, held, former in self._waiting:
            slot = self._slots.find_free()
            if slot is None:
                return
            self._waiting.remove(order)
            step = held if held_step(self._folders.folder(order.trial)) == held else 0
            if step != held:
                self._news.append(Lost(trial=order.trial, held=0, why="its checkpoint directory is not what it was"))
            self._slots.take(slot)
            self._news += self._launch(order, step, former, slot)

    def _launch(self, order: Order, step: int, former: Sequence[Config], slot: int) -> list[News]:
        """Start the next leg of an order that has a worker."""
        former = () if order.number in self._in_one_run else former
        folder, device = self._folders.folder(order.trial), self._slots.devices[slot]
        try:
            run = CommandRun.launch(self.argv, self.space, order, former, folder, step, slot, device, self._max_steps)
        except OSError as error:
            self._slots.give_back(slot)
            text = f"the command {self.argv[0]!r} cannot be started: {error.strerror or error}"
            worker = self._slots.name_worker(slot)
            return [
                write_broken_receipt(order, step + 1, "failed", text, Cost(), at=self.now(), saved=step, worker=worker)
            ]
        self._watch.add(run.group)
        self._runs[order.number] = run
        self._since[order.number] = run.since = self.now()
        return []

    # one run -----------------------------------------------------------------------------------------------------------

    def _listen(self, timeout_s: float) -> None:
        """Sleep until some command says something, at most so long."""
        open_outputs = [run.output.pipe for run in self._runs.values() if not run.output.pipe.closed]
        if len(open_outputs) < len(self._runs):  # one has said its last word and will be gone in a moment
            timeout_s = min(timeout_s, _LAST_LOOK_S)
        with selectors.DefaultSelector() as selector:
            for pipe in open_outputs:
                selector.register(pipe, selectors.EVENT_READ)
            if open_outputs:
                selector.select(timeout_s)
            else:
                time.sleep(timeout_s)

    def _hear(self, run: CommandRun) -> list[News]:
        """What one command has said and done since it was last listened to."""
        exited = run.group.has_exited()  # asked before reading: what is read below is then all there ever was
        news: list[News] = []
        try:
            for line in run.output.lines(exited):
                report = read_line(line)
                if report is None or (report.is_bare and not run.bare_numbers):
                    continue
                run.bare_numbers = report.is_bare or not report.has_value
                news += self._take_report(run, report)
                if run.order.number not in self._runs:
                    return news
        except ValueError as error:
            return news + self._fail(run, str(error))
        silent_s = self.now() - run.since
        if exited:
            news += self._hear_exit(run)
        elif self._patience.is_over(silent_s):
            news += self._fail(run, self._patience.text(silent_s))
        return news

    def _take_report(self, run: CommandRun, report: CommandReport) -> list[News]:
        if not report.has_value:
            run.note_saved(report, run.step)
            return []
        if run.last is not None:
            return self._fail(run, f"the command went on after step {run.until}, its last: see SHOESTRING_UNTIL")
        now = self.now()
        self._patience.note_step(now - run.since)
        news = run.take_report(report, now, self._slots.name_worker(run.slot))
        self._since[run.order.number] = now
        has_diverged = any(isinstance(entry, Receipt) and entry.status == "diverged" for entry in news)
        return news + self._end_run(run, "it diverged") if has_diverged else news

    def _hear_exit(self, run: CommandRun) -> list[News]:
        code = run.process.returncode
        if code == 0 and run.has_reported:
            run.trust_its_exit()
            self.can_save = run.state.saved > 0
        if code < 0 and run.last is None:
            return [self._lose(run, run.exit_text(code))]
        if code != 0:
            return self._fail(run, run.exit_text(code))
        if not run.has_reported:
            return self._fail(run, _WHAT_TO_PRINT)
        if run.last is not None:
            return self._end_leg(run, run.last, "the command did not save it")
        ended = note_end(run.order, run.step, self.now() - run.since)
        self._forget(run)
        return [ended]

    def _end_leg(self, run: CommandRun, last: Receipt, why: str) -> list[News]:
        """The last step of a run with what is known by now; its value stands, whatever became of its state."""
        news: list[News] = [self._pay_last(run, last), *self._end_run(run, why)]
        if run.until == run.order.until or last.status == "diverged":
            return news
        if run.state.saved <= run.began_at:  # legs lead nowhere: rather train with the newest config than for ever
            self._in_one_run.add(run.order.number)
        self._slots.take(run.slot)
        return news + self._launch(run.order, run.state.saved, run.former, run.slot)

    def _pay_last(self, run: CommandRun, last: Receipt) -> Receipt:
        tail_s = max(0.0, self.now() - run.since) if run.last_by_clock else 0.0
        cost = replace(last.cost, setup=last.cost.setup + tail_s)
        return replace(last, saved=run.state.saved, cost=cost, at=self.now())

    def _end_run(self, run: CommandRun, why: str) -> list[News]:
        """No command outlives its order: what was not saved is lost (and not missed in a trial that is complete)."""
        self._forget(run)
        if run.state.saved == run.step or run.step >= self._max_steps:
            return []
        return [Lost(trial=run.order.trial, held=run.state.saved, why=why)]

    def _lose(self, run: CommandRun, how: str) -> Lost:
        """The command died in a step, by itself."""
        seconds, worker = max(0.0, self.now() - run.since), self._slots.name_worker(run.slot)
        self._forget(run)
        return Lost(trial=run.order.trial, held=run.state.saved, seconds=seconds, why=how, death=True, worker=worker)

    def _fail(self, run: CommandRun, text: str) -> list[News]:
        if run.last is not None:  # all its steps were done before
            return self._end_leg(run, run.last, text)
        return [self._break_off(run, "failed", text, at=self.now())]

    def _break_off(self, run: CommandRun, status: Literal["failed", "interrupted"], text: str, *, at: float) -> Receipt:
        cost, worker = Cost(train=max(0.0, at - run.since)), self._slots.name_worker(run.slot)
        self._forget(run)
        return write_broken_receipt(
            run.order, run.step + 1, status, text, cost, at=self.now(), saved=run.state.saved, worker=worker
        )

    def _forget(self, run: CommandRun) -> None:
        """Make sure that it has ended, and that this is known to whoever comes after us."""
        run.end()
        cut_long_logs([run.folder])
        self._watch.forget(run.group)
        self._slots.give_back(run.slot)
        del self._runs[run.order.number], self._since[run.order.number]
