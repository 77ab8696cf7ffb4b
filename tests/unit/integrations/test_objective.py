"""`tune_objective`: objectives of Optuna run unchanged; parameters and their conditions are found by calling them."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

import shoestring
from shoestring import Choice, Constant, Float, Int, Receipt, Space, Study, tune_objective
from shoestring.errors import BudgetError, PolicyError, RunnerError, ShoestringError, SpaceError, StudyError
from shoestring.reports.reasons import describe_reason

pytest.importorskip("sklearn")
import objectives
import plain_objectives

FINDING = "finding the parameters"


def tune_quietly(objective: Callable[[Any], Any], budget: str, **options: Any) -> Study:
    return tune_objective(objective, budget, store=":memory:", **options)


def count_calls(study: Study) -> int:
    return sum(order.why.get("phase") == FINDING for order in study.ledger.orders)


# objectives of Optuna ------------------------------------------------------------------------------------------------


def test_a_choice_of_classifiers_has_conditional_parameters() -> None:
    study = tune_quietly(objectives.choose_classifier, "20 epochs", direction="maximize", seed=1)
    assert study.ledger.space == Space(
        {
            "classifier": Choice(["svc", "forest"]),
            "svc_c": Float(1e-3, 1e3, log=True, when={"classifier": "svc"}),
            "kernel": Choice(["rbf", "poly"], when={"classifier": "svc"}),
            "degree": Int(2, 4, when={"kernel": "poly"}),
            "max_depth": Int(2, 32, log=True, when={"classifier": "forest"}),
        }
    )
    assert (study.spent, len(study.trials), study.ledger.max_steps) == (20, 20, 1)
    assert study.best is not None
    assert study.best.value > 0.9
    assert not any(trial.failure for trial in study.trials)
    reason = describe_reason(study.ledger.orders[0], study.ledger)
    assert reason == "nothing was compared: the objective was called to find its parameters"


def test_the_number_of_layers_decides_which_parameters_there_are() -> None:
    study = tune_quietly(plain_objectives.build_layers, "40 epochs", seed=0)
    conditions = {name: condition for name, condition in study.ledger.space.conditions.items() if condition}
    assert conditions == {
        "n_units_l1": {"n_layers": [2, 3]},
        "n_units_l2": {"n_layers": [3]},
        "dropout_l1": {"n_layers": [2, 3]},
        "dropout_l2": {"n_layers": [3]},
        "momentum": {"optimizer": ["sgd"]},
    }
    assert study.ledger.space.parameters["dropout_l0"] == Float(0.0, 0.6, step=0.1)
    assert 3 <= count_calls(study) <= 12
    assert study.spent == 40
    assert not any(trial.failure for trial in study.trials)


def test_a_report_is_a_step_at_which_a_trial_is_paused() -> None:
    study = tune_quietly(objectives.train_in_passes, "60 epochs", seed=0)
    assert (study.spent, study.ledger.max_steps) == (60, 8)
    assert study.ledger.trials[0].steps == 8  # trained to its end, to know how long a full training is
    steps = [trial.steps for trial in study.trials]
    assert min(steps) == 1
    assert steps.count(8) > 1
    assert study.best is not None
    assert study.best.value < 0.1
    assert not any(trial.failure for trial in study.trials)


def test_trials_are_trained_in_worker_processes() -> None:
    study = tune_quietly(plain_objectives.slow_start, "40 epochs", seed=0, workers=2)
    assert (study.spent, study.ledger.max_steps) == (40, 6)
    assert [trial.number for trial in study.trials if trial.failure] == []
    for trial in study.trials:
        assert trial.values == [trial.config["x"] + 1 / (1 + step) for step in range(trial.steps)]
    assert any(trial.steps == 6 for trial in study.trials[1:])
    receipts = [entry for entry in study.ledger.entries() if isinstance(entry, Receipt)]
    assert all(receipt.metrics["number"] == receipt.trial for receipt in receipts)
    plain = tune_quietly(plain_objectives.build_layers, "16 epochs", seed=0, workers=2)
    assert (plain.spent, plain.trials[-1].failure) == (16, "")


def test_the_same_objective_runs_in_optuna() -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    for objective in (objectives.choose_classifier, objectives.train_in_passes, plain_objectives.build_layers):
        theirs = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        theirs.optimize(objective, n_trials=2)
        ours = tune_quietly(objective, "24 epochs", seed=0)
        assert objective(optuna.trial.FixedTrial(ours.trials[0].config)) == pytest.approx(ours.trials[0].values[-1])


def test_optuna_is_not_imported() -> None:
    code = (
        "import sys; from shoestring import tune_objective\n"
        "study = tune_objective(lambda trial: trial.suggest_float('x', 0, 1), '3 epochs', store=':memory:')\n"
        "assert study.spent == 3 and 'optuna' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# steps ---------------------------------------------------------------------------------------------------------------


def test_a_trial_continues_where_it_waits_in_report() -> None:
    plain_objectives.CALLS.clear()
    study = tune_quietly(plain_objectives.slow_start, "60 epochs", seed=0, max_steps=6, policy="sequential_halving")
    trained = Counter(plain_objectives.CALLS)
    called_again = {trial for (trial, _), times in trained.items() if times > 1}
    assert called_again <= {0}  # the call that found the parameters is not kept
    assert any(trial.steps == 6 for trial in study.trials[1:])
    assert study.spent == 60


def test_an_evicted_trial_is_called_again_and_its_steps_are_charged_as_repeated() -> None:
    plain_objectives.CALLS.clear()
    study = tune_quietly(
        plain_objectives.slow_start, "60 epochs", seed=0, max_steps=6, live=1, policy="sequential_halving"
    )
    assert max(Counter(plain_objectives.CALLS).values()) > 1
    assert study.ledger.state.by_kind["repeated"] > 0
    assert study.spent == 60
    for trial in study.trials:
        assert trial.values == [trial.config["x"] + 1 / (1 + step) for step in range(trial.steps)]


def test_the_returned_value_is_that_of_the_last_step() -> None:
    def objective(trial: Any) -> float:
        x = float(trial.suggest_float("x", 0.0, 1.0))
        for step in range(3):
            trial.report(x + 10 - step, step)
            trial.report(-1, step)  # the same step again: ignored, as in Optuna
        return x

    study = tune_quietly(objective, "30 epochs", seed=0)
    full = [trial for trial in study.trials if trial.steps == 3]
    assert len(full) > 1
    assert all(trial.values == [trial.config["x"] + 10, trial.config["x"] + 9, trial.config["x"]] for trial in full)


@pytest.mark.filterwarnings("ignore:grid has ended the run")
def test_a_training_may_end_early_or_go_on() -> None:
    def objective(trial: Any) -> float:
        n = trial.suggest_int("n", 2, 4)
        for step in range(n):
            trial.report(10 - step, step)
        return 10.0 - n + 1 if n != 2 else 3.0

    study = tune_quietly(objective, "40 epochs", seed=0, max_steps=3, policy="grid")
    assert {trial.config["n"]: trial.values for trial in study.trials if trial.steps == 3} == {
        2: [10, 9, 3],  # it returned early: the returned value is a step
        3: [10, 9, 8],
        4: [10, 9, 8],  # it trains longer than max_steps
    }


def test_numbers_of_user_attributes_are_metrics() -> None:
    study = tune_quietly(plain_objectives.slow_start, "13 epochs", seed=0)
    receipts = [entry for entry in study.ledger.entries() if isinstance(entry, Receipt)]
    metrics = [receipt.metrics for receipt in receipts if receipt.step == 6]
    assert metrics
    assert metrics[0] == {"number": 0.0, "width": 3.0}


def test_a_pruned_trial_is_not_a_failure() -> None:
    optuna = pytest.importorskip("optuna")

    def objective(trial: Any) -> float:
        x = float(trial.suggest_float("x", 0.0, 1.0))
        if x > 0.5:
            raise optuna.TrialPruned
        return x

    study = tune_quietly(objective, "20 epochs", seed=0)
    pruned = [trial for trial in study.trials if trial.config["x"] > 0.5]
    assert pruned
    assert all(trial.diverged and not trial.failure for trial in pruned)
    assert study.spent == 20


def test_a_trial_has_what_an_objective_needs() -> None:
    seen: list[Any] = []

    def objective(trial: Any) -> float:
        values = [
            trial.suggest_uniform("u", 0, 1),
            trial.suggest_loguniform("l", 0.1, 1),
            trial.suggest_discrete_uniform("d", 0, 1, 0.25),
            trial.suggest_float("u", 0, 1),
            trial.suggest_int("one", 3, 3),
            trial.suggest_float("wide_step", 0, 1, step=4),
            trial.suggest_int("even", 2, 40, step=2),
            trial.suggest_float("two", 0.1, 0.3, step=0.2),
        ]
        shape = trial.suggest_categorical("shape", [(1, 2), None, len])
        trial.set_user_attr("text", "a")
        seen.append((trial.number, dict(trial.params), trial.user_attrs, trial.should_prune()))
        assert values[0] == values[3]
        assert shape in [(1, 2), None, len]
        return float(values[0])

    study = tune_quietly(objective, "9 epochs", seed=0)
    assert [number for number, *_ in seen] == list(range(9))
    assert seen[0][1].keys() == {"u", "l", "d", "one", "wide_step", "even", "two", "shape"}
    assert (seen[0][1]["one"], seen[0][1]["wide_step"]) == (3, 0.0)
    assert seen[0][2:] == ({"text": "a"}, False)
    assert study.ledger.space.parameters["shape"].describe()["choice"] == ["(1, 2)", None, "len"]
    assert study.ledger.space.parameters["one"] == Constant(3)
    assert study.ledger.space.parameters["two"].size == 2


# studies -------------------------------------------------------------------------------------------------------------


def test_the_same_call_continues_without_calls_that_find_parameters(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    first = tune_objective(plain_objectives.build_layers, "30 epochs", store=store, seed=3)
    again = tune_objective(plain_objectives.build_layers, "40 epochs", store=store)
    assert count_calls(again) == count_calls(first)
    assert (again.spent, len(again.trials)) == (40, 40)
    assert again.ledger.space == first.ledger.space


def test_the_options_are_those_of_tune() -> None:
    ours, theirs = inspect.signature(tune_objective).parameters, inspect.signature(shoestring.tune).parameters
    left_out = {"train", "checkpoints_at_most"}  # an objective cannot save checkpoints
    assert set(theirs) - left_out - {"space"} == set(ours) - {"objective", "space"}
    for name in set(ours) & set(theirs) - {"space"}:
        assert (ours[name].kind, ours[name].default) == (theirs[name].kind, theirs[name].default), name


def test_callbacks_and_initial_configs_work_as_in_tune() -> None:
    seen: list[int] = []
    study = tune_quietly(
        lambda trial: trial.suggest_float("x", 0, 1) + trial.suggest_int("n", 1, 100),
        "6 epochs",
        seed=0,
        initial=[{"x": 0.25, "n": 3}, {"x": 0.5, "n": 4}],
        callbacks=[lambda study, trial: seen.append(trial.number)],
    )
    assert [trial.config for trial in study.trials[:2]] == [{"x": 0.25, "n": 3}, {"x": 0.5, "n": 4}]
    assert seen == [1, 2, 3, 4, 5]


def test_an_explicit_space_needs_no_calls() -> None:
    study = tune_quietly(lambda trial: trial.suggest_float("x", 0, 1), "5 epochs", space={"x": {"float": [0, 1]}})
    assert (count_calls(study), study.spent) == (0, 5)


def test_failures_of_a_config_are_recorded() -> None:
    def objective(trial: Any) -> float:
        kind = trial.suggest_categorical("kind", ["a", "b", "c"])
        if kind == "b":
            raise ValueError("b does not work")
        return float(trial.suggest_float("x", 0, 1))

    study = tune_quietly(objective, "12 epochs", seed=0)
    failed = [trial for trial in study.trials if trial.failure]
    assert failed
    assert all(trial.config["kind"] == "b" and "b does not work" in trial.failure for trial in failed)
    assert study.ledger.space.conditions["x"] == {}
    assert study.spent == 12


# errors --------------------------------------------------------------------------------------------------------------


def test_an_objective_that_never_works_raises_its_own_error() -> None:
    def objective(trial: Any) -> float:
        trial.suggest_float("x", 0, 1)
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        tune_quietly(objective, "50 epochs", seed=0)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"policy": "ashaa"}, PolicyError),
        ({"settings": {"arm": 3}}, PolicyError),
        ({"direction": "up"}, StudyError),
        ({"workers": 0}, StudyError),
        ({"seed": -1}, StudyError),
        ({"deadline": "soon"}, ShoestringError),
        ({"prices": 3}, BudgetError),
    ],
)
def test_a_wrong_argument_is_refused_before_the_objective_is_called(options: Any, error: Any) -> None:
    with pytest.raises(error):
        tune_quietly(lambda trial: pytest.fail("it was called"), "9 epochs", **options)


def test_a_failure_after_the_last_report_and_a_first_pruned_trial_are_survived() -> None:
    optuna = pytest.importorskip("optuna")

    def objective(trial: Any) -> float:
        x = float(trial.suggest_float("x", 0, 1))
        if trial.number == 0:
            raise optuna.TrialPruned
        for step in range(3):
            trial.report(x, step)
        if trial.number == 1:
            raise ValueError("at the end")
        return x

    study = tune_quietly(objective, "30 epochs", seed=0)
    assert study.ledger.max_steps == 3
    assert study.trials[0].diverged
    assert "at the end" in study.trials[1].failure
    assert study.trials[2].steps == 3
    assert study.spent == 30


def test_a_budget_of_time_pays_for_the_calls_that_find_the_parameters() -> None:
    study = tune_quietly(plain_objectives.build_layers, "0.5s", seed=0)
    receipts = [entry for entry in study.ledger.entries() if isinstance(entry, Receipt)]
    finding = receipts[: count_calls(study)]
    assert len(finding) >= 3
    assert all(receipt.cost.train > 0 for receipt in finding)
    assert study.spent >= sum(receipt.cost.train for receipt in finding)


@pytest.mark.parametrize(
    ("suggest", "words"),
    [
        (
            lambda trial: trial.suggest_float("x", 0, 1 + trial.suggest_int("n", 1, 3)),
            ["x was", '"float":[0.0,', "and is now", "test_objective.py, line", "use another name"],
        ),
        (
            lambda trial: trial.suggest_float("x", 0, 1) + trial.suggest_float("x", 0, 2),
            ["x was", '"float":[0.0,1.0]', '"float":[0.0,2.0]'],
        ),
        (
            lambda trial: (
                (trial.suggest_float("z", 0, 1) if trial.number % 2 else 0.0) + trial.suggest_categorical("k", [1, 2])
            ),
            ["z (test_objective.py, line", "only sometimes", "tune_objective(…, space=Space({…}))"],
        ),
        (
            lambda trial: trial.suggest_float("x", 0.1, 1, log=True, step=0.1),
            ["x: step = 0.1 does not go with a log scale"],
        ),
        (lambda trial: trial.suggest_categorical("x", []), ["x: a choice needs at least one option"]),
        (lambda trial: 1.0, ["asks for no parameters"]),
    ],
)
def test_what_cannot_be_a_space_is_an_error_with_a_place_and_a_remedy(suggest: Any, words: list[str]) -> None:
    with pytest.raises(SpaceError) as caught:
        tune_quietly(suggest, "60 epochs", seed=0)
    for word in words:
        assert word in str(caught.value)


def test_a_parameter_that_was_not_found_makes_its_trial_fail_and_is_told() -> None:
    def objective(trial: Any) -> float:
        n = trial.suggest_int("n", 1, 30)
        return float(trial.suggest_float("late", 0, 1) if n > 15 else n)

    with pytest.warns(UserWarning, match=r"failed: .*the objective asks for 'late' \(test_objective.py, line"):
        tune_quietly(objective, "12 epochs", seed=2, initial=[{"n": 1}])


def test_half_of_the_budget_is_the_limit_for_finding_parameters() -> None:
    def objective(trial: Any) -> float:
        return float(trial.suggest_categorical("kind", list(range(16))))

    with pytest.warns(UserWarning, match=r"5 calls .* kind=\d+, .* and 6 more was not tried"):
        study = tune_quietly(objective, "10 epochs", seed=0)
    assert count_calls(study) == 5
    assert study.spent == 10


def test_the_number_of_steps_is_checked() -> None:
    with pytest.raises(RunnerError, match=r"max_steps=5, but the objective never calls trial.report"):
        tune_quietly(lambda trial: trial.suggest_float("x", 0, 1), "9 epochs", max_steps=5)
    with pytest.raises(BudgetError, match=r"used by the first 3 steps of the first trial.*pass max_steps"):
        tune_quietly(plain_objectives.slow_start, "3 epochs")
    assert tune_quietly(plain_objectives.slow_start, "3 epochs", max_steps=6).spent == 3


def test_a_missing_method_of_the_trial_is_named() -> None:
    with pytest.raises(AttributeError, match="the trial of tune_objective has no 'study'"):
        tune_quietly(lambda trial: trial.study, "9 epochs")
    with pytest.raises(TypeError, match="the objective returned None"):
        tune_quietly(lambda trial: trial.suggest_float("x", 0, 1) and None, "9 epochs")


# conditions ----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:random_search has ended the run")
@examples(12, thorough=100)
@given(st.data())
def test_random_trees_of_conditions_are_found(data: st.DataObject) -> None:
    """The found space has the parameters that the objective asks for, in all its branches."""
    nodes: list[tuple[str, int, str | None, list[int]]] = []  # name, options, parent, its values with which it is there
    for i in range(data.draw(st.integers(1, 6))):
        parents: list[Any] = [None, *(node for node in nodes if node[1] > 1)]
        parent = data.draw(st.sampled_from(parents))
        wanted = []
        if parent is not None:
            wanted = data.draw(st.lists(st.integers(0, parent[1] - 1), min_size=1, max_size=2, unique=True))
        nodes.append((f"p{i}", data.draw(st.integers(0, 3)), None if parent is None else parent[0], wanted))

    def objective(trial: Any) -> float:
        values: dict[str, Any] = {}
        for name, options, parent, wanted in nodes:
            if parent is None or values.get(parent) in wanted:
                if options:
                    values[name] = trial.suggest_categorical(name, list(range(options)))
                else:
                    values[name] = trial.suggest_float(name, 0, 1)
        return len(values)

    study = tune_quietly(objective, "120 epochs", seed=0, policy="random_search")
    assert not any(trial.failure for trial in study.trials)
    assert study.spent == min(120, study.ledger.space.size)


def test_the_best_trial_of_an_objective_is_trained_again() -> None:
    def objective(trial: Any) -> float:
        rate = trial.suggest_float("rate", 0.1, 1.0)
        kind = trial.suggest_categorical("kind", [(1, 2), "b"])
        for step in range(1, 5):
            trial.report(rate / step + (kind == "b"), step)
        return float(rate / 4 + (kind == "b"))

    study = tune_quietly(objective, "24 epochs", seed=0)
    done = study.retrain_best(objective)
    assert study.best is not None
    assert (done.value, done.is_same) == (study.best.value, True)
