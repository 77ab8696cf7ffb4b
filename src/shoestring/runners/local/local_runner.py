"""The local runner: training code in this process, one step at a time. A paused generator is the frozen run.

It cannot cut a step off, so at most one step goes over a budget of seconds or dollars.

Frozen trials stay in memory (see `live_trials`) and are saved late: at a new best, when a trial has more unsaved work than
saving is worth (see `Checkpoints.is_due`), when it is put away, and at the end, the last trained first, as far as a fiftieth of
the budget goes. So a process that is killed takes some work along, which is trained again when it is wanted; its receipts are
stored, and stay.
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

from shoestring.core.ledger.entries import Cost, Lost, Note, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config
from shoestring.core.values.text import bounded
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.devices import WaitingOrders
from shoestring.runners.local.free_memory import give_memory_back, is_out_of_memory
from shoestring.runners.local.live_trials import LiveTrials
from shoestring.runners.runner import (
    Clock,
    News,
    bought_value,
    config_at,
    note_end,
    note_release,
    write_broken_receipt,
    write_receipt,
)
from shoestring.runners.training.code import RAISED, Ended, Live, can_save
from shoestring.runners.training.resume_check import note_check, note_unfinished_check, preserve_random_state

# Of a budget of time, else of the time so far: what saving at the end may take. The rest is trained again if it is wanted.
_FREEZING_SHARE = 0.02
_LEAST_FREEZING_S = 1.0  # where that time is not money


class Local:
    """Training code in this process; see the module."""

    workers = 1
    simulated = False
    check_start_s = 0.0

    def __init__(self, target: Any, checkpoints: Checkpoints, live: int | None = None) -> None:
        self.target, self.checkpoints = target, checkpoints
        self.can_save: bool | None = can_save(target)
        self._lives = LiveTrials(live)
        self._order: Order | None = None
        self._former: Sequence[Config] = ()  # configs of steps that may have to be run again for that order
        self._waiting = WaitingOrders()
        self._since = 0.0
        self._checked_order: int | None = None
        self.max_steps = 1  # of a full training; `start` knows it
        self._total_s: float | None = None  # of the budget; None: it is in epochs
        self._is_frozen = False  # since the last order
        self._unsaved_s: float | None = 0.0  # to save all that is alive; None: to be counted again
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

    def submit(self, order: Order, held: int, former: Sequence[Config] = ()) -> None:
        """Several orders are carried out one after the other."""
        self._is_frozen = False
        if self._order is None:
            self._begin(order, held, former)
        elif order.number != self._order.number:
            self._waiting.put(order, held, former)

    def wait(self, until: float) -> list[News]:
        order = self._order
        if order is None or self.now() >= until:
            return []
        self._unsaved_s = None
        live = self._lives[order.trial]
        step = live.step + 1
        resumed: tuple[float | None, float] | None = None
        try:
            with _redirect_stdout():
                resumed = self._check_resuming(order, live)
                result = live.advance(self._config(live), order.until, order.validates(step))
                self.can_save = live.can_save
                value = bought_value(order, step, result.value)
                saving_s = self._save_if_due(live, order.trial, value)
                losses, evicting_s = self._evict()
        except RAISED as error:  # Ended too
            news = self._give_up_check(order, step, resumed)
            return news + self._break_off(order, step, error)
        saved = self.checkpoints.newest(order.trial, up_to=step)
        cost = replace(result.cost, setup=result.cost.setup + saving_s + evicting_s)
        paid = write_receipt(order, step, value, cost, at=self.now(), saved=saved, metrics=result.metrics)
        # The check comes before the receipt that may close the order that pays for it.
        news = [paid] if resumed is None else [note_check(order, step, value, *resumed, exact=live.is_exact), paid]
        self._since = self.now()
        if step >= self.max_steps:  # nothing more of it can be bought
            self._lives.drop(order.trial)
        if paid.status == "diverged" or step == order.until:
            self._next_order()
        return news + losses

    def running(self) -> Mapping[int, float]:
        order = self._order
        return {} if order is None else {order.number: self._since}

    def interrupt(self, why: str) -> list[News]:
        """No step is ever under way between two calls, so there is nothing to cut off and nothing to pay for."""
        order, self._order = self._order, None
        return [*([note_release(order, why)] if order else []), *self._waiting.release(why)]

    @property
    def freezing_s(self) -> float:
        """Of a race with hundreds of losers most are not worth the money: see `_FREEZING_SHARE`."""
        if self._unsaved_s is None:  # asked several times a step, of hundreds of trials
            unsaved = (trial for trial, live in self._lives if _can_be_saved(live))
            self._unsaved_s = sum(map(self.checkpoints.expect_save_s, unsaved))
        return min(self._unsaved_s, self._most_freezing_s())

    def freeze(self) -> float:
        """The last trained first, as long as there is time; all are written before the first is waited for.

        The very last may take all that is left: after Ctrl-C it is worth more than a fiftieth, at the wall nothing is left.
        """
        self._is_frozen, self._unsaved_s = True, None
        began, most_s = time.monotonic(), self._most_freezing_s()
        left_s = math.inf if self._total_s is None else max(most_s, self._total_s - self.now())
        written: list[tuple[int, Live, float]] = []
        kept_s = 0.0  # what it will take to wait for the disk
        for trial, live in reversed(self._lives):
            if not _can_be_saved(live):
                continue
            began_one, expected_s = time.monotonic(), self.checkpoints.expect_save_s(trial)
            if began_one - began + kept_s + expected_s > (most_s if written else left_s):
                break
            with contextlib.suppress(*RAISED):  # a courtesy here: what cannot be saved is trained again
                live.save(self.checkpoints.partial_path(trial, live.step))
                written_s = time.monotonic() - began_one
                written.append((trial, live, written_s))
                kept_s += max(0.0, expected_s - written_s)
        for trial, live, written_s in written:
            with contextlib.suppress(OSError):
                self.checkpoints.keep(trial, live.step, written_s)
        return time.monotonic() - began

    def _most_freezing_s(self) -> float:
        if self._total_s is not None:
            return _FREEZING_SHARE * self._total_s
        return max(_LEAST_FREEZING_S, _FREEZING_SHARE * self.now())

    def close(self, freeze: bool = True) -> None:
        if freeze:  # else the checkpoints are another's by now
            if not self._is_frozen:
                self.freeze()
            self.checkpoints.drop_over_limit(keep=set())
            self.checkpoints.close()
        self._lives.clear()
        self._order = None
        self._waiting.clear()

    def _begin(self, order: Order, held: int, former: Sequence[Config]) -> None:
        self._order, self._former = order, former
        self._lives.train(order.trial, held, lambda: self._thaw(order, held))
        self._since = self.now()

    def _next_order(self) -> None:
        self._order = None
        if waiting := next(iter(self._waiting), None):
            self._waiting.remove(waiting[0])
            self._begin(*waiting)

    def _thaw(self, order: Order, held: int) -> Live:
        config = config_at(held + 1, order, self._former)
        return Live(self.target, config, held, self.checkpoints.path_to_thaw(order.trial, held), self.max_steps)

    def _config(self, live: Live) -> Config:
        """Of its next step."""
        assert self._order is not None
        return config_at(live.step + 1, self._order, self._former)

    def _check_resuming(self, order: Order, live: Live) -> tuple[float | None, float] | None:
        """When this order pays for a resume check: (value of the next step from a checkpoint, seconds).

        It needs a step with a value, and a trial that has gone on by itself: one that was just thawed is a copy too.
        """
        due = order.check and self._checked_order != order.number and order.validates(live.step + 1)
        if not due or not live.can_save or live.step == live.thawed_at:
            return None
        self._checked_order = order.number
        began = time.monotonic()
        if self.checkpoints.newest(order.trial) != live.step:
            self.checkpoints.save(order.trial, live.step, live.save)
        value: float | None = None
        with preserve_random_state():
            copy = self._thaw(order, live.step)
            with contextlib.suppress(*RAISED):  # a copy that cannot go on has no value: the check tells
                value = copy.advance(self._config(live), order.until, True).value
            copy.close()
        return value, time.monotonic() - began

    def _give_up_check(self, order: Order, step: int, resumed: tuple[float | None, float] | None) -> list[News]:
        """The step that was to be compared came to no end: what the check took is still the check's."""
        if resumed is None:
            return []
        self._since += resumed[1]
        return [note_unfinished_check(order, step, resumed[1])]

    def _save_if_due(self, live: Live, trial: int, value: float | None) -> float:
        """The seconds that it took."""
        is_complete = live.step >= self.max_steps
        due = self.checkpoints.is_due(trial, live.step, value, last=is_complete, unsaved_s=live.unsaved_s)
        return self._save(trial, live) if due else 0.0

    def _save(self, trial: int, live: Live) -> float:
        """Bring what is alive to disk, if it is not there and can be; the seconds that it took."""
        return self.checkpoints.save(trial, live.step, live.save) if _can_be_saved(live) else 0.0

    def _break_off(self, order: Order, step: int, error: BaseException) -> list[News]:
        """The step came to no end: the trial has, or it failed. For want of memory it is tried again without the others."""
        if len(self._lives) > 1 and is_out_of_memory(error):
            return self._make_room(order, step, error)
        news = self._end(order, step) if isinstance(error, Ended) else self._fail(order, step, error)
        self._lives.drop(order.trial)
        self._next_order()
        return [news]

    def _make_room(self, order: Order, step: int, error: BaseException) -> list[News]:
        """Put all other trials away. The order stays open, and the loop submits it again."""
        self._lives.keep_fewer()
        count, news = len(self._lives), [self._put_away(trial) for trial, _ in self._lives if trial != order.trial]
        self._lives.drop(order.trial)
        give_memory_back()
        why = f"out of memory with {count} trials alive, so it is tried again alone: {error}"
        held = self.checkpoints.newest(order.trial, up_to=step - 1)
        lost = Lost(trial=order.trial, held=held, seconds=self.now() - self._since, why=bounded(why), death=True)
        self._order = None
        return [*(loss for loss, _ in news if loss is not None), lost]

    def _end(self, order: Order, step: int) -> Note:
        return note_end(order, step - 1, self.now() - self._since)

    def _fail(self, order: Order, step: int, error: BaseException) -> Receipt:
        text = "".join(traceback.format_exception(error)).strip()
        cost = Cost(train=self.now() - self._since)
        saved = self.checkpoints.newest(order.trial, up_to=step - 1)
        return write_broken_receipt(order, step, "failed", text, cost, at=self.now(), saved=saved)

    def _evict(self) -> tuple[list[News], float]:
        """Put those away for which there is no room; one that cannot be saved is lost. And the seconds that it took."""
        news: list[News] = []
        seconds = 0.0
        for trial, _ in self._lives.find_surplus():
            lost, saving_s = self._put_away(trial)
            news += [lost] if lost is not None else []
            seconds += saving_s
        needed = {*(trial for trial, _ in self._lives), *(order.trial for order, _, _ in self._waiting)}
        return news + self.checkpoints.drop_over_limit(keep=needed), seconds

    def _put_away(self, trial: int) -> tuple[Lost | None, float]:
        live, seconds, why = self._lives[trial], 0.0, "there was no room for it in memory, and it cannot be saved"
        try:
            seconds = self._save(trial, live)
        except RAISED as error:
            why = f"there was no room for it in memory, and saving it failed: {error}"
        self._lives.drop(trial)
        held = self.checkpoints.newest(trial, up_to=live.step)
        return None if held == live.step else Lost(trial=trial, held=held, why=bounded(why)), seconds


def _can_be_saved(live: Live) -> bool:
    """Whether there is something in it that is not on disk, and it is the state of a step."""
    return bool(live.can_save) and live.is_between_steps and live.unsaved_s > 0


@contextlib.contextmanager
def _redirect_stdout() -> Iterator[None]:
    """Standard output belongs to results; what training code prints is narration."""
    with contextlib.redirect_stdout(sys.stderr):
        yield
