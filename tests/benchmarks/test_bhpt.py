"""The experiments of benchmarks/bhpt in miniature: sets are drawn, methods race, runs are stored, claims are judged."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoestring.core.ledger.ledger import Ledger
from shoestring.policies.freeze_thaw.arm_table import ArmsView
from shoestring.testing.policies import make_definition

FOLDER = Path(__file__).parents[2] / "benchmarks" / "bhpt"


def run_script(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, *arguments: str
) -> tuple[int, dict[str, Any]]:
    """Run a script and return its exit code and the object of its last line."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(sys, "argv", ["script", *arguments])
    code = 0
    try:
        script.main()
    except SystemExit as end:
        code = int(end.code or 0)
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


# synthetic sets ------------------------------------------------------------------------------------------------------


def test_curves_of_a_set_start_together_and_the_slow_ones_end_late(scripts: Any) -> None:
    at = {}
    for generator in ("decay", "slow"):
        tables = [scripts.problems.synthetic(seed, generator) for seed in range(10)]
        assert all(table.start == np.sqrt(10.0) for table in tables)
        assert all(table.settings["start"] == table.start for table in tables)
        at[generator] = np.median([np.unravel_index(t.losses.argmin(), t.losses.shape)[1] for t in tables])
    assert at["decay"] < 5 < 15 < at["slow"]
    assert scripts.problems.synthetic(0, "raw").settings["start"] is None


@pytest.mark.parametrize("seed", range(6))
def test_the_surrogate_of_a_synthetic_race_has_the_generating_similarity_of_arms(scripts: Any, seed: int) -> None:
    """Points of the square stay on a linear scale, although they span two decades."""
    table = scripts.problems.synthetic(seed)
    policy = scripts.racing.method("bhpt_printed", table)
    arms = Ledger([make_definition(policy, space=table.space, budget="9 epochs", max_steps=48)]).view(ArmsView(None))
    x = np.array([[row["x0"], row["x1"]] for row in table.space.rows])
    apart = ((x[:, None] - x) ** 2).sum(axis=-1)
    generating = np.exp(-0.5 * apart / scripts.problems.LENGTHSCALE**2)
    assert np.allclose(arms.similarity(policy.lengthscale), generating, rtol=1e-12)


def test_a_race_reports_the_spending_of_each_trial(scripts: Any) -> None:
    table = scripts.problems.synthetic(0)
    row = scripts.racing.race("bhpt_printed", table, 12, 0)
    assert sum(row["spent_by_trial"].values()) == 12
    assert row["arms_begun"] == len(row["spent_by_trial"])
    best = int(np.argmin(table.losses[:, :12].min(axis=1)))
    assert row["best_arm_steps"] == row["spent_by_trial"].get(str(best), 0)
    assert 0.0 <= row["committed"] <= 1.0
    assert row["regret"] >= 0.0
    assert scripts.racing.race("random_search", table, 12, 0)["committed"] is None


@pytest.mark.benchmark_run
def test_synthetic_race_stores_its_runs(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    arguments = (
        "-o",
        str(tmp_path),
        "--sets",
        "2",
        "--budgets",
        "6,12",
        "--methods",
        "bhpt_printed,hyperband,random_search",
    )
    run_script(scripts.synthetic, monkeypatch, capsys, *arguments)
    before = (tmp_path / "synthetic_decay.jsonl").read_text()
    code, verdict = run_script(scripts.synthetic, monkeypatch, capsys, *arguments)
    assert (tmp_path / "synthetic_decay.jsonl").read_text() == before
    assert verdict["measured"].keys() == {"bhpt_printed@6", "bhpt_printed@12"}
    assert code == (0 if verdict["ok"] else 1)
    lines = [json.loads(line) for line in (tmp_path / "synthetic_decay_summary.jsonl").read_text().splitlines()]
    assert len(lines) == 6
    assert all(line["sets"] == 2 and line["never_begun"] <= line["missed"] for line in lines)
    assert (tmp_path / "synthetic_decay.png").exists()


def race_row(method: str, seed: int, budget: int, regret: float) -> dict[str, Any]:
    return {"method": method, "seed": seed, "budget": budget, "regret": regret}


def test_a_lead_within_the_error_is_an_exception(scripts: Any) -> None:
    rng = np.random.default_rng(0)
    clear = [race_row("bhpt_printed", s, 192, 0.001) for s in range(9)] + [
        race_row("rollout", s, 192, 0.1 + 0.01 * rng.random()) for s in range(9)
    ]
    assert scripts.synthetic.judge(clear)["ok"]
    close = [race_row("bhpt_printed", s, 192, 0.001) for s in range(9)] + [
        race_row("rollout", s, 192, 0.002 * rng.random()) for s in range(9)
    ]
    verdict = scripts.synthetic.judge(close)
    assert not verdict["ok"]
    assert len(verdict["exceptions"]) == 1
    assert not scripts.synthetic.judge([race_row("bhpt_printed", s, 192, 0.02) for s in range(9)])["ok"]


# recorded curves -----------------------------------------------------------------------------------------------------


@pytest.mark.benchmark_run
def test_real_race_stores_its_runs_and_summarises_them_without_single_ones(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    common = ("-o", str(tmp_path), "--tables", "resnet_alexnet", "--seeds", "1", "--curves", "0.2,0.4", "--steps", "10")
    run_script(scripts.real, monkeypatch, capsys, *common, "--methods", "sequential_halving")
    first = (tmp_path / "real_fashion_curves.jsonl").read_text()
    _, verdict = run_script(scripts.real, monkeypatch, capsys, *common, "--methods", "sequential_halving,bhpt")
    assert (tmp_path / "real_fashion_curves.jsonl").read_text().startswith(first)
    assert verdict["measured"]["regret"].keys() == {"bhpt"}
    assert verdict["peers"].keys() == {"sequential_halving"}
    lines = [json.loads(line) for line in (tmp_path / "real_fashion_curves_summary.jsonl").read_text().splitlines()]
    assert {line["table"] for line in lines} == {"resnet_alexnet", "all"}
    assert all(line.keys() == {"table", "method", "curves", "runs", "regret_mean", "regret_sd"} for line in lines)


def share_row(seed: int, curves: float, share: float) -> dict[str, Any]:
    return {"method": "bhpt", "table": "t", "seed": seed, "curves": curves, "regret": 0.1, "resnet_share": share}


def test_growth_is_judged_by_seed_and_interval(scripts: Any) -> None:
    grows = [share_row(s, c, 0.3 + 0.05 * np.log2(c) + 0.01 * s) for s in range(5) for c in (1.0, 5.0, 10.0)]
    found = scripts.real.resnet_growth(grows, "bhpt")
    assert found["growth"] == pytest.approx([0.05] * 3)
    assert found["seeds"] == 5
    assert scripts.real.judge(grows, in_seconds=True)["ok"]
    noise = [share_row(s, c, 0.5 + (-1.0) ** s * 0.03 * c) for s in range(5) for c in (1.0, 10.0)]
    assert not scripts.real.judge(noise, in_seconds=True)["ok"]
    single = [share_row(0, c, 0.5) for c in (1.0, 10.0)]
    assert scripts.real.judge(single, in_seconds=True)["target"] is None


def test_the_default_is_judged_by_its_targets(scripts: Any) -> None:
    def judge(own: bool = True, curves: float = 1.0, **regrets: float) -> list[str]:
        rows = [share_row(0, curves, 0.5) | {"method": name, "regret": value} for name, value in regrets.items()]
        verdict = scripts.real.judge(rows, own=own)
        assert verdict["ok"] == (not verdict["missed"])
        return list(verdict["missed"])

    limit = scripts.real.REGRET_AT_MOST[1.0]
    assert judge(bhpt=limit, hyperband=limit + 0.1) == []
    assert judge(bhpt=limit + 0.1, hyperband=1.0) == [f"1: above {limit}"]
    assert judge(own=False, bhpt=limit + 0.1, hyperband=1.0) == []
    assert judge(curves=2.0, bhpt=0.05, hyperband=0.05) == ["2: not below hyperband"]
    assert judge(curves=5.0, bhpt=0.05, hyperband=0.05) == []  # nothing was promised there
    assert judge(bhpt=0.05, hyperband=0.05) == ["1: not below hyperband"]


def test_the_loss_of_guessing_is_known_for_tables_of_errors(scripts: Any) -> None:
    chances = {path.stem: scripts.problems.load_table(path, 5, 5).chance for path in scripts.real.OWN.glob("*.npz")}
    assert chances == {"fcnet": 0.9, "resnet": 0.9, "resnet_alexnet": 0.9, "vae": None}
    table = scripts.problems.load_table(scripts.real.OWN / "fcnet.npz", 5, 5)
    assert scripts.racing.method("bhpt_start", table).start == 0.9
    assert scripts.racing.method("bhpt", table).start is None


# the surrogate -------------------------------------------------------------------------------------------------------


def test_a_falling_prior_mean_predicts_lower_ends_of_real_curves(scripts: Any) -> None:
    table = scripts.problems.load_table(scripts.real.OWN / "resnet_alexnet.npz", None, 20, 0)
    bias = {
        kind: next(r for r in scripts.prediction_quality.measure(table, 0, 1, kind) if r["ahead"] == "horizon")["bias"]
        for kind in ("plain", "falling")
    }
    assert bias["plain"] < -1.0 < bias["falling"]


def test_the_table_of_six_dimensions_is_that_of_its_sets() -> None:
    lines = (FOLDER / "results" / "synthetic_by_set.jsonl").read_text().splitlines()
    regrets = {(row["dims"], row["method"], row["budget"]): np.array(row["regret"]) for row in map(json.loads, lines)}
    page = (FOLDER / "README.md").read_text("utf-8")
    names = {
        (6, "bhpt_printed"): "**BHPT**",
        (6, "bhpt_eps"): "**BHPT-ε**",
        (6, "rollout"): "Rollout",
        (6, "hyperband"): "Hyperband",
    }
    for (dims, method), name in (names | {(2, "gp_ei"): "GP-EI"}).items():
        each = [regrets[dims, method, budget] for budget in (24, 48, 96, 192)]
        assert {of.size for of in each} == {40 if dims == 6 else 100}
        cells = [f"{of.mean():.3f} ± {of.std(ddof=1) / of.size**0.5:.3f}".replace("0.", ".") for of in each]
        assert f"| {name} | {' | '.join(cells)} |" in page
    differences = [regrets[6, "bhpt_printed", budget] - regrets[6, "rollout", budget] for budget in (24, 48, 96, 192)]
    written = ", ".join(f"{of.mean():+.3f} ± {of.std(ddof=1) / of.size**0.5:.3f}" for of in differences)
    assert f"BHPT minus Rollout is {written}" in page


# the page ------------------------------------------------------------------------------------------------------------


def test_the_page_has_the_tables_of_the_stored_runs(scripts: Any) -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = scripts.racing.read(scripts.page.DEFAULT)
    for one in scripts.page.tables(rows):
        assert one in page, f"README.md differs from results/default.jsonl, which says\n{one}"
    for name in ("bhpt", "sequential_halving"):
        assert ", ".join(map(str, scripts.page.arms_begun(rows, name))) in page


def test_a_table_is_made_of_runs_and_pairs_them_by_table_and_seed(scripts: Any) -> None:
    page = scripts.page
    rows = [
        {"table": table, "method": method, "curves": curves, "seed": seed, "regret": regret, "arms_begun": 4}
        for curves in page.BUDGETS
        for table, seed, method, regret in [
            ("a", 300, "bhpt", 0.1),
            ("a", 301, "bhpt", 0.3),
            ("a", 301, "asha", 0.1),
            ("a", 300, "asha", 0.0),
            ("a", 7, "asha", 9.0),  # a seed of the choice
            ("a", 300, "hyperband", 0.5),  # not all runs
        ]
    ]
    kept = page.shorten(rows)
    assert [row["seed"] for row in kept[:2]] == [300, 301]
    assert "| **our default** | .200 ± .100 | .200 ± .100 | .200 ± .100 | 2 |" in page.default_table(kept)
    assert "| our default minus ASHA | +0.150 ± 0.050 |" in page.differences(kept)
    assert page.arms_begun(kept, "bhpt") == [4, 4, 4]
    assert {row["method"] for row in kept} == {"bhpt", "asha"}
