"""Seats of a Ray cluster, with a made-up Ray: who is silent, who is stopped, and where new seats are asked for."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shoestring.errors import RunnerError
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.ray import worker_pool as ray_pool
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.ray.worker_pool import SeatPool


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


class MadeUpRay:
    """Time passes when the test says so; seats and sentries are the actors that were asked for."""

    def __init__(self) -> None:
        self.clock, self.seats, self.sentries, self.killed = 100.0, list[Actor](), dict[str, Actor](), list[Actor]()
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

    def make_seat(self, cluster: object, code: bytes, storage: object, mark: str, without: list[str]) -> Actor:
        self.seats.append(Actor())
        self.without.append(without)
        return self.seats[-1]

    def make_sentry(self, node: str) -> Actor:
        self.sentries[node] = Actor()
        return self.sentries[node]


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> MadeUpRay:
    made = MadeUpRay()
    monkeypatch.setattr(ray_pool, "import_ray", lambda: made)
    monkeypatch.setattr(ray_pool, "make_seat", made.make_seat)
    monkeypatch.setattr(ray_pool, "make_sentry", made.make_sentry)
    monkeypatch.setattr("time.monotonic", lambda: made.clock)
    return made


@pytest.fixture
def pool(ray: MadeUpRay, tmp_path: Path) -> SeatPool:
    """Two seats, on the nodes `a` and `b`, whose sentries have spoken."""
    pool = SeatPool(RayCluster(), b"", Checkpoints(tmp_path), lambda: ray.clock, 2)
    pool.open(9, is_storage_needed=True)
    greet(ray, "a", "b")
    list(pool.listen(0.0))
    assert pool.find_silent() == []
    answer(ray.sentries["a"], [])
    answer(ray.sentries["b"], [])
    list(pool.listen(0.0))
    return pool


def greet(ray: MadeUpRay, *nodes: str, first: int = 0) -> None:
    for number, (seat, node) in enumerate(zip(ray.seats[first:], nodes, strict=True), first + 1):
        ready = {"is": "ready", "reaches": True, "can_save": True, "is_plain": False, "host": "tower"}
        answer(seat, {**ready, "pid": 100 + number, "node": node})


def answer(actor: Actor, what: Any) -> None:
    actor.calls[-1].answers.append(what)


def pass_time(ray: MadeUpRay, pool: SeatPool, seconds: float, answering: str) -> list[str]:
    """Seats given up meanwhile, by name; the sentries of some nodes answer what they are asked."""
    given_up: list[str] = []
    for _ in range(int(seconds * 2)):
        ray.clock += 0.5
        for node in answering:
            if not ray.sentries[node].calls[-1].answers:
                answer(ray.sentries[node], [])
        list(pool.listen(0.0))
        given_up += [seat.name for seat, _ in pool.find_silent()]
    return given_up


def test_a_node_that_says_nothing_for_ten_seconds_is_given_up(ray: MadeUpRay, pool: SeatPool) -> None:
    assert pass_time(ray, pool, 60, "ab") == []
    assert pass_time(ray, pool, 9, "a") == []
    assert set(pass_time(ray, pool, 4, "a")) == {"tower:2"}


def test_silence_counts_only_while_we_listen(ray: MadeUpRay, pool: SeatPool) -> None:
    pass_time(ray, pool, 5, "ab")
    ray.clock += 3600  # the driver was stopped, or thinking, with questions open
    assert pass_time(ray, pool, 5, "") == []
    assert pass_time(ray, pool, 5, "ab") == []


def test_a_sentry_may_take_its_time_to_start(ray: MadeUpRay, tmp_path: Path) -> None:
    pool = SeatPool(RayCluster(), b"", Checkpoints(tmp_path), lambda: ray.clock, 1)
    pool.open(9, is_storage_needed=True)
    greet(ray, "a")
    list(pool.listen(0.0))
    assert pass_time(ray, pool, 50, "") == []
    assert set(pass_time(ray, pool, 20, "")) == {"tower:1"}


def test_a_stopped_process_is_given_up_and_one_that_goes_on_is_not(ray: MadeUpRay, pool: SeatPool) -> None:
    stopped = itertools.chain([[101]] * 3, [[]], itertools.repeat([101]))
    given_up: list[tuple[float, str]] = []
    for _ in range(60):
        ray.clock += 0.5
        if not ray.sentries["a"].calls[-1].answers:
            answer(ray.sentries["a"], next(stopped))
        if not ray.sentries["b"].calls[-1].answers:
            answer(ray.sentries["b"], [])
        list(pool.listen(0.0))
        given_up += [(ray.clock, why) for seat, why in pool.find_silent() if seat.pid == 101]
    assert given_up[0][1] == "its process was stopped for 10 s"
    assert given_up[0][0] > 100 + 8 + 10, "the first time it went on"
    assert given_up[0][0] < 100 + 8 + 15


def test_new_seats_avoid_nodes_that_are_gone(ray: MadeUpRay, pool: SeatPool) -> None:
    (lost, _) = pool
    pool.expect(lost, lost.actor.step.remote())
    answer(lost.actor, RayError("the actor died"))
    assert list(pool.listen(0.0)) == [(lost, None)]
    assert pool.last_death == "the actor died"
    pool.drop(lost)
    pool.fill()
    assert len(ray.seats) == 2, "first it is asked whether the node is there"
    pool.find_silent()
    answer(ray.sentries["a"], RayError("the node died"))
    list(pool.listen(0.0))
    pool.fill()
    assert ray.without[2:] == [["a"]]
    greet(ray, "b", first=2)
    list(pool.listen(0.0))
    assert [seat.name for seat in pool.ready] == ["tower:2", "tower:1"]


def test_a_seat_that_died_alone_is_replaced_at_once(ray: MadeUpRay, pool: SeatPool) -> None:
    (lost, _) = pool
    pool.expect(lost, lost.actor.step.remote())
    answer(lost.actor, RayError("out of memory"))
    list(pool.listen(0.0))
    pool.drop(lost)
    pool.find_silent()
    answer(ray.sentries["a"], [])
    list(pool.listen(0.0))
    pool.fill()
    assert ray.without[2:] == [[]]


def test_what_a_given_up_seat_says_later_is_not_heard(ray: MadeUpRay, pool: SeatPool) -> None:
    (seat, _) = pool
    pool.expect(seat, seat.actor.step.remote())
    pool.drop(seat)
    assert ray.killed == [seat.actor]
    answer(seat.actor, {"is": "stepped"})
    assert list(pool.listen(0.0)) == []


def test_code_that_a_node_cannot_import_is_told(ray: MadeUpRay, tmp_path: Path) -> None:
    pool = SeatPool(RayCluster(), b"", Checkpoints(tmp_path), lambda: ray.clock, 1)
    pool.open(9, is_storage_needed=False)
    answer(ray.seats[0], {"is": "unusable", "text": "ModuleNotFoundError: No module named 'mine'"})
    with pytest.raises(RunnerError, match="No module named 'mine': put it where every node finds it"):
        list(pool.listen(0.0))
