"""The verdict on `thrift`: runs are paired by draw, and each condition can fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.race import running
from benchmarks.race.problems import SHIPPED, find_problems, stable_hash
from benchmarks.race.trained import CURVE_S
from benchmarks.thrift import clock, main, protocol, studies, verdict

from shoestring import policies


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "RESAMPLES", 400)


WEIGHTS = Path(__file__).parents[2] / "src" / "shoestring" / "models" / "thrift" / "weights.npz"


def made_up_runs(shift: float, of_one: float = 0.0, noise: float = 0.001) -> list[dict[str, Any]]:
    """Return runs of 12 sources where the policy is better by `shift`, and on source 0 worse by `of_one`."""
    rng = np.random.default_rng(0)
    runs = []
    for source in range(12):
        for table in range(2):
            for seed in range(4):
                for budget in protocol.BUDGETS["curves"]:
                    base = float(rng.uniform(0.1, 0.5))
                    key = {"suite": "tables", "source": f"s{source}", "table": f"t{table}", "seed": seed}
                    key |= {"budget": budget, "unit": "curves", "steps": 50, "pool": None}
                    runs.append({**key, "method": protocol.BASE, "regret": base})
                    for training in (0, 1):
                        own = base - shift + (of_one if source == 0 else 0.0) + noise * float(rng.normal())
                        runs.append({**key, "method": f"{protocol.METHOD}@{training}", "regret": own})
    return runs


def test_a_policy_that_is_better_everywhere_passes() -> None:
    grid = verdict.pair(made_up_runs(0.02), "curves")
    found = verdict.gate(grid)
    assert found["passed"], found
    rows = verdict.compare(grid)
    assert [row["runs"] for row in rows] == [12 * 2 * 4 * 2] * 5
    # The differences are paired, so the spread of regrets does not matter.
    assert all(row["difference"] == pytest.approx(-0.02, abs=1e-3) for row in rows)


@pytest.mark.parametrize(
    ("shift", "of_one", "failing"),
    [
        (0.0, 0.0, {"better at 10", "better overall"}),
        (-0.02, 0.0, {"better at 10", "never worse at 1", "never worse at 20", "better overall"}),
        (0.02, 0.08, {"no bad source"}),
    ],
)
def test_each_condition_can_fail(shift: float, of_one: float, failing: set[str]) -> None:
    found = verdict.gate(verdict.pair(made_up_runs(shift, of_one), "curves"))
    assert not found["passed"]
    assert failing <= {name for name, holds in found["conditions"].items() if not holds}
    assert bool(found["bad_sources"]) == ("no bad source" in failing)


def test_a_peer_is_compared_on_the_runs_that_both_have() -> None:
    runs = made_up_runs(0.02)
    peer = [{**run, "method": "peer"} for run in runs if run["method"] == protocol.BASE and run["source"] != "s0"]
    rows = verdict.compare(verdict.pair([*runs, *peer], "curves", "peer"), "peer")
    assert rows[0]["runs"] == 11 * 2 * 4 * 2


def test_a_study_of_the_protocol_is_one_of_the_race(tmp_path: Path) -> None:
    """With the shipped weights instead of those of a fold, a study must equal one of the policy itself."""
    for fold in ("a", "all"):
        (tmp_path / f"{fold}-0.npz").write_bytes(WEIGHTS.read_bytes())
    (spec,) = find_problems("tables", [SHIPPED], per_source=1, only=["stopping_curves"], steps=12, pool=20)
    study = protocol.Study(spec, "curves", 8.0, 0, 0)
    line = studies.do(study, tmp_path)
    assert line["error"] is None
    assert line["method"] == "thrift@0"
    seed = stable_hash(spec.name, "8", "curves", 0)
    outcome = running.run_study(spec.draw(0), policies.make("thrift"), curves=8.0, unit="curves", seed=seed)
    assert (line["best"], line["spent"], line["decisions"]) == (
        outcome.best,
        outcome.ledger.spent,
        len(outcome.decision_s),
    )


def test_every_study_is_judged_by_weights_that_have_not_seen_its_source() -> None:
    tables = find_problems("tables", [SHIPPED], per_source=3)
    planned = protocol.plan(tables, protocol.TRAININGS, protocol.SEEDS)
    assert {study.weights(Path("w")).name for study in planned if study.training == 1} == {"a-1.npz"}
    assert {study.budget for study in planned if study.unit == "seconds"} == {5.0, 10.0}
    assert len({(s.spec.name, s.unit, s.budget, s.seed, s.method) for s in planned}) == len(planned)


def test_settings_are_chosen_on_other_seeds_than_those_of_the_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[protocol.Study] = []

    def run(wanted: Sequence[protocol.Study], *options: object) -> Iterator[object]:
        requested.extend(wanted)
        return iter(())

    monkeypatch.setattr(studies, "run", run)
    arguments = [
        "--data",
        str(SHIPPED),
        "--weights",
        str(tmp_path),
        "--seeds",
        "2",
        "--budgets",
        "10",
        "--first-seed",
        "100",
    ]
    main([*arguments, "-o", str(tmp_path / "none.jsonl")])
    assert {study.seed for study in requested} == {100, 101}
    assert {study.budget for study in requested} == {10.0}


def test_the_report_reads_a_file_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    path = tmp_path / "runs.jsonl"
    path.write_text("".join(json.dumps(run) + "\n" for run in made_up_runs(0.02)))
    assert main(["report", str(path)]) == 0
    results = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert results["curves"]["gate"]["passed"] is True
    runs = [{**run, "source": {"s1": "hpolib_grids"}.get(run["source"], run["source"])} for run in made_up_runs(0.02)]
    path.write_text("".join(json.dumps(run) + "\n" for run in runs))
    assert main(["report", "--shipped", str(path)]) == 0
    results = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {row["source"] for row in results["curves"]["sources"]} == {"hpolib_grids"}
    assert results["curves"]["against_base"][0]["runs"] == 2 * 4  # one training


# the real clock ------------------------------------------------------------------------------------------------------


def clock_runs(ratio: float, spread: float = 0.02, of_one: float = 1.0) -> list[dict[str, Any]]:
    """Return runs in which the policy's loss is `ratio` times that of the others, on the first task `of_one` times that."""
    rng = np.random.default_rng(1)
    runs = []
    for run in clock.plan(20):
        loss = 0.1 * float(np.exp(spread * rng.normal()))
        if run.method == clock.METHOD:
            is_first = (run.spec.name, run.budget * CURVE_S) == clock.TASKS[0]
            loss *= ratio * (of_one if is_first else 1.0)
        runs.append({**run.key, "best": loss, "start": 2.3, "thinking_s": 0.1, "spent": run.budget * CURVE_S})
    return runs


def test_the_clock_has_the_seconds_it_names() -> None:
    seconds = {(run.spec.name, run.spec.draw(0).budget(run.budget, run.unit)) for run in clock.plan(1)}
    assert seconds == {(name, f"{seconds!r}s") for name, seconds in clock.TASKS}
    assert {run.method for run in clock.plan(1)} == {clock.METHOD, *clock.OTHERS}


def test_differences_on_the_clock_are_in_percent() -> None:
    *tasks, mean = clock.compare(clock_runs(0.9), "asha")
    assert [row["percent"] for row in tasks] == pytest.approx([-10.0] * 4, abs=2.0)
    assert all(row["low"] < row["percent"] < row["high"] < 0 for row in tasks)
    assert mean["percent"] == pytest.approx(np.mean([row["percent"] for row in tasks]))
    assert mean["high"] - mean["low"] < tasks[0]["high"] - tasks[0]["low"]


def test_each_condition_of_the_clock_can_fail() -> None:
    assert clock.judge(clock_runs(0.95))["passed"]
    worse = clock.judge(clock_runs(1.02))["conditions"]
    assert worse == {
        "not worse than asha": True,
        "better than asha in the mean": False,
        "not worse than optuna_tpe_hyperband": True,
        "better than optuna_tpe_hyperband in the mean": False,
    }
    one = clock.judge(clock_runs(0.9, of_one=1.2))["conditions"]
    assert not one["not worse than asha"]
    assert one["better than asha in the mean"]
    assert not clock.judge([run for run in clock_runs(0.9) if run["table"] != "cnn"])["passed"]  # a task is missing


def test_a_run_without_a_result_has_the_starting_loss(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [{**run, "best": None} if run["method"] == "asha" else run for run in clock_runs(1.0)]
    assert clock.compare(runs, "asha")[0]["other"] == pytest.approx(2.3)
    clock.report(runs)
    assert '"thinking"' in capsys.readouterr().out
