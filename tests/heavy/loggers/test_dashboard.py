"""An exported study opens in optuna-dashboard, in a headless browser."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoestring import Float, Study, tune
from shoestring.integrations.optuna import to_optuna

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def train(config: dict[str, Any]) -> Iterator[float]:
    for step in range(1, 9):
        if config["x"] > 0.9:
            raise RuntimeError("<script>alert(1)</script>")
        yield config["x"] + 1 / step


@pytest.fixture(scope="module")
def study() -> Study:
    return tune(train, {"x": Float(0, 1)}, "80 epochs", max_steps=8, seed=2, name="digits-at-night")


@pytest.fixture(scope="module")
def address(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    journal = tmp_path_factory.mktemp("dashboard") / "study.journal"
    to_optuna(study.ledger, str(journal), study.name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("optuna-dashboard")
    server = subprocess.Popen(
        [program, journal, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(f"{address}/api/studies")
        yield address
    finally:
        server.terminate()
        server.wait(30)


def _wait_for(address: str) -> Any:
    deadline = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                return json.load(answer)
        except OSError:
            assert time.monotonic() < deadline, "the dashboard does not answer"
            time.sleep(0.5)


def test_the_dashboard_has_every_trial(address: str, study: Study) -> None:
    (summary,) = _wait_for(f"{address}/api/studies")["study_summaries"]
    assert summary["study_name"] == study.name
    trials = _wait_for(f"{address}/api/studies/{summary['study_id']}?after=0")["trials"]
    assert len(trials) == len(study.trials)
    states = [next(a["value"] for a in trial["user_attrs"] if a["key"] == "state") for trial in trials]
    assert {"paused", "complete", "failed"} <= set(states)


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("place", ["dashboard", "dashboard/studies/0/trials"])
def test_the_browser_shows_the_study(address: str, study: Study, place: str, tmp_path: Path) -> None:
    headless = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    command = [*headless, "--virtual-time-budget=30000", "--dump-dom", f"{address}/{place}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert study.name in done.stdout, done.stderr[-2000:]
    if place.endswith("trials"):
        assert "Trial 0" in done.stdout
        assert "paused" in done.stdout or "Pruned" in done.stdout
