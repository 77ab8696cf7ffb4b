"""The part that the process runner and the Ray runner share: workers in other processes carry out the orders.

`RemoteTrial` is the state of one trial; `RemoteRunner` decides what to do when an answer arrives: save, check, write the
receipt, continue, or give the trial up. Subclasses start workers, carry requests and answers, and notice dead workers.

A worker answers a request with one of

    stepped {value, cost, cost_reported, can_save, is_exact, metrics}   saved {seconds}   ended   failed {text}
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

from shoestring.core.ledger.entries import Order, StateLoss
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.remote.remote_trial import RemoteTrial
from shoestring.runners.remote.silence_limit import SilenceLimit
from shoestring.runners.runner import Clock, RunnerEvent, RunningSteps, WaitingOrders, note_release

_POLL_S = 0.5  # how often to check for silent workers
SAVE_GRACE_S = 0.5  # for a checkpoint that is being written when the budget limit is reached
_CLOSE_GRACE_S = 5.0  # for saving all paused trials at the end

T = TypeVar("T", bound=RemoteTrial)


class RemoteRunner(ABC, Generic[T]):
    """Trains in workers in other processes; see the module."""

    simulated = False
    saving_reserve_s = 0.0  # every order ends with a checkpoint

    def __init__(self, checkpoints: Checkpoints, hung_after_s: float | None) -> None:
        self.checkpoints = checkpoints
        self.can_save: bool | None = None
        self._clock = Clock()
        self._waiting = WaitingOrders()
        self._running = RunningSteps()
        self._events: list[RunnerEvent] = []  # events that `wait` has not returned yet
        self._checked_order: int | None = None
        self._silence = SilenceLimit(hung_after_s)
        self._save_s = math.inf  # how long the newest save took

    # the interface of a runner ---------------------------------------------------------------------------------------

    def now(self) -> float:
        return self._clock.now()

    def pause(self) -> float:
        return 0.0

    @abstractmethod
    def start(self, ledger: Ledger) -> Mapping[int, int]: ...

    def submit(self, order: Order, resumable_step: int, former_configs: Sequence[Config] = ()) -> None:
        if order.number not in self._running:
            self._waiting.put(order, resumable_step, former_configs)
            self._events += self._begin_waiting()

    def wait(self, until: float) -> list[RunnerEvent]:
        while True:
            events, self._events = self._events, []
            events += self._listen(0.0 if events else min(max(0.0, until - self.now()), _POLL_S))
            events += self._check_silence()
            events += self._begin_waiting()
            if events or not (self._running or any(self._waiting)) or self.now() >= until:
                return events

    def running(self) -> Mapping[int, float]:
        return self._running

    def interrupt(self, why: str) -> list[RunnerEvent]:
        """End the running steps. A step that is already finished gets its receipt, and a short time for its checkpoint."""
        cut_at, busy = self.now(), self._busy_trials()
        finished = [trial for trial in busy if trial.result is not None]
        unfinished = [trial for trial in busy if trial.result is None]
        for trial in unfinished:
            self._was_cut(trial)
        self._stop(unfinished)
        events, self._events = [*self._events, *self._waiting.release(why)], []
        for trial in unfinished:
            events += self._break_off(trial, "interrupted", why, at=cut_at)
        answers = self._wait_for_saves(finished, SAVE_GRACE_S)
        for trial in finished:
            trial.try_to_keep_checkpoint(answers.get(trial))
            events += self._record_step(trial)
            if trial.order is not None:
                events.append(note_release(trial.order, why))
            if not trial.is_saved:
                events.append(StateLoss(trial=trial.number, resumable_step=trial.saved_step, why=why))
            self._drop(trial)
        return events

    def close(self, pause: bool = True) -> None:
        unsaved = [trial for trial in self._paused_trials() if trial.can_save and not trial.is_saved] if pause else []
        for trial in unsaved:
            with contextlib.suppress(Exception):  # a trial that cannot be saved is trained again
                self._request_save(trial)
        self._stop(self._busy_trials())
        for trial, answer in self._wait_for_saves(unsaved, _CLOSE_GRACE_S).items():
            trial.try_to_keep_checkpoint(answer)
        self._end_workers()
        self._running = RunningSteps()
        self._waiting.clear()
        self._events.clear()
        if pause:  # otherwise another process has taken over the checkpoints
            self.checkpoints.close()

    # handling answers ------------------------------------------------------------------------------------------------

    def _take_answer(self, trial: T, answer: Mapping[str, Any], *, is_newest: bool = True) -> list[RunnerEvent]:
        """Handle an answer and return its events; `is_newest=False`: the worker trained further steps in the same call."""
        if answer["is"] == "failed":
            return self._break_off(trial, "failed", answer["text"])
        if answer["is"] == "ended":
            events = trial.end()
            self._close_order(trial, trial.current_order)
            trial.order = None
            self._release_worker(trial)
            return events
        if answer["is"] == "stepped":
            return self._take_step(trial, answer, is_newest=is_newest)
        return self._take_checkpoint(trial, answer, is_newest=is_newest)

    def _take_step(self, trial: T, answer: Mapping[str, Any], *, is_newest: bool) -> list[RunnerEvent]:
        trial.take_result(answer, answer.get("took_s", self.now() - trial.asked_at))
        self.can_save = trial.can_save
        is_due = trial.decide_save()
        if "checkpoint" in answer:
            return self._take_checkpoint(trial, answer["checkpoint"], is_newest=is_newest)
        if not is_newest:
            return self._record_step(trial, is_newest=False)
        return self._ask_to_save(trial) if is_due else self._record_and_continue(trial)

    def _take_checkpoint(self, trial: T, answer: Mapping[str, Any], *, is_newest: bool = True) -> list[RunnerEvent]:
        if answer["is"] == "failed":
            return self._break_off(trial, "failed", answer["text"])
        try:
            trial.keep_checkpoint(answer)
        except Exception as error:  # from the store, not from training code; each kind of store has its own errors
            return self._break_off(trial, "failed", f"the checkpoint of step {trial.step} cannot be kept: {error}")
        self._save_s = answer["seconds"]
        if not is_newest:
            return self._record_step(trial, is_newest=False)
        if trial.result is not None:
            return self._record_and_continue(trial)
        return self._start_check(trial)  # the checkpoint was written for this check

    def _ask_to_save(self, trial: T) -> list[RunnerEvent]:
        return self._attempt(self._request_save, trial, f"the checkpoint of step {trial.step} cannot be kept")

    def _start_check(self, trial: T) -> list[RunnerEvent]:
        return self._attempt(self._check_resuming, trial, "the copy for the resume check cannot be started")

    def _attempt(self, request: Callable[[T], None], trial: T, problem: str) -> list[RunnerEvent]:
        """Make a request; if it raises an error, such as a full disk or a process that cannot start, the order fails."""
        try:
            request(trial)
        except Exception as error:
            return self._break_off(trial, "failed", f"{problem}: {error}")
        return []

    def _record_and_continue(self, trial: T) -> list[RunnerEvent]:
        events = self._record_step(trial)
        return events + (self._keep_paused(trial) if trial.order is None else self._continue_trial(trial))

    def _continue_trial(self, trial: T) -> list[RunnerEvent]:
        """Ask for the next step, after a resume check if the order pays for one."""
        number = trial.current_order.number
        if self._checked_order == number or not trial.can_check_resuming:
            self._request_steps(trial)
            return []
        self._checked_order = number
        if not trial.begin_check():
            return self._ask_to_save(trial)
        return self._start_check(trial)

    def _record_step(self, trial: T, *, is_newest: bool = True) -> list[RunnerEvent]:
        order = trial.current_order
        events = trial.finish_step(is_newest=is_newest)
        if trial.order is None:
            self._close_order(trial, order)
        else:
            self._running.begin(order.number, trial.since, trial.price_factor)
        return events

    # orders ----------------------------------------------------------------------------------------------------------

    def _begin_waiting(self) -> list[RunnerEvent]:
        """Begin the orders for which a worker is free by now."""
        events: list[RunnerEvent] = []
        for order, resumable_step, former_configs in self._waiting:
            begun = self._begin(order, resumable_step, former_configs)
            if begun is not None:
                self._waiting.remove(order)
                trial, losses = begun
                self._running.begin(order.number, trial.since, trial.price_factor)
                events += [*losses, *self._continue_trial(trial)]
        return events

    def _close_order(self, trial: T, order: Order) -> None:
        """Forget an order of this trial that has just been closed."""
        self._running.end(order.number)

    # trials that are given up ----------------------------------------------------------------------------------------

    def _check_silence(self) -> list[RunnerEvent]:
        """Find workers that died, and steps that hang."""
        events = self._check_workers()
        for trial in self._busy_trials():
            silent_s = self.now() - trial.asked_at
            if self._silence.is_over(silent_s):
                events += self._give_up_silent(trial, self._silence.describe(silent_s))
        return events

    def _give_up_silent(self, trial: T, text: str) -> list[RunnerEvent]:
        return self._break_off(trial, "failed", text)

    def _break_off(
        self, trial: T, status: Literal["failed", "interrupted"], text: str, at: float | None = None
    ) -> list[RunnerEvent]:
        events = trial.break_off(status, text, self.now() if at is None else at)
        self._drop(trial)
        return events

    def _take_death(self, trial: T, why: str) -> list[RunnerEvent]:
        """Handle a worker that died by itself; a worker that we end is forgotten before it dies."""
        if trial.order is not None:
            self._checked_order = None  # a check that was in progress is made again
            return self._lose(trial, why, is_death=True)
        resumable_step, is_lost = trial.saved_step, not trial.is_saved
        self._drop(trial)
        return [StateLoss(trial=trial.number, resumable_step=resumable_step, why=why)] if is_lost else []

    def _lose(self, trial: T, why: str, *, is_death: bool) -> list[RunnerEvent]:
        lost = trial.lose(why, is_death=is_death)
        self._drop(trial)
        return [lost]

    def _drop(self, trial: T) -> None:
        """End the worker of a trial now."""
        if trial.order is not None:
            self._close_order(trial, trial.order)
            trial.order = None
        self._end_worker(trial)

    def _was_cut(self, trial: T) -> bool:
        """Return whether the step of this trial was already ended at the cutoff, and leave out the time since it ended."""
        return False

    # methods of the two runners --------------------------------------------------------------------------------------

    @abstractmethod
    def _listen(self, within_s: float) -> list[RunnerEvent]:
        """Wait for answers, at most this long; return the events that follow from them."""

    @abstractmethod
    def _check_workers(self) -> list[RunnerEvent]:
        """Find dead workers; return the events that follow, such as lost steps."""

    @abstractmethod
    def _begin(
        self, order: Order, resumable_step: int, former_configs: Sequence[Config]
    ) -> tuple[T, list[RunnerEvent]] | None:
        """Give the order to its trial in a free worker; return the trial and the losses, or None if the order has to wait."""

    @abstractmethod
    def _request_steps(self, trial: T) -> None:
        """Ask the worker for the next step, or for several."""

    @abstractmethod
    def _request_save(self, trial: T) -> None:
        """Ask the worker to write a checkpoint of the present step."""

    @abstractmethod
    def _check_resuming(self, trial: T) -> None:
        """Have a copy of the trial train the next step from its checkpoint."""

    @abstractmethod
    def _keep_paused(self, trial: T) -> list[RunnerEvent]:
        """Keep a trial that has just been paused, if there is room for it."""

    @abstractmethod
    def _release_worker(self, trial: T) -> None:
        """Remove a trial that has ended from its worker."""

    @abstractmethod
    def _end_worker(self, trial: T) -> None:
        """End the worker of this trial at once."""

    def _stop(self, trials: Sequence[T]) -> None:
        """End the workers of several trials together, before each of them is dropped."""

    @abstractmethod
    def _end_workers(self) -> None:
        """End all workers."""

    @abstractmethod
    def _wait_for_saves(self, trials: Sequence[T], within_s: float) -> dict[T, Mapping[str, Any] | None]:
        """Return the answers to `_request_save` that come in this time."""

    @abstractmethod
    def _live_trials(self) -> list[T]:
        """Return the trials that are alive in a worker."""

    def _busy_trials(self) -> list[T]:
        return [trial for trial in self._live_trials() if trial.order is not None]

    def _paused_trials(self) -> list[T]:
        return [trial for trial in self._live_trials() if trial.order is None]
