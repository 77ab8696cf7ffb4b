"""Workers of a fake Ray cluster: which are silent, which are stopped, and where new ones are started."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shoestring.errors import RunnerError
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.ray import worker_pool
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.ray.worker_pool import WorkerPool


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class Call:
    """What a remote method returns; answered by the test."""

    def __init__(self, method: str, words: tuple[Any, ...]) -> None:
        self.method, self.words, self.answers = method, words, list[Any]()


class Actor:
    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __getattr__(self, method: str) -> Any:
        def remote(*words: Any) -> Call:
            self.calls.append(Call(method, words))
            return self.calls[-1]

        return SimpleNamespace(remote=remote)


class FakeClusterRay:
    """Time passes when the test says so; workers and monitors are the actors that were created."""

    def __init__(self) -> None:
        self.clock, self.workers, self.monitors, self.killed = 100.0, list[Actor](), dict[str, Actor](), list[Actor]()
        self.without: list[list[str]] = []
        self.exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def wait(self, calls: list[Call], num_returns: int, timeout: float) -> tuple[list[Call], list[Call]]:
        return [call for call in calls if call.answers], []

    def get(self, call: Call) -> Any:
        answer = call.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self, actor: Actor, no_restart: bool) -> None:
        assert no_restart
        self.killed.append(actor)

    def make_remote_worker(self, cluster: object, code: bytes, store: object, marker: str, without: list[str]) -> Actor:
        self.workers.append(Actor())
        self.without.append(without)
        return self.workers[-1]

    def make_node_monitor(self, node: str) -> Actor:
        self.monitors[node] = Actor()
        return self.monitors[node]


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeClusterRay:
    made = FakeClusterRay()
    monkeypatch.setattr(worker_pool, "import_ray", lambda: made)
    monkeypatch.setattr(worker_pool, "make_remote_worker", made.make_remote_worker)
    monkeypatch.setattr(worker_pool, "make_node_monitor", made.make_node_monitor)
    monkeypatch.setattr("time.monotonic", lambda: made.clock)
    return made


@pytest.fixture
def pool(ray: FakeClusterRay, tmp_path: Path) -> WorkerPool:
    """Return a pool with two workers, on the nodes `a` and `b`, whose monitors have answered."""
    pool = WorkerPool(RayCluster(), b"", Checkpoints(tmp_path), 2)
    pool.open(is_store_needed=True)
    answer_hello(ray, "a", "b")
    list(pool.listen(0.0))
    assert pool.find_silent() == []
    answer(ray.monitors["a"], [])
    answer(ray.monitors["b"], [])
    list(pool.listen(0.0))
    return pool


def answer_hello(ray: FakeClusterRay, *nodes: str, first: int = 0) -> None:
    for number, (worker, node) in enumerate(zip(ray.workers[first:], nodes, strict=True), first + 1):
        ready = {"is": "ready", "can_reach_store": True, "can_save": True, "is_plain": False, "host": "tower"}
        answer(worker, {**ready, "pid": 100 + number, "node": node})


def answer(actor: Actor, what: Any) -> None:
    actor.calls[-1].answers.append(what)


def pass_time(ray: FakeClusterRay, pool: WorkerPool, seconds: float, answering: str) -> list[str]:
    """Return the names of workers that are given up meanwhile; the monitors of some nodes answer."""
    given_up: list[str] = []
    for _ in range(int(seconds * 2)):
        ray.clock += 0.5
        for node in answering:
            if not ray.monitors[node].calls[-1].answers:
                answer(ray.monitors[node], [])
        list(pool.listen(0.0))
        given_up += [worker.name for worker, _ in pool.find_silent()]
    return given_up


def test_a_node_that_is_silent_for_ten_seconds_is_given_up(ray: FakeClusterRay, pool: WorkerPool) -> None:
    assert pass_time(ray, pool, 60, "ab") == []
    assert pass_time(ray, pool, 9, "a") == []
    assert set(pass_time(ray, pool, 4, "a")) == {"tower:2"}


def test_silence_counts_only_while_the_pool_listens(ray: FakeClusterRay, pool: WorkerPool) -> None:
    pass_time(ray, pool, 5, "ab")
    ray.clock += 3600  # the driver was stopped or busy while calls were open
    assert pass_time(ray, pool, 5, "") == []
    assert pass_time(ray, pool, 5, "ab") == []


def test_a_monitor_may_start_slowly(ray: FakeClusterRay, tmp_path: Path) -> None:
    pool = WorkerPool(RayCluster(), b"", Checkpoints(tmp_path), 1)
    pool.open(is_store_needed=True)
    answer_hello(ray, "a")
    list(pool.listen(0.0))
    assert pass_time(ray, pool, 50, "") == []
    assert set(pass_time(ray, pool, 20, "")) == {"tower:1"}


def test_a_stopped_process_is_given_up_and_one_that_continues_is_not(ray: FakeClusterRay, pool: WorkerPool) -> None:
    stopped = itertools.chain([[101]] * 3, [[]], itertools.repeat([101]))
    given_up: list[tuple[float, str]] = []
    for _ in range(60):
        ray.clock += 0.5
        if not ray.monitors["a"].calls[-1].answers:
            answer(ray.monitors["a"], next(stopped))
        if not ray.monitors["b"].calls[-1].answers:
            answer(ray.monitors["b"], [])
        list(pool.listen(0.0))
        given_up += [(ray.clock, why) for worker, why in pool.find_silent() if worker.pid == 101]
    assert given_up[0][1] == "its process was stopped for 10 s"
    assert given_up[0][0] > 100 + 8 + 10, "it was not given up after the first pause"
    assert given_up[0][0] < 100 + 8 + 15


def test_new_workers_avoid_nodes_that_are_gone(ray: FakeClusterRay, pool: WorkerPool) -> None:
    (lost, _) = pool
    pool.expect(lost, lost.actor.step.remote())
    answer(lost.actor, RayError("the actor died"))
    assert list(pool.listen(0.0)) == [(lost, None)]
    assert pool.last_death == "the actor died"
    pool.drop(lost)
    pool.fill()
    assert len(ray.workers) == 2, "first the pool checks whether the node is alive"
    pool.find_silent()
    answer(ray.monitors["a"], RayError("the node died"))
    list(pool.listen(0.0))
    pool.fill()
    assert ray.without[2:] == [["a"]]
    answer_hello(ray, "b", first=2)
    list(pool.listen(0.0))
    assert [worker.name for worker in pool.ready] == ["tower:2", "tower:1"]


def test_a_worker_that_died_alone_is_replaced_at_once(ray: FakeClusterRay, pool: WorkerPool) -> None:
    (lost, _) = pool
    pool.expect(lost, lost.actor.step.remote())
    answer(lost.actor, RayError("out of memory"))
    list(pool.listen(0.0))
    pool.drop(lost)
    pool.find_silent()
    answer(ray.monitors["a"], [])
    list(pool.listen(0.0))
    pool.fill()
    assert ray.without[2:] == [[]]


def test_later_answers_of_a_given_up_worker_are_ignored(ray: FakeClusterRay, pool: WorkerPool) -> None:
    (worker, _) = pool
    pool.expect(worker, worker.actor.step.remote())
    pool.drop(worker)
    assert ray.killed == [worker.actor]
    answer(worker.actor, {"is": "stepped"})
    assert list(pool.listen(0.0)) == []


def test_code_that_a_node_cannot_import_is_an_error(ray: FakeClusterRay, tmp_path: Path) -> None:
    pool = WorkerPool(RayCluster(), b"", Checkpoints(tmp_path), 1)
    pool.open(is_store_needed=False)
    answer(ray.workers[0], {"is": "unusable", "text": "ModuleNotFoundError: No module named 'mine'"})
    with pytest.raises(RunnerError, match="No module named 'mine': put it where every node finds it"):
        list(pool.listen(0.0))
