"""The experiments of benchmarks/boil in miniature: agents learn, runs are recorded, tables are compared."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoestring.runners.simulated.recorded_table import Table

FOLDER = Path(__file__).parents[2] / "benchmarks" / "boil"


def made_up_runs(scripts: Any, folder: Path, seeds: int = 2) -> None:
    """Write files like those of `record.py`: noisy curves on reacher; gamma sets their height and lr_actor their cost."""
    task = scripts.tasks.TASKS["reacher"]
    rng = np.random.default_rng(0)
    for number, config in enumerate(task.configs()[:40]):
        risen = 1.0 - np.exp(-np.arange(1, 101) / 20.0)
        for seed in range(seeds):
            path = folder / "reacher" / f"seed_{seed}" / f"config_{number:03d}.npz"
            path.parent.mkdir(parents=True, exist_ok=True)
            values = -50.0 + 200.0 * (1.0 - config["gamma"]) * risen + rng.standard_normal(100)
            np.savez(path, values=values.astype(np.float32), seconds=np.full(100, 0.1 + config["lr_actor"], np.float32))


def run_script(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, *arguments: Any
) -> tuple[int, dict[str, Any]]:
    """Run a script and return its exit code and the object of its last line."""
    monkeypatch.setattr(sys, "argv", ["script", *map(str, arguments)])
    code = script.main()
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


# replay and agents ---------------------------------------------------------------------------------------------------


def test_replay_draws_in_proportion_to_errors_and_weights_correct_the_bias(scripts: Any) -> None:
    replay = scripts.replay.PrioritisedReplay(10, 1, 1.0, np.random.default_rng(0))
    for i in range(13):  # the last three take the places of the first
        replay.add(np.array([i], dtype=np.float32), i % 2, float(i), np.zeros(1, dtype=np.float32), False)
    assert replay.rewards.tolist() == [10, 11, 12, 3, 4, 5, 6, 7, 8, 9]
    errors = np.arange(1.0, 11.0, dtype=np.float32)
    replay.update(np.arange(10), errors)
    assert replay.sums[1] == pytest.approx(55.0, abs=0.02)
    drawn = np.concatenate([replay.draw(50, 1.0)[0] for _ in range(200)])
    np.testing.assert_allclose(np.bincount(drawn) / len(drawn), errors / 55.0, atol=0.01)
    places, weights = replay.draw(50, 1.0)
    np.testing.assert_allclose(weights * errors[places], (weights * errors[places])[0], rtol=1e-2)
    assert weights.max() == 1.0


def test_actors_in_numpy_share_the_parameters_of_torch(scripts: Any) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("gymnasium")
    network = scripts.dueling_dqn.DuelingQ(4, 2)
    twin, copy = scripts.dueling_dqn.NumpyNetwork(network), scripts.dueling_dqn.NumpyNetwork(network, copied=True)
    observed = torch.randn(5, 4)
    before = copy.q(observed.numpy())
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.5)
    after = network(observed).detach().numpy()
    np.testing.assert_allclose(twin.q(observed.numpy()), after, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(copy.q(observed.numpy()), before)
    assert [twin.best(row) for row in observed.numpy()] == after.argmax(axis=1).tolist()


def test_the_pole_stays_up_longer_after_training(scripts: Any) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("gymnasium")
    task = scripts.tasks.TASKS["cartpole"]
    returns = list(islice(task.train({"gamma": 0.99, "lr": 3e-3}, seed=0), 160))
    assert np.mean(returns[-20:]) > 1.5 * np.mean(returns[:20])
    assert max(returns) <= 200.0
    again = list(islice(task.train({"gamma": 0.99, "lr": 3e-3}, seed=0), 20))
    assert again == returns[:20]


@pytest.mark.parametrize(("name", "steps"), [("inverted_pendulum", 200), ("reacher", 50)])
def test_actor_critic_trains(scripts: Any, name: str, steps: int) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("mujoco")
    config = {"gamma": 0.95, "lr_actor": 3e-3, "lr_critic": 3e-3}
    returns = list(islice(scripts.tasks.TASKS[name].train(config, seed=1), 30))
    assert np.isfinite(returns).all()
    assert max(returns) <= steps


def test_the_small_network_classifies_images(scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(scripts.fashion_cnn, "TRAIN_IMAGES", 200)
    monkeypatch.setattr(scripts.fashion_cnn, "VALID_IMAGES", 100)
    labels = np.arange(300) % 10
    pixels = np.zeros((300, 28, 28), dtype=np.uint8)
    for image, label in zip(pixels, labels, strict=True):
        image[2 * label : 2 * label + 4] = 255
    np.savez(tmp_path / "stripes.npz", x_train=pixels, y_train=labels.astype(np.uint8))
    config = {"filter_size": 4, "pool_size": 3, "batch_size": 20, "lr": 2e-3, "momentum": 0.8, "decay": 0.95}
    training = scripts.tasks.TASKS["cnn"].train(config, 0, tmp_path / "stripes.npz")
    assert max(islice(training, 6)) > 0.8


# recording -----------------------------------------------------------------------------------------------------------


def test_configs_are_reproducible_and_inside_the_space(scripts: Any) -> None:
    for task in scripts.tasks.TASKS.values():
        configs = task.configs()
        assert configs == task.configs()
        assert len({tuple(config.items()) for config in configs}) == task.n_configs >= 64
        for config in configs:
            task.space.validate(config)


def test_runs_become_a_table(scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    made_up_runs(scripts, tmp_path / "runs")
    code, result = run_script(
        scripts.record, monkeypatch, capsys, "reacher", "--tables", tmp_path / "tables", "-o", tmp_path / "runs"
    )
    assert (code, result["measured"]) == (0, {"reacher": {"seeds": 2, "configs": 40, "steps": 100}})
    table = Table.load(tmp_path / "tables" / "reacher.npz")
    assert (table.direction, table.max_steps, len(table.configs)) == ("max", 100, 40)
    assert table.configs[3] == pytest.approx(scripts.tasks.TASKS["reacher"].configs()[3])
    np.testing.assert_allclose(table.costs_s[3], 0.1 + table.configs[3]["lr_actor"], atol=2e-3)


def test_recorded_runs_are_not_trained_again(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("torch")
    trained: list[int] = []

    def one_by_one(todo: list[Any], workers: int) -> int:
        trained.append(len(todo))
        return sum(bool(scripts.record.perform(job)) for job in todo)

    monkeypatch.setattr(scripts.record, "record", one_by_one)
    monkeypatch.setattr(scripts.tasks.Task, "train", lambda *arguments: iter([1.0, 2.0, 3.0]))
    order = ["cartpole", "reacher", "--seeds", 2, "--configs", 3, "--steps", 3, "-o", tmp_path]
    assert run_script(scripts.record, monkeypatch, capsys, *order)[0] == 0
    (tmp_path / "reacher" / "seed_1" / "config_002.npz").unlink()
    assert run_script(scripts.record, monkeypatch, capsys, *order)[0] == 0
    assert run_script(scripts.record, monkeypatch, capsys, *order)[0] == 0
    assert trained == [12, 1]
    with np.load(tmp_path / "cartpole" / "seed_0" / "config_000.npz") as run:
        assert run["values"].tolist() == [1.0, 2.0, 3.0]
        assert (run["seconds"] >= 0.0).all()


def test_the_error_of_a_failed_run_is_returned_as_text(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(scripts.tasks.Task, "train", lambda *arguments: iter([1.0]))  # ends too early
    job = scripts.record.Job("reacher", 0, 0, 5, tmp_path, tmp_path, "cpu")
    assert "StopIteration" in scripts.record.perform(job)
    assert not job.path.exists()


# comparing -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tables(scripts: Any, tmp_path: Path) -> Path:
    made_up_runs(scripts, tmp_path / "runs")
    (tmp_path / "tables").mkdir()
    arrays = scripts.record.table(scripts.tasks.TASKS["reacher"], tmp_path / "runs")
    np.savez(tmp_path / "tables" / "made_up.npz", **arrays)
    return tmp_path / "tables"


def test_a_problem_is_thinned_and_its_utility_weights_late_steps_more(scripts: Any, tables: Path) -> None:
    problem = scripts.problems.load("made_up", tables / "made_up.npz")
    assert problem.values.shape == problem.costs_s.shape == (2, 40, 50)
    with np.load(tables / "made_up.npz") as arrays:
        runs = np.concatenate([arrays["episode_return"][None], arrays["episode_return_again"]])
        costs = np.concatenate([arrays["cost"][None], arrays["cost_again"]])
        np.testing.assert_allclose(problem.values[1, 7, 3], runs[1, 7, 6:8].mean(), rtol=1e-6)
        np.testing.assert_allclose(problem.costs_s.sum(axis=2), costs[:, :, -1], rtol=1e-6)
    weights = scripts.problems.average_preference(50)
    assert (np.diff(weights) > 0.0).all()
    assert weights[[0, 24, 49]].round(1).tolist() == [0.1, 0.6, 0.9]
    np.testing.assert_allclose(problem.utility, problem.values.mean(axis=0) @ weights / weights.sum())
    seen = problem.table(0).values
    assert not np.array_equal(seen, problem.table(1).values)
    assert all((row == runs).all(axis=1).any() for row, runs in zip(seen, problem.values.swapaxes(0, 1), strict=True))


def test_rows_that_differ_only_in_the_seed_are_runs_of_one_config(scripts: Any, tmp_path: Path) -> None:
    hp = np.array([[lr, seed] for lr in (0.1, 0.2, 0.3) for seed in (0, 1)])
    values = np.arange(6.0)[:, None] + np.zeros((6, 10))
    meta = json.dumps({"objective": "error", "direction": "min"})
    cost = np.tile(np.arange(1.0, 11.0), (6, 1))
    np.savez(tmp_path / "t.npz", hp=hp, hp_names=["lr", "seed"], meta=meta, error=values, cost=cost)
    problem = scripts.problems.load("t", tmp_path / "t.npz")
    assert [config["lr"] for config in problem.configs] == [0.1, 0.2, 0.3]
    np.testing.assert_allclose(problem.utility, [-0.5, -2.5, -4.5])
    assert problem.full_cost_s == 10.0


def test_curves_with_irregular_times_are_resampled_at_even_times(scripts: Any, tmp_path: Path) -> None:
    values = np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, np.nan, np.nan]])
    cost = np.array([[25.0, 50.0, 75.0, 100.0], [10.0, 30.0, np.nan, np.nan]])
    meta = json.dumps({"objective": "score", "direction": "max"})
    np.savez(tmp_path / "t.npz", hp=[[0.1], [0.2]], hp_names=["lr"], meta=meta, score=values, cost=cost)
    problem = scripts.problems.load("t", tmp_path / "t.npz")
    assert problem.values[0, 0, [0, 24, 36, 37, 49]].tolist() == [1.0, 2.0, 2.0, 3.0, 4.0]
    assert problem.values[0, 1, [0, 14, 49]].tolist() == [5.0, 6.0, 6.0]
    np.testing.assert_allclose(problem.costs_s.sum(axis=2), [[100.0, 30.0]])


@pytest.mark.parametrize("method", ["boil", "bo", "bo_l", "hyperband", "random", "boil freeze-thaw"])
def test_a_study_reports_its_leader_over_time(scripts: Any, tables: Path, method: str) -> None:
    problem = scripts.problems.load("made_up", tables / "made_up.npz")
    row = scripts.studies.run_study(problem, method, seed=0)
    at, begun, leader = zip(*row["leaders"], strict=True)
    assert list(at) == sorted(at)
    assert at[-1] <= row["budget_s"] * 1.01
    assert list(begun) == sorted(begun)
    led = problem.utility[list(leader)]
    assert led[-1] > np.quantile(problem.utility, 0.7)
    if method == "boil":
        assert min(row["lengths"]) < 50
        assert max(row["log_conditions"]) <= 20.0
    if method in ("bo", "bo_l"):
        assert set(row["lengths"]) == {50}


def test_utility_over_time_and_the_ratio_of_times(scripts: Any, tables: Path) -> None:
    summary, problem = scripts.summary, scripts.problems.load("made_up", tables / "made_up.npz")
    best, worst = int(problem.utility.argmax()), int(problem.utility.argmin())
    row = {"budget_s": 100.0, "leaders": [[25.0, 1, worst], [50.0, 2, best]]}
    utility = summary.utilities(problem, row)
    assert utility[[98, 99, 198, 199]].tolist() == pytest.approx(
        [problem.utility.mean(), problem.utility[worst], problem.utility[worst], problem.utility[best]]
    )
    late = summary.utilities(problem, {"budget_s": 100.0, "leaders": [[80.0, 2, best]]})
    assert summary.ratio(utility[None], late[None]) == pytest.approx(50.0 / 80.0)
    assert summary.ratio(late[None], utility[None]) == pytest.approx(80.0 / 50.0)


@pytest.mark.benchmark_run
def test_the_comparison_is_stored_summarised_and_drawn(
    scripts: Any, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(scripts.compare, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(scripts.compare, "table_paths", lambda data: {"made_up": tables / "made_up.npz"})
    known = scripts.studies.METHODS
    for method in known.keys() - {"boil", "bo", "bo_l", "hyperband", "cm_tf_bo"}:
        monkeypatch.delitem(known, method)
    order = ["-o", tmp_path / "out", "--seeds", 1]
    _, result = run_script(scripts.compare, monkeypatch, capsys, *order)
    assert result["measured"]["log_condition"] <= 20.0
    stored = (tmp_path / "out" / "studies.jsonl").read_text()
    assert len(stored.splitlines()) == 5
    _, again = run_script(scripts.compare, monkeypatch, capsys, *order)
    assert again == result
    assert (tmp_path / "out" / "studies.jsonl").read_text() == stored
    drawn = {path.name for path in (tmp_path / "results").iterdir()}
    assert drawn >= {"compare.json", "utility.png", "best_curves.png", "added_prefixes.png", "weights.png"}


def test_a_smooth_table_on_which_bo_l_beats_random_search(scripts: Any) -> None:
    problem = scripts.problems.load("smooth", Path())
    assert problem.values.shape == problem.costs_s.shape == (2, 400, 50)
    assert not np.array_equal(problem.values[0], problem.values[1])
    rows = [scripts.studies.run_study(problem, method, seed) for method in ("bo_l", "random") for seed in range(2)]
    rows += [row | {"method": "boil"} for row in rows[:2]]
    summary = scripts.summary.summary_of(problem, rows)
    assert summary["bo_l"]["clear"]
    assert summary["bo_l"]["final"] > summary["random"]["final"] + 5.0
    assert summary["boil"]["cost_of_iterations"] == 1.0


def test_methods_are_compared_after_equal_numbers_of_runs(scripts: Any, tables: Path) -> None:
    summary, problem = scripts.summary, scripts.problems.load("made_up", tables / "made_up.npz")
    best, worst = int(problem.utility.argmax()), int(problem.utility.argmin())
    row = {"leaders": [[10.0, 1, worst], [15.0, 2, worst], [30.0, 3, best]]}
    assert summary.after(problem, row, 2) == (problem.utility[worst], 15.0)
    assert summary.after(problem, row, 3) == (problem.utility[best], 30.0)
    assert np.isnan(summary.after(problem, row, 4)).all()

    def make_row(method: str, at: list[float], last: int) -> dict[str, Any]:
        led = [[t, n, worst] for n, t in enumerate(at[:-1], 1)] + [[at[-1], len(at), last]]
        more = {"runs": [[best, 50]], "decide_ms": 1.0, "budget_s": 100.0}
        return {"method": method, "seed": 0, "leaders": led, **more}

    rows = [make_row("boil", [5.0, 10.0, 20.0], best), make_row("bo_l", [20.0, 40.0, 60.0, 80.0], best)]
    found = summary.summary_of(problem, rows)
    assert found["boil"]["iterations"] == 3
    assert found["boil"]["cost_of_iterations"] == pytest.approx(20.0 / 60.0, abs=1e-4)
    assert found["boil"]["after_iterations"] == pytest.approx(problem.utility[best], abs=1e-4)
    assert found["bo_l"]["after_iterations"] == pytest.approx(problem.utility[worst], abs=1e-4)


def test_short_runs_lose_improvement_and_gain_cost(
    scripts: Any, tables: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(scripts.problems, "OWN", tables)
    code, result = run_script(scripts.short_runs, monkeypatch, capsys, "--quick")
    measured = result["measured"]["made_up"]
    assert code == 0
    # Full length is what the others are compared with.
    assert measured["improvement"][-1] == measured["price"][-1] == 0.0
    assert measured["improvement"][0] < 0.0 < measured["price"][0] <= np.log(11.0)


@pytest.mark.parametrize("method", ["boil printed", "boil programs"])
def test_the_variants_of_paper_and_programs_choose_their_lengths(scripts: Any, tables: Path, method: str) -> None:
    problem = scripts.problems.load("made_up", tables / "made_up.npz")
    row = scripts.studies.run_study(problem, method, seed=0)
    if method == "boil printed":
        assert np.median(row["lengths"]) == 10.0  # the shortest there are
    else:
        assert min(row["lengths"]) >= 20


def test_full_curves_are_ill_conditioned_and_selected_prefixes_are_not(scripts: Any, tables: Path) -> None:
    pytest.importorskip("matplotlib")
    problem = scripts.problems.load("made_up", tables / "made_up.npz")
    none, selected, full = (scripts.conditioning.conditions(problem, way, 0, 5) for way in ("none", "selected", "full"))
    assert [row["points"] for row in none] == [1, 2, 3, 4, 5]
    assert [row["points"] for row in full] == [41, 82, 123, 164, 205]  # every whole step from 10 to 50
    assert none[-1]["points"] < selected[-1]["points"] < full[-1]["points"]
    by = {floor: scripts.conditioning.prefixes_by([problem], floor, 1, 4) for floor in ("variance", "std")}
    assert by["variance"]["a_run"] < by["std"]["a_run"]
    assert by["variance"]["stopped_by_it"] > by["std"]["stopped_by_it"] == 0.0
    assert none[-1]["log_condition"] <= selected[-1]["log_condition"] <= 20.0 < 25.0 < full[-1]["log_condition"]


def test_end_to_end_on_an_agent_that_learns_immediately(
    scripts: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    pytest.importorskip("torch")

    def train(task: Any, config: dict[str, float], seed: int) -> Iterator[float]:
        while True:
            time.sleep(1e-3)  # a budget of seconds must end
            yield 200.0 * config["gamma"] * (config["lr"] > 1e-4)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scripts.tasks.Task, "train", train)
    code, result = run_script(scripts.end_to_end, monkeypatch, capsys, "--seconds", 3)
    assert code == 0
    assert result["measured"]["second_half"] >= 160.0
    assert result["measured"]["config"]["lr"] > 1e-4
    assert 3 <= result["measured"]["runs"] <= 20


def test_the_table_of_the_printed_form_is_that_of_its_studies(scripts: Any) -> None:
    found = json.loads((FOLDER / "results" / "as_printed.json").read_text())
    page = (FOLDER / "README.md").read_text("utf-8")
    names = {"boil": "BOIL (ours)", "boil printed": "with soft-plus only", "boil as printed": "all as printed"}
    for measure in ("over_time", "at_end"):
        for method, name in names.items():
            cells = [name]
            for table in ("cartpole", "inverted_pendulum", "reacher", "cnn", "smooth"):
                values = np.array(found[table][method][measure])
                assert values.size == 10
                low, high = scripts.summary.interval(
                    lambda places, values=values: float(values[places].mean()), values.size
                )
                digits = 3 if table == "cnn" else 1
                cells.append(f"{values.mean():.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]")
            assert f"| {' | '.join(cells)} |" in page
