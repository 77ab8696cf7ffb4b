"""The page about asking over the network: its server, its curl lines, its worker and the example beside it all run."""

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


class Served:
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
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.process.send_signal(signal.SIGTERM)
    made.process.communicate(timeout=30)


def test_the_lines_with_curl_run(served: Served, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl here")
    done = subprocess.run(
        ["sh", "-ec", block("sh", served.port)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    order, told, best = map(json.loads, done.stdout.splitlines())
    shown = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])  # type: ignore[index]
    assert set(order) == set(shown)
    assert set(order["order"]) == set(shown["order"])
    assert told["new"]
    assert best["best"]["value"] == 0.7


def test_the_worker_of_the_page_spends_it_all(served: Served, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block("python", served.port)],
        cwd=tmp_path,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert served.study().spent == 40


def test_every_field_of_an_answer_is_explained(served: Served) -> None:
    explained = set(re.findall(r"`(\w+)`", FIELDS))
    number = served.ask("/ask", client="a")["order"]["number"]
    answers = [
        served.ask("/ask", client="a"),
        served.ask("/beat", order=number),
        served.ask("/status"),
        served.ask("/tell", order=number, step=1, value=0.5),
        served.ask("/best"),
    ]
    while (last := served.ask("/ask", client="a"))["order"]:
        served.ask("/tell", order=last["order"]["number"], step=last["order"]["held"] + 1, value=0.5)
    names = {name for answer in [*answers, last] for name in answer}
    names |= {*answers[0]["order"], *answers[2]["clients"][0]}
    of_status = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "reference" / "json-output.md").read_text()))
    assert {"next_step", "again_s", "silent_s", "held"} <= names
    assert names - explained - of_status == set()


def start_worker(served: Served, task: int) -> subprocess.Popen[str]:
    """A task of the array job, as Slurm would start it on the machine of the server."""
    slurm = {"SLURM_SUBMIT_DIR": str(served.folder), "SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7"}
    slurm |= {"SLURM_ARRAY_TASK_ID": str(task), "SHOESTRING_SERVER": "localhost", "SHOESTRING_PORT": str(served.port)}
    slurm |= {"SHOESTRING_WORKER": str(EXAMPLE / "worker.py")}
    job = ["sh", str(EXAMPLE / "array_job.sh")]
    return subprocess.Popen(job, env=ENVIRONMENT | slurm, stderr=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.slow
def test_tasks_of_the_array_job_share_the_budget_and_go_on_after_a_kill(served: Served) -> None:
    tasks = [start_worker(served, task) for task in range(2)]
    while served.ask("/status")["receipts"] < 4:
        time.sleep(0.02)
    os.killpg(tasks[0].pid, signal.SIGKILL)
    tasks[0].communicate(timeout=30)
    tasks[0] = start_worker(served, 0)
    for task in tasks:
        said = task.communicate(timeout=120)[1]
        assert task.returncode == 0, said
    study = served.study()
    assert study.spent == 40
    assert not study.ledger.open_orders
    assert not [trial for trial in study.trials if trial.failures]
    for trial in study.trials:
        weights = [5.0 * (1 - trial.config["lr"]) ** step for step in range(1, trial.steps + 1)]
        assert trial.values == pytest.approx([weight**2 for weight in weights]), "it did not go on where it was"
