"""Studies to Optuna and from Optuna: trials, values, states and costs stay the same."""

from __future__ import annotations

import gc
import math
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

optuna = pytest.importorskip("optuna")
from click.testing import CliRunner  # noqa: E402

from shoestring import Choice, Constant, Float, Int, Report, Space, Study, tune  # noqa: E402
from shoestring.cli.main import cli  # noqa: E402
from shoestring.errors import StudyError  # noqa: E402
from shoestring.integrations.optuna import from_optuna, to_optuna  # noqa: E402
from shoestring.integrations.optuna.spaces import to_parameter  # noqa: E402
from shoestring.reports.reasons import describe_reason  # noqa: E402

State = optuna.trial.TrialState
SPACE = Space(
    {
        "lr": Float(1e-4, 1.0, log=True),
        "width": Int(1, 64, log=True),
        "kind": Choice(["good", "bad", "wild"]),
        "layers": Choice([[8], [8, 8]]),
        "momentum": Float(0.0, 1.0, when={"kind": "good"}),
        "seed": Constant(7),
    }
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)
    with warnings.catch_warnings():  # Optuna does not close its connections; from Python 3.13 on this gives a warning
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def train(config: dict[str, Any]) -> Iterator[float]:
    for step in range(1, 10):
        if config["kind"] == "bad" and step == 2:
            raise RuntimeError("<b>broke</b>")
        yield math.inf if config["kind"] == "wild" else abs(math.log10(config["lr"]) + 2) + 1 / step


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return tune(train, SPACE, "120 epochs", max_steps=9, seed=6, store=f"sqlite:///{tmp_path}/s.db", name="demo")


# to Optuna -------------------------------------------------------------------------------------------------------------------


def test_exported_trials_have_curves_states_and_reasons(study: Study, tmp_path: Path) -> None:
    theirs = to_optuna(study.ledger, str(tmp_path / "journal"), "demo")
    assert len(theirs.trials) == len(study.trials)
    states = {"complete": State.COMPLETE, "paused": State.PRUNED, "failed": State.FAIL, "diverged": State.FAIL}
    assert {trial.user_attrs["state"] for trial in theirs.trials} == set(states)
    for ours, trial in zip(study.trials, theirs.trials, strict=True):
        assert trial.state == states[trial.user_attrs["state"]]
        assert trial.intermediate_values == {s: v for s, v in enumerate(ours.values, 1) if v is not None}
        assert trial.user_attrs["step"] == ours.steps
        assert trial.params["lr"] == ours.config["lr"]
        assert trial.params["layers"] in ("[8]", "[8,8]")
        assert ("momentum" in trial.params) == (ours.config["kind"] == "good")
        newest = [order for order in study.ledger.orders if order.trial == ours.number][-1]
        assert trial.user_attrs["why"][-1] == f"to step {newest.until}: {describe_reason(newest, study.ledger)}"
    assert theirs.best_value == study.best.value  # type: ignore[union-attr]
    assert theirs.user_attrs["policy"] == "guided_halving"


def test_an_exported_study_can_be_loaded_from_its_file(study: Study, tmp_path: Path) -> None:
    for where in (str(tmp_path / "journal"), f"sqlite:///{tmp_path}/optuna.db"):
        to_optuna(study.ledger, where, "demo")
        storage: Any = where
        if "://" not in where:
            storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(where))
        back = optuna.load_study(study_name="demo", storage=storage)
        assert back.best_params["lr"] == study.best.config["lr"]  # type: ignore[union-attr]
        assert all(trial.datetime_start <= trial.datetime_complete for trial in back.trials)
    with pytest.raises(StudyError, match="already holds a study 'demo'"):
        to_optuna(study.ledger, str(tmp_path / "journal"), "demo")


def test_metrics_of_the_best_step_are_exported() -> None:
    def train(config: dict[str, Any]) -> Iterator[Report]:
        for step in (1, 2, 3):
            yield Report(abs(step - 2) + config["x"], metrics={"accuracy": step / 10, "gap": math.nan})

    study = tune(train, {"x": Float(0, 1)}, "3 epochs", max_steps=3, seed=1, policy="random_search")
    (trial,) = to_optuna(study.ledger, "sqlite://", "metrics").trials
    assert (trial.user_attrs["best_step"], trial.user_attrs["metrics"]) == (2, {"accuracy": 0.2})


def test_a_trial_with_an_open_order_is_running() -> None:
    open_study = Study.begin({"x": Float(0, 1)}, "5 epochs")
    open_study.ask()
    (trial,) = to_optuna(open_study.ledger, "sqlite://", "asked").trials
    assert (trial.state, trial.user_attrs["state"]) == (State.RUNNING, "running")


def test_the_export_command_writes_a_journal(study: Study, tmp_path: Path) -> None:
    store = ["--store", f"sqlite:///{tmp_path}/s.db"]
    result = CliRunner().invoke(cli, ["export", "--to", "optuna", "-o", str(tmp_path / "journal"), *store])
    assert result.exit_code == 0, result.output
    assert f"{len(study.trials)} trials" in result.output
    assert "optuna-dashboard" in result.output
    missing = CliRunner().invoke(cli, ["export", "--to", "optuna", *store])
    assert "needs -o FILE" in str(missing.exception)


# from Optuna ----------------------------------------------------------------------------------------------------------------


def make_optuna_study(direction: str = "minimize") -> Any:
    theirs = optuna.create_study(direction=direction, study_name="theirs", sampler=optuna.samplers.RandomSampler(0))

    def objective(trial: Any) -> float:
        x, n = trial.suggest_float("x", 0.1, 1.0, log=True), trial.suggest_int("n", 2, 8, step=2)
        trial.suggest_categorical("kind", ["a", None, 3])
        for step in range(4):
            trial.report(x + 1 / (1 + step), step)
            if trial.number % 3 == 1 and step == 1:
                raise optuna.TrialPruned
        if trial.number == 5:
            raise ValueError("no")
        return x + 0.25 + n * 0  # type: ignore[no-any-return]

    theirs.optimize(objective, n_trials=8, catch=(ValueError,))
    theirs.enqueue_trial({"x": 0.5, "n": 4, "kind": "a"})
    return theirs


def test_imported_trials_become_receipts_and_the_study_continues(tmp_path: Path) -> None:
    theirs = make_optuna_study()
    ours = from_optuna(theirs, "60 epochs", store=f"sqlite:///{tmp_path}/s.db")
    assert [dict(trial.config) for trial in ours.trials] == [trial.params for trial in theirs.trials if trial.params]
    assert [trial.steps for trial in ours.trials] == [4, 2, 4, 4, 2, 0, 4, 2]
    assert ours.best.value == theirs.best_value  # type: ignore[union-attr]
    assert ours.spent == sum(max(1, trial.steps) for trial in ours.trials)
    assert "failed in Optuna" in ours.trials[5].failure
    assert ours.ledger.max_steps == 4
    assert list(ours.ledger.queue) == [{"x": 0.5, "n": 4, "kind": "a"}]

    def train_on(config: dict[str, Any]) -> Iterator[float]:
        for step in range(4):
            yield config["x"] + 1 / (1 + step)

    continued = tune(
        train_on, ours.ledger.space, "60 epochs", max_steps=4, name="theirs", store=f"sqlite:///{tmp_path}/s.db"
    )
    assert len(continued.trials) > 9
    assert dict(continued.trials[8].config) == {"x": 0.5, "n": 4, "kind": "a"}, "the waiting trial is trained first"
    assert continued.spent <= 60


def test_the_time_of_imported_trials_is_charged() -> None:
    theirs = optuna.create_study()
    trial = optuna.create_trial(
        params={"x": 0.5}, distributions={"x": optuna.distributions.FloatDistribution(0, 1)}, value=1
    )
    trial.datetime_complete = trial.datetime_start + timedelta(seconds=30)
    theirs.add_trial(trial)
    assert from_optuna(theirs, "2m").spent == pytest.approx(30)


def test_a_study_that_cannot_be_imported_is_an_error() -> None:
    with pytest.raises(StudyError, match="no trial with parameters"):
        from_optuna(optuna.create_study(), "10 epochs")
    with pytest.raises(StudyError, match="has 2 objectives"):
        from_optuna(optuna.create_study(directions=["minimize", "maximize"]), "10 epochs")


def test_the_direction_is_imported() -> None:
    theirs = make_optuna_study("maximize")
    values = [value for trial in theirs.trials for value in trial.intermediate_values.values()]
    assert from_optuna(theirs, "60 epochs").best.value == max(values)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("distribution", "parameter"),
    [
        (optuna.distributions.FloatDistribution(0.1, 1, log=True), Float(0.1, 1.0, log=True)),
        (optuna.distributions.IntDistribution(1, 9), Int(1, 9)),
        (optuna.distributions.IntDistribution(2, 8, step=3), Int(2, 8, step=3)),
        (optuna.distributions.FloatDistribution(0, 0.3, step=0.1), Float(0, 0.3, step=0.1)),
        (optuna.distributions.CategoricalDistribution(["a", None]), Choice(["a", None])),
        (optuna.distributions.IntDistribution(4, 4), Constant(4)),
        (optuna.distributions.CategoricalDistribution(["a"]), Constant("a")),
    ],
)
def test_a_distribution_becomes_a_parameter(distribution: Any, parameter: Any) -> None:
    assert to_parameter(distribution) == parameter
