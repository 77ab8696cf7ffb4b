"""The simplified simulation for choosing constants, compared with the package. Needs PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks.race.problems import SHIPPED, TableProblem, find_problems
from benchmarks.race.running import run_study
from training import choose, lockstep
from training.export import flatten, restore
from training.halving import halve
from training.network import Studies

from shoestring import policies
from shoestring.models.thrift import features
from shoestring.policies.thrift import thrift

WEIGHTS = Path(__file__).parents[3] / "src" / "shoestring" / "models" / "thrift" / "weights.npz"


@pytest.mark.parametrize("curves", [1.0, 2.5, 6.0, 25.0])
def test_halving_gives_the_orders_of_the_policy(curves: float) -> None:
    for spec in find_problems("tables", [SHIPPED], per_source=1, pool=60):
        problem = spec.draw(3)
        assert isinstance(problem, TableProblem)
        ledger = run_study(problem, policies.make("sequential_halving"), curves=curves, unit="curves", seed=1).ledger
        table = problem.table
        place = {tuple(sorted(config.items())): i for i, config in enumerate(table.configs)}
        opened = [place[tuple(sorted(trial.config.items()))] for trial in ledger.trials]
        rows = np.array([*opened, *(i for i in range(len(table.configs)) if i not in opened)])
        values = table.values[rows]
        filled = np.where(np.isnan(values), values[np.arange(len(rows)), table.lengths[rows] - 1][:, None], values)
        budget = problem.steps_within(curves)
        orders = halve(filled, table.lengths[rows], table.max_steps, budget)
        assert dict(orders) == {trial.number: trial.steps for trial in ledger.trials}


def test_rank_share_and_race_agree_with_the_package() -> None:
    torch.manual_seed(0)
    losses = torch.rand(1, 12, 50).round(decimals=1)
    n = torch.randint(0, 9, (1, 12))
    left, steps = torch.tensor([37.0]), torch.tensor([50])
    s = Studies(losses, -torch.ones(1, 12, 16), n, 50 - n, torch.ones(1, 12), left, steps, torch.ones(1, 12) > 0)
    arms = features.Arms(
        losses[0].numpy().astype(float), n[0].numpy(), 50 - n[0].numpy(), np.ones(12), np.ones((12, 16)), 37.0, 50
    )
    share = lockstep.rank_share(s, 0.5)
    np.testing.assert_allclose(share[0].numpy(), features.rank_share(arms), rtol=1e-6)
    in_race = lockstep.is_in_race(s, share)[0].numpy()
    assert in_race.tolist() == features.is_in_race(arms, share[0].numpy()).tolist()


def test_networks_survive_writing_and_reading() -> None:
    (network,) = restore(WEIGHTS)
    with np.load(WEIGHTS) as stored:
        assert (flatten(network) == stored["weights"][0]).all()


def test_studies_in_lockstep_stay_within_their_budget() -> None:
    tables = find_problems("tables", [SHIPPED], per_source=1, pool=30)
    drawn = lockstep.draw(tables, [0], arms=30)
    (network,) = restore(WEIGHTS)
    openings = [halve(y, limit, int(steps), 2 * int(steps)) for y, limit, steps in _each(drawn)]
    found = lockstep.race({"one": network}, lambda _: "one", drawn, 2.0, lockstep.Rule(), torch.device("cpu"), openings)
    regrets = lockstep.regrets(drawn, 2.0, found)
    assert (regrets >= 0).all()
    assert (regrets < 1).any()


def test_the_default_rule_is_that_of_the_policy() -> None:
    constants = ("opening", "growth", "share_power", "candidates_per_curve", "horizon", "steps_power", "chance_power")
    for name in constants:
        assert getattr(lockstep.Rule(), name) == getattr(thrift, name.upper()), name
    assert lockstep.Rule().most_candidates == thrift.MAX_CANDIDATES


def test_rules_and_weights_are_compared(tmp_path: Path) -> None:
    """The same weights under two names have the same results; an incomplete file is continued."""
    for fold in ("a", "all"):
        (tmp_path / f"{fold}-0.npz").write_bytes(WEIGHTS.read_bytes())
    tables = find_problems("tables", [SHIPPED], per_source=1, steps=12, pool=20, only=["stopping_curves", "rl_curves"])
    rules = {"thrift": lockstep.Rule(), "hidden": lockstep.Rule(hidden=True)}
    weights = {"these": tmp_path, "those": tmp_path}
    settings = (tables, [0, 1], [3.0], rules, weights, [0], torch.device("cpu"))
    lines = list(choose.judge(*settings))
    rows = {(row["rule"], row["weights"]): row for row in choose.summary(lines)}
    assert set(rows) == {(rule, name) for rule in rules for name in weights}
    assert rows["thrift", "these"]["difference"] == rows["thrift", "those"]["difference"]
    by_hand = [np.subtract(lines[1]["regret"][t], lines[0]["regret"][t]).mean() for t in lines[0]["regret"]]
    assert rows["thrift", "these"]["difference"] == pytest.approx(np.mean(by_hand))
    assert list(choose.judge(*settings, done=lines[:-1])) == lines[-1:]


def _each(drawn: lockstep.DrawnStudies) -> list[tuple[np.ndarray, np.ndarray, int]]:
    return list(zip(drawn.losses, drawn.limit, drawn.steps, strict=True))
