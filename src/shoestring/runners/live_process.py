"""One trial with a process of its own: what it is asked, what it answered, and the receipt that comes of it.

A resume check trains the next step twice: first a copy from the checkpoint, in a process of its own, then the trial
itself, which does not notice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shoestring.core.entries import Cost, Order
from shoestring.core.space import Config
from shoestring.runners.checkpoints import Checkpoints
from shoestring.runners.resume_check import note_check, note_unfinished_check
from shoestring.runners.runner import News, bought_value, config_at, write_receipt
from shoestring.runners.training import StepResult
from shoestring.runners.worker import Worker


@dataclass(eq=False, slots=True)
class LiveProcess:
    """A trial that is alive in `worker`, at `step`."""

    trial: int
    worker: Worker
    checkpoints: Checkpoints
    now: Callable[[], float]  # the runner's clock
    step: int
    thawed_at: int  # the step that its process began from
    order: Order | None = None  # None: frozen
    former: Sequence[Config] = ()  # of steps that may have to be run again for this order
    slot: int = 0  # the worker that its order has
    since: float = 0.0  # when its present step began
    asked_at: float = 0.0  # when its process was last asked for something
    setup_s: float = 0.0  # of that step: waiting for imports
    can_save: bool | None = None
    is_exact: bool = True  # what its code says about resuming
    unsaved_s: float = 0.0  # spent on what would go with its process
    result: StepResult | None = None  # of a finished step whose checkpoint is being written
    check_since: float | None = None  # when a resume check began that is under way
    copy: Worker | None = None  # tries resuming out, while the trial itself rests
    resumed: tuple[float | None, float] | None = None  # what that gave, and the seconds of the check

    @property
    def saved(self) -> int:
        """The newest step on disk, 0 if none."""
        return self.checkpoints.newest(self.trial, up_to=self.step)

    @property
    def workers(self) -> list[Worker]:
        return [self.worker] if self.copy is None else [self.worker, self.copy]

    # steps -------------------------------------------------------------------------------------------------------------

    def take_order(self, order: Order, former: Sequence[Config], slot: int) -> None:
        self.order, self.former, self.slot = order, former, slot
        self.since = self.now()

    def ask_for_step(self) -> None:
        self._ask_for_step(self.worker, validate=self._present_order().validates(self.step + 1))

    def take_result(self, message: Mapping[str, Any]) -> None:
        setup, train, validate = message["cost"]
        self.step += 1
        cost = Cost(setup=setup + self.setup_s, train=train, validate=validate)
        value = bought_value(self._present_order(), self.step, message["value"])
        self.result = StepResult(value, cost, message["cost_reported"], message["metrics"])
        self.unsaved_s += self.now() - self.asked_at
        self.setup_s = 0.0
        self.can_save, self.is_exact = message["can_save"], message["is_exact"]

    def pay(self, worker: str) -> list[News]:
        """The receipt of the step that is done, behind the resume check that its order may have paid for."""
        order, result, now = self._present_order(), self.result, self.now()
        assert result is not None
        # The worker was ours all the time, also while a message was on its way and while we had other things to do.
        unseen_s = max(0.0, now - self.since - result.cost.total - (self.resumed[1] if self.resumed else 0.0))
        cost = result.cost if result.cost_reported else replace(result.cost, setup=result.cost.setup + unseen_s)
        paid = write_receipt(
            order, self.step, result.value, cost, at=now, saved=self.saved, worker=worker, metrics=result.metrics
        )
        news: list[News] = [paid]
        if self.resumed is not None:
            news.insert(0, note_check(order, self.step, result.value, *self.resumed, exact=self.is_exact))
        self.result = self.resumed = None
        self.since = now
        if paid.status == "diverged" or self.step == order.until:
            self.order = None
        return news

    # checkpoints -------------------------------------------------------------------------------------------------------

    @property
    def is_checkpoint_due(self) -> bool:
        assert self.result is not None
        is_last = self.step == self._present_order().until
        due = self.checkpoints.is_due(self.trial, self.step, self.result.value, last=is_last, unsaved_s=self.unsaved_s)
        return bool(self.can_save) and due

    def ask_to_save(self) -> None:
        self.asked_at = self.now()
        self.worker.send("save", path=str(self.checkpoints.partial_path(self.trial, self.step)))

    def keep_checkpoint(self, message: Mapping[str, Any] | None) -> None:
        """Put what was written into its place; the time that took is the step's."""
        if message is not None and message["is"] == "saved":
            seconds = self.checkpoints.keep(self.trial, self.step, message["seconds"])
            self.unsaved_s = 0.0
            if self.result is not None:
                cost = self.result.cost
                self.result = replace(self.result, cost=replace(cost, setup=cost.setup + seconds))

    # the resume check --------------------------------------------------------------------------------------------------

    @property
    def can_check_resuming(self) -> bool:
        """Whether its order pays for a check and the next step can be one: a trial just thawed is a copy itself."""
        order = self._present_order()
        is_paid = order.check and order.validates(self.step + 1)
        return is_paid and bool(self.can_save) and self.step != self.thawed_at

    def begin_check(self) -> bool:
        """From here on the time is the check's. Whether a copy can start at once; else the trial is being saved first."""
        self.check_since = self.now()
        if self.saved == self.step:
            return True
        self.ask_to_save()
        return False

    def try_on_copy(self, copy: Worker) -> None:
        self.copy = copy
        self._ask_for_step(copy, validate=True)

    def take_check(self, message: Mapping[str, Any]) -> Worker:
        """What the copy made of the next step; its process is not needed any more."""
        assert self.check_since is not None
        has_stepped = message["is"] == "stepped"  # or the copy could not go on at all
        self.resumed = (message["value"] if has_stepped else None, max(0.0, self.now() - self.check_since))
        copy, self.copy, self.check_since = self.copy, None, None
        assert copy is not None
        return copy

    def give_up_check(self, at: float) -> list[News]:
        """The step that was to be compared comes to no end: what the check took until then is still the check's."""
        if self.check_since is None and self.resumed is None:
            return []
        seconds = self.resumed[1] if self.resumed is not None else max(0.0, at - (self.check_since or 0.0))
        self.since += seconds
        self.check_since = self.resumed = None
        return [note_unfinished_check(self._present_order(), self.step + (self.result is None), seconds)]

    def _ask_for_step(self, worker: Worker, *, validate: bool) -> None:
        order = self._present_order()
        self.asked_at = self.now()
        config = config_at(self.step + 1, order, self.former)
        worker.send("step", config=config, until=order.until, validate=validate)

    def _present_order(self) -> Order:
        assert self.order is not None
        return self.order
