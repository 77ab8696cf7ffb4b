from __future__ import annotations

import math

import numpy as np
import pytest

from shoestring.core.ledger.entries import Cost
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Config, Space
from shoestring.errors import PolicyError
from shoestring.policies.stopping.boca import BOCA
from shoestring.runners.simulated.simulated_runner import StepOutcome
from shoestring.testing.policies import make_definition, simulate, watch

SQUARE = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})


class Bowl:
    def step(self, config: Config, step: int) -> StepOutcome:
        far = (config["x"] - 0.3) ** 2 + (config["y"] - 0.7) ** 2
        return StepOutcome(0.1 + far + 0.5 / step, Cost(train=1.0))


def test_lengths_follow_the_threshold() -> None:
    """A query is shorter than full only if its deviation is above the threshold; the coefficient changes by tenths."""
    policy = BOCA(initial_trials=3)
    ledger = simulate(
        watch(policy), Bowl(), make_definition(policy, space=SQUARE, budget="150 epochs", max_steps=10)
    ).ledger
    queries = [order for order in ledger.orders if "coefficient" in order.why]
    assert {order.until for order in queries} - {10}, "no query was short"
    recent: list[float] = []
    coefficient = policy.threshold
    for order in queries[:-1]:  # the last order was shortened by the end of the budget
        assert order.why["coefficient"] == pytest.approx(coefficient)
        short = order.until < 10
        assert (float(order.why["length_std"]) > float(order.why["length_least"])) or not short  # type: ignore[arg-type]
        recent = [*recent, 0.0 if short else 1.0][-20:]
        share = float(np.mean(recent))
        if len(recent) == 20 and share < 0.25:
            coefficient *= 1.1
        elif len(recent) == 20 and share > 0.75:
            coefficient /= 1.1
        assert order.memo["coefficient"] == pytest.approx([coefficient])
        assert order.memo["recent"] == recent


def test_with_a_high_threshold_queries_are_full_and_paused_trials_continue() -> None:
    full = BOCA(initial_trials=3, threshold=1e6)
    ledger = simulate(full, Bowl(), make_definition(full, space=SQUARE, budget="80 epochs", max_steps=10)).ledger
    assert all(order.until == 10 for order in ledger.orders)
    rows = Space.from_configs([{"x": x / 4, "y": y / 4} for x in range(5) for y in range(5)])
    short = BOCA(initial_trials=3, threshold=1e-9)
    start = make_definition(short, space=rows, budget="120 epochs", max_steps=10)
    ledger = simulate(watch(short), Bowl(), start).ledger
    firsts = {order.trial: order.number for order in reversed(ledger.orders)}
    assert any(firsts[order.trial] < order.number for order in ledger.orders), "no paused trial was continued"


def test_the_factor_is_that_of_the_authors_package() -> None:
    policy = BOCA(initial_trials=2)
    ledger = simulate(policy, Bowl(), make_definition(policy, space=SQUARE, budget="40 epochs", max_steps=5)).ledger
    queries = [order for order in ledger.orders if "multiplier" in order.why]
    assert queries[0].why["multiplier"] == pytest.approx(math.sqrt(0.5 * 2 * math.log(5)))


def test_invalid_settings_raise_errors() -> None:
    with pytest.raises(PolicyError, match="threshold"):
        BOCA(threshold=0.0)
