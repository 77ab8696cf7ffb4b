from __future__ import annotations

import pytest

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Amended
from shoestring.core.space.space import Space
from shoestring.errors import PolicyError
from shoestring.policies.halving.asha import ASHA
from shoestring.policies.halving.brackets import rung_steps
from shoestring.testing.curves import Decaying, WrittenCurves
from shoestring.testing.policies import opened, simulate


def test_rungs() -> None:
    assert rung_steps(50, 1, 3) == (1, 3, 9, 27, 50)
    assert rung_steps(81, 1, 3) == (1, 3, 9, 27, 81)
    assert rung_steps(20, 5, 2) == (5, 10, 20)
    assert rung_steps(3, 5, 2) == (3,)


def test_promotions_by_hand() -> None:
    """Eta 2: as soon as two have reported, the better goes on; the highest rung is served first."""
    losses = {"a": 0.5, "b": 0.4, "c": 0.3, "d": 0.2}
    curves = {name: [loss, loss, loss, loss] for name, loss in losses.items()}
    policy = ASHA(reduction_factor=2)
    rows = Space.listed([{"name": name} for name in curves])
    ledger = simulate(
        policy, WrittenCurves(curves), opened(policy, space=rows, budget="100 epochs", max_steps=4)
    ).ledger
    seen: list[tuple[str, int]] = []
    at: dict[str, int] = {}
    for order in ledger.orders:
        name = order.config["name"]
        # what Algorithm 2 would do now, worked out from scratch
        expected = None
        for rung, above in ((2, 4), (1, 2)):
            there = sorted((losses[n], n) for n, steps in at.items() if steps >= rung)
            due = [n for _, n in there[: len(there) // 2] if at[n] == rung]
            if due:
                expected = (due[0], above)
                break
        if expected is None and len(at) < 4:
            assert name not in at
            assert order.until == 1
        elif expected is not None:
            assert (name, order.until) == expected
        at[name] = order.until
        seen.append((name, order.until))
    assert at == {"a": 4, "b": 4, "c": 4, "d": 4}  # nothing else was left to buy
    assert len(seen) == len(ledger.orders)


def test_no_barrier_with_several_workers() -> None:
    policy = ASHA()
    ledger = simulate(policy, Decaying(), opened(policy, budget="300 epochs", workers=4, max_steps=27)).ledger
    assert max(trial.steps for trial in ledger.trials) == 27
    began = [order.at for order in ledger.orders]
    assert began == sorted(began)
    assert ledger.spent == 300


def test_a_promotion_cut_short_at_the_wall_goes_on_to_its_rung_first() -> None:
    policy = ASHA()
    spent = simulate(policy, Decaying(), opened(policy, budget="4 epochs", max_steps=9)).ledger
    cut = spent.trials[spent.orders[-1].trial]
    assert cut.steps == 2  # promoted from 1 to 3, one step was affordable
    ledger = simulate(policy, Decaying(), *spent.entries(), Amended(budget=Budget("5 epochs"))).ledger
    assert (ledger.orders[-1].trial, ledger.orders[-1].until) == (cut.number, 3)
    assert ledger.orders[-1].why["was"] == "cut short"


def test_settings_out_of_range() -> None:
    with pytest.raises(PolicyError, match=r"ASHA\(reduction_factor=1\) must be an integer >= 2: with 1 nobody is"):
        ASHA(reduction_factor=1)
    with pytest.raises(PolicyError, match=r"ASHA\(min_steps=0\) must be an integer >= 1"):
        ASHA(min_steps=0)
