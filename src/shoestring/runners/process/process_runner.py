"""The process runner: n workers, one process per live trial. A frozen trial is a process that waits between two steps.

A step runs in its trial's process and is timed there; this end only listens, so no worker waits for another, and at the
wall a running step is simply ended. One spare process waits with its imports done. More than `live` frozen trials are not
kept: the least recently used goes, and one that was not saved is lost. A checkpoint is written by the trial's process and
put into its place here. A process that dies in a step is lost with what it had not saved, and its order is given back to
the loop; one that is silent for too long fails its order. What is left of both is the checkpoint.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from typing import Any, Literal

from shoestring.core.ledger.entries import Cost, Lost, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.checkpoints.trial_logs import cut_long_logs
from shoestring.runners.devices import Devices, Slots, WaitingOrders, count_workers, parse_devices
from shoestring.runners.process.process_group import require_posix
from shoestring.runners.process.spare_workers import STOP_GRACE_S, Crew
from shoestring.runners.process.trial_process import LiveProcess, LiveProcesses
from shoestring.runners.process.worker import Patience, Worker, leave_if_importing_main, stop
from shoestring.runners.runner import Clock, News, note_end, note_release, write_broken_receipt
from shoestring.runners.training.targets import pack_code

_LOOK_S = 0.5  # how often silent processes are looked at
_SAVE_GRACE_S = 0.5  # for a checkpoint being written when the wall is reached
_CLOSE_GRACE_S = 5.0  # for freezing everything at the end


class Processes:
    """Training code in worker processes; see the module."""

    simulated = False
    freezing_s = 0.0

    def __init__(
        self,
        train: Any,
        checkpoints: Checkpoints,
        workers: int | None = None,
        live: int | None = None,
        hung_after_s: float | None = None,
        devices: Devices | None = None,
    ) -> None:
        leave_if_importing_main()  # before the study is leased, or anything is started
        require_posix("the process runner")
        named = parse_devices(devices)
        self.workers, self.checkpoints = count_workers(workers, named), checkpoints
        self.can_save: bool | None = None
        self.check_start_s = 0.0
        self._slots, self._crew = Slots(self.workers, named), Crew(pack_code(train))
        self._clock = Clock()
        self._lives = LiveProcesses(self._crew, checkpoints, self.now, self._slots)
        self._live_limit = live
        self._waiting = WaitingOrders()
        self._since: dict[int, float] = {}  # by order
        self._news: list[News] = []
        self._checked_order: int | None = None
        self._patience = Patience(hung_after_s)

    def now(self) -> float:
        return self._clock.now()

    def start(self, ledger: Ledger) -> Mapping[int, int]:
        """Waits until a process for each worker has imported the training code: that is not the trials' time to pay.

        Code that cannot be imported, or whose checkpoints could not be kept, raises here, before it costs anything.
        """
        self.can_save, self.check_start_s = self._crew.first(self._slots.devices)
        survivors = self.checkpoints.start(ledger, is_needed=self.can_save is not False)
        self._lives.max_steps = ledger.max_steps
        self._clock.start(ledger)
        return survivors

    def submit(self, order: Order, held: int, former: Sequence[Config] = ()) -> None:
        if order.number not in self._since:
            self._waiting.put(order, held, former)
            self._begin_waiting()

    def wait(self, until: float) -> list[News]:
        while True:
            news, self._news = self._news, []
            left_s = 0.0 if news else min(max(0.0, until - self.now()), _LOOK_S)
            with_a_trial = (worker for live in self._lives for worker in live.workers)
            workers = {worker.connection: worker for worker in (*self._crew.spares, *with_a_trial)}
            for ready in connection.wait(list(workers), left_s):
                news += self._hear(workers[ready])  # type: ignore[index]
            news += self._look_at_silent()
            self._begin_waiting()
            news, self._news = [*news, *self._news], []
            if news or not self._since or self.now() >= until:
                return news

    def running(self) -> Mapping[int, float]:
        return dict(self._since)

    def interrupt(self, why: str) -> list[News]:
        """Ends running steps. A step that is done and being saved is paid for, and gets a moment to be saved."""
        cut_at, busy = self.now(), self._lives.busy
        stop([worker for live in busy if live.result is None for worker in live.workers], STOP_GRACE_S)
        deadline = time.monotonic() + _SAVE_GRACE_S
        news, self._news = [*self._news, *self._waiting.release(why)], []
        for live in busy:
            if live.result is None:
                news += self._break_off(live, "interrupted", why, at=cut_at)
                continue
            with contextlib.suppress(Exception):  # not saved is no failure here
                live.keep_checkpoint(live.worker.receive(deadline - time.monotonic()))
            news += self._pay(live)
            if live.order is not None:
                news.append(note_release(live.order, why))
            if live.saved != live.step:
                news.append(Lost(trial=live.trial, held=live.saved, why=why))
            self._drop(live)
        return news

    def freeze(self) -> float:
        return 0.0

    def close(self, freeze: bool = True) -> None:
        deadline = time.monotonic() + _CLOSE_GRACE_S
        stop([worker for live in self._lives.busy for worker in live.workers], STOP_GRACE_S)
        frozen = [live for live in self._lives if live.order is None and live.can_save] if freeze else []
        unsaved = [live for live in frozen if live.saved < live.step]
        for live in unsaved:
            live.ask_to_save()
        for live in unsaved:
            with contextlib.suppress(Exception):  # freezing is a courtesy here: what is not saved is trained again
                live.keep_checkpoint(live.worker.receive(deadline - time.monotonic()))
        self._crew.close([live.worker for live in self._lives])
        for known in (self._lives, self._since, self._waiting, self._news):
            known.clear()
        if freeze:  # else they are another's by now
            self.checkpoints.close()

    # what processes say ------------------------------------------------------------------------------------------------

    def _hear(self, worker: Worker) -> list[News]:
        if worker.connection.closed:  # dropped because of what another one said a moment ago
            return []
        message = worker.receive()
        live = self._lives.find_owner(worker)
        if message is None or message["is"] == "unusable":
            return self._bury(worker, live, message)
        if message["is"] == "ready":
            self._crew.greet(worker, message)
            if live is not None and worker is live.worker:
                live.setup_s = self.now() - live.since
            return []
        assert live is not None
        if worker is live.copy:
            return self._hear_copy(live, message)
        if message["is"] == "failed":
            return self._break_off(live, "failed", message["text"])
        if message["is"] == "ended":
            assert live.order is not None
            checked = live.give_up_check(self.now())
            ended = note_end(live.order, live.step, self.now() - live.since)
            self._drop(live)
            return [*checked, ended]
        try:
            return (
                self._hear_step(live, message) if message["is"] == "stepped" else self._hear_checkpoint(live, message)
            )
        except OSError as error:  # the disk, not the training code
            return self._break_off(live, "failed", f"the checkpoint of step {live.step} cannot be kept: {error}")

    def _hear_step(self, live: LiveProcess, message: Mapping[str, Any]) -> list[News]:
        live.take_result(message)
        cut_long_logs([self.checkpoints.folder(live.trial)])
        self.can_save = live.can_save
        self._patience.note_step(self.now() - live.asked_at)
        if live.is_checkpoint_due:
            live.ask_to_save()
            return []
        return self._pay_and_go_on(live)

    def _hear_checkpoint(self, live: LiveProcess, message: Mapping[str, Any]) -> list[News]:
        live.keep_checkpoint(message)
        if live.result is not None:
            return self._pay_and_go_on(live)
        self._lives.start_copy(live)  # that is what the checkpoint was written for
        return []

    def _hear_copy(self, live: LiveProcess, message: Mapping[str, Any]) -> list[News]:
        self._crew.dismiss(live.take_check(message))
        live.ask_for_step()
        return []

    def _bury(self, worker: Worker, live: LiveProcess | None, message: Mapping[str, Any] | None) -> list[News]:
        """A process is gone (or its code cannot be had): by itself, since those that we end are forgotten before."""
        how = f"the worker process {worker.how_it_ended()}" if message is None else message["text"]
        if live is None:
            self._crew.bury(worker)
            return []
        if worker is live.copy:
            return self._hear_copy(live, {"is": "failed"})
        if live.order is None:
            self._drop(live)
            return [Lost(trial=live.trial, held=live.saved, why=how)] if live.saved != live.step else []
        if message is not None:
            return self._break_off(live, "failed", how)
        self._checked_order = None  # a check that was under way is made again
        held = self.checkpoints.newest(live.trial, up_to=live.step - (live.result is not None))
        seconds, slot = max(0.0, self.now() - live.since), self._slots.name_worker(live.slot)
        self._drop(live)
        return [Lost(trial=live.trial, held=held, seconds=seconds, why=how, death=True, worker=slot)]

    def _look_at_silent(self) -> list[News]:
        """A process can die without closing its pipe (its own children hold it too), or hang."""
        self._crew.clear_away()
        cut_long_logs(self.checkpoints.folder(live.trial) for live in self._lives.busy)
        news: list[News] = []
        for live in self._lives:
            silent_s = self.now() - live.asked_at
            worker = live.copy or live.worker
            if worker.died_silently:
                news += self._bury(worker, live, None)
            elif live.order is not None and self._patience.is_over(silent_s):
                if worker is live.copy:
                    stop([worker], STOP_GRACE_S)
                    news += self._hear_copy(live, {"is": "failed"})
                else:
                    news += self._break_off(live, "failed", self._patience.text(silent_s))
        return news

    # what processes are told -------------------------------------------------------------------------------------------

    def _begin_waiting(self) -> None:
        """Begin the orders for which a worker is free by now."""
        for order, held, former in self._waiting:
            slot = self._lives.find_slot(order.trial, held)
            if slot is not None:
                self._waiting.remove(order)
                live, news = self._lives.begin(order, held, former, slot)
                self._news += news
                self._since[order.number] = live.since
                self._go_on(live)
                self._crew.refill(live.worker.device)

    def _go_on(self, live: LiveProcess) -> None:
        assert live.order is not None
        if self._checked_order == live.order.number or not live.can_check_resuming:
            live.ask_for_step()
            return
        self._checked_order = live.order.number
        if live.begin_check():
            self._lives.start_copy(live)

    # what comes of it --------------------------------------------------------------------------------------------------

    def _pay_and_go_on(self, live: LiveProcess) -> list[News]:
        news = self._pay(live)
        if live.order is not None:
            self._go_on(live)
            return news
        return news + self._lives.rest(live, self._live_limit, self.can_save)

    def _pay(self, live: LiveProcess) -> list[News]:
        order = live.order
        assert order is not None
        news = live.pay(self._slots.name_worker(live.slot))
        if live.order is None:
            del self._since[order.number]
            self._slots.give_back(live.slot)
        else:
            self._since[order.number] = live.since
        return news

    def _break_off(
        self, live: LiveProcess, status: Literal["failed", "interrupted"], text: str, at: float | None = None
    ) -> list[News]:
        """The receipt of a step that did not come to its end. One that was done but could not be saved counts as not done."""
        order, at = live.order, self.now() if at is None else at
        assert order is not None
        news = live.give_up_check(at)
        step = live.step if live.result is not None else live.step + 1
        cost = Cost(train=max(0.0, at - live.since))
        saved, worker = self.checkpoints.newest(live.trial, up_to=step - 1), self._slots.name_worker(live.slot)
        self._drop(live)
        return [*news, write_broken_receipt(order, step, status, text, cost, at=self.now(), saved=saved, worker=worker)]

    def _drop(self, live: LiveProcess) -> None:
        """End a trial's process now."""
        if live.order is not None:
            del self._since[live.order.number]
        self._lives.drop(live)
