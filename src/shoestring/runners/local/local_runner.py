"""The local runner: training code in this process, one step at a time. Paused trials are generators or objects in memory.

A step cannot be ended before it is done, so a budget of seconds or dollars can be exceeded by at most one step.

Paused trials stay in memory (see `live_trials`). If the training code can save checkpoints, a trial is saved

- after the last step of a full training, and after a step with the best value of the study so far;
- when much of its training time is unsaved (see `Checkpoints.decide_save`);
- when there is no room for it in memory.

At the end of a run, the trials with unsaved work are saved, the most recently trained first (see `pause` for how long this may
take). If this process is killed, the unsaved work is lost: those steps are trained again when the trial continues. Their values
are not lost, because each receipt is stored when its step has ended.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shoestring.core.ledger.entries import Cost, Note, Order, Receipt, StateLoss
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.order_closing import receipt_closes
from shoestring.core.space.space import Config
from shoestring.core.values.text import shorten
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.local.free_memory import free_unused_memory, is_out_of_memory
from shoestring.runners.local.live_trials import LiveTrials
from shoestring.runners.runner import (
    Clock,
    RunnerEvent,
    WaitingOrders,
    config_at,
    note_end,
    note_release,
    ordered_value,
    write_incomplete_receipt,
    write_receipt,
)
from shoestring.runners.training.code import RAISED, EndOfTraining, LiveTrial, can_save
from shoestring.runners.training.resume_check import note_check, note_unfinished_check, preserve_random_state

# Limit on the time for saving at the end: a share of a budget of time, else of the time so far. Most of hundreds of poor trials
# are never continued; those that are needed are trained again.
_SAVING_SHARE = 0.02
_MIN_SAVING_S = 1.0  # the least time for saving where time is not charged


class LocalRunner:
    """Trains in this process; see the module.

    Parameters
    ----------
    target : Any
        The training code: a function, a generator function or a class with `step()`.
    checkpoints : Checkpoints
        Where trials are saved.
    live : int, optional
        How many trials stay alive in memory; by default as many as there is memory for.
    """

    workers = 1
    simulated = False
    check_start_s = 0.0

    def __init__(self, target: Any, checkpoints: Checkpoints, live: int | None = None) -> None:
        self.target, self.checkpoints = target, checkpoints
        self.can_save: bool | None = can_save(target)
        self._lives = LiveTrials(live)
        self._order: Order | None = None
        self._former_configs: Sequence[Config] = ()  # configs of steps that may have to be trained again for `_order`
        self._waiting = WaitingOrders()
        self._losses: list[RunnerEvent] = []  # what was found lost when an order began
        self._since = 0.0
        self._checked_order: int | None = None
        self.max_steps = 1  # steps of a full training; set by `start`
        self._total_s: float | None = None  # seconds that the whole budget is enough for; None: a budget in epochs
        self._is_paused = False  # whether `pause` was called since the last order
        self._unsaved_s: float | None = 0.0  # expected seconds to save all live trials; None: must be computed again
        self._clock = Clock()

    def now(self) -> float:
        return self._clock.now()

    def start(self, ledger: Ledger) -> Mapping[int, int]:
        survivors = self.checkpoints.start(ledger, is_needed=self.can_save is not False)
        self.max_steps = ledger.max_steps
        rate = ledger.budget.per_second(ledger.workers)
        self._total_s = ledger.budget.total / rate if rate else None
        self._lives.start()
        self._clock.start(ledger)
        return survivors

    def submit(self, order: Order, resumable_step: int, former_configs: Sequence[Config] = ()) -> None:
        """Begin an order; it waits while another one is open, because orders are carried out one after the other."""
        self._is_paused = False
        if self._order is None:
            self._begin(order, resumable_step, former_configs)
        elif order.number != self._order.number:
            self._waiting.put(order, resumable_step, former_configs)

    def wait(self, until: float) -> list[RunnerEvent]:
        if self._losses:
            losses, self._losses = self._losses, []
            return losses
        order = self._order
        if order is None or self.now() >= until:
            return []
        self._unsaved_s = None
        live = self._lives[order.trial]
        step = live.step + 1
        check: tuple[float | None, float] | None = None
        try:
            with _redirect_stdout():
                check = self._check_resuming(order, live)
                result = live.advance(self._next_config(live), order.until, order.validates(step))
                self.can_save = live.can_save
                value = ordered_value(order, step, result.value)
                saving_s = self._save_if_due(live, order.trial, value)
                losses, evicting_s = self._evict()
        except RAISED as error:  # RAISED includes EndOfTraining
            events = self._give_up_check(order, step, check)
            return events + self._break_off(order, step, error)
        saved_step = self.checkpoints.newest_step(order.trial, up_to=step)
        cost = replace(result.cost, setup=result.cost.setup + saving_s + evicting_s)
        receipt = write_receipt(order, step, value, cost, at=self.now(), saved_step=saved_step, metrics=result.metrics)
        # The check comes before the receipt, which may close the order that pays for it.
        events = [receipt] if check is None else [note_check(order, step, value, *check, exact=live.is_exact), receipt]
        self._since = self.now()
        if step >= self.max_steps:  # there is no step left to train
            self._lives.drop(order.trial)
        if receipt_closes(receipt, order):
            self._next_order()
        return events + losses

    def running(self) -> Mapping[int, float]:
        order = self._order
        return {} if order is None else {order.number: self._since}

    def interrupt(self, why: str) -> list[RunnerEvent]:
        """Give up the open orders. No step is ever running between two calls, so none is ended and none is charged."""
        order, self._order = self._order, None
        losses, self._losses = self._losses, []
        return [*losses, *([note_release(order, why)] if order else []), *self._waiting.release(why)]

    @property
    def saving_reserve_s(self) -> float:
        """The seconds to reserve for saving, at most 2 % of the budget."""
        if self._unsaved_s is None:
            # Stored, because it is read several times per step, and is a sum over hundreds of trials.
            unsaved = (trial for trial, live in self._lives if _can_be_saved(live))
            self._unsaved_s = sum(map(self.checkpoints.expected_save_s, unsaved))
        return min(self._unsaved_s, self._max_saving_s())

    def pause(self) -> float:
        """Save the trials with unsaved work, the most recently trained first; return the seconds that this took.

        This takes at most 2 % of a budget of time or money; in a budget of epochs, at most one second or 2 % of the time so far.
        Only the first trial may take longer, up to all the time that is left in the budget: after Ctrl-C, the trial that was in
        training is worth more than 2 % of the budget. All checkpoints are written before the first one is committed, because a
        commit waits for the disk.
        """
        self._is_paused, self._unsaved_s = True, None
        began, max_s = time.monotonic(), self._max_saving_s()
        left_s = math.inf if self._total_s is None else max(max_s, self._total_s - self.now())
        written: list[tuple[int, LiveTrial, float]] = []
        commit_s = 0.0  # the expected time of the commits
        for trial, live in reversed(self._lives):
            if not _can_be_saved(live):
                continue
            began_one, expected_s = time.monotonic(), self.checkpoints.expected_save_s(trial)
            if began_one - began + commit_s + expected_s > (max_s if written else left_s):
                break
            with contextlib.suppress(*RAISED):  # a trial that cannot be saved is trained again
                live.save(self.checkpoints.partial_path(trial, live.step))
                written_s = time.monotonic() - began_one
                written.append((trial, live, written_s))
                commit_s += max(0.0, expected_s - written_s)
        for trial, live, written_s in written:
            with contextlib.suppress(OSError):
                self.checkpoints.commit(trial, live.step, written_s)
        return time.monotonic() - began

    def _max_saving_s(self) -> float:
        if self._total_s is not None:
            return _SAVING_SHARE * self._total_s
        return max(_MIN_SAVING_S, _SAVING_SHARE * self.now())

    def close(self, pause: bool = True) -> None:
        if pause:  # otherwise another process has taken over the checkpoints
            if not self._is_paused:
                self.pause()
            self.checkpoints.evict_over_limit(keep=set())
            self.checkpoints.close()
        self._lives.clear()
        self._order = None
        self._losses.clear()
        self._waiting.clear()

    # orders ----------------------------------------------------------------------------------------------------------

    def _begin(self, order: Order, resumable_step: int, former_configs: Sequence[Config]) -> None:
        """Begin an order. If its trial cannot continue from this step, note the loss instead: the loop then submits it again."""
        step = resumable_step
        if not self._lives.has(order.trial, step):
            step = self.checkpoints.find_unchanged_step(order.trial, up_to=step)
        if step != resumable_step:
            why = "its checkpoint is gone or was changed"
            self._losses.append(StateLoss(trial=order.trial, resumable_step=step, why=why))
            return
        self._order, self._former_configs = order, former_configs
        self._lives.switch_to(order.trial, resumable_step, lambda: self._load(order, resumable_step))
        self._since = self.now()

    def _next_order(self) -> None:
        self._order = None
        if waiting := next(iter(self._waiting), None):
            self._waiting.remove(waiting[0])
            self._begin(*waiting)

    def _load(self, order: Order, step: int) -> LiveTrial:
        config = config_at(step + 1, order, self._former_configs)
        checkpoint = self.checkpoints.path_to_load(order.trial, step)
        return LiveTrial(self.target, config, step, checkpoint, self.max_steps, order.trial)

    def _next_config(self, live: LiveTrial) -> Config:
        assert self._order is not None
        return config_at(live.step + 1, self._order, self._former_configs)

    def _break_off(self, order: Order, step: int, error: BaseException) -> list[RunnerEvent]:
        """Return the events of a step that ended the trial or failed. A step that ran out of memory is tried again alone."""
        if len(self._lives) > 1 and is_out_of_memory(error):
            return self._try_again_alone(order, step, error)
        event = self._end(order, step) if isinstance(error, EndOfTraining) else self._fail(order, step, error)
        self._lives.drop(order.trial)
        self._next_order()
        return [event]

    def _end(self, order: Order, step: int) -> Note:
        return note_end(order, step - 1, self.now() - self._since)

    def _fail(self, order: Order, step: int, error: BaseException) -> Receipt:
        text = "".join(traceback.format_exception(error)).strip()
        cost = Cost(train=self.now() - self._since)
        saved_step = self.checkpoints.newest_step(order.trial, up_to=step - 1)
        return write_incomplete_receipt(order, step, "failed", text, cost, at=self.now(), saved_step=saved_step)

    # the resume check ------------------------------------------------------------------------------------------------

    def _check_resuming(self, order: Order, live: LiveTrial) -> tuple[float | None, float] | None:
        """Make the resume check if it is due: train the next step in a copy of the trial, made from its checkpoint.

        Return the value of that step (None if the copy cannot train it) and the seconds of the check; None if no check is due.
        The next step must be one that is validated, because values are compared. The trial must have trained a step in this
        process: a trial that was just loaded from its checkpoint would be compared with a copy of the same checkpoint.
        """
        due = order.check and self._checked_order != order.number and order.validates(live.step + 1)
        if not due or not live.can_save or live.step == live.start_step:
            return None
        self._checked_order = order.number
        began = time.monotonic()
        if self.checkpoints.newest_step(order.trial) != live.step:
            self.checkpoints.save(order.trial, live.step, live.save)
        value: float | None = None
        with preserve_random_state():
            copy = self._load(order, live.step)
            with contextlib.suppress(*RAISED):  # a copy that cannot continue has no value: the check says so
                value = copy.advance(self._next_config(live), order.until, True).value
            copy.close()
        return value, time.monotonic() - began

    def _give_up_check(self, order: Order, step: int, check: tuple[float | None, float] | None) -> list[RunnerEvent]:
        """Return the note of a check if the trial itself then failed in that step; the time of the check belongs to the check."""
        if check is None:
            return []
        self._since += check[1]
        return [note_unfinished_check(order, step, check[1])]

    # memory and disk -------------------------------------------------------------------------------------------------

    def _save_if_due(self, live: LiveTrial, trial: int, value: float | None) -> float:
        """Save the trial if a save is due; return the seconds that this took."""
        is_complete = live.step >= self.max_steps
        due = self.checkpoints.decide_save(trial, live.step, value, last=is_complete, unsaved_s=live.unsaved_s)
        return self._save(trial, live) if due else 0.0

    def _save(self, trial: int, live: LiveTrial) -> float:
        """Save a trial that can be saved and has unsaved work; return the seconds that this took."""
        return self.checkpoints.save(trial, live.step, live.save) if _can_be_saved(live) else 0.0

    def _evict(self) -> tuple[list[RunnerEvent], float]:
        """Move the trials for which there is no room to disk; return the losses and the seconds that this took."""
        losses: list[RunnerEvent] = []
        seconds = 0.0
        for trial, _ in self._lives.find_surplus():
            lost, saving_s = self._move_to_disk(trial)
            losses += [lost] if lost is not None else []
            seconds += saving_s
        needed = {*(trial for trial, _ in self._lives), *(order.trial for order, _, _ in self._waiting)}
        return losses + self.checkpoints.evict_over_limit(keep=needed), seconds

    def _move_to_disk(self, trial: int) -> tuple[StateLoss | None, float]:
        live, seconds, why = self._lives[trial], 0.0, "there was no room for it in memory, and it cannot be saved"
        try:
            seconds = self._save(trial, live)
        except RAISED as error:
            why = f"there was no room for it in memory, and saving it failed: {error}"
        self._lives.drop(trial)
        saved_step = self.checkpoints.newest_step(trial, up_to=live.step)
        lost = None if saved_step == live.step else StateLoss(trial=trial, resumable_step=saved_step, why=shorten(why))
        return lost, seconds

    def _try_again_alone(self, order: Order, step: int, error: BaseException) -> list[RunnerEvent]:
        """Move all other trials to disk. The order stays open, and the loop submits it again."""
        self._lives.lower_limit()
        count = len(self._lives)
        moved = [self._move_to_disk(trial) for trial, _ in self._lives if trial != order.trial]
        self._lives.drop(order.trial)
        free_unused_memory()
        self._order = None
        lost = StateLoss(
            trial=order.trial,
            resumable_step=self.checkpoints.newest_step(order.trial, up_to=step - 1),
            seconds=self.now() - self._since,
            why=shorten(f"out of memory with {count} trials alive, so it is tried again alone: {error}"),
            death=True,
        )
        return [*(loss for loss, _ in moved if loss is not None), lost]


def _can_be_saved(live: LiveTrial) -> bool:
    """Return whether the trial can be saved now: it has unsaved work, and is not in the middle of a step."""
    return bool(live.can_save) and live.is_between_steps and live.unsaved_s > 0


@contextlib.contextmanager
def _redirect_stdout() -> Iterator[None]:
    """Send what training code prints to standard error: standard output belongs to results."""
    with contextlib.redirect_stdout(sys.stderr):
        yield
