"""All calls to Ray's own interface: the connection, the actors of a study, and the resources of the cluster.

Ray must never repeat a step by itself, since the step would be charged twice. So no actor is restarted and no call is repeated.
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
from shoestring.runners.checkpoints.checkpoint_store import CheckpointStore
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.ray.remote_worker import NodeMonitor, RemoteWorker


def connect(cluster: RayCluster) -> bool:
    """Connect to the cluster; return whether the connection was made here, and has to be ended here."""
    ray = import_ray()
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster that is started here sends no usage reports
    how: dict[str, Any] = {"logging_level": "warning", "log_to_driver": False}
    if cluster.runtime_env is not None:
        how["runtime_env"] = dict(cluster.runtime_env)
    if cluster.address is None:
        how["include_dashboard"] = False
    try:
        with _keep_signal_handlers():
            ray.init(address=cluster.address, **how)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise RunnerError(
            f"no Ray cluster can be used at {cluster.address or 'this machine'}: {one_line(str(error))}: start one with "
            "ray start --head, or leave the address out"
        ) from None
    return True


@contextlib.contextmanager
def _keep_signal_handlers() -> Iterator[None]:
    """Restore our signal handlers afterwards. Ray's handler for SIGTERM ends the process, but trials must be paused first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def make_remote_worker(
    cluster: RayCluster, code: bytes, store: CheckpointStore, marker: str, avoided: list[str]
) -> Any:
    """Start a worker on any node that has room, except the nodes in `avoided`; return its actor.

    Ray spreads the workers over the nodes. A worker may have to wait for a node.
    """
    where: dict[str, Any] = {"scheduling_strategy": "SPREAD"}
    if avoided:  # Ray still counts them as alive
        where = {"label_selector": {"ray.io/node-id": f"!in({','.join(avoided)})"}}
    needs = {"num_cpus": cluster.cpus, "num_gpus": cluster.gpus, "resources": dict(cluster.resources)}
    return _make_remote(RemoteWorker).options(**needs, **where).remote(code, sys.path, store, marker)


def make_node_monitor(node: str) -> Any:
    """Start a monitor on this node; return its actor."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return _make_remote(NodeMonitor).options(num_cpus=0, scheduling_strategy=there).remote()


@functools.cache
def _make_remote(kind: type) -> Any:
    """Make a remote class, once for each class: Ray inspects all of its code."""
    return import_ray().remote(max_restarts=0, max_task_retries=0)(kind)


def count_room(cluster: RayCluster) -> int:
    """Return how many workers the nodes could hold now if no other program used them."""
    nodes = [node["Resources"] for node in import_ray().nodes() if node["Alive"]]
    fits = [
        min((int(node.get(name, 0) // amount) for name, amount in cluster.needs.items()), default=1) for node in nodes
    ]
    return sum(fits)


def describe_node(node: str) -> set[str]:
    """Return the words that a price may name, such as `spot`, `market=spot` or `A100`.

    These are the node's resources, and its labels with and without their keys.
    """
    words: set[str] = set()
    for one in import_ray().nodes():
        if one["NodeID"] == node:
            words |= {name.removeprefix("accelerator_type:") for name in one["Resources"]}
            for key, value in one.get("Labels", {}).items():
                words |= {value, f"{key}={value}"}
    return words


def describe_resources(cluster: RayCluster) -> str:
    """Return a sentence that says what a worker needs and how much of it the cluster has."""
    available = import_ray().cluster_resources()
    wanted = ", ".join(f"{amount:g} {name}" for name, amount in cluster.needs.items())
    found = ", ".join(f"{available.get(name, 0):g} {name}" for name in cluster.needs)
    return f"a worker needs {wanted} of one node, and the cluster has {found} in all"


def import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtra("the Ray runner", "ray", "ray") from None
    return ray
