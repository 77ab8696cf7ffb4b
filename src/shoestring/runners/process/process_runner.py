"""The process runner: several workers on this machine, and one process for each live trial.

A paused trial is a process that waits between two steps. A step runs in its trial's process and is timed there. This process
only listens, so no worker waits for another, and a running step can be ended when the budget limit is reached. One spare process
waits with its imports done. At most `live` paused trials are kept: when there are more, the least recently used one is ended, and
is lost if it was not saved. A checkpoint is written by the trial's process and committed here.

When a process dies in a step, the work that it had not saved is lost, and its order goes back to the loop. When it is silent for
too long, its step fails. In both cases the trial's checkpoint remains.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from typing import Any

from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.checkpoints.trial_logs import cut_long_logs
from shoestring.runners.devices import Devices, NumberedWorkers, count_workers, parse_devices
from shoestring.runners.process.live_processes import LiveProcesses, ProcessTrial, workers_of
from shoestring.runners.process.process_group import require_posix
from shoestring.runners.process.spare_workers import STOP_GRACE_S, SpareWorkers
from shoestring.runners.process.worker import WorkerProcess, leave_if_importing_main, stop
from shoestring.runners.remote.remote_runner import SAVE_GRACE_S, RemoteRunner
from shoestring.runners.runner import CUTOFF_DELAY_S, RunnerEvent
from shoestring.runners.training.targets import pack_code

_COPY_FAILED = {"is": "failed"}  # the answer of a copy that died or hung


class ProcessRunner(RemoteRunner[ProcessTrial]):
    """Trains in worker processes on this machine; see the module.

    Parameters
    ----------
    train : Any
        The training code: a function, a generator function or a class with `step()`.
    checkpoints : Checkpoints
        Where trials are saved.
    workers : int, optional
        How many steps are trained at the same time; by default one for each device.
    live : int, optional
        How many paused trials stay alive; by default one for each worker if trials can be saved, else 8.
    hung_after_s : float, optional
        After how many silent seconds a step counts as hung; by default 10 times the longest step plus one minute.
    devices : str or sequence, optional
        The devices that workers train on in turn, as in `"0,1"`.
    deadline_s : float, optional
        For how many seconds from now `start` may wait for the workers.
    """

    def __init__(
        self,
        train: Any,
        checkpoints: Checkpoints,
        workers: int | None = None,
        live: int | None = None,
        hung_after_s: float | None = None,
        devices: Devices | None = None,
        deadline_s: float | None = None,
    ) -> None:
        leave_if_importing_main()  # before the study is leased, or anything is started
        require_posix("the process runner")
        super().__init__(checkpoints, hung_after_s)
        device_names = parse_devices(devices)
        self.workers = count_workers(workers, device_names)
        self.check_start_s = 0.0
        self._numbered_workers = NumberedWorkers(self.workers, device_names)
        self._spares = SpareWorkers(pack_code(train))
        self._trials = LiveProcesses(self._spares, checkpoints, self.now, self._numbered_workers)
        self._live_limit = live
        self._hung_after_s = hung_after_s
        self._start_by = math.inf if deadline_s is None else time.monotonic() + deadline_s
        self._cutoff_why = ""

    def start(self, ledger: Ledger) -> Mapping[int, int]:
        """Wait until a process for each worker has imported the training code: no trial has to pay for that time.

        Raises
        ------
        RunnerError
            If the code cannot be imported, or its checkpoints cannot be kept; before anything is trained.
        """
        devices = self._numbered_workers.devices
        self.can_save, self.check_start_s = self._spares.start_first(devices, self._start_by, self._hung_after_s)
        survivors = self.checkpoints.start(ledger, is_needed=self.can_save is not False)
        self._trials.max_steps = ledger.max_steps
        self._clock.start(ledger)
        return survivors

    def set_cutoff(self, moment: float, why: str) -> None:
        """See `KeepsCutoff.set_cutoff`."""
        self._cutoff_why = why
        self._spares.guard.set_cutoff(self._clock.to_monotonic(moment) + CUTOFF_DELAY_S)

    def interrupt(self, why: str) -> list[RunnerEvent]:
        # The guard waits until this has ended the steps, and only acts if it does not.
        self.set_cutoff(self.now() + max(STOP_GRACE_S, SAVE_GRACE_S), why)
        events = super().interrupt(why)
        self.set_cutoff(math.inf, why)
        return events

    def _was_cut(self, trial: ProcessTrial) -> bool:
        end = self._spares.guard.find_end(trial.worker.group)
        if end is not None:
            self._leave_out(trial, self._clock.from_monotonic(end.moment))
        return end is not None and end.by_guard

    def _leave_out(self, trial: ProcessTrial, happened_at: float) -> None:
        """Leave out the seconds that passed until this process, which was stopped or waited for a store, saw what happened.

        What happened before the step began, such as the end of the imports, leaves out nothing: the step is under way since then.
        """
        if happened_at >= trial.since:
            trial.leave_out(max(0.0, self.now() - happened_at))
        if trial.order is not None:
            self._running.begin(trial.order.number, trial.since)

    # messages of processes -------------------------------------------------------------------------------------------

    def _listen(self, within_s: float) -> list[RunnerEvent]:
        events: list[RunnerEvent] = []
        workers = {worker.connection: worker for worker in (*self._spares.spares, *workers_of(list(self._trials)))}
        for ready in connection.wait(list(workers), within_s):
            events += self._read_events(workers[ready])  # type: ignore[index]
        return events

    def _read_events(self, worker: WorkerProcess) -> list[RunnerEvent]:
        if worker.connection.closed:  # dropped a moment ago because of another process's message
            return []
        message = worker.receive()
        trial = self._trials.find_owner(worker)
        if message is not None and trial is not None:
            answered_at = self._clock.from_monotonic(message["at"])
            self._leave_out(trial, answered_at)
            message = {**message, "took_s": answered_at - trial.asked_at}
        if message is None or message["is"] == "unusable":
            return self._handle_end(worker, trial, message)
        if message["is"] == "ready":
            worker.note_ready(message)
            if trial is not None and worker is trial.worker:
                trial.setup_s = self.now() - trial.since
            return []
        assert trial is not None
        if worker is trial.copy:
            return self._handle_copy(trial, message)
        if message["is"] == "stepped":
            self._silence.note_step(message["took_s"])
        return self._take_answer(trial, message)

    def _handle_copy(self, trial: ProcessTrial, message: Mapping[str, Any]) -> list[RunnerEvent]:
        self._spares.end_later(trial.take_check(message))
        trial.ask_for_step()
        return []

    def _handle_end(
        self, worker: WorkerProcess, trial: ProcessTrial | None, message: Mapping[str, Any] | None
    ) -> list[RunnerEvent]:
        """Handle a process that has exited, or that could not import the training code."""
        how = f"the worker process {worker.describe_exit()}" if message is None else message["text"]
        if trial is None:
            self._spares.remove(worker)
            return []
        if self._was_cut(trial) and trial.order is not None:
            return self._break_off(trial, "interrupted", self._cutoff_why)
        if worker is trial.copy:
            return self._handle_copy(trial, _COPY_FAILED)
        if message is not None and trial.order is not None:
            return self._break_off(trial, "failed", how)
        return self._take_death(trial, how)

    def _check_workers(self) -> list[RunnerEvent]:
        """Find processes that died without closing their pipe, which their own children may hold too."""
        self._spares.clear_ended()
        events: list[RunnerEvent] = []
        for trial in self._trials:
            worker = trial.copy or trial.worker
            if worker.died_silently:
                events += self._handle_end(worker, trial, None)
        return events

    def _give_up_silent(self, trial: ProcessTrial, text: str) -> list[RunnerEvent]:
        if trial.copy is None:
            return super()._give_up_silent(trial, text)
        stop([trial.copy], STOP_GRACE_S)
        return self._handle_copy(trial, _COPY_FAILED)

    # requests to processes -------------------------------------------------------------------------------------------

    def _begin_waiting(self) -> list[RunnerEvent]:
        before = len(self._running)
        events = super()._begin_waiting()
        if len(self._running) > before:  # after the orders were sent, because starting a process takes a moment
            for device in {trial.worker.device for trial in self._busy_trials()}:
                self._spares.refill(device)
        return events

    def _begin(
        self, order: Order, resumable_step: int, former_configs: Sequence[Config]
    ) -> tuple[ProcessTrial, list[RunnerEvent]] | None:
        return self._trials.begin(order, resumable_step, former_configs)

    def _request_steps(self, trial: ProcessTrial) -> None:
        trial.ask_for_step()

    def _request_save(self, trial: ProcessTrial) -> None:
        trial.ask_to_save()

    def _check_resuming(self, trial: ProcessTrial) -> None:
        self._trials.start_copy(trial)

    # ending ----------------------------------------------------------------------------------------------------------

    def _close_order(self, trial: ProcessTrial, order: Order) -> None:
        super()._close_order(trial, order)
        self._spares.guard.set_busy(trial.worker.group, False)
        cut_long_logs([self.checkpoints.folder(trial.number)])  # what was printed since the guard last looked
        self._numbered_workers.release(trial.worker_number)

    def _keep_paused(self, trial: ProcessTrial) -> list[RunnerEvent]:
        return self._trials.keep_paused(trial, self._live_limit, self.can_save)

    def _release_worker(self, trial: ProcessTrial) -> None:
        self._trials.drop(trial)

    def _end_worker(self, trial: ProcessTrial) -> None:
        self._trials.drop(trial)

    def _stop(self, trials: Sequence[ProcessTrial]) -> None:
        stop(workers_of(trials), STOP_GRACE_S)

    def _end_workers(self) -> None:
        for trial in self._busy_trials():
            self._numbered_workers.release(trial.worker_number)
        self._spares.close([trial.worker for trial in self._trials])
        self._trials.clear()

    def _wait_for_saves(
        self, trials: Sequence[ProcessTrial], within_s: float
    ) -> dict[ProcessTrial, Mapping[str, Any] | None]:
        deadline, answers = time.monotonic() + within_s, dict[ProcessTrial, Mapping[str, Any] | None]()
        for trial in trials:
            with contextlib.suppress(ValueError):  # an incomplete message
                answers[trial] = trial.worker.receive(deadline - time.monotonic())
        return answers

    def _live_trials(self) -> list[ProcessTrial]:
        return list(self._trials)
