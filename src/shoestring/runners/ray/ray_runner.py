"""The Ray runner: workers on a cluster train any trial. Only the driver, this process, holds the lease and the ledger.

Steps run in their worker and are timed there; what the worker reports comes back as the result of a call. A paused trial is
saved, and its worker is free for another one. A trial whose code cannot save keeps its worker until another trial needs that
worker; then it is lost.

The runner asks for as many workers as the study has. Ray places them as nodes come and go, and the runner uses those that are
ready. When a worker dies, or its node is silent for ten seconds, its present step is lost and the order goes back to the loop.
Such a worker may still be alive somewhere and write, but to a file that is never read (see `checkpoint_store`).
"""

from __future__ import annotations

import itertools
import math
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from shoestring.core.ledger.entries import Order, StateLoss
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config
from shoestring.runners.checkpoints.checkpoint_store import FolderStore
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.checkpoints.trial_logs import cut_long_logs
from shoestring.runners.ray.actors import connect, import_ray
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.ray.ray_trial import RayTrial, RayWorker
from shoestring.runners.ray.worker_pool import WorkerPool
from shoestring.runners.remote.remote_runner import RemoteRunner
from shoestring.runners.runner import RunnerEvent
from shoestring.runners.training.code import can_save
from shoestring.runners.training.targets import pack_code

# Slower saves are requested by a call of their own: otherwise the budget limit could interrupt the save of a finished step.
_QUICK_SAVE_S = 0.05


class RayRunner(RemoteRunner[RayTrial]):
    """Trains on a Ray cluster; see the module.

    Parameters
    ----------
    train : Any
        The training code: a function, a generator function or a class with `step()`.
    checkpoints : Checkpoints
        Where trials are saved.
    workers : int
        How many workers to ask for.
    cluster : RayCluster, optional
        Which cluster, and what each worker needs; by default one CPU each on a cluster of this machine.
    hung_after_s : float, optional
        After how many silent seconds a step counts as hung; by default 10 times the longest step plus one minute.
    deadline_s : float, optional
        For how many seconds from now `start` may wait for the workers.
    """

    check_start_s = 0.0  # a copy begins in the worker of its trial

    def __init__(
        self,
        train: Any,
        checkpoints: Checkpoints,
        workers: int = 1,
        cluster: RayCluster | None = None,
        hung_after_s: float | None = None,
        deadline_s: float | None = None,
    ) -> None:
        import_ray()  # raises at once if Ray is missing
        super().__init__(checkpoints, hung_after_s)
        self.can_save = can_save(train)
        self._cluster = cluster or RayCluster()
        self._pool = WorkerPool(self._cluster, pack_code(train, has_our_main=False), checkpoints, workers)
        self._max_steps = 1
        self._start_by = math.inf if deadline_s is None else time.monotonic() + deadline_s
        self._attempts = (f"{secrets.token_hex(3)}x{n}" for n in itertools.count())  # unique among all drivers, too
        self._owns_connection = False  # to the cluster

    @property
    def workers(self) -> int:
        """The number of workers that are ready; surplus orders wait."""
        return max(1, len(self._pool.ready))

    def start(self, ledger: Ledger) -> Mapping[int, int]:
        """Wait until a worker has imported the training code, and for the other workers that the cluster has room for."""
        may_save = self.can_save is not False
        self._owns_connection = connect(self._cluster) or self._owns_connection
        survivors = self.checkpoints.start(ledger, is_needed=may_save)
        self._max_steps = ledger.max_steps
        self._pool.open(is_store_needed=may_save)
        self._pool.wait_until_ready(self._start_by)
        self._clock.start(ledger)
        return survivors

    # answers of workers ----------------------------------------------------------------------------------------------

    def _listen(self, within_s: float) -> list[RunnerEvent]:
        events: list[RunnerEvent] = []
        for worker, answer in self._pool.listen(within_s):
            if answer is None:
                events += self._handle_death(worker, f"the worker died: {self._pool.last_death}")
            elif worker.trial is not None:
                events += self._handle_call(worker.trial, answer)
        return events

    def _handle_call(
        self, trial: RayTrial, answer: Sequence[Mapping[str, Any]] | Mapping[str, Any]
    ) -> list[RunnerEvent]:
        """Handle the answers of a call, one for each step. If the trial is given up at one of them, the rest is ignored."""
        if isinstance(answer, Mapping):
            return self._take_answer(trial, answer)
        self._silence.note_step(self.now() - trial.asked_at)
        if isinstance(self.checkpoints.store, FolderStore):
            cut_long_logs([self.checkpoints.folder(trial.number)])
        events: list[RunnerEvent] = []
        for count, step_answer in enumerate(answer, 1):
            if trial.order is not None:
                events += self._take_answer(trial, step_answer, is_newest=count == len(answer))
        return events

    def _take_answer(self, trial: RayTrial, answer: Mapping[str, Any], *, is_newest: bool = True) -> list[RunnerEvent]:
        trial.take_check(answer)
        if answer["is"] == "gone":
            self.checkpoints.forget(trial.number, trial.step)
            return self._lose(trial, f"its checkpoint is gone: {answer['text']}", is_death=False)
        if answer["is"] == "changed":
            self.checkpoints.refuse(trial.number, trial.step)
            return self._lose(trial, answer["text"], is_death=False)
        return super()._take_answer(trial, answer, is_newest=is_newest)

    def _check_workers(self) -> list[RunnerEvent]:
        events: list[RunnerEvent] = []
        for worker, why in self._pool.find_silent():
            events += self._handle_death(worker, why)
        self._pool.fill()
        return events

    def _handle_death(self, worker: RayWorker, why: str) -> list[RunnerEvent]:
        if worker.trial is not None:
            return self._take_death(worker.trial, why)
        self._pool.drop(worker)
        return []

    # requests to workers ---------------------------------------------------------------------------------------------

    def _begin(
        self, order: Order, resumable_step: int, former_configs: Sequence[Config]
    ) -> tuple[RayTrial, list[RunnerEvent]] | None:
        if not (free := self._pool.free):
            return None
        own = next((worker.trial for worker in free if _has_trial(worker, order.trial, resumable_step)), None)
        if own is not None:
            own.take_order(order, former_configs)
            return own, []
        losses: list[RunnerEvent] = []
        worker = self._pool.choose_free(order.trial)
        if worker.trial is not None and not worker.is_safe:  # the trial in it is lost
            why = "another trial needed its worker, and it could not be saved"
            losses.append(StateLoss(trial=worker.trial.number, resumable_step=worker.trial.saved_step, why=why))
        step = self.checkpoints.newest_step(order.trial, up_to=resumable_step)
        if step != resumable_step:
            losses.append(StateLoss(trial=order.trial, resumable_step=step, why="its worker or checkpoint is gone"))
        trial = self._make_trial(worker, order.trial, step)
        trial.begin(order, former_configs)
        return trial, losses

    def _make_trial(self, worker: RayWorker, number: int, step: int) -> RayTrial:
        worker.trial = RayTrial(
            number=number,
            worker=worker,
            checkpoints=self.checkpoints,
            now=self.now,
            step=step,
            start_step=step,
            max_steps=self._max_steps,
            worker_name=worker.name,
            price_factor=worker.price_factor,
            can_save=worker.can_save,
        )
        return worker.trial

    def _request_steps(self, trial: RayTrial) -> None:
        """Request steps. If saving is fast, the same call writes checkpoints that are due: a call takes a millisecond."""
        with_checkpoints = self._save_s < _QUICK_SAVE_S and trial.can_save
        self._pool.expect(trial.worker, trial.ask_for_steps(next(self._attempts) if with_checkpoints else ""))

    def _request_save(self, trial: RayTrial) -> None:
        self._pool.expect(trial.worker, trial.ask_to_save(next(self._attempts)))

    def _check_resuming(self, trial: RayTrial) -> None:
        self._request_steps(trial)  # the check is part of the call

    # ending ----------------------------------------------------------------------------------------------------------

    def _keep_paused(self, trial: RayTrial) -> list[RunnerEvent]:
        alive = {worker.trial.number for worker in self._pool if worker.trial is not None}
        if trial.worker.is_plain:  # a plain function keeps nothing alive
            trial.worker.empty()
            alive.discard(trial.number)
        return [*self.checkpoints.evict_over_limit(keep=alive | {order.trial for order, _, _ in self._waiting})]

    def _release_worker(self, trial: RayTrial) -> None:
        trial.worker.empty()

    def _end_worker(self, trial: RayTrial) -> None:
        self._pool.drop(trial.worker)

    def _end_workers(self) -> None:
        self._pool.close()
        if self._owns_connection:
            import_ray().shutdown()
            self._owns_connection = False

    def _wait_for_saves(self, trials: Sequence[RayTrial], within_s: float) -> dict[RayTrial, Mapping[str, Any] | None]:
        by_worker = {trial.worker: trial for trial in trials}
        answers = self._pool.wait_for(list(by_worker), within_s)
        return {by_worker[worker]: answer for worker, answer in answers.items()}

    def _live_trials(self) -> list[RayTrial]:
        return [worker.trial for worker in self._pool if worker.trial is not None]


def _has_trial(worker: RayWorker, number: int, step: int) -> bool:
    return worker.trial is not None and (worker.trial.number, worker.trial.step) == (number, step)
