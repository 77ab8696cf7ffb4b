"""What a logger is told about a study: while it runs and afterwards the same."""

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
        return tune(train, {"x": Float(0, 1)}, "40 epochs", max_steps=5, seed=2, observe=follow, **options)


def test_every_trial_is_a_run_with_its_config_and_its_curve() -> None:
    recorder = Recorder()
    study = run(recorder)
    assert recorder.is_closed
    assert set(recorder.started) == {"study", *(f"trial-{trial.number:04d}" for trial in study.trials)}
    for trial in study.trials:
        name = f"trial-{trial.number:04d}"
        assert recorder.started[name] == trial.config
        expected = {step: v for step, v in enumerate(trial.values, 1) if v is not None and math.isfinite(v)}
        assert recorder.curve(name) == expected
    assert any(trial.diverged for trial in study.trials), "one without a number was among them"


def test_metrics_go_along_and_never_replace_the_value() -> None:
    recorder = Recorder()
    run(recorder)
    told = [(step, values) for name, step, values in recorder.values if name == "trial-0000"]
    assert [values["accuracy"] for _, values in told] == [0.1 * step for step, _ in told]
    assert all(values["value"] > 0 and "gap" not in values for _, values in told)


def test_the_run_of_the_study_shows_the_best_against_the_money() -> None:
    recorder = Recorder()
    study = run(recorder)
    shown = [values for name, _, values in recorder.values if name == "study"]
    assert [values["best"] for values in shown] == sorted((values["best"] for values in shown), reverse=True)
    assert shown[-1]["best"] == study.best.value  # type: ignore[union-attr]
    assert [values["spent"] for values in shown] == sorted(values["spent"] for values in shown)
    assert recorder.started["study"]["policy"] == "thrift"


def test_afterwards_is_the_same_as_on_the_way() -> None:
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


def test_a_study_that_goes_on_brings_its_past_along(tmp_path: Any) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    tune(train, {"x": Float(0, 1)}, "10 epochs", max_steps=5, seed=2, store=store)
    recorder = Recorder()
    study = run(recorder, store=store)
    assert len(recorder.started) == len(study.trials) + 1
    assert recorder.curve("trial-0000")


def test_a_warning_of_the_study_is_still_said() -> None:
    from shoestring.core.ledger.entries import Note

    facts = {"order": 0, "trial": 0, "step": 1, "seconds": 0.0, "went_on": 1.0, "resumed": 2.0, "same": False}
    study = run(Recorder())
    with pytest.warns(UserWarning, match="resuming changes the result"):
        Follow(Recorder())(study.ledger, Note(topic="check", facts=facts))
