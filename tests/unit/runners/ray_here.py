"""A Ray without a cluster: seats in this process, whose calls are answered at once, or never, or by their death."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from shoestring.runners.checkpoints.checkpoint_store import Storage
from shoestring.runners.ray import ray_runner
from shoestring.runners.ray import worker_pool as ray_pool
from shoestring.runners.ray.remote_worker import Answer, Seat


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class SeatHere(Seat):
    """On the node that its number names."""

    node = ""

    def hello(self) -> Answer:
        return {**self._ready, "node": self.node}


class RayHere:
    """`answers_of[seat]`: what becomes of the calls to train of a seat, in turn: "answer", "never" or "dies"; then answers."""

    def __init__(self, nodes: Sequence[dict[str, Any]]) -> None:
        self._nodes = list(nodes)
        self._places = itertools.cycle(range(len(self._nodes)))
        self.seats: list[SeatHere] = []
        self.trained: list[int] = []  # steps in each call
        self.answers_of: dict[int, list[str]] = {}
        self.exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def nodes(self) -> list[dict[str, Any]]:
        return self._nodes

    def wait(self, calls: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        ready = [call for call in calls if call.answer is not None]
        if not ready:
            time.sleep(min(timeout, 0.01))
        return ready, []

    def get(self, call: Any) -> Any:
        if isinstance(call.answer, Exception):
            raise call.answer
        return call.answer

    def kill(self, actor: Any, no_restart: bool) -> None:
        assert no_restart

    def make_seat(self, cluster: object, code: bytes, storage: Storage, mark: str, without: list[str]) -> Any:
        seat = SeatHere(code, sys.path, storage, mark)
        seat.node = self._nodes[next(self._places)]["NodeID"]
        self.seats.append(seat)
        number = len(self.seats)
        return SimpleNamespace(
            hello=_remote(seat.hello),
            save=_remote(seat.save),
            train=_remote(lambda *asked: self._train(number, *asked)),
        )

    def make_sentry(self, node: str) -> Any:
        return SimpleNamespace(look=_remote(lambda pids: list[int]()))

    def _train(self, number: int, *asked: Any) -> Any:
        what = (self.answers_of.get(number) or ["answer"]).pop(0)
        if what != "answer":
            return None if what == "never" else RayError("its node is gone")
        answers = self.seats[number - 1].train(*asked)
        self.trained.append(len(answers))
        return answers


def _remote(method: Any) -> Any:
    return SimpleNamespace(remote=lambda *asked: _Call(method(*asked)))


class _Call:
    def __init__(self, answer: Any) -> None:
        self.answer = answer


def install(monkeypatch: pytest.MonkeyPatch, ray: RayHere) -> RayHere:
    for module in (ray_runner, ray_pool):
        monkeypatch.setattr(module, "import_ray", lambda: ray)
    monkeypatch.setattr("shoestring.runners.ray.actors.import_ray", lambda: ray)
    monkeypatch.setattr(ray_runner, "connect", lambda cluster: False)
    monkeypatch.setattr(ray_pool, "count_room", lambda cluster: len(ray.nodes()))
    for name in ("make_seat", "make_sentry"):
        monkeypatch.setattr(ray_pool, name, getattr(ray, name))
    return ray


def a_node(name: str, resource: str = "memory", **labels: str) -> dict[str, Any]:
    return {"NodeID": name, "Alive": True, "Resources": {"CPU": 4.0, resource: 1.0}, "Labels": labels}
