"""The command runner: any executable, in any language, run without a shell.

`command_line` says what goes into a command and what comes out. An order is one run of it (`command_run`), from the step
that its checkpoint directory holds up to the step that is paid for.

A step that no report mentions, because the next report is further on, was trained but not looked at: it gets a receipt
without a value and an even share of the cost, and does not count as diverged, whatever validation was bought. A report
that says `null` where a value was bought does. The receipt of the last step is held back until the command has ended,
since only then it is known whether the step was saved; the time in between is that step's.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from shoestring.core.entries import Cost, Lost, Order, Receipt
from shoestring.core.ledger import Ledger
from shoestring.core.space import Config, Space
from shoestring.runners.checkpoints import Checkpoints
from shoestring.runners.command_line import CommandReport, check_arguments, read_line
from shoestring.runners.command_run import CommandRun, held_step
from shoestring.runners.command_state import end_groups, end_leftover, has_exited
from shoestring.runners.runner import Clock, News, note_end, write_broken_receipt, write_receipt
from shoestring.runners.worker import Patience

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

    def __init__(
        self, argv: Sequence[str], space: Space, folder: Path, workers: int = 1, hung_after_s: float | None = None
    ) -> None:
        check_arguments(argv, space)
        self.argv, self.space, self.workers = list(argv), space, workers
        self.can_save: bool | None = None
        self._folders = Checkpoints(folder)
        self._runs: dict[int, CommandRun] = {}  # by order
        self._since: dict[int, float] = {}
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
        if order.number in self._runs:
            return
        folder = self._folders.folder(order.trial)
        step = held if held_step(folder) == held else 0
        if step != held:
            self._news.append(Lost(trial=order.trial, held=0, why="its checkpoint directory is not what it was"))
        try:
            run = CommandRun.launch(self.argv, self.space, order, folder, step)
        except OSError as error:
            text = f"the command {self.argv[0]!r} cannot be started: {error.strerror or error}"
            self._news.append(write_broken_receipt(order, step + 1, "failed", text, Cost(), at=self.now(), saved=step))
            return
        self._runs[order.number] = run
        self._since[order.number] = run.since = self.now()

    def wait(self, until: float) -> list[News]:
        while True:
            news, self._news = self._news, []
            left_s = 0.0 if news else min(max(0.0, until - self.now()), _LOOK_S)
            self._listen(left_s)
            for run in list(self._runs.values()):
                news += self._hear(run)
            if news or not self._runs or self.now() >= until:
                return news

    def running(self) -> Mapping[int, float]:
        return dict(self._since)

    def interrupt(self, why: str) -> list[News]:
        cut_at, news = self.now(), list[News]()
        runs = list(self._runs.values())
        end_groups([run.process for run in runs])
        for run in runs:
            if run.last is not None:
                news += self._close_order(run, run.last, why)
                continue
            cost = Cost(train=max(0.0, cut_at - run.since))
            saved = run.state.saved
            news.append(
                write_broken_receipt(run.order, run.step + 1, "interrupted", why, cost, at=self.now(), saved=saved)
            )
            self._forget(run)
        return news

    def close(self, freeze: bool = True) -> None:
        runs = list(self._runs.values())
        end_groups([run.process for run in runs])
        for run in runs:
            self._forget(run)
        self._news.clear()

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
        exited = has_exited(run.process)  # asked before reading: what is read below is then all there ever was
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
            return self._fail(run, f"the command went on after step {run.order.until}, its last: see SHOESTRING_UNTIL")
        order, now = run.order, self.now()
        step = report.step or run.step + 1
        news: list[News] = []
        if step <= run.step and not run.has_reported:
            news.append(Lost(trial=order.trial, held=step - 1, why=f"the command went on from step {step - 1}"))
            run.step = step - 1
            run.remember(saved=min(run.state.saved, run.step))
        if step <= run.step:
            raise ValueError(f"the command reported step {step} after step {run.step}: steps go up")
        if step > order.until:
            raise ValueError(
                f"the command reported step {step}, but was to stop after step {order.until}: see SHOESTRING_UNTIL"
            )
        count = step - run.step
        whole = report.cost or Cost(train=max(0.0, now - run.since))
        share = Cost(setup=whole.setup / count, train=whole.train / count, validate=whole.validate / count)
        for skipped in range(run.step + 1, step):
            unseen = write_receipt(order, skipped, None, share, at=now, saved=run.state.saved)
            news.append(replace(unseen, status="ok", text=""))
        run.note_saved(report, step)
        paid = write_receipt(order, step, report.value, share, at=now, saved=run.state.saved)
        self._patience.note_step(now - run.since)
        run.step, run.since, run.has_reported = step, now, True
        self._since[order.number] = now
        if step == order.until:
            run.last, run.last_by_clock = paid, report.cost is None
            return news
        news.append(paid)
        return news + self._end_run(run, "it diverged") if paid.status == "diverged" else news

    def _hear_exit(self, run: CommandRun) -> list[News]:
        end_groups([run.process])
        code = run.process.returncode
        if code == 0 and run.has_reported:
            run.trust_its_exit()
            self.can_save = run.state.saved > 0
        if code != 0:
            return self._fail(run, run.exit_text(code))
        if not run.has_reported:
            return self._fail(run, _WHAT_TO_PRINT)
        if run.last is not None:
            return self._close_order(run, run.last, "the command did not save it")
        ended = note_end(run.order, run.step, self.now() - run.since)
        self._forget(run)
        return [ended]

    def _close_order(self, run: CommandRun, last: Receipt, why: str) -> list[News]:
        """The order's last step with what is known by now; its value stands, whatever became of its state."""
        tail_s = max(0.0, self.now() - run.since) if run.last_by_clock else 0.0
        cost = replace(last.cost, setup=last.cost.setup + tail_s)
        return [replace(last, saved=run.state.saved, cost=cost, at=self.now()), *self._end_run(run, why)]

    def _end_run(self, run: CommandRun, why: str) -> list[News]:
        """No command outlives its order: what was not saved is lost (and not missed in a trial that is complete)."""
        self._forget(run)
        if run.state.saved == run.step or run.step >= self._max_steps:
            return []
        return [Lost(trial=run.order.trial, held=run.state.saved, why=why)]

    def _fail(self, run: CommandRun, text: str) -> list[News]:
        if run.last is not None:  # all its steps were done before
            return self._close_order(run, run.last, text)
        cost = Cost(train=max(0.0, self.now() - run.since))
        self._forget(run)
        return [
            write_broken_receipt(run.order, run.step + 1, "failed", text, cost, at=self.now(), saved=run.state.saved)
        ]

    def _forget(self, run: CommandRun) -> None:
        """Make sure that it has ended, and that this is known to whoever comes after us."""
        run.end()
        del self._runs[run.order.number], self._since[run.order.number]
