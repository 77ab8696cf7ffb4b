"""Policies with the learned surrogate in any study: several workers, prices, all kinds of spaces, a queue, failures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.deciding.decision import Decision, Train, Wait
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.entries import Note
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Config, Space
from shoestring.policies.freeze_thaw.bhpt import BHPT
from shoestring.policies.thrift.network_input import make_network_input
from shoestring.policies.thrift.thrift import Thrift
from shoestring.runners.simulated.simulated_runner import Source, StepOutcome
from shoestring.testing.curves import DecayingCurves, DivergingCurves, EarlyEndingCurves, FailingCurves, NoisyCurves
from shoestring.testing.policies import FINITE, LISTED, SPACE, list_cuts, make_definition, simulate, summarise

WIDE = Space({f"p{i:02d}": Float(0.0, 1.0) for i in range(24)})
CONDITIONAL = Space(
    {
        "solver": Choice(["sgd", "adam", "none"]),
        "momentum": Float(0.5, 0.99, when={"solver": "sgd"}),
        "beta": Float(0.9, 0.999, when={"solver": "adam"}),
        "depth": Int(1, 4),
    }
)
SPACES = {"plain": SPACE, "listed": LISTED, "finite": FINITE, "wide": WIDE, "conditional": CONDITIONAL}


@dataclass(frozen=True)
class Scaled:
    """Curves in another unit; a factor of 0 makes all values equal."""

    source: Source
    factor: float
    offset: float

    def step(self, config: Config, step: int) -> StepOutcome | None:
        outcome = self.source.step(config, step)
        if outcome is None or outcome.value is None:
            return outcome
        return replace(outcome, value=self.offset + self.factor * outcome.value)


class CheckedPolicy:
    """A policy that checks, for every decision, what must hold for all curves."""

    def __init__(self, policy: Policy) -> None:
        self.name, self._policy = policy.name, policy

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if ledger.budget.unit == "epochs":  # of seconds, steps may take more than was reserved for them
            assert ledger.spent + ledger.reserved <= ledger.budget.total
        decision = self._policy.decide(ledger, rng)
        if isinstance(decision, Wait):
            assert ledger.open_orders, "waiting without an open order would never end"
        if isinstance(decision, Train) and decision.trial < len(ledger.trials):
            trial = ledger.trials[decision.trial]
            assert trial.open_order is None, "it is being trained"
            assert not trial.is_ended, "a trial that has ended cannot be ordered"
            assert trial.steps < decision.until <= trial.limit
        if isinstance(decision, Train) and ledger.queue:
            assert decision.config == ledger.queue[0] or decision.trial < len(ledger.trials)
        return decision


def any_source(draw: st.DrawFn) -> Source:
    seed, share = draw(st.integers(0, 99)), st.sampled_from([0.0, 0.2, 1.0])
    source: Source = DecayingCurves(
        seed, setup_s=draw(st.sampled_from([0.0, 1.0])), spread=draw(st.sampled_from([1.0, 10.0]))
    )
    source = NoisyCurves(source, draw(st.sampled_from([0.0, 0.5])), seed)
    source = Scaled(source, draw(st.sampled_from([1.0, 0.0, 1e-9, 1e12])), draw(st.sampled_from([0.0, -5.0, 1e6])))
    source = DivergingCurves(source, draw(share), draw(st.integers(1, 6)), seed)
    source = FailingCurves(source, draw(st.sampled_from([0.0, 0.3])), draw(st.integers(1, 6)), seed)
    return EarlyEndingCurves(source, draw(share), draw(st.integers(1, 12)), seed)


@st.composite
def any_study(draw: st.DrawFn) -> tuple[Source, dict[str, Any], list[Note]]:
    max_steps = draw(st.sampled_from([1, 2, 9, 30, 120]))
    curves = draw(st.sampled_from([0.3, 1.0, 4.0]))
    amount = max(1, round(curves * min(max_steps, 20)))
    space = SPACES[draw(st.sampled_from(sorted(SPACES)))]
    options = {
        "space": space,
        "budget": f"{amount} {draw(st.sampled_from(['epochs', 's']))}".replace(" s", "s"),
        "max_steps": max_steps,
        "workers": draw(st.sampled_from([1, 2, 6])),
        "seed": draw(st.integers(0, 99)),
    }
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    own: dict[str, Config] = {}
    for _ in range(draw(st.integers(0, 3)) if space.rows is None else 0):
        config = space.from_cube(rng.random(space.dims))
        own[space.key(config)] = config
    return any_source(draw), options, [Note(topic="enqueue", facts={"config": config}) for config in own.values()]


@pytest.mark.parametrize(
    "policy",
    [Thrift(opening=0.0), BHPT(surrogate="learned", arms=30)],
    ids=["thrift", "bhpt"],
)
@examples(4, thorough=12)
@given(data=st.data())
def test_budget_limit_resume_and_end(policy: Policy, data: st.DataObject) -> None:
    source, options, queue = data.draw(any_study())
    whole = simulate(CheckedPolicy(policy), source, make_definition(policy, **options), *queue)
    ledger = whole.ledger
    assert ledger.spent <= ledger.budget.total * (1 + 1e-9)
    own = [note.facts["config"] for note in queue]
    assert [dict(trial.config) for trial in ledger.trials[: len(own)]] == own[: len(ledger.trials)]
    cuts = list_cuts(ledger)
    if whole.reason == "failing":  # a restart tries again
        cuts.remove(len(ledger))
    cuts = [cut for cut in cuts if cut > len(queue)]
    resumed = simulate(policy, source, *ledger.entries()[: data.draw(st.sampled_from(cuts or [len(ledger)]))])
    assert whole.reason == "failing" or summarise(resumed.ledger) == summarise(ledger)


def test_every_worker_has_work_until_the_budget_is_spent() -> None:
    """After the first trials no worker waits: while an arm is being trained, another is chosen."""
    policy, idle = Thrift(opening=0.0), list[int]()

    class Counting(CheckedPolicy):
        def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
            decision = super().decide(ledger, rng)
            if isinstance(decision, Wait) and ledger.left >= 1 and len(ledger.trials) > 4:
                idle.append(len(ledger.open_orders))
            return decision

    start = make_definition(policy, budget="80 epochs", max_steps=9, workers=4)
    ledger = simulate(Counting(policy), DecayingCurves(), start).ledger
    assert ledger.spent == 80
    assert idle == []


def test_the_reserve_of_open_orders_is_out_of_reach() -> None:
    policy = Thrift(opening=0.0)
    ledger = simulate(
        policy, DecayingCurves(), make_definition(policy, budget="60 epochs", max_steps=20, workers=3)
    ).ledger
    count = next(
        i for i in range(len(ledger), 1, -1) if len(ledger.fork(i).open_orders) == 3 and ledger.fork(i).left > 2
    )
    now = ledger.fork(count)
    inputs = make_network_input(now, 8)
    assert now.reserved >= 3
    assert inputs.arms.left == pytest.approx(60 - now.spent - now.reserved)
    assert inputs.reach.max() <= 60 - now.spent - now.reserved
    assert not any(inputs.can_train[o.order.trial] for o in now.open_orders.values())


def test_the_cheaper_of_two_equal_trials_is_trained() -> None:
    """Six pairs with the same curves; one of each pair costs six times as much."""

    class Pairs:
        def step(self, config: Config, step: int) -> StepOutcome | None:
            outcome = DecayingCurves(spread=1.0).step({"row": config["row"] % 6}, step)
            assert outcome is not None
            return replace(outcome, cost=replace(outcome.cost, train=1.0 if config["row"] < 6 else 6.0))

    chose_cheaper: list[bool] = []

    class Comparing(CheckedPolicy):
        def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
            decision = super().decide(ledger, rng)
            pair_of = {trial.config["row"]: trial for trial in ledger.trials}
            if isinstance(decision, Train) and decision.trial < len(ledger.trials):
                chosen = ledger.trials[decision.trial]
                other = pair_of.get((chosen.config["row"] + 6) % 12)
                if other is not None and other.can_continue and other.steps == chosen.steps:
                    chose_cheaper.append(chosen.config["row"] < 6)
            return decision

    policy = Thrift(opening=0.0)
    space = Space.from_configs([{"row": row} for row in range(12)])
    for seed in range(3):
        simulate(
            Comparing(policy), Pairs(), make_definition(policy, space=space, budget="200s", max_steps=20, seed=seed)
        )
    assert chose_cheaper
    assert all(chose_cheaper)


def test_the_parameter_that_matters_is_found() -> None:
    """Of 24 parameters only one matters. Trials that the network starts are better than random ones."""

    class OnlyP20:
        def step(self, config: Config, step: int) -> StepOutcome | None:
            return StepOutcome(config["p20"] + 1.0 / step, DecayingCurves().step({}, 1).cost)  # type: ignore[union-attr]

    policy = Thrift(opening=0.2)
    ledger = simulate(policy, OnlyP20(), make_definition(policy, space=WIDE, budget="200 epochs", max_steps=20)).ledger
    first_orders = {order.trial: order for order in reversed(ledger.orders)}
    chosen = [o.config["p20"] for o in first_orders.values() if "expected_gain" in o.why]
    drawn = [o.config["p20"] for o in first_orders.values() if "expected_gain" not in o.why]
    assert len(chosen) >= 3
    assert np.mean(chosen) < 0.8 * np.mean(drawn)


def test_few_trials_are_started_in_a_failing_half_of_the_space() -> None:
    """Half of the space raises an error at the first step, and a trial without a loss is information too."""

    class HalfFails:
        def step(self, config: Config, step: int) -> StepOutcome | None:
            outcome = DecayingCurves().step(config, step)
            assert outcome is not None
            return replace(outcome, value=None, failure=f"no {config['x']}") if config["x"] > 0.5 else outcome

    policy = Thrift(opening=0.2)
    space = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
    ledger = simulate(
        policy, HalfFails(), make_definition(policy, space=space, budget="200 epochs", max_steps=20)
    ).ledger
    failed = [trial.number for trial in ledger.trials if trial.failure]
    inputs = make_network_input(ledger, 20)
    assert inputs.arms.is_started[failed].all()
    worst = max(trial.losses[0] for trial in ledger.trials if not trial.failure and trial.losses[0] is not None)
    assert (inputs.arms.losses[failed, 0] == worst).all()
    assert not inputs.can_train[failed].any()
    first_orders = {order.trial: order for order in reversed(ledger.orders)}
    chosen = [o.config["x"] > 0.5 for o in first_orders.values() if "expected_gain" in o.why]
    drawn = [o.config["x"] > 0.5 for o in first_orders.values() if "expected_gain" not in o.why]
    assert np.mean(chosen) < np.mean(drawn)
