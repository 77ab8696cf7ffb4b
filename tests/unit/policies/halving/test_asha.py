from __future__ import annotations

import pytest

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Amendment, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Space
from shoestring.errors import PolicyError
from shoestring.policies.halving.asha import ASHA
from shoestring.policies.halving.rungs import rung_steps
from shoestring.testing.curves import DecayingCurves, ListedCurves
from shoestring.testing.policies import make_definition, simulate


def test_rungs_grow_by_the_factor_and_end_at_full_training() -> None:
    assert rung_steps(50, 1, 3) == (1, 3, 9, 27, 50)
    assert rung_steps(81, 1, 3) == (1, 3, 9, 27, 81)
    assert rung_steps(20, 5, 2) == (5, 10, 20)
    assert rung_steps(3, 5, 2) == (3,)


def test_promotions_are_those_of_the_algorithm() -> None:
    """Eta 2: as soon as two trials have a value, the better is promoted; the highest rung comes first."""
    losses = {"a": 0.5, "b": 0.4, "c": 0.3, "d": 0.2}
    curves = {name: [loss, loss, loss, loss] for name, loss in losses.items()}
    policy = ASHA(reduction_factor=2)
    rows = Space.from_configs([{"name": name} for name in curves])
    ledger = simulate(
        policy, ListedCurves(curves), make_definition(policy, space=rows, budget="100 epochs", max_steps=4)
    ).ledger
    ordered: list[tuple[str, int]] = []
    steps_of: dict[str, int] = {}
    for order in ledger.orders:
        name = order.config["name"]
        # the choice of Algorithm 2, computed from all losses
        expected = None
        for rung, above in ((2, 4), (1, 2)):
            ranked = sorted((losses[n], n) for n, steps in steps_of.items() if steps >= rung)
            due = [n for _, n in ranked[: len(ranked) // 2] if steps_of[n] == rung]
            if due:
                expected = (due[0], above)
                break
        if expected is None and len(steps_of) < 4:
            assert name not in steps_of
            assert order.until == 1
        elif expected is not None:
            assert (name, order.until) == expected
        steps_of[name] = order.until
        ordered.append((name, order.until))
    assert steps_of == {"a": 4, "b": 4, "c": 4, "d": 4}  # nothing else is left to train
    assert len(ordered) == len(ledger.orders)


def test_with_several_workers_a_trial_is_promoted_as_soon_as_it_is_in_the_top_third() -> None:
    """No promotion waits for the other trials of its rung: each order is decided from the losses reported so far."""
    policy = ASHA()
    ledger = simulate(
        policy, DecayingCurves(), make_definition(policy, budget="300 epochs", workers=4, max_steps=27)
    ).ledger
    assert max(trial.steps for trial in ledger.trials) == 27
    assert ledger.spent == 300
    before = Ledger([ledger.definition])
    for entry in ledger.entries(1):
        if isinstance(entry, Order):
            due = [trial for rung in (9, 3, 1) for trial in list_promotable(before, rung)]
            assert entry.trial in (due or [len(before.trials)])
        before = before.append(entry)


def list_promotable(ledger: Ledger, rung: int) -> list[int]:
    """Return the idle trials at this rung that are in the top third of all trials that have reached it."""
    ranked = sorted((trial.losses[rung - 1], trial.number) for trial in ledger.trials if trial.steps >= rung)
    best = [ledger.trials[number] for _, number in ranked[: len(ranked) // 3]]
    return [trial.number for trial in best if trial.steps == rung and trial.open_order is None]


def test_a_promotion_interrupted_by_the_budget_limit_is_completed_first() -> None:
    policy = ASHA()
    spent = simulate(policy, DecayingCurves(), make_definition(policy, budget="4 epochs", max_steps=9)).ledger
    cut = spent.trials[spent.orders[-1].trial]
    assert cut.steps == 2  # promoted from 1 to 3, but the budget paid for one step only
    ledger = simulate(policy, DecayingCurves(), *spent.entries(), Amendment(budget=Budget("5 epochs"))).ledger
    assert (ledger.orders[-1].trial, ledger.orders[-1].until) == (cut.number, 3)
    assert ledger.orders[-1].why["was"] == "interrupted"


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(PolicyError, match=r"asha\(reduction_factor=1\)"):
        ASHA(reduction_factor=1)
    with pytest.raises(PolicyError, match=r"asha\(min_steps=0\)"):
        ASHA(min_steps=0)
