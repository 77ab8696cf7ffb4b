"""The process runner: n workers, one process per live trial. A frozen trial is a process that waits between two steps.

A step runs in its trial's process and is timed there; this end only listens, so no worker waits for another, and at the
wall a running step is simply ended. One spare process waits with its imports done. More than `live` frozen trials are not
kept: the least recently used goes, and one that was not saved is lost. A checkpoint is written by the trial's process and
put into its place here. A process that dies, or is silent for too long, fails its order; what is left is its checkpoint.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from typing import Any

from shoestring.core.entries import Cost, Lost, Note, Order
from shoestring.core.ledger import Ledger
from shoestring.core.space import Config
from shoestring.runners.checkpoints import Checkpoints
from shoestring.runners.crew import STOP_GRACE_S, Crew
from shoestring.runners.live_process import LiveProcess
from shoestring.runners.runner import LIVE_WITHOUT_SAVING, Clock, News, note_end, write_broken_receipt
from shoestring.runners.targets import pack_code
from shoestring.runners.worker import Patience, Worker, leave_if_importing_main, stop

_LOOK_S = 0.5  # how often silent processes are looked at
_SAVE_GRACE_S = 0.5  # for a checkpoint being written when the wall is reached
_CLOSE_GRACE_S = 5.0  # for freezing everything at the end


class Processes:
    """Training code in worker processes; see the module."""

    simulated = False
    check_start_s = 0.0

    def __init__(
        self,
        train: Any,
        checkpoints: Checkpoints,
        workers: int = 1,
        live: int | None = None,
        hung_after_s: float | None = None,
    ) -> None:
        leave_if_importing_main()  # before the study is leased, or anything is started
        self.workers, self.checkpoints = workers, checkpoints
        self.can_save: bool | None = None
        self._crew = Crew(pack_code(train))
        self._live_limit = live
        self._lives: dict[int, LiveProcess] = {}  # by trial, the least recently used first
        self._since: dict[int, float] = {}  # by order
        self._news: list[News] = []
        self._checked_order: int | None = None
        self._patience = Patience(hung_after_s)
        self._clock = Clock()

    def now(self) -> float:
        return self._clock.now()

    def start(self, ledger: Ledger) -> Mapping[int, int]:
        """Waits until a process for each worker has imported the training code: that is not the trials' time to pay.

        Code that cannot be imported raises here, before it costs anything.
        """
        self.can_save = self._crew.first(self.workers)
        self._clock.start(ledger)
        return self.checkpoints.start(ledger)

    def submit(self, order: Order, held: int, former: Sequence[Config] = ()) -> None:
        if order.number in self._since:
            return
        live = self._lives.pop(order.trial, None)
        if live is not None and (live.step != held or not live.worker.alive):
            stop([live.worker], STOP_GRACE_S)
            live = None
        if live is None:
            step = self.checkpoints.newest(order.trial, up_to=held)
            if step != held:
                self._news.append(Lost(trial=order.trial, held=step, why="its process or checkpoint is gone"))
            if not self._crew.has_ready:
                self._make_room()
            worker = self._crew.take(order.config, step, self.checkpoints.path_to_thaw(order.trial, step))
            live = LiveProcess(order.trial, worker, self.checkpoints, step, thawed_at=step)
        self._lives[order.trial] = live
        live.order, live.since = order, self.now()
        self._since[order.number] = live.since
        self._go_on(live)
        self._crew.refill()

    def wait(self, until: float) -> list[News]:
        while True:
            news, self._news = self._news, []
            left_s = 0.0 if news else min(max(0.0, until - self.now()), _LOOK_S)
            with_a_trial = (worker for live in self._lives.values() for worker in live.workers)
            workers = {worker.connection: worker for worker in (*self._crew.spares, *with_a_trial)}
            for ready in connection.wait(list(workers), left_s):
                news += self._hear(workers[ready])  # type: ignore[index]
            news += self._look_at_silent()
            if news or not self._since or self.now() >= until:
                return news

    def running(self) -> Mapping[int, float]:
        return dict(self._since)

    def interrupt(self, why: str) -> list[News]:
        """Ends running steps. A step that is done and being saved is paid for, and gets a moment to be saved."""
        cut_at = self.now()
        busy = [live for live in self._lives.values() if live.order is not None]
        stop([worker for live in busy if live.result is None for worker in live.workers], STOP_GRACE_S)
        deadline = time.monotonic() + _SAVE_GRACE_S
        news: list[News] = []
        for live in busy:
            assert live.order is not None
            if live.result is None:
                cost = Cost(train=max(0.0, cut_at - live.since))
                cut = write_broken_receipt(
                    live.order, live.step + 1, "interrupted", why, cost, at=self.now(), saved=live.saved
                )
                news.append(cut)
            else:
                with contextlib.suppress(Exception):  # not saved is no failure here
                    live.keep_checkpoint(live.worker.receive(deadline - time.monotonic()))
                news += self._pay(live)
                if live.order is not None:
                    news.append(Note(topic="released", facts={"order": live.order.number, "why": why}))
                if live.saved != live.step:
                    news.append(Lost(trial=live.trial, held=live.saved, why=why))
            self._drop(live)
        return news

    def close(self, freeze: bool = True) -> None:
        deadline = time.monotonic() + _CLOSE_GRACE_S
        lives = list(self._lives.values())
        busy = [live for live in lives if live.order is not None]
        stop([worker for live in busy for worker in live.workers], STOP_GRACE_S)
        frozen = [live for live in lives if live.order is None and live.can_save] if freeze else []
        unsaved = [live for live in frozen if live.saved < live.step]
        for live in unsaved:
            live.ask_to_save()
        for live in unsaved:
            with contextlib.suppress(Exception):  # freezing is a courtesy here: what is not saved is trained again
                live.keep_checkpoint(live.worker.receive(deadline - time.monotonic()))
        self._crew.close([live.worker for live in lives])
        for known in (self._lives, self._since, self._news):
            known.clear()

    # what processes say ------------------------------------------------------------------------------------------------

    def _hear(self, worker: Worker) -> list[News]:
        if worker.connection.closed:  # dropped because of what another one said a moment ago
            return []
        message = worker.receive()
        live = next((live for live in self._lives.values() if worker in live.workers), None)
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
            return self._fail(live, message["text"])
        if message["is"] == "ended":
            assert live.order is not None
            ended = note_end(live.order, live.step, self.now() - live.since)
            self._drop(live)
            return [ended]
        try:
            return (
                self._hear_step(live, message) if message["is"] == "stepped" else self._hear_checkpoint(live, message)
            )
        except OSError as error:  # the disk, not the training code
            return self._fail(live, f"the checkpoint of step {live.step} cannot be kept: {error}")

    def _hear_step(self, live: LiveProcess, message: Mapping[str, Any]) -> list[News]:
        live.take_result(message)
        self.can_save = live.can_save
        self._patience.note_step(self.now() - live.since)
        if live.is_checkpoint_due:
            live.ask_to_save()
            return []
        return self._pay_and_go_on(live)

    def _hear_checkpoint(self, live: LiveProcess, message: Mapping[str, Any]) -> list[News]:
        live.keep_checkpoint(message)
        if live.result is not None:
            return self._pay_and_go_on(live)
        self._try_resuming(live)  # that is what the checkpoint was written for
        return []

    def _pay_and_go_on(self, live: LiveProcess) -> list[News]:
        news = self._pay(live)
        if live.order is not None:
            self._go_on(live)
            return news
        return news + self._rest(live)

    def _pay(self, live: LiveProcess) -> list[News]:
        order = live.order
        assert order is not None
        news = live.pay(self.now())
        if live.order is None:
            del self._since[order.number]
        else:
            self._since[order.number] = live.since
        return news

    # what processes are told -------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """A frozen trial that is safe on disk gives its process away: that is quicker than waiting for imports."""
        for old in self._lives.values():
            if old.order is None and old.can_save and old.saved == old.step:
                del self._lives[old.trial]
                self._crew.take_back(old.worker)
                return

    def _go_on(self, live: LiveProcess) -> None:
        order = live.order
        assert order is not None
        if self._checked_order == order.number or not live.can_check_resuming:
            live.ask_for_step()
            return
        self._checked_order = order.number
        if live.saved == live.step:
            self._try_resuming(live)
        else:
            live.ask_to_save()

    def _try_resuming(self, live: LiveProcess) -> None:
        assert live.order is not None
        saved = self.checkpoints.path_to_thaw(live.trial, live.step)
        live.try_on_copy(self._crew.take(live.order.config, live.step, saved))

    def _hear_copy(self, live: LiveProcess, message: Mapping[str, Any]) -> list[News]:
        self._crew.dismiss(live.take_check(message, self.now()))
        self._go_on(live)
        return []

    # keeping count -----------------------------------------------------------------------------------------------------

    def _rest(self, live: LiveProcess) -> list[News]:
        """Frozen: keep to the number of live frozen trials; one that is not saved is lost."""
        self._lives[live.trial] = self._lives.pop(live.trial)
        if live.worker.reusable:  # a plain function keeps nothing alive: the next trial may have its process
            del self._lives[live.trial]
            self._crew.take_back(live.worker)
        limit = self._live_limit or (self.workers if self.can_save else LIVE_WITHOUT_SAVING)
        frozen = [live for live in self._lives.values() if live.order is None]
        news: list[News] = []
        for old in frozen[: max(0, len(frozen) - limit)]:
            del self._lives[old.trial]
            self._crew.take_back(old.worker)
            if old.saved != old.step:
                news.append(Lost(trial=old.trial, held=old.saved, why=f"more than {limit} trials were alive"))
        return news + self.checkpoints.drop_over_limit(keep=set(self._lives))

    def _look_at_silent(self) -> list[News]:
        """A process can die without closing its pipe (its own children hold it too), or hang."""
        self._crew.clear_away()
        news: list[News] = []
        for live in list(self._lives.values()):
            silent_s = self.now() - live.since
            worker = live.copy or live.worker
            if worker.died_silently:
                news += self._bury(worker, live, None)
            elif live.order is not None and self._patience.is_over(silent_s):
                news += self._fail(live, self._patience.text(silent_s))
        return news

    def _bury(self, worker: Worker, live: LiveProcess | None, message: Mapping[str, Any] | None) -> list[News]:
        how = f"the worker process {worker.how_it_ended()}" if message is None else message["text"]
        if live is None:
            self._crew.bury(worker)
            return []
        if worker is live.copy:
            return self._hear_copy(live, {"is": "failed"})
        if live.order is not None:
            return self._fail(live, how)
        saved = live.saved
        self._drop(live)
        return [Lost(trial=live.trial, held=saved, why=how)] if saved != live.step else []

    def _fail(self, live: LiveProcess, text: str) -> list[News]:
        assert live.order is not None
        # A step that was done but could not be saved counts as not done.
        step = live.step if live.result is not None else live.step + 1
        cost, saved = Cost(train=max(0.0, self.now() - live.since)), self.checkpoints.newest(live.trial, up_to=step - 1)
        order = live.order
        self._drop(live)
        return [write_broken_receipt(order, step, "failed", text, cost, at=self.now(), saved=saved)]

    def _drop(self, live: LiveProcess) -> None:
        """End a trial's process now."""
        del self._lives[live.trial]
        if live.order is not None:
            del self._since[live.order.number]
        stop(live.workers, STOP_GRACE_S)
