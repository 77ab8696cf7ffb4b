"""After kill -9, an online job that starts again from its checkpoint finds the schedule of an uninterrupted job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from thoroughness import Thoroughness

from shoestring import Schedule
from shoestring.study.study import Study

ROUNDS = 40
JOB = f"""
import json, os, sys
from pathlib import Path
from shoestring.core.values.randomness import stream
from shoestring.core.values.strict_json import dumps
from shoestring import OnlineTuner

saved = Path("checkpoint.json")
state = json.loads(saved.read_text()) if saved.exists() else {{"rounds": 0, "score": 0.0}}
tuner = OnlineTuner(
    {{"lr": {{"float": [0.001, 1.0], "log": True}}, "mode": {{"choice": ["a", "b"]}}}},
    rounds={ROUNDS}, direction="max", store="run.db", seed=11, done_rounds=state["rounds"],
    settings={{"n_starts": 3, "kappa": 0.7}},
)
while (config := tuner.next()) is not None:
    state["score"] += float(stream(5, dumps(config), tuner.round).normal()) * 0.1 + (config["mode"] == "b")
    state["rounds"] = tuner.round
    if tuner.should_validate:
        with open("validated.txt", "a") as log:
            log.write(f"{{tuner.round}}\\n")
        tuner.tell(state["score"])
    if state["rounds"] % 3 == 0:
        saved.with_suffix(".new").write_text(json.dumps(state))
        os.replace(saved.with_suffix(".new"), saved)
tuner.schedule().save("schedule.json")
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", JOB], cwd=folder, env=environment, stderr=subprocess.PIPE)


def finish(folder: Path) -> None:
    process = start(folder)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error.decode()


@pytest.mark.slow
@pytest.mark.repeated
def test_a_killed_job_finds_the_schedule_of_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    finish(whole)
    for rounds in (2, 9, 17, 31) if Thoroughness.is_thorough else (2, 17):
        process = start(cut)
        deadline = time.monotonic() + 120
        while process.poll() is None and count_recorded(cut) < rounds:
            assert time.monotonic() < deadline, "the job makes no progress"
            time.sleep(0.01)
        assert process.poll() is None, process.communicate()[1].decode()
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    finish(cut)
    assert Schedule.load(cut / "schedule.json") == Schedule.load(whole / "schedule.json")
    checkpoint = json.loads((cut / "checkpoint.json").read_text())
    assert checkpoint == json.loads(
        (whole / "checkpoint.json").read_text()
    )  # the training also equals that of an uninterrupted job
    validated = (cut / "validated.txt").read_text().split()
    assert sorted(set(validated), key=int) == (whole / "validated.txt").read_text().split()
    assert len(validated) - len(set(validated)) <= 4  # each kill interrupts at most one pass


def count_recorded(folder: Path) -> int:
    if not (folder / "run.db").exists():
        return 0
    try:
        trials = Study.open("online", str(folder / "run.db")).trials
    except Exception:  # the database is being created
        return 0
    return trials[0].steps if trials else 0
