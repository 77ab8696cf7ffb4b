"""`plan`: what a budget pays for, counted on random curves."""

from __future__ import annotations

from typing import Any

import pytest

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import StudyDefinition
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.errors import BudgetError
from shoestring.policies.cost_aware.cost_aware_ei import CostAwareEI
from shoestring.policies.plain.random_search import RandomSearch
from shoestring.study.simulation import RandomCurves, plan


def make_definition(budget: str, **more: Any) -> StudyDefinition:
    options = {"max_steps": 4, "seed": 3, "policy": "random_search", "settings": {}, **more}
    return StudyDefinition(space=Space({"x": Float(0, 1)}), budget=Budget(budget), **options)


@pytest.mark.parametrize(
    ("budget", "step_s", "trained"),
    [
        ("10 epochs", 1.0, {4: 2, 2: 1}),
        ("10 epochs", 0.0, {4: 2, 2: 1}),
        ("3 epochs", 1.0, {3: 1}),
        ("20s", 2.0, {4: 2, 2: 1}),
        ("$2 at 3600/h", 0.25, {4: 2}),
    ],
)
def test_the_number_of_trials_by_steps(budget: str, step_s: float, trained: dict[int, int]) -> None:
    planned = plan(make_definition(budget), RandomSearch(), step_s)
    assert planned.trials_by_steps == trained
    assert list(planned.trials_by_steps) == sorted(trained, reverse=True)
    assert planned.ledger.spent <= planned.ledger.budget.total


@pytest.mark.parametrize(
    ("budget", "step_s", "number"),
    [
        ("36 epochs", 1.0, "9"),
        ("40 epochs", 1.0, None),
        ("72s", 2.0, "9"),
        ("80s", 2.0, None),
        ("$0.01 at 3600/h", 1e-3, "2.5"),
    ],
)
def test_a_budget_too_small_for_a_model_has_a_warning(budget: str, step_s: float, number: str | None) -> None:
    policy = CostAwareEI(candidates=10)
    warning = plan(make_definition(budget, policy="cost_aware_ei"), policy, step_s).warning
    if number is None:
        assert warning is None
    else:
        assert warning is not None
        assert f" {number} " in warning
        assert "cost_aware_ei" in warning
    assert plan(make_definition(budget), RandomSearch(), step_s).warning is None


def test_several_workers_train_as_many_trials() -> None:
    planned = plan(make_definition("10 epochs", workers=3), RandomSearch(), 1.0)
    assert sum(steps * count for steps, count in planned.trials_by_steps.items()) == 10


@pytest.mark.parametrize("step_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_budget_needs_the_duration_of_a_step(step_s: float) -> None:
    with pytest.raises(BudgetError, match="duration of a step in seconds, above 0"):
        plan(make_definition("20s"), RandomSearch(), step_s)


def test_random_curves_fall_and_depend_on_the_config() -> None:
    source = RandomCurves(0, 1.0)
    curve = [source.step({"x": 0.5}, step).value for step in (1, 2, 3)]
    assert curve == sorted(curve, reverse=True)  # type: ignore[type-var]
    assert curve == [source.step({"x": 0.5}, step).value for step in (1, 2, 3)]
    assert curve != [source.step({"x": 0.6}, step).value for step in (1, 2, 3)]
