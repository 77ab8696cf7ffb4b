"""Small versions of the experiments in benchmarks/cost_aware: tables are read, methods run, runs are stored and reused."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoestring.core.ledger.entries import Cost
from shoestring.runners.simulated.simulated_runner import StepOutcome

FOLDER = Path(__file__).parents[2] / "benchmarks" / "cost_aware"
SMALL = ["--trials", "8", "--seeds", "2", "--problems", "2", "--rows", "50"]


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Write two tables: a loss that spans decades, repeats on a second axis, one category, one conditional parameter."""
    folder = tmp_path / "tables"
    folder.mkdir()
    for number in range(2):
        rng = np.random.default_rng(number)
        rounds, depth, kind = rng.integers(1, 200, 80), rng.integers(1, 9, 80), rng.integers(0, 2, 80)
        momentum = np.where(kind == 1, rng.random(80), np.nan)
        loss = 10.0 ** (-3.0 * rng.random(80)) + 1.0 / rounds
        np.savez(
            folder / f"table{number}.npz",
            hp=np.column_stack([rounds, depth, kind, momentum]),
            hp_names=np.array(["rounds", "depth", "kind", "momentum"]),
            loss=np.column_stack([loss, loss]),
            cost=np.column_stack([0.01 * rounds * depth] * 2),
            meta=np.array(json.dumps({"objective": "loss", "direction": "min", "hp_categories": {"kind": ["a", "b"]}})),
        )
    return folder


def run_script(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, *arguments: str
) -> tuple[int, list[dict[str, Any]]]:
    """Run a script; return its exit code and its JSON lines."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(sys, "argv", ["script", *arguments])
    try:
        code = script.main()
    except SystemExit as ending:
        code = ending.code
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]


def test_a_table_becomes_a_problem(scripts: Any, tables: Path) -> None:
    one, other = scripts.problems.load([tables], 60, [2])
    assert len(one.configs) == len(one.losses) > 55  # a repeated configuration counts once
    assert one.losses.min() < 0 < one.unit_loss  # a loss that spans three decades is replaced by its logarithm
    assert {"a", "b"} == {config["kind"] for config in one.configs}
    assert all(("momentum" in config) == (config["kind"] == "b") for config in one.configs)
    assert all(isinstance(config["rounds"], int) for config in other.configs)
    with pytest.raises(SystemExit, match="one number, or one for each"):
        scripts.problems.load([tables], 60, [1, 2])


def test_a_longer_run_begins_with_the_shorter_one_and_is_stored(scripts: Any, tables: Path, tmp_path: Path) -> None:
    problem = scripts.problems.load([tables], 60, [1])[0]
    traces = scripts.traces.Traces(tmp_path / "out")
    short = traces.get(problem, "cei=0.2", 0, 8)
    long = traces.get(problem, "cei=0.2", 0, 12)
    assert len(short.losses) == 8
    assert len(long.losses) == 12
    np.testing.assert_array_equal(long.losses[:8], short.losses)
    at_once = scripts.traces.Traces(tmp_path / "other").get(problem, "cei=0.2", 0, 12)
    np.testing.assert_array_equal(at_once.losses, long.losses)
    again = scripts.traces.Traces(tmp_path / "out", "_other")  # another process finds the stored runs
    np.testing.assert_array_equal(again.get(problem, "cei=0.2", 0, 12).losses, long.losses)
    assert not again.path.exists()
    assert long.best_after(float(long.seconds[0])) == long.losses[0]
    assert long.best_after(0.5 * float(long.seconds[0])) == np.inf


def test_a_run_ends_with_the_table(scripts: Any, tables: Path, tmp_path: Path) -> None:
    problem = scripts.problems.load([tables], 10, [1])[0]
    traces = scripts.traces.Traces(tmp_path)
    assert len(traces.get(problem, "random", 0, 50).losses) == 10
    assert len(traces.path.read_text().splitlines()) == 1
    traces.get(problem, "random", 0, 60)
    assert len(traces.path.read_text().splitlines()) == 1  # the table has no further rows


@pytest.mark.benchmark_run
def test_experiments_share_their_runs(
    scripts: Any, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    options = [
        "--data",
        str(tables),
        "-o",
        str(tmp_path / "out"),
        *SMALL,
        "--multiples",
        "0.5",
        "1",
        "2",
        "--deep-seeds",
        "1",
        "--cap",
        "2",
        "--slacks",
        "0.2",
        "0.5",
        "--alphas",
        "0",
        "0.1",
        "1",
    ]
    assert run_script(scripts.run, monkeypatch, capsys, "collect", *options)[0] == 0
    stored = (tmp_path / "out" / "traces_races_0_of_1.jsonl").read_text()
    _, lines = run_script(scripts.run, monkeypatch, capsys, "tradeoff", *options)
    by_name = {line["method"]: line for line in lines[:-1]}
    assert by_name["alpha=0"]["time_relative_to_ei"] == 1.0
    assert by_name["alpha=0"]["runs"] == 4
    assert by_name["alpha=1"]["time_relative_to_ei"] < 1.0
    _, lines = run_script(scripts.run, monkeypatch, capsys, "time_allocation", *options)
    ranks = [line for line in lines if "rank" in line]
    for multiple, runs in ((0.5, 4), (1.0, 4), (2.0, 2)):  # only deep seeds above 1
        part = [line for line in ranks if line["multiple"] == multiple]
        assert {line["runs"] for line in part} == {runs}
        assert sum(line["rank"] for line in part) == pytest.approx(len(part) * (len(part) + 1) / 2)
    second = [
        *options[: options.index("--seeds")],
        "--first-seed",
        "1",
        "--seeds",
        "1",
        *options[options.index("--seeds") + 2 :],
    ]
    _, lines = run_script(scripts.run, monkeypatch, capsys, "tradeoff", *second)
    assert {line["runs"] for line in lines[:-1]} == {2}  # one seed of two tables, from the stored runs
    assert [path.name for path in (tmp_path / "out").glob("traces*")] == ["traces_races_0_of_1.jsonl"]
    assert (tmp_path / "out" / "traces_races_0_of_1.jsonl").read_text() == stored
    assert (tmp_path / "out" / "time_allocation.png").exists()
    assert "| cei=0.5 minus EI per cost |" in (tmp_path / "out" / "time_allocation.md").read_text()
    assert set(lines[-1]) == {"name", "measured", "target", "ok"}


@pytest.mark.benchmark_run
def test_cost_models_are_compared_alone_and_inside_the_search(
    scripts: Any, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    options = ["--data", str(tables), "-o", str(tmp_path), *SMALL]
    _, lines = run_script(scripts.run, monkeypatch, capsys, "cost_model_error", *options)
    error = {(line["model"], line["observations"]): line["rmse_log_cost"] for line in lines if "model" in line}
    assert error["lv3*", 20] < 0.2  # in these tables cost is a power law
    assert error["lv3", 20] < error["lv3", 3]
    assert lines[-1]["target"] is None  # no verdict outside the paper's space
    _, lines = run_script(scripts.run, monkeypatch, capsys, "front", *options)
    assert all(0 <= line["share_staying"] <= 1 for line in lines if "share_staying" in line)
    code, lines = run_script(
        scripts.run, monkeypatch, capsys, "cost_model_effect", *options, "--rules", "cei=0.5", "alpha=1"
    )
    assert {line["model"] for line in lines[:-1]} == {"lv3", "lv3*", "gp", "auto*", "transfer"}
    assert {line["rule"] for line in lines[:-1]} == {"cei=0.5", "alpha=1"}
    assert code == 0 or not lines[-1]["ok"]


def test_boosting_is_recorded_once_and_replayed(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("xgboost")
    options = ["--names", "wine", "--pipelines", "raw", "--configs", "8", "-o", str(tmp_path)]
    # Without time there is no table.
    assert run_script(scripts.xgboost_problems, monkeypatch, capsys, *options, "--minutes", "0")[0] == 1
    assert not (tmp_path / "wine_raw.npz").exists()
    assert run_script(scripts.xgboost_problems, monkeypatch, capsys, *options)[0] == 0
    stored = (tmp_path / "wine_raw.jsonl").read_text()
    assert len(stored.splitlines()) == 8
    assert run_script(scripts.xgboost_problems, monkeypatch, capsys, *options)[0] == 0
    assert (tmp_path / "wine_raw.jsonl").read_text() == stored
    problem = scripts.problems.load([tmp_path], 100, [1])[0]
    assert len(problem.configs) == 8
    assert problem.seconds.min() > 0
    first = json.loads(stored.splitlines()[0])
    assert problem.step(first["config"], 1).value == pytest.approx(first["loss"])


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_every_pipeline_trains(scripts: Any, classes: int, tmp_path: Path) -> None:
    pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.standard_normal((90, 3)), rng.integers(0, 4, 90)])
    x[::7, 1] = np.nan
    y = rng.integers(0, classes, 90) if classes else x[:, 0]
    task = "classification" if classes else "regression"
    np.savez(
        tmp_path / "made.npz",
        X=x,
        y=y,
        cat=np.array([False, False, False, True]),
        meta=np.array(json.dumps({"task": task})),
    )
    module = scripts.xgboost_problems
    config = {"num_round": 3, "learning_rate": 0.3, "gamma": 0.0, "alpha": 0.1, "lambda": 1.0}
    for problem in module.boostings(["made"], module.PIPELINES, [tmp_path], 2000):
        outcome = problem.step({**config, "subsample": 0.8, "max_depth": 3}, 1)
        assert np.isfinite(outcome.value)
        assert outcome.cost.total >= 0


def test_recorded_problems_can_be_trained_instead_of_replayed(
    scripts: Any, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("xgboost")
    made = ["--names", "wine", "--pipelines", "raw", "--configs", "8", "-o", str(tmp_path / "made")]
    assert run_script(scripts.xgboost_problems, monkeypatch, capsys, *made)[0] == 0
    options = [
        "--data",
        str(tmp_path / "made"),
        "--train",
        "--seeds",
        "1",
        "--trials",
        "6",
        "-o",
        str(tmp_path / "out"),
    ]
    _, lines = run_script(scripts.run, monkeypatch, capsys, "tradeoff", *options)
    assert lines[0]["runs"] == 1
    stored = [json.loads(line) for line in (tmp_path / "out" / "traces.jsonl").read_text().splitlines()]
    assert len(stored) == len(scripts.traces.ALPHAS) + len(scripts.traces.SLACKS)
    assert all(len(run["losses"]) == 6 and min(run["seconds"]) >= 0 for run in stored)
    code, _ = run_script(
        scripts.run, monkeypatch, capsys, "tradeoff", *options[:2], "--data", str(tables), *options[2:]
    )
    assert "cannot be trained" in str(code)


def test_trained_losses_have_the_unit_of_the_recorded_ones(scripts: Any, tmp_path: Path) -> None:
    """A table whose losses span decades has logarithms, so the loss of a new training must be one too."""
    pytest.importorskip("xgboost")
    boosting = scripts.xgboost_problems.boostings(["diabetes"], ["raw"], [], 200)[0]
    scripts.xgboost_problems.record(boosting, 5, tmp_path)
    table = tmp_path / "diabetes_raw.npz"
    stored = dict(np.load(table))
    for spread in (1.0, 1e4):
        np.savez(table, **stored | {"loss": np.append(stored["loss"][:-1], spread * stored["loss"].min())})
        plain = scripts.problems.load([tmp_path], 9, [1])[0]
        trained = scripts.xgboost_problems.make_trainable(table, plain, [])
        assert trained.is_logged == (spread > 1.0)
        rate = stored["hp"][0, list(stored["hp_names"]).index("learning_rate")]
        first = next(i for i, config in enumerate(plain.configs) if config["learning_rate"] == rate)
        assert trained.step(trained.configs[first], 1).value == pytest.approx(plain.losses[first], abs=1e-6)
        # Stored runs of both units do not mix.
        assert trained.key.endswith("trained/logarithms" if spread > 1.0 else "trained")


def test_a_trained_loss_of_0_is_below_all_recorded_logarithms(scripts: Any) -> None:
    class Perfect:
        space = scripts.xgboost_problems.SPACE

        def step(self, config: Any, step: int) -> Any:
            return StepOutcome(0.0, Cost(train=1.0))

    recorded = np.log([0.001, 0.2, 0.4])
    problem = scripts.xgboost_problems.TrainableProblem(
        "folder", "name", [{}] * 3, recorded, np.ones(3), is_logged=True, boosting=Perfect()
    )
    assert problem.step({}, 1).value == pytest.approx(np.log(0.0005))
    raw = scripts.xgboost_problems.TrainableProblem(
        "folder", "name", [{}] * 3, recorded, np.ones(3), boosting=Perfect()
    )
    assert raw.step({}, 1).value == 0.0


@pytest.mark.benchmark_run
def test_related_problems_give_named_features_and_a_transferred_model(
    scripts: Any, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    one, other = scripts.problems.load([tables], 60, [2])
    assert set(one.named) == {"rounds", "depth"}
    assert scripts.traces.method("cei=0.5/lv3*", one)["cost_features"] == list(one.named)
    assert scripts.traces.method("cei=0.5/transfer", one)["transferred"] == one.transferred != other.transferred
    assert scripts.traces.method("cei=0.5") == {"acquisition": "cei", "slack": 0.5, "cost_model": "lv3"}
    alone = scripts.problems.load([tables], 60, [1])[0]
    assert (alone.named, alone.transferred) == ((), {})
    pytest.importorskip("xgboost")
    made = ["--names", "wine", "diabetes", "--pipelines", "raw", "pca", "--configs", "40", "-o", str(tmp_path / "made")]
    assert run_script(scripts.xgboost_problems, monkeypatch, capsys, *made)[0] == 0
    options = ["--data", str(tmp_path / "made"), "--problems", "4", "--seeds", "1", "-o", str(tmp_path / "out")]
    _, lines = run_script(scripts.run, monkeypatch, capsys, "transfer_models", *options)
    assert {line["task"] for line in lines[:-1]} == {"classification", "regression"}
    assert {"naive linear", "task-aware linear", "MLP", "LV-3 (10)"} < {line["model"] for line in lines[:-1]}
    _, lines = run_script(scripts.run, monkeypatch, capsys, "cost_model_error", *options)
    assert lines[-1]["target"] == "< 0 up to 15"
    reserves = [line["within_reserve"] for line in lines if line.get("observations", 0) >= 8]
    assert 0.7 < np.mean(reserves) < 1.0


def test_a_fit_without_priors_finds_other_parameters(scripts: Any, tables: Path) -> None:
    problem = scripts.problems.load([tables], 60, [1])[0]
    traces, ends = scripts.traces, defaultdict(list)
    for by_likelihood in (False, True, False):
        ledger = traces.continue_run(
            problem, traces.empty_ledger(problem, "alpha=0", 0), 9, by_likelihood=by_likelihood
        )
        memo = ledger.orders[-1].memo
        ends[by_likelihood].append(memo["log_lengthscales"])
    assert ends[False][0] == ends[False][1] != ends[True][0]  # the priors are restored


def test_intervals_resample_whole_groups(scripts: Any) -> None:
    """Eight pipelines of one data set with equal results are one observation, not eight."""
    interval = scripts.traces.interval
    values = np.repeat([0.0, 1.0, 0.0, 1.0], 8).tolist()
    mean, low, high = interval(values, np.repeat(["a", "b", "c", "d"], 8).tolist())
    assert (mean, low, high) == (0.5, *interval([0.0, 1.0, 0.0, 1.0])[1:])
    plain = interval(values)
    assert plain[2] - plain[1] < 0.5 * (high - low)


def test_lost_accuracy_is_a_share_of_the_accuracy_of_ei(scripts: Any) -> None:
    def problem(classes: float, is_logged: bool = False) -> Any:
        facts: tuple[Any, ...] = ("folder", "name", [{}] * 2, np.array([0.1, 0.3]), np.ones(2))
        return scripts.problems.Problem(*facts, is_logged=is_logged, task=(1.0, 1.0, classes))

    def trace(loss: float) -> Any:
        return scripts.traces.Trace(np.ones(2), np.array([0.9, loss]), [], [])

    lost = scripts.races.accuracy_lost
    assert lost(problem(2.0), trace(0.4), trace(0.2)) == pytest.approx(0.25)  # an accuracy of 60 % instead of 80 %
    assert np.isnan(lost(problem(0.0), trace(0.4), trace(0.2)))  # regression
    assert np.isnan(lost(problem(2.0, is_logged=True), trace(-1.0), trace(-2.0)))


def test_the_tables_of_the_readme_agree_with_the_results(scripts: Any) -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    for experiment, tables_of in scripts.page.TABLES.items():
        lines = (FOLDER / "results" / f"trained_144_{experiment}.jsonl").read_text(encoding="utf-8").splitlines()
        for one in tables_of([json.loads(line) for line in lines]).split("\n\n"):
            assert one in page, f"README.md differs from trained_144_{experiment}.jsonl:\n{one}"


def test_functions_have_their_optima_and_grids_survive_coding(scripts: Any, tmp_path: Path) -> None:
    functions, regret = scripts.functions, scripts.regret
    assert functions.branin(np.array([(np.pi + 5) / 15, 2.275 / 15])) == pytest.approx(functions.optimum("branin"))
    best = np.array([0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573])
    assert functions.hartmann6(best) == pytest.approx(functions.optimum("hartmann6"), abs=1e-5)
    grid = scripts.peers.Grid((4, 0), (True, False))
    point = np.array([0.625, 0.3])
    np.testing.assert_allclose(grid.decode(grid.code(point[None])[0]), point)
    np.testing.assert_allclose(grid.centres(grid.cells(point)), point)
    assert regret.one_regret("cost_aware_ei", "mixed table", 0, 8) >= 0
    assert regret.one_regret("sklearn GP", "branin", 0, 7) >= 0


def test_the_table_of_small_exponents_is_that_of_its_runs(scripts: Any) -> None:
    lines = (FOLDER / "results" / "small_exponents.jsonl").read_text().splitlines()
    runs = [json.loads(line) for line in lines]
    page = (FOLDER / "README.md").read_text("utf-8")

    def cell(method: str, name: str, form: str) -> str:
        mine = [run for run in runs if run["method"] == method]
        found = scripts.traces.with_interval("v", [run[name] for run in mine], [run["problem"] for run in mine])
        return f"{found['v']:{form}} ({found['v_low']:{form}} to {found['v_high']:{form}})"

    methods = list(dict.fromkeys(run["method"] for run in runs))
    assert len(methods) == 6
    assert len(runs) == 72
    for method in methods:
        median = float(np.median([run["time_relative_to_ei"] for run in runs if run["method"] == method]))
        cells = (cell(method, "time_relative_to_ei", ".2f"), f"{median:.2f}", cell(method, "loss_above_ei", "+.3f"))
        assert f"| {method} | {' | '.join(cells)} |" in page
