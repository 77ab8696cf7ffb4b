"""BHPT's rule on the learned belief: Q is exact on its bins, the commitment asks how soon the best arm is at its best."""

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
from shoestring.models.thrift.belief import Belief, believe, believe_with_reach
from shoestring.models.thrift.features import scale_of
from shoestring.models.thrift.network import shipped
from shoestring.models.thrift.shapes import BINS
from shoestring.policies.freeze_thaw.bhpt import BHPT
from shoestring.policies.freeze_thaw.learned import LearnedRule
from shoestring.policies.thrift.arms import look
from shoestring.testing.curves import Decaying, Diverging, Negated
from shoestring.testing.policies import CHECKS, LEARNING_CHECKS, Check, opened, orders_of, simulate

POLICY = BHPT(belief="learned", arms=20)
RULE = LearnedRule(arms=20, eps=None, commit=True, tolerance=0.0, past_best=False)


def study(policy: BHPT = POLICY, source: Any = None, **told: Any) -> Ledger:
    start = opened(policy, **{"budget": "40 epochs", "max_steps": 9, **told})
    return simulate(policy, source or Decaying(), start).ledger


@pytest.mark.parametrize("check", [*CHECKS, *LEARNING_CHECKS], ids=lambda check: check.__name__)
def test_the_contract_of_policies_is_kept(check: Check) -> None:
    check(BHPT(belief="learned", arms=6), light=True)


@pytest.mark.parametrize("past_best", [False, True])
def test_q_is_the_expectation_that_the_paper_names(past_best: bool) -> None:
    scene = look(study().fork(40), 12)
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.full(BINS, 0.1), size=len(scene.arms.n))
    belief = Belief(scale_of(scene.arms), chances)
    plan, std = replace(RULE, past_best=past_best)._plan(belief, scene)
    means = {
        a: sum(p * v for p, v in zip(chances[a], belief.losses, strict=True)) for a in np.flatnonzero(scene.can_buy)
    }
    assert plan.top_arm == min(means, key=means.__getitem__)
    for arm, mean in means.items():
        others = min(value for other, value in means.items() if other != arm)
        ref = min(others, belief.scale.best) if past_best else others
        q = sum(p * min(v, ref) for p, v in zip(chances[arm], belief.losses, strict=True))
        assert plan.mean[arm] == pytest.approx(mean)
        assert plan.q[arm] == pytest.approx(q)
        assert plan.gain[arm] == pytest.approx(min(mean, ref) - q, abs=1e-12)
        spread = sum(p * (v - mean) ** 2 for p, v in zip(chances[arm], belief.losses, strict=True))
        assert std[arm] == pytest.approx(math.sqrt(spread))
    out = np.flatnonzero(~scene.can_buy)
    assert np.isinf(plan.mean[out]).all()
    assert (plan.gain[out] == -math.inf).all()


def test_asking_with_another_reach_is_asking_the_study_as_it_would_be() -> None:
    arms = look(study(max_steps=20, budget="60 epochs").fork(80), 12).arms
    newcomer = int(np.argmin(arms.n))
    asked = believe_with_reach(shipped(), arms, newcomer, np.array([1, 3]))
    for row, reach in zip(asked.chances, (1, 3), strict=True):
        others = arms.reach.copy()
        others[newcomer] = reach
        assert np.allclose(row, believe(shipped(), replace(arms, reach=others)).chances[newcomer], atol=1e-5)
    assert not np.allclose(asked.chances[0], asked.chances[1], atol=1e-3)
    trained = int(np.argmax(arms.n))  # it answers the others as it is
    (row,) = believe_with_reach(shipped(), arms, trained, arms.reach[[trained]]).chances
    assert np.allclose(row, believe(shipped(), arms).chances[trained], atol=1e-5)


def test_once_the_best_arm_needs_all_that_is_left_it_gets_all_that_is_left() -> None:
    told = [dict[str, Any](order.why) for order in study().orders if "committed" in order.why]
    assert told[-1]["committed"] is True
    assert {why["committed"] for why in told} == {True, False}
    assert all(why["committed"] is (why["tau_star"] >= why["r"]) for why in told)
    never = study(replace(POLICY, commit=False))
    assert not any(order.why.get("committed") for order in never.orders)


def test_tolerance_lets_the_best_arm_be_done_earlier() -> None:
    scene = look(study(max_steps=30, budget="90 epochs").fork(60), 12)
    arm = int(np.argmax(np.where(scene.can_buy, scene.arms.reach, -1)))
    steps = [replace(RULE, tolerance=share)._count_steps_to_best(scene, arm) for share in (0.0, 0.2, 0.9)]
    assert steps == sorted(steps, reverse=True)
    assert 1 <= steps[-1] < steps[0] <= scene.reach[arm]


def test_greedy_buys_the_arm_that_is_expected_to_be_best() -> None:
    names = {order.why["score_name"] for order in study(replace(POLICY, eps=1.0)).orders if "score_name" in order.why}
    assert names == {"value expected at the run's best"}


def test_each_order_is_one_step_and_the_budget_is_spent() -> None:
    ledger = study()
    assert ledger.spent == 40
    had: dict[int, int] = {}
    for order in ledger.orders:
        assert order.until == had.get(order.trial, 0) + 1
        had[order.trial] = order.until


def test_values_to_be_maximised_are_decided_alike() -> None:
    mirrored = study(source=Negated(Decaying()), direction="max")
    assert orders_of(mirrored) == orders_of(study())


def test_long_curves_conditional_spaces_several_workers_and_prices() -> None:
    space = Space({"rate": Float(0.05, 0.9), "kind": Choice(["a", "b"]), "extra": Float(0, 1, when={"kind": "a"})})
    cases: list[dict[str, Any]] = [{"max_steps": 120, "budget": "200 epochs"}, {"budget": "60s", "workers": 3}]
    for more in cases:
        ledger = study(source=Diverging(Decaying()), space=space, **more)
        assert ledger.spent > 0.9 * ledger.budget.total
        assert ledger.spent <= ledger.budget.total


def test_beliefs_have_names() -> None:
    with pytest.raises(PolicyError, match="belief='guess'"):
        BHPT(belief="guess")  # type: ignore[arg-type]
