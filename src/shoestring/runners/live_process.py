"""One trial with a process of its own: what it is asked, what it answered, and the receipt that comes of it.

A resume check trains the next step twice: first a copy from the checkpoint, in a process of its own, then the trial
itself, which does not notice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from shoestring.core.entries import Cost, Order
from shoestring.runners.checkpoints import Checkpoints
from shoestring.runners.resume_check import note_check
from shoestring.runners.runner import News, write_receipt
from shoestring.runners.training import StepResult
from shoestring.runners.worker import Worker


@dataclass(eq=False, slots=True)
class LiveProcess:
    """A trial that is alive in `worker`, at `step`."""

    trial: int
    worker: Worker
    checkpoints: Checkpoints
    step: int
    thawed_at: int  # the step that its process began from
    order: Order | None = None  # None: frozen
    since: float = 0.0  # when its present step began
    setup_s: float = 0.0  # of that step: waiting for imports
    can_save: bool | None = None
    is_exact: bool = True  # what its code says about resuming
    result: StepResult | None = None  # of a finished step whose checkpoint is being written
    copy: Worker | None = None  # tries resuming out, while the trial itself rests
    resumed: tuple[float | None, float] | None = None  # what that gave, and its seconds

    @property
    def saved(self) -> int:
        """The newest step on disk, 0 if none."""
        return self.checkpoints.newest(self.trial, up_to=self.step)

    @property
    def workers(self) -> list[Worker]:
        return [self.worker] if self.copy is None else [self.worker, self.copy]

    # steps -------------------------------------------------------------------------------------------------------------

    def ask_for_step(self) -> None:
        order = self._present_order()
        _ask_for_step(self.worker, order, validate=order.validates(self.step + 1))

    def take_result(self, message: Mapping[str, Any]) -> None:
        setup, train, validate = message["cost"]
        self.step += 1
        cost = Cost(setup=setup + self.setup_s, train=train, validate=validate)
        self.result = StepResult(message["value"], cost, message["cost_reported"])
        self.setup_s = 0.0
        self.can_save, self.is_exact = message["can_save"], message["is_exact"]

    def pay(self, now: float) -> list[News]:
        """The receipt of the step that is done, behind the resume check that its order may have paid for."""
        order, result = self._present_order(), self.result
        assert result is not None
        # The worker was ours all the time, also while a message was on its way and while we had other things to do.
        unseen_s = max(0.0, now - self.since - result.cost.total - (self.resumed[1] if self.resumed else 0.0))
        cost = result.cost if result.cost_reported else replace(result.cost, setup=result.cost.setup + unseen_s)
        paid = write_receipt(order, self.step, result.value, cost, at=now, saved=self.saved)
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
        due = self.checkpoints.is_due(self.trial, self.step, self.result.value, last=is_last)
        return bool(self.can_save) and due

    def ask_to_save(self) -> None:
        self.worker.send("save", path=str(self.checkpoints.partial_path(self.trial, self.step)))

    def keep_checkpoint(self, message: Mapping[str, Any] | None) -> None:
        """Put what was written into its place; the time that took is the step's."""
        if message is not None and message["is"] == "saved":
            seconds = self.checkpoints.keep(self.trial, self.step, message["seconds"])
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

    def try_on_copy(self, copy: Worker) -> None:
        self.copy = copy
        _ask_for_step(copy, self._present_order(), validate=True)

    def take_check(self, message: Mapping[str, Any], now: float) -> Worker:
        """What the copy made of the next step; its process is not needed any more."""
        has_stepped = message["is"] == "stepped"  # or the copy could not go on at all
        seconds = sum(message["cost"]) if has_stepped else max(0.0, now - self.since)
        self.resumed = (message["value"] if has_stepped else None, seconds)
        copy, self.copy = self.copy, None
        assert copy is not None
        return copy

    def _present_order(self) -> Order:
        assert self.order is not None
        return self.order


def _ask_for_step(worker: Worker, order: Order, *, validate: bool) -> None:
    worker.send("step", config=order.config, until=order.until, validate=validate)
