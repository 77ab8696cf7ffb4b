"""The files of TensorBoard, MLflow and Weights & Biases contain the values of the ledger."""

from __future__ import annotations

import json
import math
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoestring import Choice, Float, Report, Study, tune
from shoestring.integrations.loggers import Follow, Mlflow, TensorBoard, Wandb, log_study

WandbRun = tuple[dict[str, Any], dict[int, dict[str, Any]]]  # configuration, and history by step


def train(config: dict[str, Any]) -> Iterator[Report]:
    for step in range(1, 5):
        value = math.inf if config["x"] > 0.95 else config["x"] + 1 / step
        yield Report(value, metrics={"accuracy": step / 10, "f1@5": step / 5, "../out": 1.0})


@pytest.fixture(scope="module")
def study() -> Study:
    space = {"x": Float(0, 1), "layers": Choice([[8], [8, 8]]), "name": Choice(["a", None])}
    return tune(train, space, "100 epochs", max_steps=4, seed=2)


def curve(study: Study, number: int) -> dict[int, float]:
    values = enumerate(study.trials[number].values, 1)
    return {step: pytest.approx(value) for step, value in values if value is not None and math.isfinite(value)}


def test_tensorboard_has_every_value(study: Study, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    threads = threading.active_count()
    with Follow(TensorBoard(tmp_path)) as follow:
        follow(study)
        assert threading.active_count() < threads + len(study.trials) / 2, "not every trial may have an open writer"
    for trial in study.trials:
        events = EventAccumulator(str(tmp_path / f"trial-{trial.number:04d}"))
        events.Reload()
        found = {event.step: event.value for event in events.Scalars("value")} if curve(study, trial.number) else {}
        assert found == curve(study, trial.number)
        assert "_hparams_/session_start_info" in events.summary_metadata
        seen = {event.step: pytest.approx(event.step / 10) for event in events.Scalars("accuracy")}
        assert {event.step: event.value for event in events.Scalars("accuracy")} == seen
        assert len(seen) == trial.steps


def test_mlflow_has_every_value(study: Study, tmp_path: Path) -> None:
    import mlflow

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with Follow(Mlflow("digits", uri)) as follow:
        follow(study)
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
        for name, per_step in (("accuracy", 0.1), ("f1_5", 0.2)):
            history = client.get_metric_history(run.info.run_id, name)
            found = {metric.step: metric.value for metric in history}
            assert found == {step: pytest.approx(per_step * step) for step in range(1, trial.steps + 1)}
        assert run.data.metrics["___out"] == 1.0


def test_wandb_has_every_value_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    study = tune(train, {"x": Float(0, 1)}, "14 epochs", max_steps=4, seed=2)
    log_study(study.ledger, Wandb("digits", folder=tmp_path))
    runs = wait_for_wandb(tmp_path, len(study.trials) + 1)
    assert set(runs) == {"study", *(f"trial-{trial.number:04d}" for trial in study.trials)}
    for trial in study.trials:
        config, history = runs[f"trial-{trial.number:04d}"]
        assert config["x"] == trial.config["x"]
        assert {step: values["value"] for step, values in history.items() if "value" in values} == curve(
            study, trial.number
        )
        assert [history[step]["accuracy"] for step in sorted(history)] == [n / 10 for n in range(1, trial.steps + 1)]


def wait_for_wandb(folder: Path, count: int) -> dict[str, WandbRun]:
    """Return the runs by name once `count` of them are written: another process writes the files, also after `finish`."""
    give_up_at = time.monotonic() + 60
    while True:
        found = [read_wandb(path) for path in folder.glob("wandb/offline-run-*/*.wandb")]
        finished = {run[0]: (run[1], run[2]) for run in found if run is not None}
        if len(finished) == count or time.monotonic() > give_up_at:
            return finished
        time.sleep(0.05)


def read_wandb(path: Path) -> tuple[str, dict[str, Any], dict[int, dict[str, Any]]] | None:
    """Return the name of a run, its configuration and its history by step; None while its file is incomplete.

    The file is the one that `wandb sync` would upload; the record of the exit is written after all others. It is a log in
    LevelDB's format: after 7 bytes, blocks of 32 KiB with records of checksum, length, kind and data.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, part = path.read_bytes(), 7, b""
    name, config, history, is_finished = "", {}, {}, False
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        if at + 7 + length > len(data):
            break  # still being written
        part += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind not in (1, 4):  # a complete record, or the end of one
            continue
        record, part = Record.FromString(part), b""
        if record.WhichOneof("record_type") == "run":
            name = record.run.display_name
            config = {item.key: json.loads(item.value_json) for item in record.run.config.update}
        elif record.WhichOneof("record_type") == "history":
            values = {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            history[int(values["_step"])] = values
        elif record.WhichOneof("record_type") == "exit":
            is_finished = True
    return (name, config, history) if is_finished else None
