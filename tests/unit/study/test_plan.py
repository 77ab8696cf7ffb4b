"""Plans: what a budget buys, counted on made-up curves."""

from __future__ import annotations

from typing import Any

import pytest

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Opened
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.errors import BudgetError
from shoestring.policies.cost_aware.cost_aware_ei import CostAwareEI
from shoestring.policies.plain.random_search import RandomSearch
from shoestring.study.simulation import MadeUp, plan


def opened(budget: str, **more: Any) -> Opened:
    told = {"max_steps": 4, "seed": 3, "policy": "random_search", "settings": {}, **more}
    return Opened(space=Space({"x": Float(0, 1)}), budget=Budget(budget), **told)


@pytest.mark.parametrize(
    ("budget", "step_s", "bought"),
    [
        ("10 epochs", 1.0, {4: 2, 2: 1}),
        ("10 epochs", 0.0, {4: 2, 2: 1}),
        ("3 epochs", 1.0, {3: 1}),
        ("20s", 2.0, {4: 2, 2: 1}),
        ("$2 at 3600/h", 0.25, {4: 2}),
    ],
)
def test_what_a_budget_buys(budget: str, step_s: float, bought: dict[int, int]) -> None:
    planned = plan(opened(budget), RandomSearch(), step_s)
    assert planned.trials_by_steps == bought
    assert list(planned.trials_by_steps) == sorted(bought, reverse=True)
    assert planned.ledger.spent <= planned.ledger.budget.total


@pytest.mark.parametrize(
    ("budget", "step_s", "worth"),
    [
        ("36 epochs", 1.0, "9 "),
        ("40 epochs", 1.0, None),
        ("72s", 2.0, "9 "),
        ("80s", 2.0, None),
        ("$0.01 at 3600/h", 1e-3, "2.5 "),
    ],
)
def test_a_budget_too_small_for_a_model_is_told(budget: str, step_s: float, worth: str | None) -> None:
    policy = CostAwareEI(candidates=10)
    told = plan(opened(budget, policy="cost_aware_ei"), policy, step_s).warning
    assert (told is None) if worth is None else f"worth {worth}full trainings" in str(told)
    assert plan(opened(budget), RandomSearch(), step_s).warning is None


def test_several_workers_buy_as_much() -> None:
    planned = plan(opened("10 epochs", workers=3), RandomSearch(), 1.0)
    assert sum(steps * count for steps, count in planned.trials_by_steps.items()) == 10


@pytest.mark.parametrize("step_s", [0.0, -1.0, float("nan"), float("inf")])
def test_time_needs_the_price_of_a_step(step_s: float) -> None:
    with pytest.raises(BudgetError, match="seconds of a step, above 0"):
        plan(opened("20s"), RandomSearch(), step_s)


def test_made_up_curves_fall_and_belong_to_their_config() -> None:
    source = MadeUp(0, 1.0)
    curve = [source.step({"x": 0.5}, step).value for step in (1, 2, 3)]
    assert curve == sorted(curve, reverse=True)  # type: ignore[type-var]
    assert curve == [source.step({"x": 0.5}, step).value for step in (1, 2, 3)]
    assert curve != [source.step({"x": 0.6}, step).value for step in (1, 2, 3)]
