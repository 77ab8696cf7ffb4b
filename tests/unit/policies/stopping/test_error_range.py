from __future__ import annotations

import math

import pytest

from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Space
from shoestring.policies.plain.random_search import RandomSearch
from shoestring.policies.stopping.active_trials import find_incumbent
from shoestring.policies.stopping.error_range import ErrorRange, is_below_range, measure_range, pick_range
from shoestring.testing.curves import ListedCurves
from shoestring.testing.policies import make_definition, simulate


def study(curves: dict[str, list[float]], max_steps: int) -> Ledger:
    policy = RandomSearch()
    rows = Space.from_configs([{"name": name} for name in curves])
    return simulate(
        policy, ListedCurves(curves), make_definition(policy, space=rows, budget="999 epochs", max_steps=max_steps)
    ).ledger


def test_the_range_is_the_unit_interval_or_that_of_the_losses() -> None:
    errors = {"a": [0.9, 0.1], "b": [0.5, 0.2]}
    assert measure_range(study(errors, 2)) == (0.0, 1.0)
    negated = {name: [-value for value in curve] for name, curve in errors.items()}
    assert measure_range(study(negated, 2)) == (-1.0, 0.0)
    tens = {name: [10 * value for value in curve] for name, curve in errors.items()}
    assert measure_range(study(tens, 2)) == pytest.approx((1.0 - 0.8, 9.0 + 0.8))
    exploding = {**{f"c{i}": [9.0, 1.0] for i in range(9)}, "z": [9.0, 1e9]}
    assert measure_range(study(exploding, 2))[1] < 100.0
    assert measure_range(study({"a": [math.nan]}, 2)) == (0.0, 1.0)
    low, high = measure_range(study({"a": [7.0]}, 2))
    assert low < 7.0 < high


def test_the_users_range_has_priority_over_the_fixed_one() -> None:
    ledger = study({"a": [7.0]}, 2)
    assert pick_range(ledger, 0.0, 2.0, ErrorRange(1.0, 3.0)) == (0.0, 2.0)
    assert pick_range(ledger, None, None, ErrorRange(1.0, 3.0)) == (1.0, 3.0)
    assert pick_range(ledger, None, None, None) == measure_range(ledger)


def test_the_lower_bound_and_less_are_below_the_range() -> None:
    assert is_below_range(1.0, ErrorRange(1.0, 3.0))
    assert is_below_range(-9.0, ErrorRange(1.0, 3.0))
    assert not any(is_below_range(loss, ErrorRange(1.0, 3.0)) for loss in (1.1, 9.0, math.inf, -math.inf))


def test_the_incumbent_is_the_best_of_the_others() -> None:
    ledger = study({"a": [3.0, 1.0, 2.0], "b": [3.0, 1.5, 2.5]}, 3)
    number = {trial.config["name"]: trial.number for trial in ledger.trials}
    assert find_incumbent(ledger, number["a"]) == 1.5
    assert find_incumbent(ledger, number["b"]) == 1.0
    assert find_incumbent(study({"a": [1.0]}, 1), 0) == math.inf
