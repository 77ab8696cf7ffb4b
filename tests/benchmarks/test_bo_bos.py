"""The experiments of benchmarks/bo_bos in miniature: tasks train, tables are recorded, studies are compared."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoestring.core.space.space import Space
from shoestring.runners.simulated.recorded_table import Table

FOLDER = Path(__file__).parents[2] / "benchmarks" / "bo_bos"


def blobs(n: int = 120) -> tuple[Any, Any]:
    """Return three classes of points around three corners."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=n)
    corners = np.eye(3, 4) + 0.15 * np.arange(4)
    return (corners[labels] + 0.15 * rng.standard_normal((n, 4))).astype(np.float32), labels


@pytest.fixture
def table(tmp_path: Path, scripts: Any) -> Path:
    """Write a table of 30 decaying curves with different ends."""
    epochs = np.arange(1, 21)
    rows = []
    for number, x in enumerate(np.random.default_rng(0).random(30)):
        end = 0.1 + 0.5 * abs(x - 0.6)
        errors = end + 0.3 * np.exp(-epochs / 4.0)
        rows.append(
            {"number": number, "config": {"x": x}, "errors": errors.tolist(), "seconds": (2.0 * epochs).tolist()}
        )
    scripts.record.write_table("made_up", rows, [], tmp_path / "made_up.npz")
    return tmp_path / "made_up.npz"


def test_logistic_regression_learns_and_is_revealed_step_by_step(scripts: Any) -> None:
    tasks = scripts.tasks
    images, labels = blobs()
    space = Space(
        {"learning_rate": tasks.Float(0.01, 1.0), "l2": tasks.Float(0.0, 1.0), "batch_size": tasks.Int(5, 50)}
    )
    calls: list[object] = []

    def train(config: Any) -> Any:
        calls.append(config)
        return tasks.logistic_regression(images, labels, 90, config, epochs=6)

    config = {"learning_rate": 0.5, "l2": 0.0, "batch_size": 10}
    source = tasks.TaskSource(tasks.Task("blobs", space, train))
    shown = [source.step(config, step) for step in range(1, 8)]
    assert len(calls) == 1
    assert shown[-1] is None
    assert shown[5].value < 0.1
    assert sum(outcome.cost.train for outcome in shown[:6]) == pytest.approx(source.curve(config).seconds[-1])
    assert source.curve(config).score == shown[5].value


def test_each_epoch_of_boosted_trees_has_one_more_feature(scripts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xgboost")
    monkeypatch.setattr(scripts.tasks, "MAILS_TO_TRAIN", 90)
    x, labels = blobs()
    config = {"learning_rate": 0.3, "max_depth": 3, "feature_share": 1.0, "l1": 0.0}
    curve = scripts.tasks.boosted_features(x, labels, config, epochs=4)
    assert curve.errors[-1] < curve.errors[0]
    assert (np.diff(curve.seconds) >= 0.0).all()


def test_a_return_of_the_swimmer_lies_in_the_unit_interval_and_never_falls(scripts: Any) -> None:
    pytest.importorskip("mujoco")
    tasks = scripts.tasks
    config = tasks.SWIMMER.from_cube(np.random.default_rng(0).random(16))
    for discount in (1.0, 0.9):
        errors = tasks.swimmer(config, discount, epochs=3).errors
        assert (errors >= 0.0).all()
        assert (errors <= 1.0).all()
        assert (np.diff(errors) <= 0.0).all()


def test_the_network_is_trained_and_a_run_that_diverges_ends(scripts: Any) -> None:
    torch = pytest.importorskip("torch")
    cnn = scripts.cnn
    torch.manual_seed(0)
    data = (torch.randn(64, 1, 28, 28), torch.arange(64) % 10, torch.randn(20, 1, 28, 28), torch.arange(20) % 10)
    config = {**cnn.spread(cnn.SPACE, 1)[0], "learning_rate": 0.01, "filters": 8}
    errors, seconds = cnn.train(config, data, 2, 0)
    assert len(errors) == len(seconds) == 2
    errors, seconds = cnn.train({**config, "learning_rate": 1e12}, data, 5, 0)
    assert len(errors) == len(seconds) < 5
    assert errors[-1] == cnn.GUESSING


def test_a_recorded_task_is_a_table_and_is_not_trained_twice(scripts: Any, tmp_path: Path) -> None:
    tasks, record = scripts.tasks, scripts.record
    images, labels = blobs()
    calls: list[object] = []

    def train(config: Any) -> Any:
        calls.append(config)
        return tasks.logistic_regression(images, labels, 90, config, epochs=3)

    job = tasks.Task("blobs", tasks.LOGREG, train)
    record.record(job, 3, tmp_path / "blobs.jsonl")
    record.record(job, 5, tmp_path / "blobs.jsonl")
    assert len(calls) == 5
    record.write_table("blobs", record.runs_of(tmp_path / "blobs.jsonl"), job.space.log_names, tmp_path / "blobs.npz")
    table = Table.load(tmp_path / "blobs.npz")
    assert len(table.configs) == 5
    assert table.max_steps == 3
    assert table.direction == "min"


def test_an_incomplete_line_is_skipped(scripts: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a": 2, "b')
    assert scripts.compare.read(tmp_path / "rows.jsonl") == [{"a": 1}]


def test_studies_are_compared_with_gp_ucb(scripts: Any, table: Path) -> None:
    studies, compare = scripts.studies, scripts.compare
    studies.METHODS["bo_bos"] = ("bo_bos", {"paths": 2000})
    problem = studies.recorded_problem(table)
    rows = [studies.run_study(problem, method, 0) for method in ("gp_ucb", "bo_bos", "oracle")]
    reference, bos, oracle = rows
    assert all(row["epochs"] == 200 for row in rows)
    assert all(steps == 20 for steps, _ in reference["runs"])
    assert reference["improved"][0][2] == 2.0
    assert [lowest for _, lowest in bos["runs"][:6]] == [lowest for _, lowest in reference["runs"][:6]]
    assert {steps for steps, *_ in oracle["stopped"]} == {studies.warm_up(problem) + 1} == {4}
    found = compare.summarise(rows)["made_up"]
    assert found["gp_ucb"]["ratio_of_means"] == 1.0
    assert found["oracle"]["mistakes"] == found["oracle"]["winners_lost"] == 0.0
    assert found["gp_ucb"]["epochs"] == {"design": 0.6, "finished": 0.4, "first_steps": 0.0, "further_steps": 0.0}
    assert sum(found["bo_bos"]["epochs"].values()) == pytest.approx(1.0, abs=0.003)
    assert found["oracle"]["ratio_of_means"] <= 1.0
    measured, ok = compare.show({"made_up": found})
    assert json.loads(json.dumps(measured))["ok"] is ok


def test_the_page_has_the_tables_of_the_results(scripts: Any) -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    for one in scripts.page.tables(json.loads(scripts.curves.SUMMARY.read_text(encoding="utf-8"))):
        assert one in page, f"README.md differs from results/curves.json, which says\n{one}"


def test_a_panel_leaves_out_methods_with_few_seeds(scripts: Any) -> None:
    """Lines share their seeds, so a method with three seeds would limit all others to three."""
    pytest.importorskip("matplotlib")
    row: dict[str, Any] = {"epochs": 20, "train_s": 20.0, "design": 5, "improved": [[1, 0.5, 1.0], [9, 0.2, 9.0]]}
    rows = [row | {"method": method, "seed": seed} for method in ("gp_ucb", "bo_bos", "boca") for seed in range(8)]
    panel = scripts.figures.plt.subplots()[1]
    scripts.figures.draw_progress(panel, [r for r in rows if r["method"] != "boca" or r["seed"] < 3], "epochs")
    assert [line.get_label() for line in panel.lines if not line.get_label().startswith("_")] == ["GP-UCB", "BO-BOS"]


def test_hyperband_can_have_the_brackets_of_longer_runs(scripts: Any, table: Path) -> None:
    """Full trainings have 20 steps here. In brackets of 32 steps runs first stop at 1 or 4 steps instead of 2 or 7."""
    problem = scripts.studies.recorded_problem(table, name="made_up")
    lengths = {steps for steps, _ in scripts.studies.run_study(problem, "hyperband 80", 0)["runs"]}
    plain = {steps for steps, _ in scripts.studies.run_study(problem, "hyperband", 0)["runs"]}
    assert {1, 4, 20} <= lengths
    assert {2, 7, 20} <= plain
    assert not {2, 7} & lengths


def test_the_method_as_printed_is_a_row(scripts: Any, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, settings = scripts.studies.METHODS["printed"]
    assert settings | {"paths": 0} == {
        "paths": 0,
        "search_by": "lengths",
        "replan_every": None,
        "refit_every": 10,
    }
    monkeypatch.setitem(scripts.studies.METHODS, "printed", (name, settings | {"paths": 2000}))
    problem = scripts.studies.recorded_problem(table, name="made_up")
    rows = [scripts.studies.run_study(problem, method, 0) for method in ("gp_ucb", "printed")]
    summary = scripts.compare.summarise(rows)["made_up"]["printed"]
    assert summary["seeds"] == 1
    assert summary["mistakes"] <= 0.5


def test_a_summary_contains_the_results_of_earlier_calls(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    curves, compare = scripts.curves, scripts.compare
    monkeypatch.setattr(curves, "SUMMARY", tmp_path / "curves.json")

    def found(means: float | None, seeds: float) -> dict[str, Any]:
        return {"seeds": 3, "ratio_of_means": means, "ratio_of_seeds": seeds}

    curves.update_summary(
        {"a": {"bo_bos": found(0.5, 0.9)}, "b": {"bo_bos": found(None, 0.7), "boca": found(0.7, 0.7)}}
    )
    stored = curves.update_summary({"b": {"bo_bos": found(0.6, 0.7), "printed": found(1.2, 1.0)}})
    assert stored == json.loads((tmp_path / "curves.json").read_text())
    assert list(stored["b"]) == ["bo_bos", "printed", "boca"]  # in the order of the methods
    assert compare.meets(stored, "bo_bos") == {
        "tables": 2,
        "seeds": 3,
        "ratio_of_means": {"at_target": 2, "median": 0.55},
        "ratio_of_seeds": {"at_target": 1, "median": 0.8},
    }
    assert compare.meets(stored, "printed")["ratio_of_means"]["at_target"] == 0
    assert compare.meets(stored, "lc_families") is None


def test_each_surrogate_gets_its_observations(scripts: Any) -> None:
    best = np.linspace(1.0, 0.1, 50) * np.ones((2, 1))
    observations = scripts.surrogates.observations_of(best, np.array([50, 12]))
    assert [seen.loss for seen in observations["truth"][0]] == pytest.approx([0.1, 0.1])
    assert [seen.loss for seen in observations["ends"][0]] == pytest.approx([best[0, 49], best[1, 11]])
    assert [round(50 * seen.share) for seen in observations["lengths"][0]] == [1, 10, 20, 30, 40, 50, 1, 10, 12]
    assert [round(50 * seen.share) for seen in observations["lengths, last"][0]] == [50, 12]


def test_surrogates_are_measured(scripts: Any, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts.surrogates, "KNOWN", 12)
    found = scripts.surrogates.measure(Table.load(table), 1)
    assert found["truth"]["order_of_means"] > 0.8


@pytest.mark.parametrize("picture", ["progress", "swimmer", "stopped"])
def test_pictures_are_drawn(
    picture: str, scripts: Any, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    studies = scripts.studies
    studies.METHODS["bo_bos"] = ("bo_bos", {"paths": 2000})
    rows = [
        studies.run_study(studies.recorded_problem(table), method, seed)
        for method in ("gp_ucb", "hyperband")
        for seed in (0, 1, 2)
    ]
    swims = [
        {"table": "swimmer", "method": "gp_ucb", "epochs": 400, "scores": [[50 * n, -float(n)] for n in range(1, 9)]},
        {"table": "swimmer", "method": "bo_bos", "epochs": 400, "scores": [[50 * n, -2.0 * n] for n in range(1, 8)]},
    ]
    for folder, lines in (("studies", rows), ("live", swims)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    monkeypatch.setattr(scripts.figures, "tables", lambda data: {"made_up": table})
    command = ["figures.py", picture, "--tables", "made_up", "--table", "made_up", "--studies", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [*command, "-o", str(tmp_path)])
    scripts.figures.main()
    assert (tmp_path / f"{picture}.png").stat().st_size > 5000
