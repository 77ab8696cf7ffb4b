"""The five loops on which the default of `ce_gp_ucb` is judged: they respond to hyperparameters, and the verdict is right."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "online"
# configurations that are good, and bad, in every run of a loop
GOOD_AND_BAD: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "network": ({"lr": 0.03, "momentum": 0.9}, {"lr": 0.001, "momentum": 0.0}),
    "augmentation": ({"shift": 0.4, "noise": 0.4}, {"shift": 0.0, "noise": 0.0}),
    "agent": ({"entropy": 0.006, "lr": 2.0}, {"entropy": 1.0, "lr": 0.03}),
}


def train(kind: Any, config: Any, seed: int) -> Any:
    loop = kind(seed)
    for _ in range(loop.rounds):
        loop.train(config)
    return loop


@pytest.mark.parametrize("name", GOOD_AND_BAD)
def test_a_loop_responds_to_its_hyperparameters(scripts: Any, name: str) -> None:
    kind = scripts.small_loops.LOOPS[name]
    good, bad = (train(kind, config, 1000) for config in GOOD_AND_BAD[name])
    assert good.final_loss() < 0.6 * bad.final_loss()
    assert good.validate() < bad.validate()


@pytest.mark.parametrize("name", ["quadratic", "network", "augmentation", "bandit", "agent"])
def test_a_loop_is_a_function_of_its_seed_and_its_configs(scripts: Any, name: str) -> None:
    kind = scripts.small_loops.LOOPS[name]
    first, again, other = (train(kind, kind.fixed, seed).final_loss() for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_the_best_place_of_the_quadratic_drifts_and_its_corners_crawl(scripts: Any) -> None:
    kind = scripts.small_loops.Quadratic
    assert 5.0 < train(kind, {"lr": 1e-3, "decay": 0.0}, 0).final_loss() < 10.0
    places = [{"lr": 10.0 ** (3.0 * x - 3.0), "decay": y} for x in (0.2, 0.5, 0.8) for y in (0.2, 0.5, 0.8)]

    def find_best(seed: int, rounds_before: int) -> int:
        return min(range(len(places)), key=lambda i: train_one(kind, places[i], seed, rounds_before))

    early, late = ([find_best(seed, rounds) for seed in range(8)] for rounds in (0, 55))
    assert sum(one != other for one, other in zip(early, late, strict=True)) >= 4


def train_one(kind: Any, config: dict[str, float], seed: int, rounds_before: int) -> float:
    """Return the share of the loss that is left by one round with this config."""
    loop = kind(seed)
    for _ in range(rounds_before):
        loop.train(kind.fixed)
    before = loop.final_loss()
    loop.train(config)
    return float(loop.final_loss() / before)


def test_the_best_arm_changes_three_times(scripts: Any) -> None:
    loop = scripts.small_loops.Bandit(0)
    best = [int(levels.argmax()) for levels in loop._levels]
    assert sum(one != other for one, other in pairwise(best)) == 3


def make_runs(loss: float, passes: int) -> list[dict[str, Any]]:
    """Return runs in which the default has this loss, and "always" has 1."""
    loops = ("quadratic", "network", "augmentation", "bandit", "agent")
    found = []
    for seed in range(6):
        for method, mean, n in (("default", loss, passes), ("always", 1.0, 100)):
            one = {"loss": mean + 0.01 * seed, "passes": n}
            found.append({"method": method, "seed": seed, "loops": dict.fromkeys(loops, one)})
    return found


def test_the_verdict_needs_both_a_small_loss_and_few_passes(scripts: Any) -> None:
    judge = scripts.five_loops.judge
    assert judge(make_runs(1.0, 65))["ok"]
    assert judge(make_runs(1.2, 65))["misses"] == ["quadratic", "network", "augmentation", "bandit", "agent"]
    assert not judge(make_runs(1.0, 66))["ok"]
    measured = judge(make_runs(1.2, 50))["measured"]["agent"]
    assert measured["low"] <= measured["loss"] <= measured["high"]
    assert measured["loss"] == pytest.approx(1.225 / 1.025, abs=1e-3)
    assert measured["passes"] == 0.5


def test_the_page_has_the_table_of_the_stored_runs(scripts: Any) -> None:
    lines = (FOLDER / "results" / "five_loops.jsonl").read_text(encoding="utf-8").splitlines()
    runs = [json.loads(line) for line in lines]
    shown = scripts.five_loops.show(runs)
    assert shown in (FOLDER / "README.md").read_text(encoding="utf-8"), f"README.md differs from the runs:\n{shown}"
    assert {run["seed"] for run in runs} == set(range(scripts.five_loops.SEEDS))
