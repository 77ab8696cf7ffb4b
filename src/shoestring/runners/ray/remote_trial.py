"""A seat as the driver sees it: the trial it has, what it was asked, and the receipts that come of its answers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from shoestring.core.ledger.entries import Cost, Lost, Note, Order
from shoestring.core.space.space import Config
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.ray.remote_worker import CALL_S, StepCall, Thaw
from shoestring.runners.runner import News, bought_value, config_at, write_broken_receipt, write_receipt
from shoestring.runners.training.code import StepResult
from shoestring.runners.training.resume_check import note_check, note_unfinished_check

_MOST_STEPS = 100  # asked for in one call


@dataclass(eq=False, slots=True)
class SeatedTrial:
    """A seat and the trial that is alive in it, at `step`; one that was never used has none."""

    actor: Any
    number: int
    checkpoints: Checkpoints
    now: Callable[[], float]  # the runner's clock
    max_steps: int = 1  # of a full training
    name: str = ""  # host:number; empty until it is ready
    node: str = ""
    pid: int = 0
    reaches: bool = True  # the storage of checkpoints; if not, they go through the driver
    is_plain: bool = False  # its code is a function: nothing stays alive
    price_factor: float = 1.0  # of its node, times the budget's rate
    step_s: float = 0.0  # what its last step took, of whichever trial; 0: it had none yet
    stopped_s: float = 0.0  # for how long its process has been seen stopped
    trial: int | None = None
    step: int = 0
    thawed_at: int = 0
    order: Order | None = None  # None: frozen, or empty
    former: Sequence[Config] = ()
    since: float = 0.0  # when its present step began; while frozen, when it was last used
    asked_at: float = 0.0
    unsaved_s: float = 0.0  # spent on what would go with its seat
    can_save: bool | None = None
    is_exact: bool = True
    result: StepResult | None = None  # of a finished step whose checkpoint is being written
    attempt: str = ""  # at that checkpoint
    check_since: float | None = None  # when a resume check began whose checkpoint is being written
    check_s: float = 0.0  # seconds that such a check has taken so far
    resumed: tuple[float | None, float] | None = None  # what the check gave, and its seconds

    @property
    def present_order(self) -> Order:
        assert self.order is not None
        return self.order

    @property
    def present_trial(self) -> int:
        assert self.trial is not None
        return self.trial

    @property
    def saved(self) -> int:
        """The newest step that is kept, 0 if none."""
        return 0 if self.trial is None else self.checkpoints.newest(self.trial, up_to=self.step)

    @property
    def is_safe(self) -> bool:
        """Whether nothing is lost when another trial gets this seat."""
        return self.trial is None or self.saved == self.step

    # asking ------------------------------------------------------------------------------------------------------------

    def take_order(self, order: Order, former: Sequence[Config]) -> None:
        self.order, self.former, self.since = order, former, self.now()

    def begin(self, order: Order, former: Sequence[Config], step: int) -> Thaw:
        """Another trial gets this seat, from a step that is kept (0: from its start)."""
        self.trial, self.step, self.thawed_at, self.unsaved_s = order.trial, step, step, 0.0
        self.take_order(order, former)
        return self._thaw()

    def ask_to_train(self, thaw: Thaw | None = None, attempt: str = "") -> Any:
        """The call whose answer is the next steps; with checkpoints that are due, if an attempt at them is named."""
        self.attempt, self.asked_at = attempt, self.now()
        check, most = None, CALL_S / self.step_s if self.step_s else 1.0
        if self.check_since is not None:
            self.check_s, most = max(0.0, self.now() - self.check_since), 1.0
            check = self._thaw()
        until = min(self.present_order.until, self.step + max(1, int(min(most, _MOST_STEPS))))
        messages = [self._message(step) for step in range(self.step + 1, until + 1)]
        return self.actor.train.remote(thaw, StepCall(messages, attempt, self.checkpoints.best_loss), check)

    def _message(self, step: int) -> dict[str, Any]:
        order = self.present_order
        how = {"until": order.until, "validate": order.validates(step), "sign": self.checkpoints.sign}
        return {"config": config_at(step, order, self.former), **how}

    def ask_to_save(self, attempt: str) -> Any:
        self.attempt, self.asked_at = attempt, self.now()
        return self.actor.save.remote(self.step, attempt)

    def begin_check(self) -> bool:
        """From here on the time is the check's. Whether it can be made at once; else the trial must be saved first."""
        self.check_since = self.now()
        return self.saved == self.step

    @property
    def can_check_resuming(self) -> bool:
        """Whether its order pays for a check and the next step can be one: a trial just thawed is a copy itself."""
        order = self.present_order
        is_paid = order.check and order.validates(self.step + 1)
        return is_paid and bool(self.can_save) and self.step != self.thawed_at

    @property
    def is_checkpoint_due(self) -> bool:
        assert self.result is not None
        is_last = self.step == self.present_order.until
        trial, value = self.present_trial, self.result.value
        due = self.checkpoints.is_due(trial, self.step, value, last=is_last, unsaved_s=self.unsaved_s)
        return due and bool(self.can_save)

    # taking answers ----------------------------------------------------------------------------------------------------

    def take_check(self, answer: Mapping[str, Any]) -> None:
        """An answer to a step, of whatever kind, holds what the check before it found."""
        if "check" in answer:
            value, seconds = answer["check"]
            self.resumed, self.check_since = (value, self.check_s + seconds), None

    def take_result(self, answer: Mapping[str, Any]) -> None:
        self.step += 1
        self.step_s = answer["took_s"]
        self.unsaved_s += self.step_s
        self.can_save, self.is_exact = answer["can_save"], answer["is_exact"]
        value = bought_value(self.present_order, self.step, answer["value"])
        setup, train, validate = answer["cost"]
        cost = Cost(setup=setup, train=train, validate=validate)
        self.result = StepResult(value, cost, answer["cost_reported"], answer["metrics"])

    def keep_checkpoint(self, answer: Mapping[str, Any]) -> None:
        """What was written counts from now on; the time that took is the step's."""
        seconds = self.checkpoints.keep_put(
            self.present_trial, self.step, answer["seconds"], self.attempt, answer.get("parcel")
        )
        self.unsaved_s = 0.0
        if self.result is not None:
            cost = self.result.cost
            self.result = replace(self.result, cost=replace(cost, setup=cost.setup + seconds))

    def pay(self, *, is_newest: bool = True) -> list[News]:
        """The receipt of the step that is done, behind the check that its order may have paid for.

        A step that others followed in the same call was done when it says so; what came between is part of the newest.
        """
        order, result, now = self.present_order, self.result, self.now()
        assert result is not None
        if not is_newest:
            now = min(now, self.since + self.step_s)
        cost, checked = result.cost, [] if self.resumed is None else [self.resumed]
        if not result.cost_reported:  # the seat was ours also while calls and answers were on their way
            elsewhere_s = cost.total + sum(seconds for _, seconds in checked)
            cost = replace(cost, setup=cost.setup + max(0.0, now - self.since - elsewhere_s))
        paid = write_receipt(
            order, self.step, result.value, cost, at=now, metrics=result.metrics, saved=self.saved, **self._signature
        )
        self.result, self.resumed, self.since = None, None, now
        if paid.status == "diverged" or self.step == order.until:
            self.order = None
        return [*(self._note_check(order, result.value, *found) for found in checked), paid]

    def keep_if_saved(self, answer: Mapping[str, Any] | None) -> None:
        """At an end: what could be saved in time is kept, and what could not is trained again."""
        if answer is not None and answer["is"] == "saved":
            with contextlib.suppress(Exception):
                self.keep_checkpoint(answer)

    def break_off(self, status: Literal["failed", "interrupted"], text: str, at: float) -> list[News]:
        """The receipt of a step that did not come to its end. One that was done but could not be saved counts as not done."""
        checked = self.give_up_check()
        step = self.step + (self.result is None)
        cost = Cost(train=max(0.0, at - self.since))
        saved = self.checkpoints.newest(self.present_trial, up_to=step - 1)
        how: dict[str, Any] = {"at": self.now(), "saved": saved, **self._signature}
        return [*checked, write_broken_receipt(self.present_order, step, status, text, cost, **how)]

    def lose(self, why: str, *, is_death: bool) -> Lost:
        """The step under way is gone with its seat, or could not begin: the loop gives the order again."""
        held = self.checkpoints.newest(self.present_trial, up_to=self.step - (self.result is not None))
        seconds = max(0.0, self.now() - self.since)
        return Lost(trial=self.present_trial, held=held, seconds=seconds, why=why, death=is_death, **self._signature)

    def give_up_check(self) -> list[News]:
        """The step that was to be compared comes to no end: what the check took until then is still the check's."""
        if self.resumed is None:
            return []
        seconds, self.resumed = self.resumed[1], None
        self.since += seconds
        return [note_unfinished_check(self.present_order, self.step + 1, seconds, self.price_factor)]

    def _note_check(self, order: Order, went_on: float | None, resumed: float | None, seconds: float) -> Note:
        how: dict[str, Any] = {"exact": self.is_exact, "price_factor": self.price_factor}
        return note_check(order, self.step, went_on, resumed, seconds, **how)

    def empty(self) -> None:
        """Its trial is not alive here any more."""
        self.trial, self.order, self.result, self.resumed, self.check_since = None, None, None, None, None

    @property
    def _signature(self) -> dict[str, Any]:
        """Under what it is paid for."""
        return {"worker": self.name, "price_factor": self.price_factor}

    def _thaw(self) -> Thaw:
        trial, config = self.present_trial, config_at(self.step + 1, self.present_order, self.former)
        if not self.step:
            return Thaw(trial, dict(config), self.max_steps)
        name = self.checkpoints.name(trial, self.step)
        parcel = None if self.reaches else self.checkpoints.storage.pack(trial, name)
        return Thaw(trial, dict(config), self.max_steps, self.step, name, parcel)
