"""The process runner: n workers, one process a live trial. A frozen trial is a process that waits between two steps.

A step runs in its trial's process and is timed there; this end only listens, so no worker waits for another, and at the
wall a running step is simply ended. One spare process waits with its imports done. More than `live` frozen trials are not
kept: the least recently used goes, and one that was not saved is lost. A checkpoint is written by the trial's process and
put into its place here. A process that dies, or is silent for too long, fails its order; what is left is its checkpoint.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from multiprocessing import connection
from typing import Any

from shoestring.core.entries import Cost, Lost, Note, Order
from shoestring.core.ledger import Ledger
from shoestring.runners.checkpoints import Checkpoints
from shoestring.runners.crew import STOP_GRACE_S, Crew
from shoestring.runners.local import LIVE_WITHOUT_SAVING
from shoestring.runners.resume_check import check_note
from shoestring.runners.runner import Clock, News, receipt, unfinished
from shoestring.runners.targets import portable
from shoestring.runners.training import StepResult
from shoestring.runners.worker import Patience, Worker, leave_if_importing_main, stop

_LOOK_S = 0.5  # how often silent processes are looked at
_SAVE_GRACE_S = 0.5  # for a checkpoint being written when the wall is reached
_CLOSE_GRACE_S = 5.0  # for freezing everything at the end


@dataclass(eq=False, slots=True)
class _Live:
    """A trial with a process of its own, at `step`."""

    trial: int
    worker: Worker
    step: int
    thawed_at: int  # the step that its process began from
    order: Order | None = None  # None: frozen
    since: float = 0.0  # when its present step began
    setup_s: float = 0.0  # of that step: waiting for imports
    can_save: bool | None = None
    result: StepResult | None = None  # of a finished step whose checkpoint is being written
    copy: Worker | None = None  # tries resuming out, while the trial itself rests
    resumed: tuple[float | None, float] | None = None  # what that gave, and its seconds


class Processes:
    simulated = False

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
        self._crew = Crew(portable(train))
        self._live_limit = live
        self._lives: dict[int, _Live] = {}  # by trial, the least recently used first
        self._since: dict[int, float] = {}  # by order
        self._news: list[News] = []
        self._checked_order: int | None = None
        self._patience = Patience(hung_after_s)
        self._clock = Clock()

    def now(self) -> float:
        return self._clock.now()

    def start(self, ledger: Ledger) -> Mapping[int, int]:
        """Waits until a process for each worker has imported the training code: that is not the trials' time to pay.

        Code that cannot be had is told here, before it costs anything.
        """
        self.can_save = self._crew.first(self.workers)
        self._clock.start(ledger)
        return self.checkpoints.start(ledger)

    def submit(self, order: Order, held: int) -> None:
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
            live = _Live(order.trial, self._begun(order, step), step, thawed_at=step)
        self._lives[order.trial] = live
        live.order, live.since = order, self.now()
        self._since[order.number] = live.since
        self._go_on(live)
        self._crew.refill()

    def wait(self, until: float) -> list[News]:
        while True:
            news, self._news = self._news, []
            left_s = 0.0 if news else min(max(0.0, until - self.now()), _LOOK_S)
            workers = {worker.connection: worker for worker in self._listening()}
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
        stop([live.worker for live in busy if live.result is None] + _copies(busy), STOP_GRACE_S)
        deadline = time.monotonic() + _SAVE_GRACE_S
        news: list[News] = []
        for live in busy:
            was_under_way = live.result is None
            if not was_under_way:
                with contextlib.suppress(Exception):  # not saved is no failure here
                    self._keep(live, live.worker.receive(deadline - time.monotonic()))
                news += self._pay(live)
            saved = self._saved(live)
            if was_under_way and live.order is not None:
                cost = Cost(train=max(0.0, cut_at - live.since))
                news.append(unfinished(live.order, live.step + 1, "interrupted", why, cost, at=self.now(), saved=saved))
            else:
                if live.order is not None:
                    news.append(Note(topic="released", facts={"order": live.order.number, "why": why}))
                if saved != live.step:
                    news.append(Lost(trial=live.trial, held=saved, why=why))
            self._drop(live)
        return news

    def close(self, freeze: bool = True) -> None:
        deadline = time.monotonic() + _CLOSE_GRACE_S
        lives = list(self._lives.values())
        busy = [live for live in lives if live.order is not None]
        stop([live.worker for live in busy] + _copies(busy), STOP_GRACE_S)
        frozen = [live for live in lives if live.order is None and live.can_save] if freeze else []
        unsaved = [live for live in frozen if self._saved(live) < live.step]
        for live in unsaved:
            self._ask_to_save(live)
        for live in unsaved:
            with contextlib.suppress(Exception):  # freezing is a courtesy here: what is not saved is trained again
                self._keep(live, live.worker.receive(deadline - time.monotonic()))
        self._crew.close([live.worker for live in lives])
        for known in (self._lives, self._since, self._news):
            known.clear()

    # what processes say ------------------------------------------------------------------------------------------------

    def _hear(self, worker: Worker) -> list[News]:
        if worker.connection.closed:  # dropped because of what another one said a moment ago
            return []
        message = worker.receive()
        live = next((live for live in self._lives.values() if worker in (live.worker, live.copy)), None)
        if message is None or message["is"] == "unusable":
            return self._gone(worker, live, message)
        if message["is"] == "ready":
            self._crew.greet(worker, message)
            if live is not None and worker is live.worker:
                live.setup_s = self.now() - live.since
            return []
        assert live is not None
        if worker is live.copy:
            return self._resumed(live, message)
        if message["is"] == "failed":
            return self._failed(live, message["text"])
        if message["is"] == "ended":
            assert live.order is not None
            seconds = max(0.0, self.now() - live.since)
            facts = {"order": live.order.number, "trial": live.trial, "step": live.step, "seconds": seconds}
            self._drop(live)
            return [Note(topic="ended", facts=facts)]
        try:
            return self._stepped(live, message) if message["is"] == "stepped" else self._written(live, message)
        except OSError as error:  # the disk, not the training code
            return self._failed(live, f"the checkpoint of step {live.step} cannot be kept: {error}")

    def _stepped(self, live: _Live, message: Mapping[str, Any]) -> list[News]:
        assert live.order is not None
        setup, train, validate = message["cost"]
        live.step += 1
        cost = Cost(setup=setup + live.setup_s, train=train, validate=validate)
        live.result = StepResult(message["value"], cost, message["told"])
        live.setup_s = 0.0
        live.can_save = self.can_save = message["can_save"]
        self._patience.saw(self.now() - live.since)
        last = live.step == live.order.until
        due = self.checkpoints.is_due(live.trial, live.step, live.result.value, last=last)
        if live.can_save and due:
            self._ask_to_save(live)
            return []
        return self._paid(live)

    def _written(self, live: _Live, message: Mapping[str, Any]) -> list[News]:
        self._keep(live, message)
        if live.result is not None:
            return self._paid(live)
        self._try_resuming(live)  # that is what the checkpoint was written for
        return []

    def _paid(self, live: _Live) -> list[News]:
        news = self._pay(live)
        if live.order is not None:
            self._go_on(live)
            return news
        return news + self._at_rest(live)

    def _pay(self, live: _Live) -> list[News]:
        """The receipt of the step that is done, behind the resume check that its order may have paid for."""
        order, result, now = live.order, live.result, self.now()
        assert order is not None
        assert result is not None
        # The worker was ours all the time, also while a message was on its way and while we had other things to do.
        unseen_s = max(0.0, now - live.since - result.cost.total - (live.resumed[1] if live.resumed else 0.0))
        cost = result.cost if result.told else replace(result.cost, setup=result.cost.setup + unseen_s)
        paid = receipt(order, live.step, result.value, cost, at=now, saved=self._saved(live))
        news: list[News] = [paid]
        if live.resumed is not None:
            news.insert(0, check_note(order, live.step, result.value, *live.resumed))
        live.result = live.resumed = None
        live.since = now
        if paid.status == "diverged" or live.step == order.until:
            live.order = None
            del self._since[order.number]
        else:
            self._since[order.number] = now
        return news

    # what processes are told -------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """A frozen trial that is safe on disk gives its process away: that is quicker than waiting for imports."""
        for old in self._lives.values():
            if old.order is None and old.can_save and self._saved(old) == old.step:
                del self._lives[old.trial]
                self._crew.take_back(old.worker)
                return

    def _begun(self, order: Order, step: int) -> Worker:
        """A process in which this trial can go on from `step`."""
        return self._crew.take(order.config, step, self.checkpoints.path(order.trial, step) if step else None)

    def _go_on(self, live: _Live) -> None:
        order = live.order
        assert order is not None
        due = order.check and self._checked_order != order.number and order.validates(live.step + 1)
        if due and live.can_save and live.step != live.thawed_at:  # one just thawed is a copy too
            self._checked_order = order.number
            if self._saved(live) == live.step:
                self._try_resuming(live)
            else:
                self._ask_to_save(live)
            return
        _ask_for_step(live.worker, order, order.validates(live.step + 1))

    def _try_resuming(self, live: _Live) -> None:
        """The next step is trained first by a copy from the checkpoint; the trial itself does not notice."""
        assert live.order is not None
        live.copy = self._begun(live.order, live.step)
        _ask_for_step(live.copy, live.order, validate=True)

    def _resumed(self, live: _Live, message: Mapping[str, Any]) -> list[News]:
        stepped = message["is"] == "stepped"  # or the copy could not go on at all
        seconds = sum(message["cost"]) if stepped else max(0.0, self.now() - live.since)
        live.resumed = (message["value"] if stepped else None, seconds)
        assert live.copy is not None
        self._crew.dismiss(live.copy)
        live.copy = None
        self._go_on(live)
        return []

    def _ask_to_save(self, live: _Live) -> None:
        live.worker.send("save", path=str(self.checkpoints.partial(live.trial, live.step)))

    def _keep(self, live: _Live, message: Mapping[str, Any] | None) -> None:
        if message is not None and message["is"] == "saved":
            seconds = self.checkpoints.keep(live.trial, live.step, message["seconds"])
            if live.result is not None:
                cost = live.result.cost
                live.result = replace(live.result, cost=replace(cost, setup=cost.setup + seconds))

    # keeping count -----------------------------------------------------------------------------------------------------

    def _at_rest(self, live: _Live) -> list[News]:
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
            if self._saved(old) != old.step:
                why = f"more than {limit} trials were alive"
                news.append(Lost(trial=old.trial, held=self._saved(old), why=why))
        for trial in self.checkpoints.over_limit(keep=set(self._lives)):
            news.append(Lost(trial=trial, held=0, why="its checkpoint went over the limit"))
        return news

    def _look_at_silent(self) -> list[News]:
        """A process can die without closing its pipe (its own children hold it too), or hang."""
        self._crew.clear_away()
        news: list[News] = []
        for live in list(self._lives.values()):
            silent_s = self.now() - live.since
            worker = live.copy or live.worker
            if worker.died_silently:
                news += self._gone(worker, live, None)
            elif live.order is not None and self._patience.is_over(silent_s):
                news += self._failed(live, self._patience.text(silent_s))
        return news

    def _gone(self, worker: Worker, live: _Live | None, message: Mapping[str, Any] | None) -> list[News]:
        how = f"the worker process {worker.how_it_ended()}" if message is None else message["text"]
        if live is None:
            self._crew.bury(worker)
            return []
        if worker is live.copy:
            return self._resumed(live, {"is": "failed"})
        if live.order is not None:
            return self._failed(live, how)
        saved = self._saved(live)
        self._drop(live)
        return [Lost(trial=live.trial, held=saved, why=how)] if saved != live.step else []

    def _failed(self, live: _Live, text: str) -> list[News]:
        assert live.order is not None
        # A step that was done but could not be saved counts as not done.
        step = live.step if live.result is not None else live.step + 1
        cost, saved = Cost(train=max(0.0, self.now() - live.since)), self.checkpoints.newest(live.trial, up_to=step - 1)
        order = live.order
        self._drop(live)
        return [unfinished(order, step, "failed", text, cost, at=self.now(), saved=saved)]

    def _drop(self, live: _Live) -> None:
        """End a trial's process now."""
        del self._lives[live.trial]
        if live.order is not None:
            del self._since[live.order.number]
        stop([live.worker, *_copies([live])], STOP_GRACE_S)

    def _saved(self, live: _Live) -> int:
        return self.checkpoints.newest(live.trial, up_to=live.step)

    def _listening(self) -> Iterable[Worker]:
        yield from self._crew.spares
        for live in self._lives.values():
            yield live.worker
            yield from _copies([live])


def _ask_for_step(worker: Worker, order: Order, validate: bool) -> None:
    worker.send("step", config=order.config, until=order.until, validate=validate)


def _copies(lives: Iterable[_Live]) -> list[Worker]:
    return [live.copy for live in lives if live.copy is not None]
