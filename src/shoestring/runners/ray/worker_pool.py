"""Start, watch and replace the workers that a study has on a Ray cluster.

The pool asks Ray for workers until there are as many as wanted. A worker for which the cluster has no room waits until a node
comes. Each node with a worker has a monitor, which is called every two seconds. Silence is counted only while the pool itself
listens: a driver that was itself busy or stopped must not conclude that its nodes are dead.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shoestring.errors import RunnerError, WorkersDied, one_line, warn
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.ray.actors import (
    count_room,
    describe_node,
    describe_resources,
    import_ray,
    make_node_monitor,
    make_remote_worker,
)
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.ray.ray_trial import RayWorker

_POLL_S = 0.5
_MORE_WORKERS_S = 30.0  # how long to wait for the other workers when the first one is ready
_MONITOR_INTERVAL_S = 2.0  # between an answer of a monitor and the next call
_SUSPECT_S = 3.0  # how long to wait for a node whose worker died before another worker is started
_AVOIDED_S = 60.0  # for how long Ray counts a dead node as alive
_FIRST_ANSWER_S = 60.0  # a monitor has to be started first, on a node that may be busy
_MAX_COUNTED_SILENCE_S = 1.0  # the longest silence that is counted between two checks
_MAX_START_DEATHS = 3  # deaths of workers in a row before they are ready: after that, nodes are not the cause
_LONGEST_DELAY_S = 30.0  # before another worker is started, when they keep dying


@dataclass(eq=False, slots=True)
class NodeWatch:
    """A node, and the monitor on it."""

    node: str
    monitor: Any
    next_call_at: float = 0.0
    call: Any = None  # the call that was not answered yet
    silent_s: float = 0.0
    has_answered: bool = False
    is_given_up: bool = False
    suspect_until: float = 0.0

    def suspect(self, now: float) -> None:
        """Note that a worker died on this node. The monitor is then called at once, and answers if the node is alive."""
        self.suspect_until, self.next_call_at = now + _SUSPECT_S, now

    def has_been_silent_for(self, limit_s: float) -> bool:
        return self.silent_s >= (limit_s if self.has_answered else max(limit_s, _FIRST_ANSWER_S))


class WorkerPool:
    """The workers of a study on a Ray cluster, and the calls that they have not answered yet; see the module."""

    def __init__(self, cluster: RayCluster, code: bytes, checkpoints: Checkpoints, wanted: int) -> None:
        self.wanted = wanted
        self._cluster, self._code, self._checkpoints = cluster, code, checkpoints
        self._workers: list[RayWorker] = []
        self._calls: dict[Any, RayWorker | NodeWatch] = {}
        self._watches: dict[str, NodeWatch] = {}
        self._marker = secrets.token_hex(6)
        self._checked_at = time.monotonic()
        self._start_deaths = 0  # deaths in a row of workers that were never ready
        self._fill_at = 0.0
        self._avoided: dict[str, float] = {}  # node -> until when no worker is started there
        self.last_death = ""

    def __iter__(self) -> Iterator[RayWorker]:
        return iter(list(self._workers))

    @property
    def ready(self) -> list[RayWorker]:
        return [worker for worker in self._workers if worker.is_ready]

    @property
    def free(self) -> list[RayWorker]:
        return [worker for worker in self._workers if worker.is_free]

    def choose_free(self, trial: int) -> RayWorker:
        """Return the free worker to use for this trial: an empty one, else the longest unused one, if possible a safe one."""
        for worker in self.free:
            if worker.trial is not None and worker.trial.number == trial:  # at another step
                worker.empty()
        return min(self.free, key=lambda worker: (worker.trial is not None, not worker.is_safe, worker.last_used()))

    # starting workers ------------------------------------------------------------------------------------------------

    def open(self, *, is_store_needed: bool) -> None:
        if is_store_needed:
            self._checkpoints.store.add_marker(self._marker)
        self.fill()

    def fill(self) -> None:
        """Start the workers that are missing."""
        now = time.monotonic()
        if any(watch.suspect_until > now for watch in self._watches.values()):
            return  # in a moment it is known whether a worker died alone or with its node
        self._avoided = {node: until for node, until in self._avoided.items() if until > now}
        bad = {watch.node for watch in self._watches.values() if watch.is_given_up} | self._avoided.keys()
        while len(self._workers) < self.wanted and now >= self._fill_at:
            used = {worker.number for worker in self._workers}
            number = next(n for n in itertools.count(1) if n not in used)
            actor = make_remote_worker(self._cluster, self._code, self._checkpoints.store, self._marker, sorted(bad))
            worker = RayWorker(actor, number)
            self._workers.append(worker)
            self.expect(worker, actor.hello.remote())

    def wait_until_ready(self, start_by: float = math.inf) -> None:
        """Wait for one worker, and for the others that the cluster has room for, at most until the moment `start_by`."""
        began, room = time.monotonic(), count_room(self._cluster)
        if not room:
            warn(f"no node of the Ray cluster has room: {describe_resources(self._cluster)}; waiting for one")
        while not self.ready or len(self.ready) < min(self.wanted, room):
            waited_s = time.monotonic() - began
            if time.monotonic() >= start_by:
                return
            if self.ready and waited_s > _MORE_WORKERS_S:
                return  # other programs use the cluster, too
            if self._start_deaths >= _MAX_START_DEATHS:
                raise WorkersDied(f"workers on the Ray cluster die before they can be used: {self.last_death}")
            if waited_s > self._cluster.start_within_s:
                raise RunnerError(
                    f"the Ray cluster had no room for {waited_s:.0f} s: {describe_resources(self._cluster)}; ask for less of "
                    "it, or wait longer with RayCluster(start_within_s=…)"
                )
            for worker, _ in self.listen(
                max(0.0, min(_POLL_S, start_by - time.monotonic()))
            ):  # none has a trial yet: it died
                self.drop(worker)
            self.fill()

    def _note_ready(self, worker: RayWorker, answer: Mapping[str, Any]) -> None:
        if answer["is"] != "ready":
            raise RunnerError(
                f"the training code cannot be imported on a node of the cluster: {answer['text']}: put it where every node finds "
                "it, or give RayCluster(runtime_env={'working_dir': …})"
            )
        self._start_deaths = 0
        worker.name, worker.node, worker.pid = f"{answer['host']}:{worker.number}", answer["node"], answer["pid"]
        worker.can_reach_store, worker.can_save = answer["can_reach_store"], answer["can_save"]
        worker.is_plain = answer["is_plain"]
        if self._cluster.prices:
            worker.price_factor = self._cluster.price_of(describe_node(worker.node))

    # calls and their answers -----------------------------------------------------------------------------------------

    def expect(self, worker: RayWorker, call: Any) -> None:
        """Listen for the answer to this call."""
        self._calls[call] = worker

    def listen(self, within_s: float) -> Iterator[tuple[RayWorker, Mapping[str, Any] | None]]:
        """Yield (worker, answer) as answers to requests come in; the answer is None if the worker has died."""
        ray = import_ray()
        if not self._calls:
            time.sleep(min(within_s, 0.05))
            return
        ready, _ = ray.wait(list(self._calls), num_returns=1, timeout=within_s)
        if ready:  # also return all other calls that have been answered by now
            ready, _ = ray.wait(list(self._calls), num_returns=len(self._calls), timeout=0)
        for call in ready:
            callee = self._calls.pop(call, None)
            if callee is None:  # given up a moment ago because of another answer
                continue
            answer = self._read(call)
            if isinstance(callee, NodeWatch):
                self._handle_monitor(callee, answer)
            elif answer is None and callee.node in self._watches:
                self._watches[callee.node].suspect(time.monotonic())
                yield callee, None
            elif answer is not None and not callee.is_ready:
                self._note_ready(callee, answer)
            else:
                yield callee, answer

    def wait_for(self, workers: list[RayWorker], within_s: float) -> dict[RayWorker, Mapping[str, Any]]:
        """Return the answers that these workers give within this time."""
        calls = {
            call: worker for call, worker in self._calls.items() if isinstance(worker, RayWorker) and worker in workers
        }
        answers: dict[RayWorker, Mapping[str, Any]] = {}
        if calls:
            done, _ = import_ray().wait(list(calls), num_returns=len(calls), timeout=within_s)
            for call in done:
                answer = self._read(call)
                del self._calls[call]
                if answer is not None:
                    answers[calls[call]] = answer
        return answers

    def _read(self, call: Any) -> Mapping[str, Any] | None:
        ray = import_ray()
        try:
            answer: Mapping[str, Any] = ray.get(call)
            return answer
        except ray.exceptions.RayTaskError as error:  # our own code raised: a store is full, or gone
            return {"is": "failed", "text": str(error.cause)}
        except ray.exceptions.RayError as error:
            self.last_death = one_line(str(error))[:300]
            return None

    # watching nodes --------------------------------------------------------------------------------------------------

    def find_silent(self) -> list[tuple[RayWorker, str]]:
        """Check the nodes; return the workers that are to be given up, and why."""
        now = time.monotonic()
        listened_s, self._checked_at = min(now - self._checked_at, _MAX_COUNTED_SILENCE_S), now
        limit_s = self._cluster.silent_after_s
        for worker in self.ready:
            if worker.node not in self._watches:
                self._watches[worker.node] = NodeWatch(worker.node, make_node_monitor(worker.node))
        for watch in self._watches.values():
            if watch.call is not None:
                watch.silent_s += listened_s
            elif now >= watch.next_call_at:
                pids = [worker.pid for worker in self.ready if worker.node == watch.node]
                watch.call = watch.monitor.find_stopped.remote(pids)
                self._calls[watch.call] = watch
            watch.is_given_up = watch.has_been_silent_for(limit_s)
        silent = {watch.node for watch in self._watches.values() if watch.is_given_up}
        node_is_silent, is_stopped = (
            f"its node was silent for {limit_s:g} s",
            f"its process was stopped for {limit_s:g} s",
        )
        return [
            *((worker, node_is_silent) for worker in self.ready if worker.node in silent),
            *((worker, is_stopped) for worker in self.ready if worker.stopped_s >= limit_s),
        ]

    def _handle_monitor(self, watch: NodeWatch, answer: Any) -> None:
        watch.call = None
        if not isinstance(answer, list):  # it died, most likely with its node: start no workers there for a while
            self._watches.pop(watch.node, None)
            self._avoided[watch.node] = time.monotonic() + _AVOIDED_S
            return
        now = time.monotonic()
        since_s = now - (watch.next_call_at - _MONITOR_INTERVAL_S) if watch.has_answered else 0.0
        since_s = min(since_s, 2 * _MONITOR_INTERVAL_S)
        watch.silent_s, watch.has_answered = 0.0, True
        watch.next_call_at, watch.suspect_until = now + _MONITOR_INTERVAL_S, 0.0
        for worker in self.ready:
            if worker.node == watch.node:
                worker.stopped_s = worker.stopped_s + since_s if worker.pid in answer else 0.0

    # ending ----------------------------------------------------------------------------------------------------------

    def drop(self, worker: RayWorker) -> None:
        """End a worker now, or as soon as it can be reached; its answers are ignored from now on."""
        self._workers = [other for other in self._workers if other is not worker]
        self._calls = {call: callee for call, callee in self._calls.items() if callee is not worker}
        if not worker.is_ready:
            self._start_deaths += 1
            self._fill_at = time.monotonic() + min(_LONGEST_DELAY_S, 2.0 ** (self._start_deaths - 1))
        _end(worker.actor)

    def close(self) -> None:
        for actor in [
            *(worker.actor for worker in self._workers),
            *(watch.monitor for watch in self._watches.values()),
        ]:
            _end(actor)
        self._workers.clear()
        self._calls.clear()
        self._watches.clear()
        with contextlib.suppress(Exception):  # a store that is gone has no marker either
            self._checkpoints.store.remove_marker(self._marker)


def _end(actor: Any) -> None:
    ray = import_ray()
    with contextlib.suppress(ray.exceptions.RayError, ValueError):
        ray.kill(actor, no_restart=True)
