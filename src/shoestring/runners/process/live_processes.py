"""The trials that are alive in worker processes: those being trained, and a limited number of paused ones.

Each trial has a process of its own. A process is bound to its device for life, so a trial that is alive continues when a worker
on that device is free; a trial that is saved on disk may also continue in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from shoestring.core.ledger.entries import Order, StateLoss
from shoestring.core.space.space import Config
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.checkpoints.trial_logs import CHECK, STDERR, STDOUT
from shoestring.runners.devices import NumberedWorkers
from shoestring.runners.process.spare_workers import STOP_GRACE_S, SpareWorkers
from shoestring.runners.process.worker import WorkerProcess, stop
from shoestring.runners.remote.remote_trial import Answer, RemoteTrial
from shoestring.runners.runner import DEFAULT_LIVE_TRIALS, RunnerEvent, config_at


@dataclass(eq=False, slots=True, kw_only=True)
class ProcessTrial(RemoteTrial):
    """A trial that is alive in the process `worker`."""

    worker: WorkerProcess
    worker_number: int = 0  # number of the worker that carries out its order
    copy: WorkerProcess | None = None  # makes the resume check, while the trial itself waits

    @property
    def processes(self) -> list[WorkerProcess]:
        return [self.worker] if self.copy is None else [self.worker, self.copy]

    def ask_for_step(self) -> None:
        self._send_step(self.worker, validate=self.current_order.validates(self.step + 1))

    def ask_to_save(self) -> None:
        self.asked_at = self.now()
        self.worker.send("save", path=str(self.checkpoints.partial_path(self.number, self.step)))

    def ask_copy_for_step(self, copy: WorkerProcess) -> None:
        self.copy = copy
        self._send_step(copy, validate=True)

    def leave_out(self, late_s: float) -> None:
        """Leave out the seconds for which an answer waited until it was read: nothing was trained meanwhile."""
        self.since += late_s
        if self.check_since is not None:
            self.check_since += late_s

    def take_check(self, answer: Answer) -> WorkerProcess:
        """Record the result of the step that the copy trained; return its process, which is not needed any more."""
        assert self.check_since is not None
        assert self.copy is not None
        has_stepped = answer["is"] == "stepped"  # otherwise the copy could not train the step at all
        self.check = (answer["value"] if has_stepped else None, max(0.0, self.now() - self.check_since))
        copy, self.copy, self.check_since = self.copy, None, None
        return copy

    def _send_step(self, worker: WorkerProcess, *, validate: bool) -> None:
        self.asked_at = self.now()
        config = self.config_of_step(self.step + 1)
        worker.send("step", config=config, until=self.current_order.until, validate=validate)

    def _commit_checkpoint(self, answer: Answer) -> float:
        return self.checkpoints.commit(self.number, self.step, answer["seconds"])


class LiveProcesses:
    """Live trials by number, the least recently used first."""

    def __init__(
        self, spares: SpareWorkers, checkpoints: Checkpoints, now: Callable[[], float], workers: NumberedWorkers
    ) -> None:
        self._spares, self._checkpoints, self._now, self._workers = spares, checkpoints, now, workers
        self._by_trial: dict[int, ProcessTrial] = {}
        self.max_steps = 1  # steps of a full training; set when the runner starts

    def __iter__(self) -> Iterator[ProcessTrial]:
        return iter(list(self._by_trial.values()))

    def find_owner(self, worker: WorkerProcess) -> ProcessTrial | None:
        """Return the trial that has this process; None for a spare process."""
        return next((trial for trial in self if worker in trial.processes), None)

    # beginning -------------------------------------------------------------------------------------------------------

    def begin(
        self, order: Order, resumable_step: int, former_configs: Sequence[Config]
    ) -> tuple[ProcessTrial, list[RunnerEvent]] | None:
        """Give the order to the trial's process, or to a new process that continues from the newest checkpoint.

        Return the trial and what was lost; None if the order has to wait for a worker.
        """
        number = self._find_worker(order.trial, resumable_step)
        if number is None:
            return None
        losses: list[RunnerEvent] = []
        trial = self._by_trial.pop(order.trial, None)
        if trial is None:
            step = self._checkpoints.find_unchanged_step(order.trial, up_to=resumable_step)
            if step != resumable_step:
                losses.append(
                    StateLoss(trial=order.trial, resumable_step=step, why="its process or checkpoint is gone")
                )
            trial = self._make_trial(order, step, former_configs, self._workers.devices[number])
        self._by_trial[order.trial] = trial
        self._workers.occupy(number)
        trial.worker_number, trial.worker_name = number, self._workers.name_of(number)
        trial.take_order(order, former_configs)
        trial.worker.guard.set_busy(trial.worker.group, True)
        return trial, losses

    def start_copy(self, trial: ProcessTrial) -> None:
        """Start a process for the resume check. It continues from the checkpoint that the trial has just written."""
        config, device = trial.config_of_step(trial.step + 1), trial.worker.device
        copy = self._start(device, trial.number, trial.step, config, (CHECK, CHECK))
        copy.guard.set_busy(copy.group, True)
        trial.ask_copy_for_step(copy)

    def _find_worker(self, trial_number: int, resumable_step: int) -> int | None:
        """Return a free worker that can continue this trial from its resumable step; None if there is none."""
        trial = self._by_trial.get(trial_number)
        if trial is not None and (trial.step != resumable_step or not trial.worker.alive):
            self.drop(trial)
        elif trial is not None:
            number = self._workers.find_free(trial.worker.device)
            if number is not None or not _is_replaceable(trial):
                return number
            self._give_back(trial)
        return self._workers.find_free(prefer=self._spares.ready_devices)

    def _make_trial(self, order: Order, step: int, former_configs: Sequence[Config], device: str) -> ProcessTrial:
        if device not in self._spares.ready_devices:
            self._make_room(device)
        config = config_at(step + 1, order, former_configs)
        worker = self._start(device, order.trial, step, config, (STDOUT, STDERR))
        return ProcessTrial(
            number=order.trial, worker=worker, checkpoints=self._checkpoints, now=self._now, step=step, start_step=step
        )

    def _start(self, device: str, trial: int, step: int, config: Config, logs: Sequence[str]) -> WorkerProcess:
        checkpoint, folder = self._checkpoints.path_to_load(trial, step), self._checkpoints.folder(trial)
        return self._spares.take(
            device,
            config=config,
            step=step,
            max_steps=self.max_steps,
            trial=trial,
            checkpoint=str(checkpoint) if checkpoint else None,
            logs=[str(folder / log) for log in logs],
        )

    def _make_room(self, device: str) -> None:
        """Make a saved, paused trial give back its process: using that is faster than waiting for imports in a new one."""
        for trial in self:
            if trial.order is None and trial.worker.device == device and _is_replaceable(trial):
                self._give_back(trial)
                return

    # ending ----------------------------------------------------------------------------------------------------------

    def keep_paused(self, trial: ProcessTrial, limit: int | None, can_save: bool | None) -> list[RunnerEvent]:
        """Keep a trial that has just been paused, and at most `limit` paused ones; return the losses of those that are ended."""
        self._by_trial[trial.number] = self._by_trial.pop(trial.number)
        if trial.worker.reusable:  # a plain function keeps no state in its process: the next trial may use it
            self._give_back(trial)
        limit = limit or (len(self._workers.devices) if can_save else DEFAULT_LIVE_TRIALS)
        paused = [trial for trial in self if trial.order is None]
        losses: list[RunnerEvent] = []
        for old in paused[: max(0, len(paused) - limit)]:
            self._give_back(old)
            if not old.is_saved:
                why = f"more than {limit} trials were alive"
                losses.append(StateLoss(trial=old.number, resumable_step=old.saved_step, why=why))
        return losses + self._checkpoints.evict_over_limit(keep=set(self._by_trial))

    def drop(self, trial: ProcessTrial) -> None:
        """End the process of a trial now."""
        del self._by_trial[trial.number]
        stop(trial.processes, STOP_GRACE_S)

    def clear(self) -> None:
        self._by_trial.clear()

    def _give_back(self, trial: ProcessTrial) -> None:
        del self._by_trial[trial.number]
        self._spares.take_back(trial.worker)


def _is_replaceable(trial: ProcessTrial) -> bool:
    return bool(trial.can_save) and trial.is_saved


def workers_of(trials: Sequence[ProcessTrial]) -> list[WorkerProcess]:
    """Return all processes of these trials."""
    return [worker for trial in trials for worker in trial.processes]
