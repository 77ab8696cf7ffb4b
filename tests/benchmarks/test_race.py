"""Small races: they are fair, repeatable and resumable, and their statistics agree with simple slow code."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from benchmarks.race import (
    command,
    cost,
    functions,
    methods,
    networks,
    page,
    pictures,
    problems,
    running,
    statistics,
    trained,
)
from benchmarks.race.cost_marks import COST_MARKS
from benchmarks.race.peers import environments
from benchmarks.race.peers.policy import Driver, PeerError, ToolSpace
from benchmarks.race.scales import LOG_SCALES, log_scales

from shoestring import policies
from shoestring.core.ledger.entries import Cost, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Constant, Float, Int
from shoestring.core.space.space import Space
from shoestring.errors import PolicyError
from shoestring.runners.simulated.recorded_table import Table
from shoestring.study.study import Study

NOT_MEASURED = ("at", "thinking_s", "wall_s")  # differ from run to run


@pytest.fixture(autouse=True, scope="module")
def _end_drivers() -> Iterator[None]:
    yield
    methods.close_drivers()


def spec(name: str = "fcnet", **changes: Any) -> problems.ProblemSpec:
    path = next(problems.SHIPPED.glob(f"*/{name}.npz"))
    return problems.ProblemSpec("tables", path.parent.name, name, path, **changes)


def measured(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in NOT_MEASURED}


def write_table(
    folder: Path, source: str, name: str, values: Any, *, costs: Any = None, first: str = "units", **meta: Any
) -> None:
    (folder / source).mkdir(parents=True, exist_ok=True)
    hp = np.column_stack([np.arange(1.0, len(values) + 1), np.geomspace(1e-4, 1.0, len(values))])
    meta = {"objective": "loss", "direction": "min", "fidelity": "epoch", **meta}
    arrays = {"hp": hp, "hp_names": [first, "lr"], "meta": json.dumps(meta), "loss": values}
    np.savez(folder / source / f"{name}.npz", **arrays, **({} if costs is None else {"cost": costs}))


# problems ------------------------------------------------------------------------------------------------------------


def test_regret_is_0_for_the_best_within_the_budget_and_1_for_the_median_first_loss() -> None:
    values = np.array([[5.0, 4.0, 3.0], [4.0, 3.5, 3.4], [3.0, 2.9, 1.0]])
    costs = np.array([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [9.0, 9.0, 9.0]])
    problem = problems.TableProblem(Table([{"x": i} for i in range(3)], values, costs))
    assert problem.start == 4.0
    assert problem.optimum(2 / 3, "curves") == 2.9
    assert problem.optimum(1, "curves") == 1.0
    assert problem.regret(4.0, 1, "curves") == 1.0
    assert problem.regret(1.0, 1, "curves") == 0.0
    assert problem.regret(None, 1, "curves") == pytest.approx(4 / 3)  # nothing found: the worst first loss
    assert problem.curve_s() == 6.0
    assert problem.optimum(0.5, "seconds") == 3.0  # 3 s are enough for one whole curve of the cheapest configuration
    assert problem.oracle(0.5, "seconds") == ({"x": 0}, 3)
    assert problem.budget(2, "curves") == "6 epochs"
    assert problem.budget(2, "seconds") == "12.0s"


def test_a_drawn_table_has_clipped_losses() -> None:
    values = np.array([[0.1, 0.5], [0.2, math.nan], [0.3, 0.9], [math.nan, 0.4], [-50.0, 0.6]])
    part = problems.draw_table(Table([{"x": i} for i in range(5)], values, np.ones((5, 2)), "max"), seed=1, pool=5)
    by_row = {config["x"]: row for config, row in zip(part.configs, part.values, strict=True)}
    highest = float(np.quantile([-0.1, -0.2, -0.3, 50.0], 0.95))
    assert part.direction == "min"
    assert by_row[0].tolist() == [-0.1, -0.5]
    assert by_row[1][0] == -0.2
    assert math.isnan(by_row[1][1])  # the end of its curve
    assert by_row[3].tolist() == [highest, -0.4]  # the step diverged
    assert by_row[4][0] == highest


def test_a_seed_always_draws_the_same_configurations_and_another_seed_others() -> None:
    one, again, other = (spec("cartpole", pool=20).draw(seed) for seed in (0, 0, 1))
    assert one.space.rows == again.space.rows
    assert one.space.rows != other.space.rows


def test_every_source_has_a_limited_number_of_tables(tmp_path: Path) -> None:
    curves, single = np.tile(np.linspace(1.0, 0.0, 12), (40, 1)), np.linspace(0.0, 1.0, 40)
    for name in ("a", "b", "c"):
        write_table(tmp_path, "many", name, curves, log=["lr"])
    write_table(tmp_path, "few", "a", curves, costs=np.cumsum(np.ones((40, 12)), axis=1), log=[])
    write_table(tmp_path, "few", "small", curves[:10])
    write_table(tmp_path, "few", "plain", single)
    found = problems.find_problems("tables", [tmp_path], per_source=2)
    assert [one.name for one in found] == ["few/a", "many/a", "many/b"]
    assert [one.units(["curves", "seconds"]) for one in found] == [["curves", "seconds"], ["curves"], ["curves"]]
    assert found[1].draw(0).space.log_names == ["lr"]
    plain = problems.find_problems("plain", [tmp_path], per_source=2)
    assert [one.name for one in plain] == ["few/plain", "functions/branin", "functions/hartmann6", "functions/mixed"]
    assert plain[0].draw(0).max_steps == 1


def test_scales_of_unknown_sources_are_linear_with_a_warning(tmp_path: Path, capsys: Any) -> None:
    write_table(tmp_path, "klein_cnn_cifar10", "t", np.ones((40, 12)))
    write_table(tmp_path, "nobody_knows", "t", np.ones((40, 12)))
    known, unknown = problems.find_problems("tables", [tmp_path], per_source=1)
    assert known.draw(0).space.log_names == []  # in this source the learning rate has another name
    assert unknown.draw(0).space.log_names == []
    assert "nobody_knows/t: the log scales are unknown" in capsys.readouterr().err
    assert log_scales("lcbench_surrogate", ["momentum", "learning_rate"]) == ["learning_rate"]
    assert all(reason for columns in LOG_SCALES.values() for reason in columns.values())


def test_tables_of_marked_sources_say_what_costs_more(tmp_path: Path) -> None:
    write_table(tmp_path, "hpobench_mlp", "t", np.ones((40, 1)), first="width", costs=np.ones((40, 1)))
    write_table(tmp_path, "nasbench201_final", "t", np.ones((40, 1)), first="width", costs=np.ones((40, 1)))
    marked, unmarked, *_ = problems.find_problems("plain", [tmp_path], per_source=1)
    assert marked.draw(0).space.cost_marks == {"width": "increases"}
    assert unmarked.draw(0).space.cost_marks == {}
    assert all(reason for columns in COST_MARKS.values() for _, reason in columns.values())


def test_functions_say_that_their_first_number_costs_more() -> None:
    found = problems.find_problems("plain", [], per_source=1)
    marks = {spec.table: spec.draw(0).space.cost_marks for spec in found}
    assert marks == {"branin": {"x0": "increases"}, "hartmann6": {"x0": "increases"}, "mixed": {}}
    for spec in found:
        problem = spec.draw(0)
        assert isinstance(problem, functions.FunctionProblem)
        space = problem.space
        if space.cost_marks:
            costs = [problem.step(space.from_cube(np.full(space.dims, u)), 1).cost.total for u in (0.1, 0.5, 0.9)]
            assert costs == sorted(costs)


def test_short_curves_become_single_values_at_the_cost_of_the_whole_curve() -> None:
    table = Table([{"x": 0}, {"x": 1}], np.array([[3.0, 2.0], [1.0, math.nan]]), np.array([[1.0, 2.0], [4.0, 0.0]]))
    plain = problems.last_values(table)
    assert plain.values.tolist() == [[2.0], [1.0]]
    assert plain.costs_s.tolist() == [[3.0], [4.0]]


@pytest.mark.parametrize("name", ["branin", "hartmann6", "mixed"])
def test_functions_have_costs_and_known_optima(name: str) -> None:
    problem = problems.ProblemSpec("plain", "functions", name).draw(0)
    rng = np.random.default_rng(0)
    outcomes = [problem.step(problem.space.from_cube(rng.random(problem.space.dims)), 1) for _ in range(50)]  # type: ignore[attr-defined]
    assert all(0.1 <= outcome.cost.total <= 10.0 for outcome in outcomes)
    assert min(outcome.value for outcome in outcomes) >= problem.optimum(1, "curves")
    assert problem.start > problem.optimum(1, "curves")
    oracle = running.execute(running.Run(problems.ProblemSpec("plain", "functions", name), "oracle", 10, "seconds", 0))
    assert oracle["regret"] == pytest.approx(0.0, abs=1e-9)


# trained -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [networks.Convolutional, networks.Transformer])
def test_gradients_are_those_of_the_loss(kind: type[networks.Network]) -> None:
    config = {"filters": 3, "width": 5, "batch_size": 8, "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}
    net = kind(config)
    x, y = net._data.train_x[:7] + 0.01, net._data.train_y[:7]  # no pixel is 0, so no ReLU is at its kink
    found = net.gradients(x, y)
    rng = np.random.default_rng(0)
    for name, weight in net._weights.items():
        at = tuple(rng.integers(size) for size in weight.shape)
        losses = []
        for shift in (1e-6, -2e-6):
            weight[at] += shift
            losses.append(trained.log_loss(networks.softmax(net.forward(x)[0]), y))
        weight[at] += 1e-6
        assert found[name][at] == pytest.approx((losses[0] - losses[1]) / 2e-6, abs=1e-6), name


@pytest.mark.parametrize("name", list(trained.SPACES))
def test_a_trained_task_learns(name: str) -> None:
    pytest.importorskip("xgboost" if name.startswith("xgboost") else "sklearn")
    problem = trained.TrainedProblem(name)
    good = {
        "lr": 0.01,
        "eta": 0.3,
        "momentum": 0.9,
        "batch_size": 32,
        "solver": "adam",
        "alpha": 1e-5,
        "schedule": "constant",
    }
    middle = problem.space.from_cube(np.full(problem.space.dims, 0.4))
    model = trained.trainer(name)({**middle, **{k: v for k, v in good.items() if k in middle}})
    for _ in range(5):
        model.step()
    assert model.validate() < 0.95 * problem.start
    assert trained.LOWEST[name] < problem.start


def test_on_a_real_clock_the_budget_is_in_seconds_and_decisions_are_charged() -> None:
    line = running.execute(
        running.Run(problems.ProblemSpec("trained", "xgboost", "diabetes"), "sequential_halving", 0.1, "seconds", 0)
    )
    assert line["error"] is None
    assert line["trials"] >= 2
    assert 0.0 < line["thinking_s"] < line["spent"]
    assert problems.ProblemSpec("trained", "xgboost", "diabetes").units(["curves"]) == ["seconds"]


def test_a_step_that_ends_after_the_budget_does_not_count() -> None:
    problem = trained.TrainedProblem("xgboost/diabetes")
    policy = policies.make("random_search")
    ledger = Ledger([running.opening_entry(problem, policy, 1, "seconds", 0)])
    order = Order(number=0, trial=0, config=problem.space.from_cube(np.full(5, 0.5)), until=3)
    ledger = ledger.append(order)
    assert ledger.budget.total == trained.CURVE_S
    for step, (value, share) in enumerate([(60.0, 0.25), (58.0, 0.95), (55.0, 1.05)], 1):
        at = share * trained.CURVE_S
        ledger = ledger.append(Receipt(order=0, trial=0, step=step, value=value, cost=Cost(train=0.7), at=at))
    assert problem.best(ledger) == 58.0
    assert problem.best(ledger.fork(2)) is None


# runs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "unit"), [("sequential_halving", "curves"), ("asha", "seconds")])
def test_a_run_has_the_numbers_of_the_same_study_outside_the_race(name: str, unit: problems.Unit) -> None:
    run = running.Run(spec(), name, 2, unit, 1)
    line = running.execute(run)
    problem = run.spec.draw(1)
    study = Study.begin(
        problem.space,
        problem.budget(2, unit),
        max_steps=problem.max_steps,
        policy=name,
        seed=running.seed_of(run),
    )
    study.run(problem.runner())
    assert study.best is not None
    assert line["best"] == study.best.value
    assert line["spent"] == study.spent
    assert line["trials"] == len(study.trials)
    assert line["regret"] == problem.regret(study.best.value, 2, unit)


def test_our_policies_share_a_seed_and_on_a_real_clock_all_methods_do() -> None:
    def count_seeds(one: problems.ProblemSpec, *names: str) -> int:
        return len({running.seed_of(running.Run(one, name, 2, "seconds", 1)) for name in names})

    timed = next(one for one in problems.find_problems("trained", [], per_source=None))
    assert count_seeds(timed, "asha", "random_search", "optuna_tpe_halving", "dehb_default") == 1
    assert count_seeds(spec(), "asha", "random_search", "optuna_tpe_halving", "dehb_default") == 3


def test_the_oracle_has_a_regret_of_0_and_no_method_has_less() -> None:
    for unit in ("curves", "seconds"):
        found = {
            name: running.execute(running.Run(spec("vae"), name, 1, unit, 0))["regret"]
            for name in ("oracle", "random_search", "top_k_after_one")
        }
        assert found["oracle"] == 0.0
        assert min(found.values()) == 0.0


def race(path: Path, *more: str) -> list[dict[str, Any]]:
    options = ["--only", "vae", "cartpole", "--methods", "asha", "--budgets", "1,2", "--seeds", "2", "--jobs", "1"]
    assert command.main([*options, *more, "-o", str(path)]) == 0
    return running.read(path)


def test_a_race_is_repeatable_in_any_order(tmp_path: Path) -> None:
    lines = race(tmp_path / "a.jsonl")
    again = race(tmp_path / "b.jsonl", "--only", "cartpole", "--methods", "random_search", "asha")
    by_key = {running.key_of(line): measured(line) for line in lines}
    assert len(lines) == 2 * 4 * 2 * 2  # tables, methods with those that always race, budgets, seeds
    assert len(again) == 16
    assert all(by_key[running.key_of(line)] == measured(line) for line in again)


def test_an_interrupted_race_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.jsonl"
    lines = race(path)
    whole = path.read_text().splitlines(keepends=True)
    path.write_text("".join(whole[:10]) + whole[10][:25])  # the machine stopped during a write
    done: list[running.Run] = []
    do = running.execute
    monkeypatch.setattr(running, "execute", lambda run, *rest: done.append(run) or do(run, *rest))  # type: ignore[func-returns-value]
    again = race(path)
    assert len(done) == len(whole) - 10
    assert [measured(line) for line in again] == [measured(line) for line in lines]
    assert [json.loads(line) for line in path.read_text().splitlines()] == again  # no line is incomplete
    done.clear()
    race(path)
    assert done == []


def test_two_jobs_give_the_same_numbers_as_one(tmp_path: Path) -> None:
    one, two = (race(tmp_path / f"{jobs}.jsonl", "--only", "cartpole", "--jobs", jobs) for jobs in ("1", "2"))
    assert sorted(map(str, map(measured, one))) == sorted(map(str, map(measured, two)))


def test_a_stopped_race_reports_how_to_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "execute", stop)
    options = ["--only", "vae", "--methods", "asha", "--jobs", "1", "-o", str(tmp_path / "a.jsonl")]
    assert command.main(options) == 130
    assert "the same command continues" in capsys.readouterr().err


def test_an_incomplete_line_in_the_middle_is_an_error_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"suite": "tab\n{}\n')
    with pytest.raises(SystemExit, match="line 1 of"):
        running.read(path)


def test_runs_with_an_error_are_repeated_only_with_retry() -> None:
    run = running.Run(spec(), "asha", 1, "curves", 0)
    failed = {**run.key, "error": "boom"}
    assert running.missing_runs([run], [failed]) == []
    assert running.missing_runs([run], [failed], retry=True) == [run]


def test_a_slow_method_is_stopped_with_an_error() -> None:
    problem = spec().draw(0)
    outcome = running.run_study(problem, policies.make("asha"), curves=5, unit="curves", seed=0, patience_s=0.0)
    assert outcome.error == "stopped after 0 s"


def test_group_names_expand_to_methods() -> None:
    found = methods.expand_names(["ours"], "tables")
    assert {"sequential_halving", "bhpt", "oracle"} <= set(found)
    assert not {"ce_gp_ucb", "ucb1", "replay_fixed"} & set(found)
    assert set(methods.expand_names(["quick"], "tables")) == set(found) - methods.SLOW
    assert set(policies.names()) >= methods.SLOW
    assert "optuna_gp" in methods.expand_names(["optuna"], "plain")
    assert "optuna_gp" not in methods.expand_names(["optuna"], "tables")
    assert methods.expand_names(["random_search"], "tables") == ["random_search", "top_k_after_one", "oracle"]
    assert policies.settings_of(methods.make_own_policy('bhpt{"eps": 0.5}'))["eps"] == 0.5
    with pytest.raises(PolicyError, match="Did you mean 'asha'"):
        methods.expand_names(["ashaa"], "tables")


# other tools ---------------------------------------------------------------------------------------------------------


def test_optuna_runs_end_to_end(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    lines = race(tmp_path / "a.jsonl", "--methods", "optuna_tpe_hyperband", "--only", "cartpole")
    own = [line for line in lines if line["method"] == "optuna_tpe_hyperband"]
    assert [line["error"] for line in own] == [None] * 4
    assert all(line["spent"] == 50 * line["budget"] for line in own)
    assert all(line["version"].startswith("optuna ") for line in own)
    assert max(line["trials"] for line in own) > 1  # a trial was pruned
    again = race(tmp_path / "b.jsonl", "--methods", "optuna_tpe_hyperband", "--only", "cartpole", "--budgets", "2")
    by_key = {running.key_of(line): measured(line) for line in lines}
    assert all(by_key[running.key_of(line)] == measured(line) for line in again)


def test_optuna_has_the_same_numbers_in_the_race_and_outside() -> None:
    """Compare with Optuna without driver, link and ledger; a point is replaced by the nearest row not tried yet."""
    optuna = pytest.importorskip("optuna")
    run = running.Run(spec("vae"), "optuna_tpe_halving", 5, "curves", 1)
    line = running.execute(run)
    table = run.spec.draw(1).table  # type: ignore[attr-defined]
    parameters = sorted(table.space().parameters.items())
    curves: dict[int, list[float]] = {}  # {row: the losses that were trained}

    def objective(trial: Any) -> float:
        point = {}
        for name, p in parameters:
            suggest = trial.suggest_int if isinstance(p, Int) else trial.suggest_float
            point[name] = p.to_unit(suggest(name, p.low, p.high, log=p.log))
        row = min(
            (i for i in range(len(table.configs)) if i not in curves),
            key=lambda i: sum((p.to_unit(table.configs[i][name]) - point[name]) ** 2 for name, p in parameters),
        )
        curves[row] = []
        for step, loss in enumerate(table.values[row].tolist(), 1):
            curves[row].append(loss)
            trial.report(loss, step)
            if sum(map(len, curves.values())) == 5 * table.max_steps:
                trial.study.stop()
            elif not trial.should_prune():
                continue
            raise optuna.TrialPruned
        return min(curves[row])

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=running.seed_of(run))
    optuna.create_study(sampler=sampler, pruner=optuna.pruners.SuccessiveHalvingPruner()).optimize(objective)
    assert sum(len(curve) < table.max_steps for curve in curves.values()) > 1  # a trial was pruned
    assert len(curves) > 10  # TPE begins with random points
    assert line["best"] == min(map(min, curves.values()))
    assert line["spent"] == sum(map(len, curves.values()))
    assert line["trials"] == len(curves)


def test_optuna_in_free_spaces_and_in_seconds() -> None:
    pytest.importorskip("optuna")
    line = running.execute(
        running.Run(problems.ProblemSpec("plain", "functions", "mixed"), "optuna_tpe", 5, "seconds", 0)
    )
    assert line["error"] is None
    assert line["spent"] <= 5 * problems.ProblemSpec("plain", "functions", "mixed").draw(0).curve_s() * (1 + 1e-9)


def test_a_tool_that_is_not_installed_is_reported_and_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "nothing")
    methods.close_drivers()
    lines = race(tmp_path / "a.jsonl", "--methods", "syne_tune_asha", "--seeds", "1")
    assert {line["method"] for line in lines} == set(methods.ALWAYS_RACED)
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "is not installed" in summary["not_counted"]["syne_tune_asha"]


def test_a_failed_installation_reports_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = iter([(0, ""), (1, "WARNING: first\nERROR: no such version\nWARNING: last\n")])

    def run(command: list[str], **_: Any) -> Any:
        code, text = next(results)
        return subprocess.CompletedProcess(command, code, "", text)

    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    monkeypatch.setattr(subprocess, "run", run)
    assert environments.make(["dehb"]) == {"dehb": "ERROR: no such version"}


WOBBLY = """
VERSION = "wobbly 1"
def run(study):
    print("tools print what they like")
    if study.method == "crashes":
        study.train("a", row=3, until=2)
        raise ValueError("out of luck")
    if study.method in ("hangs", "dies"):
        study.train("a", row=3, until=2)
        __import__("time").sleep(60) if study.method == "hangs" else __import__("os")._exit(1)
    if study.method == "pauses":
        for until in (1, 2, 3):
            for trial in (0, 1):
                study.train(trial, row=trial, until=until)
        assert study.train(0, row=0, until=2) == []  # nothing new
        return
    for trial in range(9):  # cannot pause: is charged again
        study.train(trial, row=0, until=3)
"""


@pytest.fixture
def wobbly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a fake tool in this environment."""
    from benchmarks.race.peers import policy

    (tmp_path / "link.py").write_text(policy.LINK.read_text())
    (tmp_path / "drive_wobbly.py").write_text(WOBBLY)
    monkeypatch.setattr(policy, "LINK", tmp_path / "link.py")
    monkeypatch.setitem(
        environments.TOOLS, "wobbly", environments.Tool((), ("crashes", "hangs", "dies", "pauses", "restarts"))
    )
    monkeypatch.setattr(environments, "find_python", lambda tool: Path(sys.executable))
    methods.close_drivers()


@pytest.mark.usefixtures("wobbly")
def test_a_resumed_trial_is_charged_for_new_steps_only_and_a_new_trial_for_all() -> None:
    lines = {
        name: running.execute(running.Run(spec(), f"wobbly_{name}", 0.2, "curves", 0))
        for name in ("pauses", "restarts")
    }
    assert lines["pauses"]["spent"] == 6
    assert lines["pauses"]["trials"] == 2
    assert lines["pauses"]["error"] is None
    assert lines["restarts"]["spent"] == 10
    assert lines["restarts"]["trials"] == 4


@pytest.mark.usefixtures("wobbly")
def test_a_crashed_tool_keeps_its_best_loss_and_the_next_study_runs() -> None:
    crashed = running.execute(running.Run(spec(), "wobbly_crashes", 1, "curves", 0))
    assert "out of luck" in crashed["error"]
    assert crashed["spent"] == 2
    assert crashed["best"] is not None
    assert running.execute(running.Run(spec(), "wobbly_pauses", 1, "curves", 0))["error"] is None


@pytest.mark.usefixtures("wobbly")
@pytest.mark.parametrize(("method", "why"), [("hangs", "sent nothing for"), ("dies", "process has ended")])
def test_a_tool_that_hangs_or_dies_keeps_its_best_loss_and_is_restarted(method: str, why: str) -> None:
    line = running.execute(running.Run(spec(), f"wobbly_{method}", 1, "curves", 0), 3.0)
    assert why in line["error"]
    assert line["spent"] == 2
    assert running.execute(running.Run(spec(), "wobbly_pauses", 1, "curves", 0))["error"] is None


@pytest.mark.usefixtures("wobbly")
def test_a_failed_import_of_a_tool_reports_the_error() -> None:
    with pytest.raises(PeerError, match="No module named 'drive_nothing'"):
        Driver(Path(sys.executable), "nothing")


def test_a_point_is_replaced_by_the_nearest_unused_row() -> None:
    rows = [{"lr": 0.01, "kind": "a"}, {"lr": 0.1, "kind": "a"}, {"lr": 0.1, "kind": "b"}, {"lr": 1.0}]
    tool_space = ToolSpace(Space.from_configs(rows, log=["lr"]))  # type: ignore[arg-type]
    names = {p["kind"]: p["name"] for p in tool_space.parameters}
    point = {names["float"]: 0.09, names["choice"]: "0"}
    order = []  # type: ignore[var-annotated]
    for _ in rows:
        order.append(tool_space.nearest_row(point, set(order)))
    assert order == [1, 0, 3, 2]  # by the distance in the logarithm of lr; another kind counts 1
    # All rows are used, so the nearest is trained and charged again.
    assert tool_space.nearest_row(point, {0, 1, 2, 3}) == 1


def test_configurations_of_unlisted_spaces_are_within_their_ranges() -> None:
    space = Space(
        {"lr": Float(1e-3, 1.0, log=True), "units": Int(1, 8), "kind": Choice(["a", True, None]), "c": Constant(5)}
    )
    tool_space = ToolSpace(space)
    names = {name: f"x{j}" for j, name in enumerate(n for n in sorted(space.parameters) if n != "c")}
    config = tool_space.config({names["lr"]: 2.0, names["units"]: 3.0000001, names["kind"]: "1"})
    assert dict(config) == {"lr": 1.0, "units": 3, "kind": True, "c": 5}
    assert space.validate(config) == dict(sorted(config.items()))


# statistics ----------------------------------------------------------------------------------------------------------


def some_runs(seed: int = 0) -> list[dict[str, Any]]:
    """Return runs of two sources with one and two tables, unequal numbers of seeds, three methods, two budgets."""
    rng = np.random.default_rng(seed)
    cells = [("a", "x", s) for s in range(3)] + [("b", t, s) for t in "yz" for s in range(2)]
    return [
        {
            "suite": "tables",
            "unit": "curves",
            "steps": 50,
            "pool": None,
            "source": source,
            "table": table,
            "seed": number,
        }
        | {
            "method": method,
            "budget": budget,
            "regret": float(rng.random()),
            "version": "1",
            "at": "2026-01-01T00:00:00",
        }
        | {"thinking_s": 0.1, "decisions": 4, "trials": 2, "error": None}
        for (source, table, number), method, budget in product(
            cells, ("sequential_halving", "asha", "optuna_tpe"), (1.0, 2.0)
        )
    ]


def test_means_weight_sources_equally_then_tables() -> None:
    runs = some_runs()
    facts = statistics.summary(runs, resamples=10)["parts"][0]
    row = next(row for row in facts["means"] if (row["method"], row["budget"]) == ("asha", 2.0))
    own = [run for run in runs if (run["method"], run["budget"]) == ("asha", 2.0)]

    def of(table: str) -> float:
        values = [run["regret"] for run in own if run["table"] == table]
        return sum(values) / len(values)  # type: ignore[no-any-return]

    assert row["mean"] == pytest.approx((of("x") + (of("y") + of("z")) / 2) / 2)
    assert row["cells"] == 7
    by_source = {(r["source"], r["method"], r["budget"]): r["mean"] for r in facts["by_source"]}
    assert by_source["b", "asha", 2.0] == pytest.approx((of("y") + of("z")) / 2)


def test_the_bootstrap_resamples_sources_then_tables_then_seeds() -> None:
    runs = some_runs()
    values = {
        (r["source"], r["table"], r["seed"]): r["regret"] for r in runs if (r["method"], r["budget"]) == ("asha", 1.0)
    }
    rng = np.random.default_rng(5)
    tree = {"a": {"x": [0, 1, 2]}, "b": {"y": [0, 1], "z": [0, 1]}}

    def pick(items: list[Any]) -> list[Any]:
        return [items[i] for i in rng.integers(len(items), size=len(items))]

    slow = []
    for _ in range(200):
        of_sources = []
        for source in pick(["a", "b"]):
            of_tables = []
            for table in pick(list(tree[source])):
                drawn = pick(tree[source][table])
                of_tables.append(sum(values[source, table, seed] for seed in drawn) / len(drawn))
            of_sources.append(sum(of_tables) / len(of_tables))
        slow.append(sum(of_sources) / len(of_sources))
    cells = sorted(values)
    draws = statistics.resample_weights(cells, 200, seed=5)
    quick = draws @ np.array([values[cell] for cell in cells])
    assert quick == pytest.approx(slow)
    _, low, high = statistics.mean_with_interval(np.array([values[c] for c in cells]), statistics.weights(cells), draws)
    assert (low, high) == pytest.approx(tuple(np.percentile(slow, [2.5, 97.5])))


def test_differences_are_paired_over_runs_that_both_methods_have() -> None:
    runs = [run for run in some_runs() if not (run["method"] == "asha" and run["seed"] == 2)]
    facts = statistics.summary(runs, reference="sequential_halving", resamples=50)["parts"][0]
    row = next(row for row in facts["differences"] if (row["method"], row["budget"]) == ("asha", 1.0))
    values = {(r["method"], r["table"], r["seed"]): r["regret"] for r in runs if r["budget"] == 1.0}

    def of(table: str) -> float:
        return sum(values["sequential_halving", table, s] - values["asha", table, s] for s in range(2)) / 2  # type: ignore[no-any-return]

    # A seed that only one method has reduces the weight of its table.
    weights = {"x": 1 / 3, "y": 1 / 4, "z": 1 / 4}
    expected = sum(weights[t] * of(t) for t in weights) / sum(weights.values())
    assert row["difference"] == pytest.approx(expected)
    assert row["wins"] + row["ties"] + row["losses"] == 3
    assert row["wins"] == sum(of(t) < 0 for t in "xyz")
    assert row["low"] <= row["difference"] <= row["high"]


def test_losses_are_sorted_by_certainty() -> None:
    def row(method: str, difference: float, low: float) -> dict[str, Any]:
        return {"method": method, "budget": 1.0, "difference": difference, "low": low, "high": 1.0}

    rows = [row("asha", 0.3, -0.1), row("optuna_tpe", 0.1, 0.05), row("grid", -0.2, -0.3), row("oracle", 0.5, 0.4)]
    found = statistics.losses(rows)
    assert [(one["method"], one["certain"]) for one in found] == [("optuna_tpe", True), ("asha", False)]


def test_ranks_agree_with_a_simple_count() -> None:
    assert statistics.rank(np.array([0.3, 0.1, 0.3, 0.2])).tolist() == [3.5, 1.0, 3.5, 2.0]
    runs = some_runs()
    found = statistics.ranks(statistics.Grid.from_runs(runs))
    totals: dict[str, list[int]] = {}
    for table, budget in product("xyz", (1.0, 2.0)):
        means: dict[str, list[float]] = {}
        for run in runs:
            if (run["table"], run["budget"]) == (table, budget):
                means.setdefault(run["method"], []).append(run["regret"])
        ordered = sorted(means, key=lambda method: sum(means[method]) / len(means[method]))
        for place, method in enumerate(ordered, 1):
            totals.setdefault(method, []).append(place)
    assert found["ranks"] == pytest.approx({method: sum(p) / 6 for method, p in totals.items()})
    assert list(found["ranks"].values()) == sorted(found["ranks"].values())
    assert found["tables"] == 3


def test_critical_differences_agree_with_demsars_table() -> None:
    # Demšar (2006), table 5: q of 2.343 for two... five methods at 5 % are 1.960, 2.343, 2.569, 2.728
    for count, q in ((2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728)):
        expected = q * math.sqrt(count * (count + 1) / (6 * 14))
        assert statistics.critical_difference(count, 14) == pytest.approx(expected, rel=1e-3)
    average = {"a": 1.0, "b": 1.5, "c": 2.4, "d": 4.0}
    assert statistics.cliques(average, 1.0) == [("a", "b"), ("b", "c")]
    assert statistics.cliques(average, 5.0) == [("a", "d")]
    assert statistics.cliques(average, 0.1) == []


def test_methods_with_missing_tables_are_not_ranked() -> None:
    runs = [run for run in some_runs() if not (run["method"] == "asha" and run["table"] == "z")]
    found = statistics.ranks(statistics.Grid.from_runs(runs))
    assert set(found["ranks"]) == {"sequential_halving", "optuna_tpe"}
    assert found["left_out"] == ["asha"]
    assert found["tables"] == 3


# the page ------------------------------------------------------------------------------------------------------------


def test_the_page_is_self_contained_and_escapes_all_text(tmp_path: Path) -> None:
    evil = '<script>alert("x")</script>'
    names = {"a": evil, "x": f"x{evil}", "asha": f"asha{evil}"}
    runs = [
        {name: names.get(value, value) if isinstance(value, str) else value for name, value in run.items()}
        | {"error": evil}
        for run in some_runs()
    ]
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(json.dumps(run) + "\n" for run in runs))
    options = ["report", str(path), "-o", str(tmp_path / "page.html"), "--figure", str(tmp_path / "a.svg")]
    assert command.main([*options, "--resamples", "20"]) == 0
    ElementTree.parse(tmp_path / "a.svg")  # well-formed for any names
    text = (tmp_path / "page.html").read_text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "http" not in text.replace("http-equiv", "")
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text
    assert text.count("<svg") == 3
    assert "Where sequential_halving is worse" in text


def test_the_page_marks_tables_that_were_known_during_development() -> None:
    shipped = {f"{path.parent.name}/{path.stem}" for path in problems.SHIPPED.glob("*/*.npz")}
    assert shipped <= page.SEEN_TABLES
    run = some_runs()[0] | {"source": "fashion_curves", "table": "fcnet"}
    text = page.html(statistics.summary([run], resamples=5))
    assert "fashion_curves/fcnet ●" in text
    assert "all results may be optimistic" in text
    assert "Not marked: a/x" in page.html(statistics.summary([some_runs()[0]], resamples=5))


def test_the_json_report_has_the_numbers_of_the_page(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(json.dumps(run) + "\n" for run in some_runs()))
    command.main(["report", str(path), "--json", "--resamples", "20"])
    facts = json.loads(capsys.readouterr().out)
    text = page.html(facts)
    assert facts["parts"][0]["means"]
    assert all(pictures.number(row["mean"]) in text for row in facts["parts"][0]["means"])


# time and memory of decisions ----------------------------------------------------------------------------------------


def test_time_and_memory_are_measured_for_our_methods_and_for_tools() -> None:
    own = cost.measure("asha", 20, 20.0)
    assert own["error"] is None
    assert own["mean_ms"] > 0
    assert own["memory_mb"] >= own["base_mb"] > 10
    assert own["opened"] <= 20
    if methods.is_installed("optuna_tpe_hyperband"):
        other = cost.measure("optuna_tpe_hyperband", 20, 20.0)
        assert other["version"].startswith("optuna")
        assert other["memory_mb"] > 10
        whole = cost.measure("optuna_tpe", 50, 20.0)  # without a pruner, a trial is one decision
        assert (whole["opened"], whole["decisions"]) == (4, 4)
    assert page.html(statistics.summary(some_runs(), resamples=5), [own]).count("20 configurations") == 1


def test_a_method_that_fails_before_its_first_decision_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = running.Outcome(
        Ledger([running.opening_entry(problems.synthetic_problem(20), policies.make("asha"), 1, "curves", 0)]),
        None,
        [1.0],
        "a\nb",
    )
    monkeypatch.setattr(running, "run_study", lambda *_, **__: broken)
    assert cost.measure("asha", 20, 20.0) == {"method": "asha", "arms": 20, "absent": "b"}
    assert running.execute(running.Run(spec(), "asha", 1, "curves", 0))["absent"] == "b"


def test_the_gp_of_optuna_is_absent_without_pytorch() -> None:
    if environments.find_python("optuna") == Path(sys.executable):  # else its environment has PyTorch
        assert ("absent" in cost.measure("optuna_gp", 200, 20.0)) == (find_spec("torch") is None)


@pytest.mark.parametrize(("count", "timed"), [(1, 1), (2, 1), (15, 14), (21, 20), (90, 20), (101, 20), (501, 100)])
def test_the_last_fifth_of_the_decisions_is_timed_without_the_very_last(count: int, timed: int) -> None:
    decision_s = [float(i) for i in range(count)]
    assert cost._full_size_decisions(decision_s) == (decision_s[:-1] or decision_s)[-timed:]


# the how-to guide ----------------------------------------------------------------------------------------------------------


def test_the_code_of_the_how_to_guide_runs(capsys: Any) -> None:
    page_of_docs = Path(__file__).parents[2] / "docs" / "how-to" / "race-a-policy.md"
    code = page_of_docs.read_text().split("<!-- race -->\n```python\n")[1].split("```")[0]
    exec(compile(code, str(page_of_docs), "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["asha", "sequential_halving"] * 3
    assert all(0.0 <= float(line.split()[2]) < 2.0 for line in lines)
