"""Drivers that are told to stop, as before a spot machine goes."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

from conftest import HERE, Nodes, start_driver

from shoestring.stores.sql import Sql
from shoestring.study.study import Study


def test_a_driver_that_is_told_to_stop_freezes_and_leaves(
    connected: Nodes, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """What was given to `run` is what `resume` goes on with."""
    space = ["-p", "rate={float=[0.05,0.7]}", "--max-steps", "6", "--policy", "asha", "--seed", "1", "--study", "s"]
    where = [
        "--runner",
        "ray",
        "--address",
        connected.address,
        "--cpus",
        "1",
        "--workers",
        "2",
        "--checkpoints",
        "kept",
    ]
    words = [
        "run",
        f"{HERE}/ray_code.py:SlowCurve",
        *space,
        *where,
        "--budget",
        "40 epochs",
        "--store",
        "s.db",
        "--json",
    ]
    with start_driver(tmp_path, *words) as driver:
        store = Sql(f"sqlite:///{tmp_path}/s.db")
        eventually(lambda: (ledger := store.load("s")) is not None and ledger.spent > 4)
        driver.send_signal(signal.SIGTERM)
        said, narrated = driver.communicate(timeout=60)
    assert driver.returncode == 143, narrated
    assert json.loads(said)["reason"] == "stopped"
    stopped = Study.open("s", tmp_path / "s.db")
    assert stopped.ledger.opened.target["cluster"] == {"address": connected.address, "cpus": 1.0}
    frozen = {(trial.number, trial.steps) for trial in stopped.trials if trial.steps}
    kept = {
        (int(path.parent.name[-4:]), int(path.name[-6:])) for path in (tmp_path / "kept/s").glob("trial-*/step-??????")
    }
    assert frozen <= kept
    with start_driver(tmp_path, "resume", "--budget", "24 epochs", "--store", "s.db", "--json") as driver:
        said, narrated = driver.communicate(timeout=60)
    assert driver.returncode == 0, narrated
    assert json.loads(said)["spent"] == 24
