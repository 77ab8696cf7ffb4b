"""The local runner: training code in this process, one step at a time. A paused generator is the frozen run.

It cannot cut a step off, so at most one step goes over a budget of seconds or dollars.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shoestring.core.entries import Cost, Lost, Note, Order, Receipt
from shoestring.core.ledger import Ledger
from shoestring.core.space import Config
from shoestring.runners.checkpoints import Checkpoints
from shoestring.runners.resume_check import note_check, note_unfinished_check, preserve_random_state
from shoestring.runners.runner import (
    LIVE_WITHOUT_SAVING,
    Clock,
    News,
    bought_value,
    config_at,
    note_end,
    note_release,
    write_broken_receipt,
    write_receipt,
)
from shoestring.runners.slots import WaitingOrders
from shoestring.runners.training import RAISED, Ended, Live, can_save


class Local:
    """Training code in this process; see the module."""

    workers = 1
    simulated = False
    check_start_s = 0.0

    def __init__(self, target: Any, checkpoints: Checkpoints, live: int | None = None) -> None:
        self.target, self.checkpoints = target, checkpoints
        self.can_save: bool | None = can_save(target)
        self._live_limit = live
        self._live: dict[int, Live] = {}  # by trial, the least recently used first
        self._order: Order | None = None
        self._former: Sequence[Config] = ()  # configs of steps that may have to be run again for that order
        self._waiting = WaitingOrders()
        self._since = 0.0
        self._checked_order: int | None = None
        self.max_steps = 1  # of a full training; `start` knows it
        self._clock = Clock()

    def now(self) -> float:
        return self._clock.now()

    def start(self, ledger: Ledger) -> Mapping[int, int]:
        survivors = self.checkpoints.start(ledger, is_needed=self.can_save is not False)
        self.max_steps = ledger.max_steps
        self._clock.start(ledger)
        return survivors

    def submit(self, order: Order, held: int, former: Sequence[Config] = ()) -> None:
        """Several orders are carried out one after the other."""
        if self._order is None:
            self._begin(order, held, former)
        elif order.number != self._order.number:
            self._waiting.put(order, held, former)

    def wait(self, until: float) -> list[News]:
        order = self._order
        if order is None or self.now() >= until:
            return []
        live = self._live[order.trial]
        step = live.step + 1
        resumed: tuple[float | None, float] | None = None
        try:
            with _redirect_stdout():
                resumed = self._check_resuming(order, live)
                result = live.advance(self._config(live), order.until, order.validates(step))
                self.can_save = live.can_save
                value = bought_value(order, step, result.value)
                cost = self._save_if_due(order, live, value, result.cost)
        except RAISED as error:  # Ended too
            news = self._give_up_check(order, step, resumed)
            news.append(self._end(order, step) if isinstance(error, Ended) else self._fail(order, step, error))
            self._drop(order.trial)
            self._next_order()
            return news
        saved = self.checkpoints.newest(order.trial, up_to=step)
        paid = write_receipt(order, step, value, cost, at=self.now(), saved=saved, metrics=result.metrics)
        # The check comes before the receipt that may close the order that pays for it.
        news = [paid] if resumed is None else [note_check(order, step, value, *resumed, exact=live.is_exact), paid]
        self._since = self.now()
        if paid.status == "diverged" or step == order.until:
            self._next_order()
            news += self._evict()
        return news

    def running(self) -> Mapping[int, float]:
        order = self._order
        return {} if order is None else {order.number: self._since}

    def interrupt(self, why: str) -> list[News]:
        """No step is ever under way between two calls, so there is nothing to cut off and nothing to pay for."""
        order, self._order = self._order, None
        return [*([note_release(order, why)] if order else []), *self._waiting.release(why)]

    def close(self, freeze: bool = True) -> None:
        for trial, live in self._live.items():
            if freeze and live.can_save and live.is_between_steps and live.step > self.checkpoints.newest(trial):
                with contextlib.suppress(Exception):  # a courtesy here: what cannot be saved is trained again
                    self.checkpoints.save(trial, live.step, live.save)
            live.close()
        self._live.clear()
        self._order = None
        self._waiting.clear()
        if freeze:  # else they are another's by now
            self.checkpoints.close()

    def _begin(self, order: Order, held: int, former: Sequence[Config]) -> None:
        self._order, self._former = order, former
        live = self._live.pop(order.trial, None)
        self._live[order.trial] = live if live is not None and live.step == held else self._thaw(order, held)
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

    def _save_if_due(self, order: Order, live: Live, value: float | None, cost: Cost) -> Cost:
        due = self.checkpoints.is_due(order.trial, live.step, value, last=live.step == order.until)
        if not (live.can_save and due):
            return cost
        return replace(cost, setup=cost.setup + self.checkpoints.save(order.trial, live.step, live.save))

    def _end(self, order: Order, step: int) -> Note:
        return note_end(order, step - 1, self.now() - self._since)

    def _fail(self, order: Order, step: int, error: BaseException) -> Receipt:
        text = "".join(traceback.format_exception(error)).strip()
        cost = Cost(train=self.now() - self._since)
        saved = self.checkpoints.newest(order.trial, up_to=step - 1)
        return write_broken_receipt(order, step, "failed", text, cost, at=self.now(), saved=saved)

    def _evict(self) -> list[News]:
        """Keep to the number of live frozen trials; one that cannot be saved is lost."""
        limit = self._live_limit or (self.workers if self.can_save else LIVE_WITHOUT_SAVING)
        news: list[News] = []
        while len(self._live) > limit:
            trial, live = next(iter(self._live.items()))
            saved = self.checkpoints.newest(trial, up_to=live.step)
            self._drop(trial)
            if saved != live.step:
                news.append(Lost(trial=trial, held=saved, why=f"more than {limit} trials were alive"))
        needed = {*self._live, *(order.trial for order, _, _ in self._waiting)}
        return news + self.checkpoints.drop_over_limit(keep=needed)

    def _drop(self, trial: int) -> None:
        self._live.pop(trial).close()


@contextlib.contextmanager
def _redirect_stdout() -> Iterator[None]:
    """Standard output belongs to results; what training code prints is narration."""
    with contextlib.redirect_stdout(sys.stderr):
        yield
