"""Stored races and their reports: nothing is lost, rows follow a rule, and the real clock is fair to all methods."""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from benchmarks.race import (
    command,
    cost,
    digest,
    methods,
    page,
    pictures,
    problems,
    results,
    running,
    statistics,
    trained,
)

ROOT = Path(__file__).parents[2]
STORED = ROOT / "benchmarks" / "race" / "results" / "race.json"
METHODS = (
    *("sequential_halving", "guided_halving", "random_search"),
    *("optuna_tpe_median", "optuna_tpe_hyperband", "dehb_default"),
)


def line(**changes: Any) -> dict[str, Any]:
    record = {
        "suite": "tables",
        "unit": "curves",
        "steps": 50,
        "pool": None,
        "source": "klein_cnn_cifar10",
        "table": "t",
    }
    record |= {
        "method": "asha",
        "budget": 1.0,
        "seed": 0,
        "at": "2026-01-01T00:00:00+00:00",
        "version": "1",
        "best": 0.5,
    }
    record |= {"start": 1.0, "regret": 0.5, "thinking_s": 0.1, "decisions": 4, "trials": 2, "error": None}
    return record | changes


def some_lines() -> list[dict[str, Any]]:
    rng = np.random.default_rng(3)
    tables = [("klein_cnn_cifar10", "cnn"), ("algoperf", "wmt"), ("algoperf", "fastmri")]
    lines = [
        line(source=source, table=table, method=method, budget=budget, seed=seed, regret=float(rng.random()))
        | {"thinking_s": float(rng.random()), "decisions": int(rng.integers(9)) + 1, "trials": int(rng.integers(9))}
        for (source, table), method, budget, seed in product(tables, METHODS, (1.0, 5.0), range(3))
        if not (method == "dehb_default" and (budget == 5.0 or seed == 0))  # like a slow method that was stopped
    ]
    lines[7]["error"] = 'boom {"a": 1}, and more'
    tasks = [line(suite="trained", unit="seconds", source="xgboost", table="diabetes", method=m) for m in METHODS[:4]]
    return lines + [{**task, "best": 60.0, "start": 80.0, "lanes": 8, "cores": 2} for task in tasks]


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


# stored races ----------------------------------------------------------------------------------------------------------------


def test_a_stored_race_has_the_statistics_of_its_runs(tmp_path: Path) -> None:
    runs = write(tmp_path / "runs.jsonl", some_lines())
    costs = write(tmp_path / "cost.jsonl", [{"method": "asha", "arms": 50, "mean_ms": 1.5}])
    assert command.main(["store", str(runs), "--cost", str(costs), "-o", str(tmp_path / "race.json")]) == 0
    stored = json.loads((tmp_path / "race.json").read_text())
    assert stored["cost"] == [{"method": "asha", "arms": 50, "mean_ms": 1.5}]
    known = statistics.summary([trained.rescale_regret(one) for one in some_lines()], resamples=20)
    found = statistics.summary(results.unpack(stored), resamples=20)
    assert (found["runs"], found["from"], found["to"]) == (known["runs"], known["from"], known["to"])
    for part, own in zip(found["parts"], known["parts"], strict=True):
        assert [(row["method"], row["cells"]) for row in part["means"]] == [
            (r["method"], r["cells"]) for r in own["means"]
        ]
        for name in ("mean", "low", "high"):
            assert [row[name] for row in part["means"]] == pytest.approx([row[name] for row in own["means"]], abs=1e-4)
        assert part["lanes"] == own["lanes"]
        for row, same in zip(part["effort"], own["effort"], strict=True):
            rounded = {name: pytest.approx(same[name], rel=1e-2) for name in ("decision_ms", "trials")}
            assert row == {**same, **rounded}


def test_a_stored_race_is_reported_like_its_runs(tmp_path: Path, capsys: Any) -> None:
    results.write(results.pack(some_lines(), []), tmp_path / "race.json")
    for path in (tmp_path / "race.json", write(tmp_path / "runs.jsonl", some_lines())):
        assert command.main(["report", str(path), "--markdown", "few", "--resamples", "5"]) == 0
    stored, raw = np.array_split(capsys.readouterr().out.splitlines(), 2)
    assert len(stored) > len(METHODS)
    # The last column is left out: regrets on the real clock use the present lowest losses.
    assert [row.split("|")[:-2] for row in stored] == [row.split("|")[:-2] for row in raw]


def test_a_repeated_run_replaces_the_stored_one(tmp_path: Path) -> None:
    old = write(tmp_path / "old.jsonl", [line(regret=0.5), line(regret=0.4, seed=1), line(method="bhpt", version="0")])
    new = write(tmp_path / "new.jsonl", [line(regret=0.1, version="2"), line(regret=0.2, seed=2, version="2")])
    stored = tmp_path / "race.json"
    costs = [write(tmp_path / f"cost{ms}", [{"method": "asha", "arms": 50, "mean_ms": ms}]) for ms in (1.0, 2.0)]
    command.main(["store", str(old), "--cost", str(costs[0]), "-o", str(stored)])
    for _ in range(2):  # the second time changes nothing
        command.main(["store", str(stored), str(new), "--cost", str(costs[1]), "-o", str(stored)])
        assert [row["mean_ms"] for row in json.loads(stored.read_text())["cost"]] == [2.0]
        (part,) = json.loads(stored.read_text())["parts"]
        assert part["methods"]["asha"]["regret"] == {"klein_cnn_cifar10/t": {"1": [1000, 4000, 2000]}}
        assert part["methods"]["asha"]["versions"] == ["1", "2"]
        assert part["methods"]["bhpt"]["versions"] == ["0"]


def test_a_run_in_two_files_counts_once(tmp_path: Path, capsys: Any) -> None:
    one, two = (write(tmp_path / name, some_lines()[:n]) for name, n in (("a.jsonl", 9), ("b.jsonl", 12)))
    command.main(["report", str(one), str(two), "--json", "--resamples", "2"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["runs"] == 12
    assert sum(row["runs"] for row in facts["parts"][0]["effort"]) == 12


# reports ----------------------------------------------------------------------------------------------------------


def test_the_short_report_has_our_methods_and_the_best_of_each_tool(capsys: Any, tmp_path: Path) -> None:
    regrets = dict(zip(METHODS, (0.2, 0.1, 0.9, 0.5, 0.4, 0.3), strict=True))
    lines = [line(method=method, regret=regret) for method, regret in regrets.items()]
    lines += [
        line(suite="trained", unit="seconds", source="xgboost", table="diabetes", method="guided_halving", best=60.0)
    ]
    runs = write(tmp_path / "runs.jsonl", [*lines, line(method="oracle", regret=0.0), line(method="hyperband")])
    arguments = ["report", str(runs), "--resamples", "5", "--markdown", "few", "--figure", str(tmp_path / "a.svg")]
    assert command.main(arguments) == 0
    lines_out = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in lines_out if row.startswith("|")]
    assert lines_out[0].startswith("1 tables of 1 sources, 1 seeds unless another number is given; †")
    assert lines_out[-1].startswith("| `random_search` |")
    assert rows[0] == ["", "1", "real clock"]
    assert [row[:2] for row in rows[2:]] == [
        ["`guided_halving`, our default", "**.100**"],
        ["`sequential_halving`", ".200"],
        ["DEHB, default", ".300"],
        ["Optuna, tpe hyperband", ".400"],
        ["`random_search`", ".900"],
    ]
    assert [row[2] == "–" for row in rows[2:]] == [False, True, True, True, True]
    ElementTree.parse(tmp_path / "a.svg")
    assert "prefers-color-scheme: dark" in (tmp_path / "a.svg").read_text()


def test_a_mean_of_an_incomplete_race_is_marked() -> None:
    lines = [line(table=table, budget=budget, seed=seed) for table in "ab" for budget in (1.0, 2.0) for seed in (0, 1)]
    slow = [{**one, "method": "dehb_default", "regret": 0.3} for one in lines]
    del slow[-1]
    facts = statistics.summary([{**one, "method": "sequential_halving"} for one in lines] + slow, resamples=5)
    rows = [row.split("|")[1:-1] for row in digest.short_report(facts).splitlines() if row.startswith("|")][2:]
    assert rows == [
        [" DEHB, default ", " **.300** ", " **.300†** "],
        [" `sequential_halving` ", " .500 ", " .500 "],
    ]
    assert page.html(facts).count("†") == 2  # the mark and its explanation


def test_budgets_in_seconds_have_their_own_table_and_are_named_among_the_losses() -> None:
    names = ("sequential_halving", "asha", "dehb_default")
    lines = [line(method=m, regret=r, seed=s) for m, r in zip(names, (0.2, 0.4, 0.3), strict=True) for s in (0, 1)]
    priced = [{**one, "unit": "seconds", "budget": 3.0, "regret": 0.5 - one["regret"]} for one in lines[:-1]]
    facts = statistics.summary(lines + priced, resamples=5)
    text = digest.full_report(facts, [])
    curves, seconds = text.split("Budgets in seconds, for tables with costs")
    assert "| `sequential_halving` | **.200** |" in curves
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in seconds.splitlines() if row.startswith("|")]
    assert rows[0] == ["", "3"]
    assert rows[2:] == [
        ["`asha`", "**.100**"],
        ["DEHB, default (1 seeds)", ".200"],
        ["`sequential_halving`", ".300"],
    ]
    assert "- at 3 in seconds: `asha`, by .200" in seconds
    assert "- at 3 in seconds: DEHB, default, by .100" in seconds
    assert "Recorded curves, budgets in seconds: 2 for asha, sequential_halving; 1 for dehb_default." in page.html(
        facts
    )


def test_plain_objectives_have_medians_next_to_means() -> None:
    plain = {"suite": "plain", "unit": "seconds", "source": "functions", "table": "branin", "budget": 20.0}
    lines = [line(**plain, method="cost_aware_ei", seed=s, regret=r) for s, r in enumerate((0.1, 0.1, 9.0))]
    lines += [line(**plain, method="optuna_tpe", seed=s, regret=0.3) for s in range(2)]
    text = digest.full_report(statistics.summary([line(method="asha"), *lines], resamples=5), [])
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in text.splitlines() if row.startswith("|")]
    assert rows[-4] == ["", "20", "20, median"]
    assert rows[-2:] == [["Optuna, tpe (2 seeds)", "**.300**", ".300"], ["`cost_aware_ei`", "3.067", "**.100**"]]


def test_decision_times_are_sorted_by_the_largest_study() -> None:
    found = {("asha", 50): 1.0, ("asha", 200): 9.0, ("boca", 50): 2.0, ("boca", 200): 3.0, ("gp_ucb", 50): 4.0}
    lines = [{"method": m, "arms": n, "mean_ms": ms, "memory_mb": 7.0, "error": None} for (m, n), ms in found.items()]
    lines.append({"method": "gp_ucb", "arms": 200, "absent": "gone"})
    text = digest.full_report(statistics.summary([line(method="asha")], resamples=5), lines)
    rows = [row for row in text.splitlines() if row.startswith("|")]
    assert rows[-3:] == ["| `boca` | 2 (7) | 3 (7) |", "| `gp_ucb` | 4 (7) | – |", "| `asha` | 1 (7) | 9 (7) |"]


def test_ranks_use_the_budgets_of_the_reference_and_the_methods_that_have_them_all() -> None:
    lines = [line(method=m, budget=b) for m, b in product(("sequential_halving", "asha", "dehb_default"), (1.0, 2.0))]
    lines += [line(method="dehb_default", budget=20.0), line(method="bhpt", budget=1.0)]
    found = statistics.ranks(statistics.Grid.from_runs(lines), "sequential_halving")
    assert found["budgets"] == [1.0, 2.0]
    assert set(found["ranks"]) == {"sequential_halving", "asha", "dehb_default"}
    assert found["left_out"] == ["bhpt"]


def test_every_tool_has_a_display_name() -> None:
    from benchmarks.race.peers import environments

    assert set(environments.TOOLS) == set(digest.NAMES)


def test_the_page_marks_tables_that_were_known_and_says_how_runs_shared_the_machine() -> None:
    text = page.html(statistics.summary(some_lines(), resamples=5))
    assert "<li>algoperf/wmt ●</li>" in text
    assert "<li>klein_cnn_cifar10/cnn</li>" in text
    assert "8 runs at a time, each on 2 cores of its own, in random order" in text


# the README ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    contents = json.loads(STORED.read_text())
    return {**statistics.summary(results.unpack(contents), resamples=1000), "cost": contents["cost"]}


def test_a_method_with_runs_on_the_real_clock_only_has_a_row() -> None:
    clock = {"suite": "trained", "unit": "seconds", "source": "mlp", "table": "digits"}
    facts = statistics.summary([line(), line(**clock), line(**clock, method="ray_pbt")], resamples=5)
    rows = [row.split("|")[1:-1] for row in digest.full_report(facts, []).splitlines() if row.startswith("| Ray")]
    assert [[cell.strip() for cell in row] for row in rows] == [["Ray Tune, pbt", "–", "**.500**"]]


def test_the_readmes_and_the_figure_agree_with_the_stored_race(stored: dict[str, Any]) -> None:
    assert digest.short_report(stored) in (ROOT / "README.md").read_text()
    assert digest.full_report(stored, stored["cost"]) in (ROOT / "benchmarks" / "race" / "README.md").read_text()
    assert (ROOT / "docs" / "pictures" / "race.svg").read_text() == digest.picture(stored)


def test_the_picture_shows_our_default_and_other_tools_with_their_intervals(stored: dict[str, Any]) -> None:
    """A dot is at the mean of the default plus the difference on common runs; its bar is the interval of this difference."""
    part, svg = stored["parts"][0], digest.picture(stored)
    labels = {"optuna_tpe_halving": "Optuna, tpe halving", "random_search": "random_search"}
    means = {row["budget"]: row["mean"] for row in part["means"] if row["method"] == "guided_halving"}
    assert len(means) >= 5
    for row in part["from_default"]:
        if row["method"] in labels:
            ends = (means[row["budget"]] - row[name] for name in ("difference", "high", "low"))
            middle, low, high = map(pictures.number, ends)
            assert f"<title>{labels[row['method']]}: {middle} [{low}, {high}]</title>" in svg
    assert all(f">{name}, " in svg for name in ("Optuna", "Ray Tune", "SMAC", "DEHB", "NePS", "Syne Tune 0.13"))


def test_a_bar_that_does_not_reach_the_default_is_beyond_chance() -> None:
    rows = [
        {"method": method, "budget": 5.0, "difference": -0.2, "low": -0.3, "high": high}
        for method, high in (("worse", -0.1), ("unclear", 0.1))
    ]
    labels = {"ours": "ours", "worse": "worse", "unclear": "unclear", "absent": "absent"}
    svg = pictures.regret_with_intervals({5.0: 0.1}, rows, labels, "curves")
    style = {name: number for number, name in re.findall(r'<circle class="fill-(\d)"[^>]*><title>(\w+):', svg)}
    assert style == {"ours": "0", "worse": "1", "unclear": "6"}
    assert svg.count(">not run<") == 1


def test_the_stored_race_is_complete(stored: dict[str, Any]) -> None:
    tables, clock = (
        next(part for part in stored["parts"] if part["suite"] == suite) for suite in ("tables", "trained")
    )
    many = [row for row in tables["effort"] if row["seeds"] >= 10 and row["tables"] == len(tables["tables"])]
    assert len(tables["sources"]) >= 10
    assert len(tables["tables"]) >= 20
    assert sum(not row["ours"] for row in many) >= 10
    assert len(clock["tables"]) >= 5
    assert min(row["seeds"] for part in (tables, clock) for row in part["effort"]) >= 3
    assert {50, 200, 1000} == {row["arms"] for row in stored["cost"]}
    assert sum(not methods.is_ours(name) for name in {row["method"] for row in stored["cost"]}) >= 10
    assert STORED.stat().st_size < 300_000


# the real clock ------------------------------------------------------------------------------------------------------


def task(name: str = "diabetes", seed: int = 0, method: str = "random_search", budget: float = 0.02) -> running.Run:
    return running.Run(problems.ProblemSpec("trained", "xgboost", name), method, budget, "seconds", seed)


def test_on_a_real_clock_seeds_are_in_order_and_methods_are_shuffled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"m{i}" for i in range(20)]
    order: list[running.Run] = []
    monkeypatch.setattr(running, "execute", lambda run, *_: order.append(run) or {"absent": ""})  # type: ignore[func-returns-value]
    runs = [task(seed=seed, method=name) for name in names for seed in range(2)]
    list(running.race(runs, tmp_path / "a.jsonl", jobs=1))
    assert [run.seed for run in order] == [0] * 20 + [1] * 20
    first, second = ([run.method for run in order[i : i + 20]] for i in (0, 20))
    assert sorted(first) == sorted(second) == sorted(names)
    assert first != second != names


def test_each_lane_has_its_own_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[Any] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: pinned.append(cores))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {7, 2, 3, 5, 9})
    monkeypatch.setattr(running, "ProcessPoolExecutor", lambda n, mp_context, initializer, initargs: (n, *initargs))
    monkeypatch.setattr(running, "_SPAWN", type("Spawn", (), {"SimpleQueue": SimpleQueue}))

    def pooled(runs: Any, patience_s: float, pool: Any) -> Any:
        for _ in range(pool[0]):
            running._pin_to_lane(pool[1])
        yield {}

    monkeypatch.setattr(running, "_run_in_pool", pooled)
    assert list(running._run_in_lanes([task(), task()], 2, 1.0)) == [{"lanes": 2, "cores": 2}]
    assert pinned == [[2, 3], [5, 7]]
    with pytest.raises(SystemExit, match="--lanes 6 needs at least as many cores, but there are 5: use fewer"):
        list(running._run_in_lanes([task()], 6, 1.0))


def test_a_run_that_raises_is_reported_and_the_others_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    def do(run: running.Run, patience_s: float) -> dict[str, Any]:
        if run.seed == 1:
            raise ImportError("no such thing")
        return {"seed": run.seed}

    monkeypatch.setattr(running, "execute", do)
    records = list(running._run_in_pool([task(seed=seed) for seed in range(3)], 1.0, ThreadPoolExecutor(1)))  # type: ignore[arg-type]
    assert sorted(one["seed"] for one in records) == [0, 1, 2]
    assert [one["absent"] for one in records if one["seed"] == 1] == ["ImportError('no such thing')"]


def test_a_method_warms_up_once_before_its_clock_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    run_study = running.run_study
    running._warm_up.cache_clear()

    def watched(problem: Any, *rest: Any, **more: Any) -> running.Outcome:
        seen.append(type(problem))
        return run_study(problem, *rest, **more)

    monkeypatch.setattr(running, "run_study", watched)
    for seed in range(2):
        assert "absent" not in running.execute(task(seed=seed))
    assert seen == [problems.SyntheticProblem, trained.TrainedProblem, trained.TrainedProblem]
    assert "is not installed" in running.execute(task(method="dehb_default"))["absent"] or methods.is_installed(
        "dehb_default"
    )


def test_the_lowest_loss_of_each_task_is_computed_from_runs(tmp_path: Path, capsys: Any) -> None:
    names = [name.split("/") for name in trained.SPACES]
    lines = [
        line(suite="trained", source=source, table=table, seed=seed, best=best, budget=20.0)
        for source, table in names
        for seed, best in enumerate((0.4, 0.2, None, 0.3))
    ]
    out = tmp_path / "lowest.json"
    assert command.main(["lowest", str(write(tmp_path / "a.jsonl", lines)), "-o", str(out)]) == 0
    found = json.loads(out.read_text())
    assert set(found) == set(trained.SPACES)
    assert {(one["value"], one["seed"], one["seconds"]) for one in found.values()} == {(0.2, 1, 20 * trained.CURVE_S)}
    with pytest.raises(SystemExit):
        command.main(["lowest", str(write(tmp_path / "b.jsonl", lines[:4])), "-o", str(out)])
    assert "there is no run of linear/digits" in capsys.readouterr().err


def test_regrets_on_the_real_clock_use_the_present_lowest_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trained.LOWEST, "xgboost/diabetes", 50.0)
    run = line(suite="trained", source="xgboost", table="diabetes", best=60.0, start=70.0, regret=99.0)
    assert trained.rescale_regret(run)["regret"] == 0.5
    assert trained.rescale_regret({**run, "best": None})["regret"] == 1.0
    assert trained.rescale_regret(line())["regret"] == 0.5


def test_decision_times_are_written_as_soon_as_they_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = iter([{"method": "asha", "arms": 50, "mean_ms": 1.0, "memory_mb": 40.0}])

    def measured(*_: Any) -> dict[str, Any]:
        for one in lines:
            return one
        raise KeyboardInterrupt

    monkeypatch.setattr(cost, "_measure_in_subprocess", measured)
    path = tmp_path / "cost.jsonl"
    assert command.main(["cost", "--methods", "asha", "--arms", "50", "-o", str(path)]) == 130
    assert [json.loads(one)["mean_ms"] for one in path.read_text().splitlines()] == [1.0]
