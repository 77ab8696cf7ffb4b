"""A trial that is trained by a worker in another process, as the runner sees it: its step, its order, its receipts.

The worker is a process on this machine or an actor on a cluster. A runner sends it requests and gives its answers to the trial,
which turns them into events. The two subclasses, `ProcessTrial` and `RayTrial`, send the requests.

A step goes through these states:

    requested     the worker trains it                                        `result` is None
    finished      its result has arrived, its checkpoint is being written     `result` is set
    recorded      its receipt is written                                      `result` is None again

If the order asks for a resume check, a copy of the trial first trains the same step from a checkpoint (see `resume_check`).
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from shoestring.core.ledger.entries import Cost, Note, Order, StateLoss
from shoestring.core.ledger.order_closing import receipt_closes
from shoestring.core.space.space import Config
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.runner import (
    RunnerEvent,
    config_at,
    note_end,
    ordered_value,
    write_incomplete_receipt,
    write_receipt,
)
from shoestring.runners.training.code import StepResult
from shoestring.runners.training.resume_check import note_check, note_unfinished_check

Answer = Mapping[str, Any]


@dataclass(eq=False, slots=True, kw_only=True)
class RemoteTrial(ABC):
    """A trial that is alive in a worker, at `step`. It is paused when it has no order."""

    number: int
    checkpoints: Checkpoints
    now: Callable[[], float]  # the runner's clock
    step: int
    start_step: int  # the step from which its worker continued it
    worker_name: str = ""  # for receipts
    price_factor: float = 1.0  # price factor of its worker, relative to the rate of the budget
    order: Order | None = None
    former_configs: Sequence[Config] = ()  # configs of steps that may have to be trained again for this order
    since: float = 0.0  # when its present step began
    asked_at: float = 0.0  # when its worker was last sent a request
    setup_s: float = 0.0  # how long its present step has waited for imports
    step_s: float = 0.0  # how long its newest step took
    can_save: bool | None = None
    is_exact: bool = True  # whether its code declares that it resumes exactly
    unsaved_s: float = 0.0  # training time that would be lost with its worker
    result: StepResult | None = None  # the result of a finished step whose checkpoint is being written
    check_since: float | None = None  # when the present resume check began
    check: tuple[float | None, float] | None = None  # value of the copy's step, and the seconds of the check

    @property
    def current_order(self) -> Order:
        assert self.order is not None
        return self.order

    @property
    def saved_step(self) -> int:
        """The newest step with a checkpoint, 0 if there is none."""
        return self.checkpoints.newest_step(self.number, up_to=self.step)

    @property
    def is_saved(self) -> bool:
        """Whether nothing is lost when its worker is given to another trial."""
        return self.saved_step == self.step

    # orders ----------------------------------------------------------------------------------------------------------

    def take_order(self, order: Order, former_configs: Sequence[Config]) -> None:
        self.order, self.former_configs, self.since = order, former_configs, self.now()

    def config_of_step(self, step: int) -> Config:
        return config_at(step, self.current_order, self.former_configs)

    def take_result(self, answer: Answer, step_s: float) -> None:
        """Note the result of the next step, which took `step_s` seconds."""
        self.step += 1
        self.step_s = step_s
        self.unsaved_s += step_s
        setup, train, validate = answer["cost"]
        cost = Cost(setup=setup + self.setup_s, train=train, validate=validate)
        value = ordered_value(self.current_order, self.step, answer["value"])
        self.result = StepResult(value, cost, answer["cost_reported"], answer["metrics"])
        self.setup_s = 0.0
        self.can_save, self.is_exact = answer["can_save"], answer["is_exact"]

    def finish_step(self, *, is_newest: bool = True) -> list[RunnerEvent]:
        """Return the receipt of the finished step; if it had a resume check, the note of the check comes before the receipt.

        `is_newest=False`: the worker continued with another step in the same call. Then the step ended when its own
        time was over, and the time of the call itself belongs to the newest step.
        """
        order, result, now = self.current_order, self.result, self.now()
        assert result is not None
        if not is_newest:
            now = min(now, self.since + self.step_s)
        cost = result.cost
        if not result.cost_reported:  # the worker is occupied also while messages travel and while this process is busy
            check_s = self.check[1] if self.check is not None else 0.0
            cost = replace(cost, setup=cost.setup + max(0.0, now - self.since - cost.total - check_s))
        receipt = write_receipt(
            order,
            self.step,
            result.value,
            cost,
            at=now,
            saved_step=self.saved_step,
            metrics=result.metrics,
            **self._worker_fields,
        )
        events: list[RunnerEvent] = [receipt]
        if self.check is not None:  # before the receipt, which may close the order that pays for the check
            events.insert(0, self._note_check(result.value, *self.check))
        self.result, self.check, self.since = None, None, now
        if receipt_closes(receipt, order):
            self.order = None
        return events

    def break_off(self, status: Literal["failed", "interrupted"], text: str, at: float) -> list[RunnerEvent]:
        """Return the receipt of a step that was not completed. A step whose checkpoint cannot be written counts as such."""
        events = self.give_up_check(at)
        step = self.step + (self.result is None)
        cost = Cost(train=max(0.0, at - self.since))
        saved_step = self.checkpoints.newest_step(self.number, up_to=step - 1)
        details: dict[str, Any] = {"at": self.now(), "saved_step": saved_step, **self._worker_fields}
        return [*events, write_incomplete_receipt(self.current_order, step, status, text, cost, **details)]

    def lose(self, why: str, *, is_death: bool) -> StateLoss:
        """Return the entry that says that the current step is lost; the loop then submits the order again."""
        resumable_step = self.checkpoints.newest_step(self.number, up_to=self.step - (self.result is not None))
        seconds = max(0.0, self.now() - self.since)
        return StateLoss(
            trial=self.number,
            resumable_step=resumable_step,
            seconds=seconds,
            why=why,
            death=is_death,
            **self._worker_fields,
        )

    def end(self) -> list[RunnerEvent]:
        """Return the events of training code that came to its own end."""
        events = self.give_up_check(self.now())
        return [*events, note_end(self.current_order, self.step, self.now() - self.since, self.price_factor)]

    # checkpoints -----------------------------------------------------------------------------------------------------

    def decide_save(self) -> bool:
        """Note the value of the finished step; return whether to save after it. To be called once for each step."""
        assert self.result is not None
        is_last = self.step == self.current_order.until
        due = self.checkpoints.decide_save(
            self.number, self.step, self.result.value, last=is_last, unsaved_s=self.unsaved_s
        )
        return due and bool(self.can_save)

    def keep_checkpoint(self, answer: Answer) -> None:
        """Commit the checkpoint that was just written; the time that this takes belongs to its step."""
        seconds = self._commit_checkpoint(answer)
        self.unsaved_s = 0.0
        if self.result is not None:
            cost = self.result.cost
            self.result = replace(self.result, cost=replace(cost, setup=cost.setup + seconds))

    def try_to_keep_checkpoint(self, answer: Answer | None) -> None:
        """Keep a checkpoint at the end of a run: what could not be saved is trained again later."""
        if answer is not None and answer["is"] == "saved":
            with contextlib.suppress(Exception):
                self.keep_checkpoint(answer)

    # the resume check ------------------------------------------------------------------------------------------------

    @property
    def can_check_resuming(self) -> bool:
        """Whether its order pays for a check, and its next step can be checked. A trial just resumed is itself a copy."""
        order = self.current_order
        is_paid = order.check and order.validates(self.step + 1)
        return is_paid and bool(self.can_save) and self.step != self.start_step

    def begin_check(self) -> bool:
        """Begin to time the check; return whether there is a checkpoint to check. If there is none, it must be saved first."""
        self.check_since = self.now()
        return self.is_saved

    def give_up_check(self, at: float) -> list[RunnerEvent]:
        """Note a check whose step is not completed: the time that the check took so far still belongs to the check."""
        if self.check_since is None and self.check is None:
            return []
        seconds = self.check[1] if self.check is not None else max(0.0, at - (self.check_since or 0.0))
        self.since += seconds
        self.check_since = self.check = None
        step = self.step + (self.result is None)
        return [note_unfinished_check(self.current_order, step, seconds, self.price_factor)]

    def _note_check(self, value: float | None, copy_value: float | None, seconds: float) -> Note:
        details: dict[str, Any] = {"exact": self.is_exact, "price_factor": self.price_factor}
        return note_check(self.current_order, self.step, value, copy_value, seconds, **details)

    # what the subclasses differ in -----------------------------------------------------------------------------------

    @abstractmethod
    def _commit_checkpoint(self, answer: Answer) -> float:
        """Commit the checkpoint that was written; return the seconds of writing and committing it."""

    @property
    def _worker_fields(self) -> dict[str, Any]:
        """The fields of a receipt that describe the worker: its name and its price factor."""
        return {"worker": self.worker_name, "price_factor": self.price_factor}
