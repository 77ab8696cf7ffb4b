"""A fake Ray without a cluster: its workers are in this process, and calls are answered at once, never, or by a death."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from shoestring.runners.checkpoints.checkpoint_store import CheckpointStore
from shoestring.runners.ray import ray_runner, worker_pool
from shoestring.runners.ray.remote_worker import Answer, RemoteWorker


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class LocalRemoteWorker(RemoteWorker):
    """A worker on the node that is set here."""

    node = ""

    def hello(self) -> Answer:
        return {**self._ready, "node": self.node}


class FakeRay:
    """`answers_of[worker]` holds what happens to its training calls in turn: "answer", "never" or "dies"; then "answer"."""

    def __init__(self, nodes: Sequence[dict[str, Any]]) -> None:
        self._nodes = list(nodes)
        self._places = itertools.cycle(range(len(self._nodes)))
        self.workers: list[LocalRemoteWorker] = []
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

    def make_remote_worker(
        self, cluster: object, code: bytes, store: CheckpointStore, marker: str, without: list[str]
    ) -> Any:
        worker = LocalRemoteWorker(code, sys.path, store, marker)
        worker.node = self._nodes[next(self._places)]["NodeID"]
        self.workers.append(worker)
        number = len(self.workers)
        return SimpleNamespace(
            hello=_remote(worker.hello),
            save=_remote(worker.save),
            train=_remote(lambda *arguments: self._train(number, *arguments)),
        )

    def make_node_monitor(self, node: str) -> Any:
        return SimpleNamespace(find_stopped=_remote(lambda pids: list[int]()))

    def _train(self, number: int, *arguments: Any) -> Any:
        what = (self.answers_of.get(number) or ["answer"]).pop(0)
        if what != "answer":
            return None if what == "never" else RayError("its node is gone")
        answers = self.workers[number - 1].train(*arguments)
        self.trained.append(len(answers))
        return answers


def _remote(method: Any) -> Any:
    return SimpleNamespace(remote=lambda *arguments: _Call(method(*arguments)))


class _Call:
    def __init__(self, answer: Any) -> None:
        self.answer = answer


def install(monkeypatch: pytest.MonkeyPatch, ray: FakeRay) -> FakeRay:
    for module in (ray_runner, worker_pool):
        monkeypatch.setattr(module, "import_ray", lambda: ray)
    monkeypatch.setattr("shoestring.runners.ray.actors.import_ray", lambda: ray)
    monkeypatch.setattr(ray_runner, "connect", lambda cluster: False)
    monkeypatch.setattr(worker_pool, "count_room", lambda cluster: len(ray.nodes()))
    for name in ("make_remote_worker", "make_node_monitor"):
        monkeypatch.setattr(worker_pool, name, getattr(ray, name))
    return ray


def a_node(name: str, resource: str = "memory", **labels: str) -> dict[str, Any]:
    return {"NodeID": name, "Alive": True, "Resources": {"CPU": 4.0, resource: 1.0}, "Labels": labels}
