"""Loggers get the same runs, configurations and values while a study runs and afterwards."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from shoestring import Float, Report, Study, tune
from shoestring.integrations.loggers import Follow, log_study


class Recorder:
    def __init__(self) -> None:
        self.started: dict[str, dict[str, Any]] = {}
        self.values: list[tuple[str, int, dict[str, float]]] = []
        self.is_closed = False

    def start(self, run: str, config: Mapping[str, Any]) -> None:
        assert run not in self.started
        self.started[run] = dict(config)

    def log(self, run: str, step: int, values: Mapping[str, float]) -> None:
        assert run in self.started
        self.values.append((run, step, dict(values)))

    def close(self) -> None:
        self.is_closed = True

    def curve(self, run: str) -> dict[int, float]:
        return {step: values["value"] for name, step, values in self.values if name == run and "value" in values}


def train(config: dict[str, Any]) -> Iterator[Report]:
    for step in range(1, 6):
        value = math.inf if config["x"] > 0.9 else config["x"] + 1 / step
        yield Report(value, metrics={"accuracy": 0.1 * step, "value": -1.0, "gap": math.nan})


def run(recorder: Recorder, **options: Any) -> Study:
    with Follow(recorder) as follow:
        return tune(train, {"x": Float(0, 1)}, "40 epochs", max_steps=5, seed=4, callbacks=[follow], **options)


def test_every_trial_is_a_run_with_its_configuration_and_curve() -> None:
    recorder = Recorder()
    study = run(recorder)
    assert recorder.is_closed
    assert set(recorder.started) == {"study", *(f"trial-{trial.number:04d}" for trial in study.trials)}
    for trial in study.trials:
        name = f"trial-{trial.number:04d}"
        assert recorder.started[name] == trial.config
        expected = {step: v for step, v in enumerate(trial.values, 1) if v is not None and math.isfinite(v)}
        assert recorder.curve(name) == expected
    assert any(trial.diverged for trial in study.trials), "the test needs a trial that diverged"


def test_metrics_are_logged_and_do_not_replace_the_value() -> None:
    recorder = Recorder()
    run(recorder)
    logged = [(step, values) for name, step, values in recorder.values if name == "trial-0000"]
    assert [values["accuracy"] for _, values in logged] == [0.1 * step for step, _ in logged]
    assert all(values["value"] > 0 and "gap" not in values for _, values in logged)


def test_the_run_of_the_study_shows_the_best_value_against_the_spent_budget() -> None:
    recorder = Recorder()
    study = run(recorder)
    rows = [values for name, _, values in recorder.values if name == "study"]
    assert [values["best"] for values in rows] == sorted((values["best"] for values in rows), reverse=True)
    assert rows[-1]["best"] == study.best.value  # type: ignore[union-attr]
    assert [values["spent"] for values in rows] == sorted(values["spent"] for values in rows)
    assert recorder.started["study"]["policy"] == "guided_halving"


def test_logging_afterwards_equals_logging_during_the_run() -> None:
    live, afterwards = Recorder(), Recorder()
    study = run(live)
    log_study(study.ledger, afterwards)

    def without_time(recorder: Recorder) -> list[Any]:
        return [
            (name, step, {k: v for k, v in values.items() if k != "seconds"}) for name, step, values in recorder.values
        ]

    assert without_time(afterwards) == without_time(live)
    assert afterwards.started == live.started
    assert afterwards.is_closed


def test_a_step_whose_logging_failed_is_logged_by_the_next_call() -> None:
    class FailingOnce(Recorder):
        has_failed = False

        def log(self, run: str, step: int, values: Mapping[str, float]) -> None:
            if run == "trial-0001" and not self.has_failed:
                self.has_failed = True
                raise ConnectionError("the server is away")
            super().log(run, step, values)

    study = run(Recorder())
    recorder = FailingOnce()
    follow = Follow(recorder)
    with pytest.raises(ConnectionError):
        follow(study)
    follow(study)
    expected = Recorder()
    log_study(study.ledger, expected)
    assert recorder.curve("trial-0001") == expected.curve("trial-0001")
    assert len(recorder.values) == len(expected.values)


def test_a_continued_study_logs_its_earlier_steps(tmp_path: Any) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    tune(train, {"x": Float(0, 1)}, "10 epochs", max_steps=5, seed=4, store=store)
    recorder = Recorder()
    study = run(recorder, store=store)
    assert len(recorder.started) == len(study.trials) + 1
    assert recorder.curve("trial-0000")
