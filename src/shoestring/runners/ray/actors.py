"""Ray itself, as little of it as is needed: a connection, the actors of a study, and what the cluster has.

Ray must never repeat a step by itself: a receipt would be paid twice. So no actor is restarted and no call is tried again.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from shoestring.errors import MissingExtra, RunnerError, one_line
from shoestring.runners.checkpoints.checkpoint_store import Storage
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.ray.remote_worker import Seat, Sentry


def connect(cluster: RayCluster) -> bool:
    """Whether the connection was made here, and is ours to end."""
    ray = import_ray()
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster that is started here reports to nobody
    how: dict[str, Any] = {"logging_level": "warning", "log_to_driver": False}
    if cluster.runtime_env is not None:
        how["runtime_env"] = dict(cluster.runtime_env)
    if cluster.address is None:
        how["include_dashboard"] = False
    try:
        with _our_signal_handlers():
            ray.init(address=cluster.address, **how)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise RunnerError(
            f"no Ray cluster can be used at {cluster.address or 'this machine'}: {one_line(str(error))}: start one with "
            "ray start --head, or leave the address out"
        ) from None
    return True


@contextlib.contextmanager
def _our_signal_handlers() -> Iterator[None]:
    """Ray takes SIGTERM for itself and ends the process: here it means to freeze everything first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def make_seat(cluster: RayCluster, code: bytes, storage: Storage, mark: str, without: list[str]) -> Any:
    """A seat on any node that has room, spread over them, but on none of those `without`. It may have to wait for one."""
    where: dict[str, Any] = {"scheduling_strategy": "SPREAD"}
    if without:  # Ray still takes them for alive
        where = {"label_selector": {"ray.io/node-id": f"!in({','.join(without)})"}}
    needs = {"num_cpus": cluster.cpus, "num_gpus": cluster.gpus, "resources": dict(cluster.resources)}
    return _make_remote(Seat).options(**needs, **where).remote(code, sys.path, storage, mark)


def make_sentry(node: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return _make_remote(Sentry).options(num_cpus=0, scheduling_strategy=there).remote()


@functools.cache
def _make_remote(kind: type) -> Any:
    """Once for each class: Ray looks into all of its code."""
    return import_ray().remote(max_restarts=0, max_task_retries=0)(kind)


def count_room(cluster: RayCluster) -> int:
    """How many seats the nodes could hold at this moment if nobody else used them."""
    nodes = [node["Resources"] for node in import_ray().nodes() if node["Alive"]]
    fits = [
        min((int(node.get(name, 0) // amount) for name, amount in cluster.needs.items()), default=1) for node in nodes
    ]
    return sum(fits)


def describe_node(node: str) -> set[str]:
    """Words that a price may name: `spot`, `market=spot`, `A100`. Its resources, and its labels, with and without their keys."""
    words: set[str] = set()
    for one in import_ray().nodes():
        if one["NodeID"] == node:
            words |= {name.removeprefix("accelerator_type:") for name in one["Resources"]}
            for key, value in one.get("Labels", {}).items():
                words |= {value, f"{key}={value}"}
    return words


def say_resources(cluster: RayCluster) -> str:
    """What the cluster has of what a seat needs, beside what a seat needs."""
    there = import_ray().cluster_resources()
    wanted = ", ".join(f"{amount:g} {name}" for name, amount in cluster.needs.items())
    found = ", ".join(f"{there.get(name, 0):g} {name}" for name in cluster.needs)
    return f"a seat needs {wanted} of one node, and the cluster has {found} in all"


def import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtra("the Ray runner", "ray", "ray") from None
    return ray
