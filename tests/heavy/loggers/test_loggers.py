"""TensorBoard, MLflow and Weights & Biases hold, in their own files, what the ledger holds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoestring import Choice, Float, Study, tune
from shoestring.integrations.loggers import Follow, Mlflow, TensorBoard, Wandb, log_study


def train(config: dict[str, Any]) -> Iterator[float]:
    for step in range(1, 5):
        yield math.inf if config["x"] > 0.95 else config["x"] + 1 / step


@pytest.fixture(scope="module")
def study() -> Study:
    space = {"x": Float(0, 1), "layers": Choice([[8], [8, 8]]), "name": Choice(["a", None])}
    return tune(train, space, "14 epochs", max_steps=4, seed=2)


def curve(study: Study, number: int) -> dict[int, float]:
    values = enumerate(study.trials[number].values, 1)
    return {step: pytest.approx(value) for step, value in values if value is not None and math.isfinite(value)}


def test_tensorboard(study: Study, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log_study(study.ledger, TensorBoard(tmp_path))
    for trial in study.trials:
        events = EventAccumulator(str(tmp_path / f"trial-{trial.number:04d}"))
        events.Reload()
        found = {event.step: event.value for event in events.Scalars("value")} if curve(study, trial.number) else {}
        assert found == curve(study, trial.number)
        assert "_hparams_/session_start_info" in events.summary_metadata


def test_mlflow(study: Study, tmp_path: Path) -> None:
    import mlflow

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with Follow(Mlflow("digits", uri)) as follow:
        follow(study.ledger, None)
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("digits")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert len(runs) == len(study.trials) + 1
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    for trial in study.trials:
        run = runs[f"trial-{trial.number:04d}"]
        history = client.get_metric_history(run.info.run_id, "value")
        assert {metric.step: metric.value for metric in history} == curve(study, trial.number)
        assert float(run.data.params["x"]) == trial.config["x"]


def test_wandb_offline(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    log_study(study.ledger, Wandb("digits", folder=tmp_path))
    runs = sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert len(runs) == len(study.trials) + 1
    assert all(run.stat().st_size > 0 for run in runs)
