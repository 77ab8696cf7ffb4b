"""BHPT with the learned surrogate: Q is exact on its bins, and tau* comes from a second query."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Float
from shoestring.core.space.space import Space
from shoestring.errors import PolicyError
from shoestring.models.thrift.features import scale_of
from shoestring.models.thrift.lowest_losses import LowestLosses, predict_lowest_losses, predict_with_reach
from shoestring.models.thrift.network import load_shipped_networks
from shoestring.models.thrift.shapes import BINS
from shoestring.policies.freeze_thaw.bhpt import BHPT
from shoestring.policies.freeze_thaw.learned import LearnedRule
from shoestring.policies.thrift.network_input import make_network_input
from shoestring.testing.curves import DecayingCurves, DivergingCurves, NegatedCurves
from shoestring.testing.policies import LEARNING_CHECKS, POLICY_CHECKS, Check, list_orders, make_definition, simulate

POLICY = BHPT(surrogate="learned", arms=20)
RULE = LearnedRule(arms=20, eps=None, commit=True)


def study(policy: BHPT = POLICY, source: Any = None, **options: Any) -> Ledger:
    start = make_definition(policy, **{"budget": "40 epochs", "max_steps": 9, **options})
    return simulate(policy, source or DecayingCurves(), start).ledger


@pytest.mark.parametrize("check", [*POLICY_CHECKS, *LEARNING_CHECKS], ids=lambda check: check.__name__)
def test_the_contract_of_policies_is_kept(check: Check) -> None:
    check(BHPT(surrogate="learned", arms=6), light=True)


def test_q_is_the_expectation_of_the_paper() -> None:
    inputs = make_network_input(study().fork(40), 12)
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.full(BINS, 0.1), size=len(inputs.arms.n))
    losses = LowestLosses(scale_of(inputs.arms), chances)
    plan, std = RULE._plan(losses, inputs)
    means = {
        a: sum(p * v for p, v in zip(chances[a], losses.losses, strict=True)) for a in np.flatnonzero(inputs.can_train)
    }
    assert plan.top_arm == min(means, key=means.__getitem__)
    for arm, mean in means.items():
        ref = min(value for other, value in means.items() if other != arm)
        q = sum(p * min(v, ref) for p, v in zip(chances[arm], losses.losses, strict=True))
        assert plan.mean[arm] == pytest.approx(mean)
        assert plan.q[arm] == pytest.approx(q)
        assert plan.gain[arm] == pytest.approx(min(mean, ref) - q, abs=1e-12)
        spread = sum(p * (v - mean) ** 2 for p, v in zip(chances[arm], losses.losses, strict=True))
        assert std[arm] == pytest.approx(math.sqrt(spread))
    out = np.flatnonzero(~inputs.can_train)
    assert np.isinf(plan.mean[out]).all()
    assert (plan.gain[out] == -math.inf).all()


def test_a_query_with_another_reach_equals_a_study_with_that_reach() -> None:
    arms = make_network_input(study(max_steps=20, budget="60 epochs").fork(80), 12).arms
    newcomer = int(np.argmin(arms.n))
    prediction = predict_with_reach(load_shipped_networks(), arms, newcomer, np.array([1, 3]))
    for row, reach in zip(prediction.chances, (1, 3), strict=True):
        others = arms.reach.copy()
        others[newcomer] = reach
        assert np.allclose(
            row,
            predict_lowest_losses(load_shipped_networks(), replace(arms, reach=others)).chances[newcomer],
            atol=1e-5,
        )
    assert not np.allclose(prediction.chances[0], prediction.chances[1], atol=1e-3)
    trained = int(np.argmax(arms.n))  # with its own reach the prediction is the usual one
    (row,) = predict_with_reach(load_shipped_networks(), arms, trained, arms.reach[[trained]]).chances
    assert np.allclose(row, predict_lowest_losses(load_shipped_networks(), arms).chances[trained], atol=1e-5)


def test_the_best_arm_gets_the_rest_of_the_budget_once_it_needs_it() -> None:
    whys = [dict[str, Any](order.why) for order in study().orders if "committed" in order.why]
    assert whys[-1]["committed"] is True
    assert {why["committed"] for why in whys} == {True, False}
    assert all(why["committed"] is (why["tau_star"] >= why["r"]) for why in whys)
    never = study(replace(POLICY, commit=False))
    assert not any(order.why.get("committed") for order in never.orders)


def test_tau_star_is_the_first_step_with_the_lowest_expected_loss() -> None:
    inputs = make_network_input(study(max_steps=30, budget="90 epochs").fork(60), 12)
    arm = int(np.argmax(np.where(inputs.can_train, inputs.arms.reach, -1)))
    steps = RULE._count_steps_to_best(inputs, arm)
    queried = predict_with_reach(load_shipped_networks(), inputs.arms, arm, np.arange(1, inputs.arms.reach[arm] + 1))
    expected = queried.chances @ queried.losses
    assert 1 < steps <= inputs.reach[arm]
    assert expected[steps - 1] == pytest.approx(expected.min(), abs=1e-9 * queried.scale.unit)
    assert expected[: steps - 1].min() > expected.min()


def test_greedy_chooses_the_arm_expected_to_be_best() -> None:
    names = {order.why["score_name"] for order in study(replace(POLICY, eps=1.0)).orders if "score_name" in order.why}
    assert names == {"expected best value of the trial"}


def test_each_order_is_one_step_and_the_budget_is_spent() -> None:
    ledger = study()
    assert ledger.spent == 40
    steps_before: dict[int, int] = {}
    for order in ledger.orders:
        assert order.until == steps_before.get(order.trial, 0) + 1
        steps_before[order.trial] = order.until


def test_maximised_values_give_the_same_decisions() -> None:
    mirrored = study(source=NegatedCurves(DecayingCurves()), direction="max")
    assert list_orders(mirrored) == list_orders(study())


def test_long_curves_conditional_spaces_several_workers_and_prices() -> None:
    space = Space({"rate": Float(0.05, 0.9), "kind": Choice(["a", "b"]), "extra": Float(0, 1, when={"kind": "a"})})
    cases: list[dict[str, Any]] = [{"max_steps": 120, "budget": "200 epochs"}, {"budget": "60s", "workers": 3}]
    for more in cases:
        ledger = study(source=DivergingCurves(DecayingCurves()), space=space, **more)
        assert ledger.spent > 0.9 * ledger.budget.total
        assert ledger.spent <= ledger.budget.total


def test_an_unknown_surrogate_raises_an_error() -> None:
    with pytest.raises(PolicyError, match="surrogate='guess'"):
        BHPT(surrogate="guess")  # type: ignore[arg-type]
