"""The online benchmarks apart from training: runs are stored and not repeated, and verdicts are computed correctly."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "online"


def test_runs_are_stored_and_not_repeated(scripts: Any, tmp_path: Path) -> None:
    runs: ModuleType = scripts.runs
    done = []

    def do(method: str, seed: int, factor: float) -> dict[str, Any]:
        if method == "broken":
            raise ValueError("no data")
        done.append((method, seed))
        return {"value": factor * seed}

    def go(methods: list[str], plan: dict[str, Any]) -> list[dict[str, Any]]:
        return list(runs.run_all("task", methods, 2, plan, do, (3.0,), tmp_path, 1))

    first = go(["a:1", "broken"], {"rounds": 4})
    assert [run["value"] for run in first] == [0.0, 3.0]
    assert "no data" in (tmp_path / "task" / "broken-1.error").read_text()
    second = go(["a:1", "b > c"], {"rounds": 4})
    assert done == [("a:1", 0), ("a:1", 1), ("b > c", 0), ("b > c", 1)]
    assert [json.loads(line) for line in (tmp_path / "task.jsonl").read_text().splitlines()] == second
    for path in (tmp_path / "task").iterdir():
        path.unlink()
    assert go(["a:1"], {"rounds": 4}) == second  # the lines alone are enough
    with pytest.raises(SystemExit, match="another plan"):
        go(["a:1"], {"rounds": 5})
    with pytest.raises(SystemExit, match="no finished run"):
        runs.gather(tmp_path, "other")


def contrastive_run(method: str, seed: int, test: float, passes: int) -> dict[str, Any]:
    run = {
        "method": method,
        "seed": seed,
        "test": test,
        "test_quick": test,
        "passes": passes,
        "names": ["crop", "blur"],
    }
    run |= {"decide_s": 0.5, "train_s": 10.0, "validate_s": passes / 10, "watched": [[1, 0.5], [2, test]]}
    return run | {"configs": [[0.5, 0.5], [1.0, 0.0]]}


def test_the_share_of_the_full_query_gain(scripts: Any, tmp_path: Path) -> None:
    report: ModuleType = scripts.contrastive_report
    runs = [contrastive_run("baseline", seed, 0.80 + 0.01 * seed, 0) for seed in range(2)]
    runs += [contrastive_run("TV-GP-UCB", seed, 0.82 + 0.01 * seed, 100) for seed in range(2)]
    runs += [contrastive_run("CE@0.8", seed, 0.819 + 0.01 * seed, 58) for seed in range(2)]
    runs += [contrastive_run("CE@0.7", seed, 0.815 + 0.01 * seed, 30) for seed in range(2)]
    verdict = report.judge(runs)
    assert verdict["ok"]
    uneven = report.judge([*runs, contrastive_run("TV-GP-UCB", 2, 0.9, 100), contrastive_run("baseline", 2, 0.8, 0)])
    assert uneven["measured"]["CE@0.8"] == verdict["measured"]["CE@0.8"]  # only seeds that both have are compared
    assert verdict["measured"]["CE@0.8"] == {"gain_share": 0.95, "passes": 0.58, "over_full": -0.1, "over_full_se": 0.0}
    assert not report.judge([run for run in runs if run["method"] != "CE@0.8"])["ok"]
    worse = [run | {"test": 0.7} if run["method"] == "TV-GP-UCB" else run for run in runs]
    assert report.judge(worse)["measured"]["CE@0.8"]["gain_share"] is None
    assert "| CE@0.8 | 2 | 82.40 ± 0.50 | +1.90 ± 0.00 | 82.40 ± 0.50 | 58 | 1.63x | 77.62, 1.71x |" in report.table(
        runs
    )
    report.figure(runs, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size > 1000


def test_effects_are_estimated_from_the_runs(scripts: Any) -> None:
    report: ModuleType = scripts.contrastive_report
    rng, level, values, configs = np.random.default_rng(0), 0.8, [], []
    for round in range(1, 201):
        config = rng.random(2)
        level += 0.01 * (0.7 * config[0] - 0.2 * config[1] - 0.3 * (100.0 * level - 80.0))
        values.append([round, level])
        configs.append(config.tolist())
    run = {"names": ["crop", "blur"], "plan": {"rounds": 200}, "validated": values, "configs": configs}
    text = report.effects([run, {**run, "validated": []}])
    assert "| crop | +0.70 ± 0.00 | +0.70 ± 0.00 | +0.70 ± 0.00 | +0.70 ± 0.00 |" in text
    assert "| level before | -0.30" in text
    assert "| explained |  |  |  |  |" in report.effects([{**run, "validated": values[:3]}])


def test_time_is_relative_to_tuning_at_every_step(scripts: Any, tmp_path: Path) -> None:
    report: ModuleType = scripts.self_tuning_report

    def run(method: str, loss: float, tuning_steps: int, passes: int) -> dict[str, Any]:
        result = {
            "method": method,
            "seed": 0,
            "validation_loss": loss,
            "validation": 0.9,
            "test_loss": loss,
            "test": 0.9,
        }
        result |= {"plan": {"rounds": 4, "steps": 2}, "tuning_steps": tuning_steps, "train_s": 8.0 + 1.0 * tuning_steps}
        result |= {"passes": passes, "decide_s": 0.0, "validate_s": 1.0 * passes, "arms": ".:tT"}
        result |= {"hyper_names": ["dropout_1", "dropout_out", "noise"], "hyper": [[0.1, 0.1, 0.1], [0.2, 0.4, 0.9]]}
        return result | {"watched": [[2, 0.5, 0.8], [4, loss, 0.9]]}

    runs = [run("1:1", 0.30, 8, 0), run("UCB1, Ber(0.2)", 0.31, 6, 2), run("CE@0.8", 0.29, 4, 1)]
    assert report.judge(runs)["ok"]
    assert not report.judge([*runs, run("CE@0.7", 0.32, 4, 1)])["ok"]
    line = next(line for line in report.table(runs).splitlines() if line.startswith("| CE@0.8"))
    assert line == "| CE@0.8 | 0.2900 | 90.00 | 0.2900 | 90.00 | 0.30 | 50% | 1 | 0.81x | 0.404, 88.1, 1.21x |"
    assert not report.judge([*runs, run("2:1", 0.28, 4, 0)])["ok"]  # schedules are rivals, too
    runs += [run("never", 0.50, 0, 0), run("1:1 > 2:1", 0.33, 6, 0)]
    assert report.at_equal_time(runs, "CE@0.8") == pytest.approx({0: 0.375})  # 8 + 4 + 1 of the 8 to 16 seconds
    text = report.compare(runs)
    assert "| CE@0.8 | -0.010 | -0.085 | -0.020 |" in text
    assert "| 1:1 > 2:1 | +0.030 | -0.020 |  |" in text
    report.figure(runs, tmp_path / "figure.svg")


def test_an_interrupted_table_a1_continues(scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table_a1: ModuleType = scripts.table_a1
    monkeypatch.setattr(table_a1, "ROUNDS", 40)
    whole = table_a1.simulate(2, tmp_path / "whole", [*table_a1.methods()])
    table_a1.simulate(1, tmp_path / "cut", [*table_a1.methods()])
    with (tmp_path / "cut" / "table_a1.jsonl").open("a") as file:
        file.write('{"function": "sine", "se')
    assert table_a1.simulate(2, tmp_path / "cut", [*table_a1.methods()]) == whole
    assert set(whole["UCB1, Ber(0.1)"]["sine"]) == {"R", "C"}


def test_a_reading_without_a_change_is_the_policy(scripts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings of Table A2 are implemented on the models; without a change they decide as the policies do."""
    a2: ModuleType = scripts.table_a2
    monkeypatch.setattr(a2, "ROUNDS", 60)
    monkeypatch.setattr(a2, "POINTS", 80)
    x = np.linspace(0.0, 1.0, 80)
    kernel = a2.Kernel.ard("matern32", 1).matrix(np.log([1.0, 0.2]), x[:, None], x[:, None])
    rng = np.random.default_rng(0)
    truth = a2.draw_drift(np.linalg.cholesky(kernel + 1e-10 * np.eye(80)), 0.03, rng)
    noise = rng.normal(0.0, a2.NOISE_STD, 60)
    space = a2.Space.from_configs([{"x": float(v)} for v in x])
    for name, plain in (("CE@0.90", a2.Reading(0.03, kappa=0.9)), ("CE@*", a2.Reading(0.03))):
        assert a2.one_run(a2.rows(0.03)[name], space, truth, noise, 0) == pytest.approx(
            plain.run(kernel, truth, noise, 0)
        )
    alone = a2.Reading(0.03, kappa=0.9, bandwidth=2.0).run(kernel, truth, noise, 0)
    assert alone[1] == 60  # one mode has no competitor, so every round validates
    place = np.linspace(0.0, 1.0, 11)[:, None]
    heights = np.array([0.0, 0.9, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.2, 0.1])
    far, near = (a2.Reading(0.03, bandwidth=b)._competitors(place, heights, 3).tolist() for b in (0.25, 0.05))
    assert (far, near) == ([8], [1, 8])  # the neighbour at 0.1 belongs to the hump of x_t, the one at 0.8 does not
    late = a2.Reading(0.03, chance=0.5, by_observations=True).run(kernel, truth, noise, 0)
    assert late != a2.Reading(0.03, chance=0.5).run(kernel, truth, noise, 0)


def test_the_distance_from_the_paper_is_computed_for_both_readings(scripts: Any) -> None:
    a2: ModuleType = scripts.table_a2
    printed = a2.PAPER["CE@0.90"]
    exact = {str(rate): {"R": [r], "C": [c + 1]} for rate, (r, c) in zip(a2.RATES, printed, strict=True)}
    off = {rate: {"R": [one["R"][0] + 0.1], "C": [2 * one["C"][0]]} for rate, one in exact.items()}
    assert a2.fits_better({"CE@0.90": off, f"CE@0.90{a2.MERGED}": exact}) == {"CE@0.90": [[0.1, 100.0], [0.0, 0.0]]}


def test_a_length_scale_is_fitted_by_likelihood(scripts: Any) -> None:
    a1: ModuleType = scripts.table_a1
    rng = np.random.default_rng(0)
    t = np.sort(rng.choice(2000, 90, replace=False))
    k = 0.25 * np.exp(-0.5 * ((t[:, None] - t) / 60.0) ** 2)
    values = a1.MEAN + np.linalg.cholesky(k + 1e-9 * np.eye(90)) @ rng.standard_normal(90)
    seen = [[(int(at), float(y)) for at, y in zip(t[i::3], values[i::3], strict=True)] for i in range(3)]
    lengthscale, variance = a1.fit_arms([seen[0] + seen[1] + seen[2], [], []], a1.FIT_BOUNDS)
    assert 30.0 < lengthscale < 120.0
    assert 0.1 <= variance <= 1.0
    assert a1.fit_arms(seen, (25.0, 0.5))[0] <= 25.0


def test_a_small_table_a2_is_simulated_shown_and_judged(
    scripts: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    a2: ModuleType = scripts.table_a2
    monkeypatch.setattr(a2, "ROUNDS", 20)
    monkeypatch.setattr(a2, "POINTS", 40)
    found = a2.simulate(2, "TV-GP-UCB;CE@0.90;CE@*;readings", (0.03,))
    assert len(found) == 3 + len(a2.readings(0.03))
    assert found["TV-GP-UCB"]["0.03"]["C"] == [20, 20]
    a2.show(found)
    output = capsys.readouterr().out
    assert "CE@0.90, competitors merged" in output
    assert output.count("(0.322 / 233)") == 2  # the paper's row stands beside both readings of it
    assert set(a2.fits_better(found)) == {"CE@0.90", "CE@*"}
    assert a2.judge(found)["measured"].keys() == a2.judge(found)["target"].keys()


@pytest.mark.benchmark_run
def test_rows_of_table_a2_from_another_machine_are_added(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    a2: ModuleType = scripts.table_a2
    before = json.loads((a2.RESULTS / "table_a2.json").read_text())
    (tmp_path / "table_a2.json").write_text(json.dumps(before))
    row = {str(rate): {"R": [0.25], "C": [7]} for rate in a2.RATES}
    (tmp_path / "more.json").write_text(json.dumps({"CE@0.90, competitors merged": row}))
    monkeypatch.setattr(a2, "RESULTS", tmp_path)
    monkeypatch.setattr("sys.argv", ["table_a2", "--merge", str(tmp_path / "more.json")])
    with pytest.raises(SystemExit):
        a2.main()
    after = json.loads((tmp_path / "table_a2.json").read_text())
    assert after == before | {"CE@0.90, competitors merged": row}
    assert "| CE@0.90, competitors merged | 0.250±0.000 / 7" in capsys.readouterr().out


def stored_runs(task: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / "results" / f"{task}.jsonl").read_text().splitlines()]


def missing_from_page(printed: str) -> list[str]:
    """Return the rows of a printed table that the page does not have."""
    page = (FOLDER / "README.md").read_text().splitlines()
    return [line for line in printed.splitlines() if line.startswith("| ") and line not in page]


def test_the_page_has_the_tables_of_the_results(scripts: Any, capsys: Any) -> None:
    assert missing_from_page("| nobody | 1.0 |") == ["| nobody | 1.0 |"]
    for name in ("table_a1", "table_a2"):
        script = getattr(scripts, name)
        script.show(json.loads((script.RESULTS / f"{name}.json").read_text()))
        assert missing_from_page(capsys.readouterr().out) == []
    race = stored_runs("few_images_race")
    report = scripts.self_tuning_report
    assert missing_from_page(report.table(race)) == missing_from_page(report.compare(race)) == []
    for task in ("contrastive", "factorial_race"):
        assert missing_from_page(scripts.contrastive_report.table(stored_runs(task))) == []
