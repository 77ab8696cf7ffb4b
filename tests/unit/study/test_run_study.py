"""The options of a run are checked once, and every entry point runs a study through `StudyRun`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shoestring import Float, RayCluster, ShoestringError, Space, Study, tune
from shoestring.cli.main import cli
from shoestring.core.ledger.entries import Entry
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import TrainingFailed
from shoestring.runners.simulated.simulated_runner import SimulatedRunner
from shoestring.study.run_study import RunOptions, StudyRun
from shoestring.testing.curves import DecayingCurves

SPACE = Space({"x": Float(0.0, 1.0)})


def loss(config: Any) -> float:
    return float(config["x"])


def crash(config: Any) -> float:
    raise ValueError("no data")


@pytest.mark.parametrize(
    "wrong",
    [
        {"runner": "ship"},
        {"runner": "local", "workers": 2},
        {"runner": "local", "devices": "0"},
        {"runner": RayCluster(), "live": 2},
        {"runner": "ray", "devices": "0"},
        {"devices": "0,,1"},
        {"workers": 0},
        {"live": 0},
        {"checkpoints_at_most": "much"},
        {"hung_after": "long"},
        {"deadline": "soon"},
        {"observe": 5},
        {"progress": "yes"},
    ],
    ids=lambda wrong: "-".join(wrong),
)
def test_wrong_options_are_refused_when_they_are_given(wrong: dict[str, Any]) -> None:
    with pytest.raises(ShoestringError):
        RunOptions(**wrong)


def test_every_entry_point_runs_a_study_in_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    spend = StudyRun.spend

    def count(run: StudyRun, *more: Any, **how: Any) -> Any:
        names.append(run.study.name)
        return spend(run, *more, **how)

    monkeypatch.setattr(StudyRun, "spend", count)
    monkeypatch.chdir(tmp_path)
    Path("entry_points.py").write_text("def loss(config):\n    return config['x']\n")
    study = tune(loss, SPACE, "2 epochs", name="tune")
    study.run(loss)
    study.run(SimulatedRunner(DecayingCurves()))
    words = [
        "run",
        "entry_points.py:loss",
        "-p",
        "x={float=[0,1]}",
        "--budget",
        "2 epochs",
        "--study",
        "cli",
        "--quiet",
    ]
    assert CliRunner().invoke(cli, words).exit_code == 0
    assert names == ["tune", "tune", "tune", "cli"]


def test_observers_are_called_in_order_for_each_entry() -> None:
    calls: list[str] = []

    def observer(name: str) -> Any:
        def observe(ledger: Ledger, entry: Entry | None) -> None:
            if entry is not None:
                calls.append(f"{name} {entry.kind}")

        return observe

    study = Study.begin(SPACE, "1 epoch", policy="random_search")
    run = StudyRun(study, loss, RunOptions(observe=observer("user"), progress=False))
    with run.view:
        ending = run.spend(observer=observer("caller"))
    assert (ending.reason, study.ending) == ("budget", ending)
    assert calls == ["caller order", "user order", "caller receipt", "user receipt"]


def test_only_run_study_raises_an_error_when_training_fails() -> None:
    study = Study.begin(SPACE, "9 epochs", policy="random_search")
    run = StudyRun(study, crash, RunOptions(progress=False))
    with run.view:
        assert run.spend().reason == "failing"
    with pytest.raises(TrainingFailed):
        Study.begin(SPACE, "9 epochs", policy="random_search").run(crash)


@pytest.mark.parametrize("hung_after", [None, "1h"])
def test_a_step_that_seems_to_hang_is_announced_once_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, hung_after: str | None
) -> None:
    """The heartbeat sees it, because the main thread trains; with a limit of the user's own it is not announced."""
    monkeypatch.setattr("shoestring.reports.messages._MIN_LONG_STEP_S", 0.1)
    announced, lines = threading.Event(), list[str]()

    def announce(view: object, line: str) -> None:
        lines.append(line)
        announced.set()

    monkeypatch.setattr("shoestring.study.run_study.announce_anyway", announce)

    def train(config: Any) -> Iterator[float]:
        for step in range(3):
            if step:
                announced.wait(1.0 if hung_after else 60.0)
                announced.clear()
            yield 1.0
            if step == 1:
                announced.set()  # the next one is not announced again

    study = Study.begin(SPACE, "3 epochs", max_steps=3, policy="random_search")
    StudyRun(study, train, RunOptions(progress=False, hung_after=hung_after)).spend()
    assert len(lines) == (hung_after is None)
    for line in lines:
        assert "trial 0 has taken" in line
        assert "press Ctrl-C twice" in line
        assert "--hung-after 10m" in line
