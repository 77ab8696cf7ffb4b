"""The Ray runner: seats on a cluster, any trial on any seat. Only the driver, this process, holds the lease and the ledger.

Steps run in their seat and are timed there; what the seat says comes back as the result of a call. A trial that is frozen is on
disk, and its seat is free for another one; code that cannot save holds its seat until another trial needs it, and is lost then.
Seats are asked for as many as there are workers; Ray places them as nodes come and go, and there are as many workers as seats
are ready. A seat that dies, or whose node says nothing for ten seconds, is lost with the step it was at, and the order is given
back to the loop. It may live on somewhere and still write: into a file that nobody looks at (see `storage`).
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from shoestring.core.ledger.entries import Lost, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config
from shoestring.runners.checkpoints.checkpoint_store import Folder
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.checkpoints.trial_logs import cut_long_logs
from shoestring.runners.devices import WaitingOrders
from shoestring.runners.process.worker import Patience
from shoestring.runners.ray.actors import connect, import_ray
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.ray.remote_trial import SeatedTrial
from shoestring.runners.ray.remote_worker import Thaw
from shoestring.runners.ray.worker_pool import SeatPool
from shoestring.runners.runner import Clock, News, RunningSteps, note_end, note_release
from shoestring.runners.training.code import can_save
from shoestring.runners.training.targets import pack_code

_LOOK_S = 0.5  # how often silent nodes are looked at
_WALL_GRACE_S, _CLOSE_GRACE_S = 0.5, 5.0  # for checkpoints being written when the wall is reached, and at the end
_QUICK_SAVE_S = 0.05  # the wall must not find a step done and its slow checkpoint half written


class Seats:
    """Training code on a Ray cluster; see the module."""

    simulated = False
    check_start_s = freezing_s = 0.0  # a copy begins in the seat of its trial, and every order ends with a checkpoint

    def __init__(
        self,
        train: Any,
        checkpoints: Checkpoints,
        workers: int = 1,
        cluster: RayCluster | None = None,
        hung_after_s: float | None = None,
    ) -> None:
        import_ray()  # said at once if it is missing
        self.checkpoints = checkpoints
        self.can_save: bool | None = can_save(train)
        self._cluster = cluster or RayCluster()
        self._pool = SeatPool(self._cluster, pack_code(train, has_our_main=False), checkpoints, self.now, workers)
        self._clock = Clock()
        self._waiting = WaitingOrders()
        self._running = RunningSteps()  # by order
        self._news: list[News] = []
        self._checked_order: int | None = None
        self._patience = Patience(hung_after_s)
        self._attempts = (f"{secrets.token_hex(3)}x{n}" for n in itertools.count())  # those of two drivers differ too
        self._is_saving_quick = False  # as far as the last checkpoint tells
        self._is_ours = False  # the connection to the cluster

    @property
    def workers(self) -> int:
        """As many as seats are ready; an order that is one too many waits for a seat."""
        return max(1, len(self._pool.ready))

    def freeze(self) -> float:
        return self.freezing_s

    def now(self) -> float:
        return self._clock.now()

    def start(self, ledger: Ledger) -> Mapping[int, int]:
        """Waits until a seat has imported the training code, and for the others that there is room for."""
        may_save = self.can_save is not False
        self._is_ours = connect(self._cluster) or self._is_ours
        survivors = self.checkpoints.start(ledger, is_needed=may_save)
        self._pool.open(ledger.max_steps, is_storage_needed=may_save)
        self._pool.wait_until_ready()
        self._clock.start(ledger)
        return survivors

    def submit(self, order: Order, held: int, former: Sequence[Config] = ()) -> None:
        if order.number in self._running:
            return
        self._waiting.put(order, held, former)
        self._begin_waiting()

    def wait(self, until: float) -> list[News]:
        while True:
            for seat, answer in self._pool.listen(0.0 if self._news else min(max(0.0, until - self.now()), _LOOK_S)):
                self._news += self._bury(seat) if answer is None else self._hear_call(seat, answer)
            self._news += self._look()
            self._begin_waiting()
            if self._news or not (self._running or any(self._waiting)) or self.now() >= until:
                break
        news, self._news = self._news, []
        return news

    def running(self) -> Mapping[int, float]:
        return self._running

    def interrupt(self, why: str) -> list[News]:
        """Ends running steps. A step that is done and being saved is paid for, and gets a moment to be saved."""
        cut_at, busy = self.now(), self._pool.busy
        news, self._news = [*self._news, *self._waiting.release(why)], []
        done = [seat for seat in busy if seat.result is not None]
        for seat in (seat for seat in busy if seat.result is None):
            news += self._break_off(seat, "interrupted", why, at=cut_at)
        answers = self._pool.wait_for(done, _WALL_GRACE_S)
        for seat in done:
            seat.keep_if_saved(answers.get(seat))
            news += self._pay(seat)
            if seat.order is not None:
                news.append(note_release(seat.order, why))
            if not seat.is_safe:
                news.append(Lost(trial=seat.present_trial, held=seat.saved, why=why))
            self._drop(seat)
        return news

    def close(self, freeze: bool = True) -> None:
        unsaved = [seat for seat in self._pool.ready if seat.order is None and seat.can_save and not seat.is_safe]
        if freeze:
            for seat in unsaved:
                self._pool.expect(seat, seat.ask_to_save(next(self._attempts)))
            for seat, answer in self._pool.wait_for(unsaved, _CLOSE_GRACE_S).items():
                seat.keep_if_saved(answer)
        self._pool.close()
        self._running = RunningSteps()
        self._waiting.clear()
        self._news.clear()
        if freeze:  # else they are another's by now
            self.checkpoints.close()
        if self._is_ours:
            import_ray().shutdown()
            self._is_ours = False

    # what seats say ------------------------------------------------------------------------------------------------------

    def _hear_call(self, seat: SeatedTrial, answer: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> list[News]:
        """The answers of a call, a step each. Where the seat had to be given up at one, those behind it do not count."""
        if isinstance(answer, Mapping):
            return self._hear(seat, answer)
        self._patience.note_step(self.now() - seat.asked_at)
        if isinstance(self.checkpoints.storage, Folder):
            cut_long_logs([self.checkpoints.folder(seat.present_trial)])
        news: list[News] = []
        for behind in reversed(range(len(answer))):
            if seat.order is not None:
                news += self._hear(seat, answer[-1 - behind], is_newest=not behind)
        return news

    def _hear(self, seat: SeatedTrial, answer: Mapping[str, Any], *, is_newest: bool = True) -> list[News]:
        seat.take_check(answer)
        if answer["is"] == "failed":
            return self._break_off(seat, "failed", answer["text"])
        if answer["is"] == "gone":
            self.checkpoints.forget(seat.present_trial, seat.step)
            return self._lose(seat, f"its checkpoint is gone: {answer['text']}", is_death=False)
        if answer["is"] == "ended":
            order = seat.present_order
            news = [*seat.give_up_check(), note_end(order, seat.step, self.now() - seat.since, seat.price_factor)]
            self._running.end(order.number)
            seat.empty()
            return news
        hear = self._hear_step if answer["is"] == "stepped" else self._hear_checkpoint
        return hear(seat, answer, is_newest=is_newest)

    def _hear_step(self, seat: SeatedTrial, answer: Mapping[str, Any], *, is_newest: bool) -> list[News]:
        seat.take_result(answer)
        self.can_save = seat.can_save
        is_due = seat.is_checkpoint_due
        if "checkpoint" in answer:
            return self._hear_checkpoint(seat, answer["checkpoint"], is_newest=is_newest)
        if is_due and is_newest:
            self._pool.expect(seat, seat.ask_to_save(next(self._attempts)))
            return []
        return self._pay_and_go_on(seat) if is_newest else self._pay(seat, is_newest=False)

    def _hear_checkpoint(self, seat: SeatedTrial, answer: Mapping[str, Any], *, is_newest: bool) -> list[News]:
        if answer["is"] == "failed":
            return self._break_off(seat, "failed", answer["text"])
        try:
            seat.keep_checkpoint(answer)
        except Exception as error:  # the storage, not the training code; each kind has its own errors
            return self._break_off(seat, "failed", f"the checkpoint of step {seat.step} cannot be kept: {error}")
        self._is_saving_quick = answer["seconds"] < _QUICK_SAVE_S
        if not is_newest:
            return self._pay(seat, is_newest=False)
        if seat.result is not None:
            return self._pay_and_go_on(seat)
        self._ask_to_train(seat)  # that is what the checkpoint was written for
        return []

    def _look(self) -> list[News]:
        """Seats that say nothing, of their own or with their node."""
        news: list[News] = []
        for seat, why in self._pool.find_silent():
            news += self._bury(seat, why)
        for seat in self._pool.busy:
            silent_s = self.now() - seat.asked_at
            if self._patience.is_over(silent_s):
                news += self._break_off(seat, "failed", self._patience.text(silent_s))
        self._pool.fill()
        return news

    def _bury(self, seat: SeatedTrial, why: str = "") -> list[News]:
        why = why or f"the seat died: {self._pool.last_death}"
        if seat.order is not None:
            self._checked_order = None  # a check that was under way is made again
            return self._lose(seat, why, is_death=True)
        self._pool.drop(seat)
        return [] if seat.is_safe else [Lost(trial=seat.present_trial, held=seat.saved, why=why)]

    # what seats are told -------------------------------------------------------------------------------------------------

    def _begin_waiting(self) -> None:
        """Begin the orders for which a seat is free by now."""
        for order, held, former in self._waiting:
            if not (free := self._pool.free):
                return
            self._waiting.remove(order)
            own = next((seat for seat in free if seat.trial == order.trial and seat.step == held), None)
            seat, thaw = (own, None) if own is not None else self._thaw(order, held, former)
            if own is not None:
                seat.take_order(order, former)
            self._running.begin(order.number, seat.since, seat.price_factor)
            self._go_on(seat, thaw)

    def _thaw(self, order: Order, held: int, former: Sequence[Config]) -> tuple[SeatedTrial, Thaw]:
        """Another trial's seat: what is alive in it and not kept is lost."""
        seat = self._pool.spare(order.trial)
        if not seat.is_safe:
            why = "another trial needed its seat, and it could not be saved"
            self._news.append(Lost(trial=seat.present_trial, held=seat.saved, why=why))
        step = self.checkpoints.newest(order.trial, up_to=held)
        if step != held:
            self._news.append(Lost(trial=order.trial, held=step, why="its seat or checkpoint is gone"))
        return seat, seat.begin(order, former, step)

    def _go_on(self, seat: SeatedTrial, thaw: Thaw | None = None) -> None:
        order = seat.present_order
        if self._checked_order != order.number and seat.can_check_resuming:
            self._checked_order = order.number
            if not seat.begin_check():
                self._pool.expect(seat, seat.ask_to_save(next(self._attempts)))
                return
        self._ask_to_train(seat, thaw)

    def _ask_to_train(self, seat: SeatedTrial, thaw: Thaw | None = None) -> None:
        """A checkpoint that is due anyway comes with its step, if it takes no time: a call saved is a millisecond."""
        with_checkpoints = self._is_saving_quick and seat.can_save
        self._pool.expect(seat, seat.ask_to_train(thaw, next(self._attempts) if with_checkpoints else ""))

    # what comes of it ----------------------------------------------------------------------------------------------------

    def _pay_and_go_on(self, seat: SeatedTrial) -> list[News]:
        news = self._pay(seat)
        if seat.order is not None:
            self._go_on(seat)
            return news
        if seat.is_plain:  # a plain function keeps nothing alive
            seat.empty()
        needed = {seat.present_trial for seat in self._pool if seat.trial is not None}
        return news + self.checkpoints.drop_over_limit(keep=needed | {order.trial for order, _, _ in self._waiting})

    def _pay(self, seat: SeatedTrial, *, is_newest: bool = True) -> list[News]:
        number = seat.present_order.number
        news = seat.pay(is_newest=is_newest)
        if seat.order is None:
            self._running.end(number)
        else:
            self._running.begin(number, seat.since, seat.price_factor)
        return news

    def _lose(self, seat: SeatedTrial, why: str, *, is_death: bool) -> list[News]:
        lost = seat.lose(why, is_death=is_death)
        self._drop(seat)
        return [lost]

    def _break_off(
        self, seat: SeatedTrial, status: Literal["failed", "interrupted"], text: str, at: float | None = None
    ) -> list[News]:
        news = seat.break_off(status, text, self.now() if at is None else at)
        self._drop(seat)
        return news

    def _drop(self, seat: SeatedTrial) -> None:
        """End a seat and what it does."""
        if seat.order is not None and seat.order.number in self._running:
            self._running.end(seat.order.number)
        seat.order = None
        self._pool.drop(seat)
