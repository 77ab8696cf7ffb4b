"""A worker of a Ray cluster as the driver sees it, and the trial that is alive in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoestring.core.ledger.entries import Order
from shoestring.core.space.space import Config
from shoestring.runners.ray.remote_worker import CALL_S, StartPoint, StepCall
from shoestring.runners.remote.remote_trial import Answer, RemoteTrial

_MAX_STEPS = 100  # steps that are requested in one call; the call carries a message for each of them


@dataclass(eq=False, slots=True)
class RayWorker:
    """An actor on the cluster. It is ready when it has a name."""

    actor: Any
    number: int
    name: str = ""  # host:number
    node: str = ""
    pid: int = 0
    can_reach_store: bool = True  # otherwise checkpoints travel through the driver as bytes
    is_plain: bool = False  # its training code is a function: nothing stays alive
    can_save: bool | None = None  # whether its training code can save; None if that is not known yet
    price_factor: float = 1.0  # price factor of its node, relative to the rate of the budget
    step_s: float = 0.0  # how long its newest step took, of whichever trial; 0 before the first
    stopped_s: float = 0.0  # for how long its process has been observed as stopped
    idle_since: float = 0.0
    trial: RayTrial | None = None  # the trial that is alive in it

    @property
    def is_ready(self) -> bool:
        return bool(self.name)

    @property
    def is_free(self) -> bool:
        return self.is_ready and (self.trial is None or self.trial.order is None)

    @property
    def is_safe(self) -> bool:
        """Whether nothing is lost when another trial gets this worker."""
        return self.trial is None or self.trial.is_saved

    def last_used(self) -> float:
        return self.idle_since if self.trial is None else self.trial.since

    def empty(self) -> None:
        """Forget its trial, which is not alive any more."""
        self.idle_since, self.trial = self.last_used(), None


@dataclass(eq=False, slots=True, kw_only=True)
class RayTrial(RemoteTrial):
    """A trial that is alive in an actor."""

    worker: RayWorker
    max_steps: int  # steps of a full training
    start_point: StartPoint | None = None  # to be sent with the first call
    attempt: str = ""  # the attempt at the checkpoint that is being written
    check_s: float = 0.0  # how long saving for the resume check took

    def begin(self, order: Order, former_configs: Sequence[Config]) -> None:
        """Take an order in a worker that does not have this trial yet, and begin from the saved `step` (0: from the start)."""
        self.take_order(order, former_configs)
        self.start_point = self._make_start_point()

    def ask_for_steps(self, attempt: str = "") -> Any:
        """Request the next steps and return the call. With an `attempt`, the same call writes the checkpoints that are due."""
        start_point, self.start_point = self.start_point, None
        self.attempt, self.asked_at = attempt, self.now()
        check, most = None, CALL_S / self.worker.step_s if self.worker.step_s else 1.0
        if self.check_since is not None:  # the time of the check itself comes with the answer
            self.check_s, self.check_since, most = max(0.0, self.now() - self.check_since), None, 1.0
            check = self._make_start_point()
        until = min(self.current_order.until, self.step + max(1, int(min(most, _MAX_STEPS))))
        messages = [self._message(step) for step in range(self.step + 1, until + 1)]
        return self.worker.actor.train.remote(
            start_point, StepCall(messages, attempt, self.checkpoints.best_loss), check
        )

    def ask_to_save(self, attempt: str) -> Any:
        """Request a checkpoint of the present step and return the call."""
        self.attempt, self.asked_at = attempt, self.now()
        return self.worker.actor.save.remote(self.step, attempt)

    def take_check(self, answer: Answer) -> None:
        """Record the result of the check before a step; every kind of answer to the step may carry it."""
        if "check" in answer:
            value, seconds = answer["check"]
            self.check = (value, self.check_s + seconds)

    def take_result(self, answer: Answer, step_s: float) -> None:
        RemoteTrial.take_result(self, answer, step_s)
        self.worker.step_s, self.worker.can_save = step_s, self.can_save

    def _commit_checkpoint(self, answer: Answer) -> float:
        return self.checkpoints.commit_uploaded(self.number, self.step, answer["seconds"], answer["put"], self.attempt)

    def _message(self, step: int) -> Mapping[str, Any]:
        order = self.current_order
        how = {"until": order.until, "validate": order.validates(step), "sign": self.checkpoints.sign}
        return {"config": self.config_of_step(step), **how}

    def _make_start_point(self) -> StartPoint:
        config = dict(self.config_of_step(self.step + 1))
        if not self.step:
            return StartPoint(self.number, config, self.max_steps)
        name = self.checkpoints.name(self.number, self.step)
        archive = None if self.worker.can_reach_store else self.checkpoints.store.pack(self.number, name)
        digest = self.checkpoints.digest(self.number, self.step)
        return StartPoint(self.number, config, self.max_steps, self.step, name, digest, archive)
