"""The page about orders over the network: its server, its curl commands, its worker and its example run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoestring import Study

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "ask-over-the-network.md").read_text()
FIELDS = (ROOT / "docs" / "reference" / "http.md").read_text()
EXAMPLE = ROOT / "examples" / "ask_over_http"
ENVIRONMENT = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def block(kind: str, port: int) -> str:
    (found,) = re.findall(rf"<!-- run: {kind} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert "8765" in found
    return str(found).replace("8765", str(port))


class RunningServer:
    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.folder = folder
        command = block("server", self.port).replace(
            "shoestring", f"exec {shlex.quote(sys.executable)} -m shoestring", 1
        )
        self.process = subprocess.Popen(
            ["sh", "-c", command], cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"SHOESTRING_ADDRESS=http://127.0.0.1:{self.port}\n"
        self.token = (folder / "token").read_text().strip()

    def ask(self, path: str, **body: Any) -> dict[str, Any]:
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Authorization": f"Bearer {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return dict(json.load(answer))

    def study(self) -> Study:
        return Study.open(store=f"sqlite:///{self.folder}/shoestring.db")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    made = RunningServer(tmp_path)
    yield made
    made.process.send_signal(signal.SIGTERM)
    made.process.communicate(timeout=30)


def test_the_curl_commands_of_the_page_run(server: RunningServer, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl here")
    result = subprocess.run(
        ["sh", "-ec", block("sh", server.port)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    order, report, best = map(json.loads, result.stdout.splitlines())
    in_page = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])  # type: ignore[index]
    assert set(order) == set(in_page)
    assert set(order["order"]) == set(in_page["order"])
    assert report["new"]
    assert best["best"]["value"] == 0.7


def test_the_worker_of_the_page_spends_the_whole_budget(server: RunningServer, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", block("python", server.port)],
        cwd=tmp_path,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert server.study().spent == 40


def test_every_field_of_an_answer_is_explained(server: RunningServer) -> None:
    explained = set(re.findall(r"`(\w+)`", FIELDS))
    number = server.ask("/ask", worker="a")["order"]["number"]
    answers = [
        server.ask("/ask", worker="a"),
        server.ask("/heartbeat", order=number),
        server.ask("/status"),
        server.ask("/tell", order=number, step=1, value=0.5),
        server.ask("/best"),
    ]
    while (last := server.ask("/ask", worker="a"))["order"]:
        server.ask("/tell", order=last["order"]["number"], step=last["order"]["resumable_step"] + 1, value=0.5)
    names = {name for answer in [*answers, last] for name in answer}
    names |= {*answers[0]["order"], *answers[2]["busy_workers"][0]}
    of_status = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "reference" / "json-output.md").read_text()))
    assert {"next_step", "retry_after_s", "silent_s", "resumable_step"} <= names
    assert names - explained - of_status == set()


def start_worker(server: RunningServer, task: int) -> subprocess.Popen[str]:
    """Start a task of the array job as Slurm would, on the machine of the server."""
    slurm = {"SLURM_SUBMIT_DIR": str(server.folder), "SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7"}
    slurm |= {"SLURM_ARRAY_TASK_ID": str(task), "SHOESTRING_SERVER": "localhost", "SHOESTRING_PORT": str(server.port)}
    slurm |= {"SHOESTRING_WORKER": str(EXAMPLE / "worker.py")}
    job = ["sh", str(EXAMPLE / "array_job.sh")]
    return subprocess.Popen(job, env=ENVIRONMENT | slurm, stderr=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.slow
def test_tasks_of_the_array_job_share_the_budget_and_continue_after_a_kill(server: RunningServer) -> None:
    tasks = [start_worker(server, task) for task in range(2)]
    while server.ask("/status")["receipts"] < 4:
        time.sleep(0.02)
    os.killpg(tasks[0].pid, signal.SIGKILL)
    tasks[0].communicate(timeout=30)
    tasks[0] = start_worker(server, 0)
    for task in tasks:
        output = task.communicate(timeout=120)[1]
        assert task.returncode == 0, output
    study = server.study()
    assert study.spent == 40
    assert not study.ledger.open_orders
    assert not [trial for trial in study.trials if trial.failures]
    for trial in study.trials:
        weights = [5.0 * (1 - trial.config["lr"]) ** step for step in range(1, trial.steps + 1)]
        assert trial.values == pytest.approx([weight**2 for weight in weights]), (
            "it did not continue from its checkpoint"
        )
