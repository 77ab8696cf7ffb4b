"""A small Ray cluster on loopback, an S3 server and a database, started here and stopped at the end."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoestring.runners.checkpoints.temporary_folders import remove_leftover_folders

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
os.environ |= {
    "RAY_CODE_GATE": f"{tempfile.gettempdir()}/ray-code-gate-{os.getpid()}",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # everything on loopback, as Ray does on those systems
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(16),  # otherwise one is stored in the home folder
    "RAY_enable_metrics_collection": "0",
    "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]),  # for nodes and drivers
}
NODE = {"node_ip_address": "127.0.0.1", "include_dashboard": False, "object_store_memory": 80_000_000}


class Nodes:
    """The cluster: a head without room for workers, and nodes that can be added, killed and silenced."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._temporary = tempfile.mkdtemp(prefix="r", dir="/tmp")  # names of sockets must be short
        # Ray notes the address of the newest cluster in the folder ray of this one, and expects the folder to be there.
        os.environ["RAY_TMPDIR"] = self._temporary
        Path(self._temporary, "ray").mkdir()
        head = {**NODE, "num_cpus": 0, "temp_dir": self._temporary}
        self._cluster = start_with_retries(lambda: Cluster(initialize_head=True, head_node_args=head))
        self.address: str = self._cluster.address
        self._silenced: list[int] = []

    def connect(self) -> None:
        """Make this process a driver."""
        import ray

        if not ray.is_initialized():
            ray.init(address=self.address, logging_level="warning", log_to_driver=False)

    def add(self, cpus: int = 2, labels: dict[str, str] | None = None, **resources: float) -> Any:
        how = {"num_cpus": cpus, "resources": resources, "labels": labels or {}}
        return start_with_retries(lambda: self._cluster.add_node(**NODE, **how))

    def kill(self, node: Any) -> None:
        """Kill all processes of a node, as at a power cut."""
        self._signal(node, signal.SIGKILL)

    def silence(self, node: Any) -> None:
        """Stop all processes of a node, as when the network is cut or the machine swaps."""
        self._signal(node, signal.SIGSTOP)
        self._silenced += _tree(_raylet(node))

    def close(self) -> None:
        """Kill everything at once: a regular stop waits for one process after the other."""
        nodes = self._cluster.list_all_nodes()
        pids = [*self._silenced, *(pid for node in nodes for pid in _tree(_raylet(node)))]
        for pid in pids:
            _send(pid, signal.SIGKILL)
        for node in reversed(nodes):  # the head, which is the first, is stopped last
            self._cluster.remove_node(node, allow_graceful=False)
        deadline = time.monotonic() + 10
        while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.05)
        shutil.rmtree(self._temporary, ignore_errors=True)
        remove_leftover_folders()

    def _signal(self, node: Any, number: int) -> None:
        for pid in _tree(_raylet(node)):
            _send(pid, number)


def start_with_retries(start: Callable[[], Any]) -> Any:
    """Start a node, up to four times: on a busy machine it may take longer than the 30 s that Ray allows."""
    for _ in range(3):
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    return start()


def _raylet(node: Any) -> int:
    (process,) = node.all_processes["raylet"]
    return int(process.process.pid)


def _tree(pid: int) -> list[int]:
    """Return a process and all its descendants, parents first."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread ended meanwhile
                found += [int(child) for child in task.read_text().split()]
    return found


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def start_driver(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start the command line with these words, as on another machine that has only this folder."""
    command = [sys.executable, "-m", "shoestring", *words, "--quiet"]
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="session")
def nodes(s3: str) -> Iterator[Nodes]:
    import ray

    made = Nodes()
    yield made
    ray.shutdown()
    made.close()


@pytest.fixture(scope="session")
def connected(nodes: Nodes) -> Nodes:
    """Make this process a driver on the cluster, which has two nodes with room for two workers each."""
    nodes.connect()
    nodes.add(), nodes.add()
    return nodes


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """Yield a bucket on a server in this process; nodes and drivers inherit its address in their environment."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    boto3.client("s3", endpoint_url=f"http://{host}:{port}").create_bucket(Bucket="bucket")
    yield "s3://bucket"
    server.stop()


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    def wait(condition: Callable[[], bool], within_s: float = 60.0) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, "the condition was not met in time"
            time.sleep(0.05)

    return wait
