"""The command runner: any executable, in any language, run without a shell. `command_line.py` has what it is told and tells.

An order is one run of the command, from the step that its checkpoint directory holds up to the step that is paid for.

    ROOT/trial-0007/checkpoint/    the directory that the command may keep its state in
                    config.json, reports.jsonl, stdout.txt, stderr.txt, state.json

Which step does the directory hold? What the reports say with "saved". A command that never says so is believed after a
clean exit only: then a directory that is not empty holds the last step. In all other cases nothing is known, the
directory is emptied, and the trial starts from nothing.

A step that no report mentions, because the next report is further on, was trained but not looked at: it gets a receipt
without a value and an even share of the cost, and does not count as diverged, whatever validation was bought. A report
that says `null` where a value was bought does. The receipt of the last step is held back until the command has ended,
since only then it is known whether the step was saved; the time in between is that step's.
"""

from __future__ import annotations

import json
import selectors
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shoestring.core.entries import Cost, Lost, Note, Order, Receipt
from shoestring.core.ledger import Ledger
from shoestring.core.space import Space
from shoestring.runners.checkpoints import Checkpoints
from shoestring.runners.command_line import Output, Told, check_arguments, environment, fill_in, read_line
from shoestring.runners.command_state import State, end_groups, end_leftover, has_exited, started_at
from shoestring.runners.runner import Clock, News, receipt, unfinished
from shoestring.runners.worker import Patience, told_exit

_LOOK_S = 0.05  # how often the report file and the exit are looked at; standard output is heard at once
_LAST_LOOK_S = 0.005
_TAIL_CHARS = 2000
_WHAT_TO_PRINT = (
    'the command ended without a report: let it print a line like {"value": 0.3} after each step, '
    "or append it to the file in SHOESTRING_REPORT"
)


@dataclass(eq=False, slots=True)
class _Run:
    """One run of the command, for one order."""

    order: Order
    folder: Path
    process: subprocess.Popen[bytes]
    state: State
    step: int  # the last one reported
    since: float
    output: Output
    errors_from: int  # where its own part of stderr.txt begins
    has_reported: bool = False
    bare_numbers: bool = True  # count as reports
    last: Receipt | None = None  # of the order's last step, held back until the command has ended
    last_by_clock: bool = True  # the command did not tell its cost

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"


class Commands:
    simulated = False

    def __init__(
        self, argv: Sequence[str], space: Space, folder: Path, workers: int = 1, hung_after_s: float | None = None
    ) -> None:
        check_arguments(argv, space)
        self.argv, self.space, self.workers = list(argv), space, workers
        self.can_save: bool | None = None
        self._folders = Checkpoints(folder)
        self._runs: dict[int, _Run] = {}  # by order
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
        survivors = {trial.number: self._holds(trial.number) for trial in ledger.trials}
        # A checkpoint beyond what was recorded cannot be named in the ledger: that trial starts from nothing.
        return {trial: step for trial, step in survivors.items() if 0 < step <= ledger.trials[trial].steps}

    def submit(self, order: Order, held: int) -> None:
        if order.number in self._runs:
            return
        folder = self._folders.folder(order.trial)
        step = held if self._holds(order.trial) == held else 0
        if step != held:
            self._news.append(Lost(trial=order.trial, held=0, why="its checkpoint directory is not what it was"))
        try:
            run = self._launched(order, folder, step)
        except OSError as error:
            text = f"the command {self.argv[0]!r} cannot be started: {error.strerror or error}"
            self._news.append(unfinished(order, step + 1, "failed", text, Cost(), at=self.now(), saved=step))
            return
        self._runs[order.number] = run
        self._since[order.number] = run.since

    def wait(self, until: float) -> list[News]:
        while True:
            news, self._news = self._news, []
            left_s = 0.0 if news else min(max(0.0, until - self.now()), _LOOK_S)
            self._listen(left_s)
            for run in list(self._runs.values()):
                news += self._heard(run)
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
                news += self._closed(run, run.last, why)
                continue
            cost = Cost(train=max(0.0, cut_at - run.since))
            saved = run.state.saved
            news.append(unfinished(run.order, run.step + 1, "interrupted", why, cost, at=self.now(), saved=saved))
            self._forget(run)
        return news

    def close(self, freeze: bool = True) -> None:
        runs = list(self._runs.values())
        end_groups([run.process for run in runs])
        for run in runs:
            self._forget(run)
        self._news.clear()

    # one run -----------------------------------------------------------------------------------------------------------

    def _launched(self, order: Order, folder: Path, step: int) -> _Run:
        checkpoint, config, reports = folder / "checkpoint", folder / "config.json", folder / "reports.jsonl"
        state = State.of(folder)
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
                fill_in(self.argv, self.space, order.config, places),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(order, config, checkpoint, step, reports),
                start_new_session=True,  # Ctrl-C does not reach it, and its own children can be ended with it
            )
        state = replace(state, pid=process.pid, started=started_at(process.pid))
        state.write(folder)
        assert process.stdout is not None
        output = Output(process.stdout, folder / "stdout.txt", reports)
        return _Run(order, folder, process, state, step, self.now(), output, errors_from)

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

    def _heard(self, run: _Run) -> list[News]:
        """What one command has said and done since it was last listened to."""
        exited = has_exited(run.process)  # asked before reading: what is read below is then all there ever was
        news: list[News] = []
        try:
            for line in run.output.lines(exited):
                told = read_line(line)
                if told is None or (told.is_bare and not run.bare_numbers):
                    continue
                run.bare_numbers = told.is_bare or not told.has_value
                news += self._take(run, told)
                if run.order.number not in self._runs:
                    return news
        except ValueError as error:
            return news + self._failed(run, str(error))
        silent_s = self.now() - run.since
        if exited:
            news += self._ended(run)
        elif self._patience.is_over(silent_s):
            news += self._failed(run, self._patience.text(silent_s))
        return news

    def _take(self, run: _Run, told: Told) -> list[News]:
        if not told.has_value:
            self._note_saved(run, told, run.step)
            return []
        if run.last is not None:
            return self._failed(
                run, f"the command went on after step {run.order.until}, its last: see SHOESTRING_UNTIL"
            )
        order, now = run.order, self.now()
        step = told.step or run.step + 1
        news: list[News] = []
        if step <= run.step and not run.has_reported:
            news.append(Lost(trial=order.trial, held=step - 1, why=f"the command went on from step {step - 1}"))
            run.step = step - 1
            self._save(run, replace(run.state, saved=min(run.state.saved, run.step)))
        if step <= run.step:
            raise ValueError(f"the command reported step {step} after step {run.step}: steps go up")
        if step > order.until:
            raise ValueError(
                f"the command reported step {step}, but was to stop after step {order.until}: see SHOESTRING_UNTIL"
            )
        count = step - run.step
        whole = told.cost or Cost(train=max(0.0, now - run.since))
        share = Cost(setup=whole.setup / count, train=whole.train / count, validate=whole.validate / count)
        for skipped in range(run.step + 1, step):
            unseen = receipt(order, skipped, None, share, at=now, saved=run.state.saved)
            news.append(replace(unseen, status="ok", text=""))
        self._note_saved(run, told, step)
        paid = receipt(order, step, told.value, share, at=now, saved=run.state.saved)
        self._patience.saw(now - run.since)
        run.step, run.since, run.has_reported = step, now, True
        self._since[order.number] = now
        if step == order.until:
            run.last, run.last_by_clock = paid, told.cost is None
            return news
        news.append(paid)
        return news + self._over(run, "it diverged") if paid.status == "diverged" else news

    def _note_saved(self, run: _Run, told: Told, step: int) -> None:
        if told.saved is False:
            return
        saved = step if told.saved is True else told.saved
        if saved > step:
            raise ValueError(f"the command saved step {saved}, but has reported {step} only: report it first")
        self._save(run, replace(run.state, saved=saved, tells=True))

    def _ended(self, run: _Run) -> list[News]:
        end_groups([run.process])
        order, code = run.order, run.process.returncode
        if code == 0 and run.has_reported:
            if not run.state.tells and _is_filled(run.checkpoint):
                self._save(run, replace(run.state, saved=run.step))
            self.can_save = run.state.saved > 0
        if code != 0:
            return self._failed(run, self._exit_text(run, code))
        if not run.has_reported:
            return self._failed(run, _WHAT_TO_PRINT)
        if run.last is not None:
            return self._closed(run, run.last, "the command did not save it")
        seconds = max(0.0, self.now() - run.since)
        self._forget(run)
        facts = {"order": order.number, "trial": order.trial, "step": run.step, "seconds": seconds}
        return [Note(topic="ended", facts=facts)]

    def _closed(self, run: _Run, last: Receipt, why: str) -> list[News]:
        """The order's last step with what is known by now; its value stands, whatever became of its state."""
        tail_s = max(0.0, self.now() - run.since) if run.last_by_clock else 0.0
        cost = replace(last.cost, setup=last.cost.setup + tail_s)
        return [replace(last, saved=run.state.saved, cost=cost, at=self.now()), *self._over(run, why)]

    def _over(self, run: _Run, why: str) -> list[News]:
        """No command outlives its order: what was not saved is lost (and not missed in a trial that is complete)."""
        self._forget(run)
        if run.state.saved == run.step or run.step >= self._max_steps:
            return []
        return [Lost(trial=run.order.trial, held=run.state.saved, why=why)]

    def _failed(self, run: _Run, text: str) -> list[News]:
        if run.last is not None:  # all its steps were done before
            return self._closed(run, run.last, text)
        cost = Cost(train=max(0.0, self.now() - run.since))
        self._forget(run)
        return [unfinished(run.order, run.step + 1, "failed", text, cost, at=self.now(), saved=run.state.saved)]

    def _forget(self, run: _Run) -> None:
        """Make sure that it has ended, and that this is known to whoever comes after us."""
        end_groups([run.process])
        run.output.pipe.close()
        self._save(run, replace(run.state, pid=0, started=""))
        del self._runs[run.order.number], self._since[run.order.number]

    def _save(self, run: _Run, state: State) -> None:
        run.state = state
        state.write(run.folder)

    def _holds(self, trial: int) -> int:
        """The step that the trial's checkpoint directory is known to hold, 0 if none."""
        folder = self._folders.folder(trial)
        return State.of(folder).saved if _is_filled(folder / "checkpoint") else 0

    def _exit_text(self, run: _Run, code: int) -> str:
        with (run.folder / "stderr.txt").open("rb") as errors:
            errors.seek(run.errors_from)
            tail = errors.read().decode(errors="replace").strip()[-_TAIL_CHARS:]
        return f"the command {told_exit(code)}" + (f": {tail}" if tail else "")


def _is_filled(directory: Path) -> bool:
    return directory.is_dir() and any(directory.iterdir())
