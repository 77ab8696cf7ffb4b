from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks import guided
from benchmarks.race import statistics


def run(method: str, source: str, table: str, seed: int, regret: float, **more: Any) -> dict[str, Any]:
    facts = {"suite": "tables", "unit": "curves", "steps": 50, "pool": 200, "budget": 5.0}
    return facts | {"method": method, "source": source, "table": table, "seed": seed, "regret": regret} | more


def both(source: str, table: str, seed: int, own: float, base: float) -> list[dict[str, Any]]:
    return [run("guided_halving", source, table, seed, own), run("sequential_halving", source, table, seed, base)]


RUNS = [
    *both("a", "1", 0, 0.1, 0.2),
    *both("a", "1", 1, 0.3, 0.2),
    *both("a", "2", 0, 0.0, 0.4),
    *both("b", "1", 0, 0.5, 0.5),
    run("guided_halving", "b", "2", 0, 9.0),  # without a partner: not counted
]


def test_the_ratio_gives_sources_and_tables_equal_weight() -> None:
    grid = statistics.Grid.from_runs(RUNS)
    (row,) = guided.compare(grid, "guided_halving", "sequential_halving")
    mean, base = ((0.2 + 0.0) / 2 + 0.5) / 2, ((0.2 + 0.4) / 2 + 0.5) / 2
    assert row["pairs"] == 4
    assert row["low"] <= row["ratio"] <= row["high"]
    assert (row["mean"], row["base"]) == pytest.approx((mean, base))
    assert row["ratio"] == pytest.approx(mean / base)


def test_a_source_has_its_difference_with_a_standard_error() -> None:
    found = guided.compare_sources(statistics.Grid.from_runs(RUNS[:-1]), "guided_halving", "sequential_halving")
    ((difference, error),) = found["a"]
    assert difference == pytest.approx((-0.1 + 0.1 - 0.4) / 3)
    assert error == pytest.approx(math.sqrt(((1 / 30) ** 2 + (7 / 30) ** 2 + (8 / 30) ** 2) / 2 / 3))


def test_the_real_clock_is_compared_by_the_logs_of_losses(capsys: pytest.CaptureFixture[str]) -> None:
    def timed(method: str, table: str, best: float | None) -> dict[str, Any]:
        facts = {"suite": "trained", "unit": "seconds", "start": 2.0, "best": best, "thinking_s": 0.03, "spent": 3.0}
        return run(method, "kind", table, 0, 0.0, **facts) | {"budget": 1.0}

    runs = [timed("guided_halving", "x", 0.5), timed("sequential_halving", "x", 1.0)]
    runs += [timed("guided_halving", "y", None), timed("sequential_halving", "y", 1.0)]
    (row,) = guided.compare_clock(runs, "guided_halving", "sequential_halving")
    assert row["log_ratio"] == pytest.approx((math.log(0.5) + math.log(2.0)) / 2)
    assert row["tasks"] == pytest.approx({"x kind": math.log(0.5), "y kind": math.log(2.0)})
    assert (row["seconds"], row["pairs"]) == (3.0, 2)
    assert row["thinking"] == pytest.approx(0.01)
    assert "real clock, 3 s" in capsys.readouterr().out


def test_the_last_line_says_which_goals_are_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in RUNS[:-1]), encoding="utf-8")
    assert guided.main([str(path)]) == 1  # .70 / .80 at 5
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["goals"] == {"ratio at 5": False}
    assert last["ok"] is False


@pytest.mark.parametrize(("name", "row"), [("raced", "raced"), ("kept_back", "kept back")])
def test_the_readme_has_the_ratios_of_the_stored_runs(name: str, row: str) -> None:
    folder = Path(guided.__file__).parent
    text = (folder / "README.md").read_text(encoding="utf-8")
    runs = guided.read(folder / "results" / f"{name}.json")
    for unit in ("curves", "seconds"):
        grid = statistics.Grid.from_runs([run for run in runs if run["unit"] == unit])
        mean = statistics.mean(statistics.weights(grid.cells), grid.regret.reshape(len(grid.cells), -1))
        own, base = mean.reshape(grid.regret.shape[1:])
        assert grid.methods == ["guided_halving", "sequential_halving"]
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {row}, in {unit}")]
        shown = [float(cell) for cell in re.findall(r"\*\*(.*?)\*\*", line)]
        assert shown == pytest.approx((own / base).tolist(), abs=0.006)  # two decimals, of regrets stored with four


def test_the_readme_has_the_log_ratios_of_the_stored_clock() -> None:
    folder = Path(guided.__file__).parent
    text = (folder / "README.md").read_text(encoding="utf-8").replace("\n  ", " ")
    runs = guided.read(folder / "results" / "clock.jsonl")
    for row in guided.compare_clock(runs, "guided_halving", "sequential_halving"):
        interval = f"{row['log_ratio']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}] at {row['seconds']:g}"
        assert interval.replace("0.", ".").replace("-", "−") in text.replace(" seconds", "")
        assert row["pairs"] == 70
