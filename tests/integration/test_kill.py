"""After kill -9 at any moment and a resume, nothing is lost, charged twice or decided differently."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from thoroughness import repetitions

from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps
from shoestring.stores.sql import SqlStore
from shoestring.study.study import Study

KILLS = repetitions(4, thorough=22)
COMMAND = [sys.executable, "-m", "shoestring", "run"]

TRAINER = '''
from pathlib import Path


class Descent:
    """Deterministic training that can save, and writes a line for every step that it really trained."""

    def __init__(self, config):
        self.lr, self.weight = config["lr"], 5.0

    def step(self):
        self.weight -= self.lr * (self.weight - 1)
        return self.weight ** 2

    def save(self, path):
        path.write_text(repr(self.weight))

    def load(self, path):
        self.weight = float(Path(path).read_text())
'''


def entries_in(database: Path) -> int:
    if not database.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5) as connection:
            return int(connection.execute("SELECT count(*) FROM entries").fetchone()[0])
    except sqlite3.OperationalError:  # there is no table yet
        return 0


def last_change(database: Path) -> list[int]:
    files = [database, database.with_name(f"{database.name}-wal")]
    return [file.stat().st_mtime_ns for file in files if file.exists()]


def kill_when(command: list[str], database: Path, entries: int, folder: Path) -> bool:
    """Start the command and kill it when the ledger has so many entries; return False if it ended before."""
    before = last_change(database)
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while process.poll() is None and (last_change(database) == before or entries_in(database) < entries):
        assert time.monotonic() < deadline, "the study makes no progress"
        # While the study runs, look often. While it imports its modules, looking would slow it down.
        time.sleep(0.005 if last_change(database) == before else 0.0005)
    ended = process.poll() is not None
    if not ended:
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return not ended


def finish(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def ledger_of(database: Path) -> Ledger:
    ledger = SqlStore(f"sqlite:///{database}").load("s")
    assert ledger is not None
    return ledger


def cut_points(total: int, seed: int) -> list[int]:
    return sorted(random.Random(seed).sample(range(1, total), KILLS))


@pytest.mark.slow
@pytest.mark.repeated
def test_a_simulated_study_killed_many_times_equals_the_whole_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    level, speed = rng.uniform(0.05, 0.5, (60, 1)), rng.uniform(0.2, 2, (60, 1))
    steps = np.arange(1, 28)
    np.savez(
        tmp_path / "table.npz",
        hp=rng.uniform(size=(60, 2)),
        hp_names=np.array(["a", "b"]),
        meta=json.dumps({"task": "made up", "objective": "loss", "direction": "min", "hp_categories": {}}),
        loss=(level + np.exp(-speed * steps)).astype("float32"),
        cost=(rng.uniform(1, 5, (60, 1)) * steps).astype("float32"),
    )
    words = ["--table", "table.npz", "--budget", "400 epochs", "--policy", "asha", "--workers", "3", "--seed", "5"]
    words += ["--study", "s", "--quiet"]
    finish([*COMMAND, *words, "--store", "uncut.db"], tmp_path)
    uncut = ledger_of(tmp_path / "uncut.db")
    command = [*COMMAND, *words, "--store", "cut.db"]
    kills = sum(kill_when(command, tmp_path / "cut.db", n, tmp_path) for n in cut_points(len(uncut), 1))
    finish(command, tmp_path)
    cut = ledger_of(tmp_path / "cut.db")
    assert kills >= KILLS - 2, "two kills may come too late"
    assert [e.body() for e in cut.entries()] == [e.body() for e in uncut.entries()]
    assert cut.spent == uncut.spent == 400


@pytest.mark.slow
@pytest.mark.repeated
def test_real_training_killed_many_times_has_the_same_result(tmp_path: Path) -> None:
    (tmp_path / "descent.py").write_text(TRAINER)
    words = ["descent.py:Descent", "-p", "lr={float=[1e-3,1.5],log=true}", "--budget", "99 epochs", "--max-steps", "9"]
    words += ["--policy", "successive_halving", "--seed", "3", "--study", "s", "--quiet"]
    finish([*COMMAND, *words, "--store", "uncut.db"], tmp_path)
    uncut = ledger_of(tmp_path / "uncut.db")
    command = [*COMMAND, *words, "--store", "cut.db"]
    kills = sum(kill_when(command, tmp_path / "cut.db", n, tmp_path) for n in cut_points(len(uncut), 2))
    finish(command, tmp_path)
    cut = ledger_of(tmp_path / "cut.db")
    assert kills >= KILLS - 2, "two kills may come too late"
    assert cut.spent == uncut.spent == 99
    assert [(o.trial, dumps(o.config), o.until) for o in cut.orders] == [
        (o.trial, dumps(o.config), o.until) for o in uncut.orders
    ]
    assert [trial.values for trial in cut.trials] == [trial.values for trial in uncut.trials]
    best, same = Study.open("s", str(tmp_path / "cut.db")).best, uncut.best
    assert best is not None
    assert same is not None
    assert (best.trial, best.step, best.value) == (same.number, same.best_step, same.values[same.best_step - 1])
    assert best.checkpoint is not None
    assert float(best.checkpoint.read_text()) ** 2 == best.value


PROGRAM = """
import json, os, pathlib
folder, until = pathlib.Path(os.environ["SHOESTRING_CHECKPOINT"]), int(os.environ["SHOESTRING_UNTIL"])
lr = json.loads(pathlib.Path(os.environ["SHOESTRING_CONFIG"]).read_text())["lr"]
state = folder / "state.json"
step, weight = json.loads(state.read_text()) if state.exists() else (0, 5.0)
while step < until:
    weight -= lr * (weight - 1)
    step += 1
    new = folder / "new.json"
    new.write_text(json.dumps([step, weight]))
    new.replace(state)
    print(json.dumps({"step": step, "value": weight**2}), flush=True)
"""


@pytest.mark.slow
@pytest.mark.repeated
@pytest.mark.parametrize("runner", ["process", "command"])
def test_studies_with_two_workers_killed_many_times(tmp_path: Path, runner: str) -> None:
    """With two workers the order of receipts is random, but each step has its value and is charged once."""
    (tmp_path / "descent.py").write_text(TRAINER)
    (tmp_path / "descend").write_text(PROGRAM)
    words = ["-p", "lr={float=[1e-3,1.5],log=true}", "--budget", "99 epochs", "--max-steps", "9", "--workers", "2"]
    words += ["--policy", "successive_halving", "--seed", "3", "--study", "s", "--quiet", "--store", "cut.db"]
    if runner == "process":
        words += ["--runner", "process", "descent.py:Descent"]
    else:
        words += ["--", sys.executable, "descend"]
    cuts = range(4, 160, repetitions(52, thorough=14))
    kills = sum(kill_when([*COMMAND, *words], tmp_path / "cut.db", n, tmp_path) for n in cuts)
    finish([*COMMAND, *words], tmp_path)
    ledger = ledger_of(tmp_path / "cut.db")
    assert kills >= len(cuts) - repetitions(1, thorough=4)
    assert ledger.spent == 99 == sum(trial.steps for trial in ledger.trials)
    for trial in ledger.trials:
        lr, weight, expected = float(str(trial.config["lr"])), 5.0, []
        for _ in range(trial.steps):
            weight -= lr * (weight - 1)
            expected.append(weight**2)
        assert list(trial.values) == expected


def test_work_before_the_first_heartbeat_is_charged(tmp_path: Path) -> None:
    """A study is killed repeatedly within the first second of a long step; all of that time is charged."""
    (tmp_path / "long.py").write_text(
        "import time\n"
        "def train(config):\n"
        "    began = time.monotonic()\n"
        "    while True:\n"
        "        time.sleep(0.01)\n"
        "        with open('work.log', 'a') as log:\n"
        "            print(time.monotonic() - began, file=log)\n"
    )
    command = [*COMMAND, "long.py:train", "-p", "x={float=[0,1]}", "--budget", "1h", "--seed", "1"]
    command += ["--store", "s.db", "--study", "s", "--quiet"]
    worked_s = 0.0
    for _ in range(3):
        (tmp_path / "work.log").write_text("")
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while (tmp_path / "work.log").read_text().count("\n") < 40:  # 0.4 s
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.wait()
        # Read the file now: on a busy machine the process continued for a while after the last check.
        worked_s += float((tmp_path / "work.log").read_text().split("\n")[-2])
    with SqlStore(f"sqlite:///{tmp_path}/s.db").lease("s") as lease:
        (last_s,) = lease.uncharged_s.values()
    charged_s = ledger_of(tmp_path / "s.db").state.by_kind["lost"] + last_s
    assert worked_s <= charged_s <= worked_s + 3 * 1.0 + 0.5, "at most one heartbeat too much for each kill"


@pytest.mark.slow
@pytest.mark.repeated
@pytest.mark.postgresql
def test_the_kill_benchmark_finds_no_loss(capsys: pytest.CaptureFixture[str]) -> None:
    """Run the benchmark in small: all kinds of runners, both stores, budgets in epochs and in time."""
    kill = pytest.importorskip("benchmarks.kill", reason="the benchmarks are not here")
    times = repetitions(
        4, thorough=40
    )  # 4: each kind of runner once, on PostgreSQL if there is one; the tests above use SQLite
    words = ["--times", str(times), "--stores", "postgresql,sqlite"]
    code = kill.main([*words, "--minutes", "15", "--at-once", "4", "--json"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0, result
    assert result["measured"]["kills"] == times
