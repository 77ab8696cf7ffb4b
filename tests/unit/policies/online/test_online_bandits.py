"""Bandits as policies of one run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoestring import policies
from shoestring.core.deciding.decision import Train
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, Note, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.parameters import Choice, Float
from shoestring.core.space.space import Space
from shoestring.errors import PolicyError
from shoestring.models.online.bandits import exp3s_update
from shoestring.policies.online.bandit_policies import EXP3S, UCB1
from shoestring.runners.runner import write_receipt

ARMS = Space({"mode": Choice(["a", "b", "c"])})
MEANS = {"a": 0.2, "b": 0.8, "c": 0.5}
NAMES = ["exp3s", "epsilon_greedy", "softmax", "ucb1"]
VALUES: dict[str, Any] = {"reward": "value", "clip": None}


def begin(policy: Policy, space: Space = ARMS, rounds: int = 400) -> Ledger:
    definition = StudyDefinition(
        space=space,
        budget=Budget(f"{rounds} epochs"),
        policy=policy.name,
        settings={},
        seed=5,
        direction="max",
        max_steps=rounds,
    )
    return Ledger([definition])


def play(policy: Policy, ledger: Ledger, rounds: int) -> Ledger:
    rng = np.random.default_rng(1)
    for _ in range(rounds):
        decision = policy.decide(ledger, ledger.decision_rng())
        assert isinstance(decision, Train)
        order = place_order(ledger, decision)
        assert order is not None
        value = MEANS.get(order.config.get("mode", ""), 0.0) + 0.1 * rng.normal()
        measured = value if order.validate == "last" else None
        ledger = ledger.append(order).append(
            write_receipt(order, order.until, measured, Cost(), at=0.0, saved_step=order.until)
        )
    return ledger


@pytest.mark.parametrize("name", NAMES)
def test_the_best_arm_is_chosen_most(name: str) -> None:
    policy = policies.make(name, VALUES | ({"mixing": 0.3} if name == "exp3s" else {}))
    arms = [order.config["mode"] for order in play(policy, begin(policy), 400).orders[-200:]]
    assert max(set(arms), key=arms.count) == "b"
    assert arms.count("b") > 100


@pytest.mark.parametrize("name", NAMES)
def test_rounds_without_validation_teach_nothing(name: str) -> None:
    policy = policies.make(name, VALUES | {"query": "bernoulli", "query_probability": 0.0})
    ledger = play(policy, begin(policy), 30)
    assert [order.validate for order in ledger.orders] == ["last"] + ["none"] * 29
    state = ledger.view(policy.arms_view)  # type: ignore[attr-defined]
    assert state.counts.sum() == 1


def test_counts_sums_and_weights_are_those_of_all_observed_rounds() -> None:
    policy = EXP3S(query="bernoulli", query_probability=0.5, mixing=0.2, **VALUES)
    ledger = play(policy, begin(policy), 60)
    state = ledger.view(policy.arms_view)
    observed = [(c, r) for c, r in zip(state.run.configs, state.run.rewards, strict=True) if r is not None]
    arms = [["a", "b", "c"].index(config["mode"]) for config, _ in observed]
    rewards = [reward for _, reward in observed]
    np.testing.assert_array_equal(state.counts, np.bincount(arms, minlength=3))
    np.testing.assert_allclose(state.sums, np.bincount(arms, weights=rewards, minlength=3), rtol=1e-12)
    expected = np.full(3, 1 / 3)
    for arm, reward in zip(arms, rewards, strict=True):
        expected = exp3s_update(expected, arm, reward, mixing=0.2, sharing=1 / 400)
    np.testing.assert_allclose(state.weights, expected, rtol=1e-12)


def test_a_continuous_space_has_most_arms_arms() -> None:
    policy = UCB1(most_arms=5, **VALUES)
    ledger = play(policy, begin(policy, Space({"x": Float(0, 1)})), 20)
    assert len({order.config["x"] for order in ledger.orders}) == 5


def test_a_queued_config_that_is_not_an_arm_is_trained_once() -> None:
    policy = UCB1(most_arms=2, **VALUES)
    ledger = begin(policy, Space({"x": Float(0, 1)})).append(Note(topic="enqueue", facts={"config": {"x": 0.123}}))
    ledger = play(policy, ledger, 10)
    assert [order.config["x"] == 0.123 for order in ledger.orders] == [True] + [False] * 9
    assert ledger.view(policy.arms_view).counts.sum() == 9


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("exp3s", {"mixing": 0.0}, r"exp3s\(mixing=0.0\)"),
        ("exp3s", {"sharing": 2.0}, "sharing"),
        ("softmax", {"temperature": 0.0}, "temperature"),
        ("epsilon_greedy", {"exploration": 1.5}, "exploration"),
        ("ucb1", {"query": "kappa"}, r"ucb1\(query='kappa'\).* 'always', 'bernoulli'\."),
        ("ucb1", {"most_arms": 0}, "most_arms"),
    ],
)
def test_settings_out_of_range_are_refused(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        policies.make(name, settings)
