"""Newcomers that a model chooses: which are drawn, how the model and prices decide, and how the time for it is limited."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoestring import policies
from shoestring.core.deciding.decision import NO_MEMO, NO_WHY, Train
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.entries import Cost, Note, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Config, Space
from shoestring.errors import PolicyError
from shoestring.policies.cost_aware.cost_aware_ei import CostAwareEI
from shoestring.policies.halving.guide import make_guide
from shoestring.policies.halving.guided_halving import GuidedHalving
from shoestring.policies.halving.newcomers import EVALUATIONS, find_newcomer, is_thinking_affordable
from shoestring.policies.halving.sequential_halving import SequentialHalving
from shoestring.runners.runner import write_receipt
from shoestring.runners.simulated.simulated_runner import StepOutcome
from shoestring.testing.policies import make_definition, simulate

SPACE = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
GUIDED = SequentialHalving(newcomers="guided")
GUIDED_POLICIES: list[Policy] = [
    GUIDED,
    GuidedHalving(),
    *(policies.make(name, {"newcomers": "guided"}) for name in ("asha", "successive_halving", "hyperband")),
]


@dataclass(frozen=True)
class Formula:
    """Values, and seconds of a step, as functions of the configuration."""

    value: Callable[[Config], float] = lambda config: (config["x"] - 0.3) ** 2 + (config["y"] - 0.8) ** 2
    seconds: Callable[[Config], float] = lambda config: 1.0

    def step(self, config: Config, step: int) -> StepOutcome:
        return StepOutcome(self.value(config) + 1.0 / step, Cost(train=self.seconds(config)))


def study(policy: Policy = GUIDED, source: Formula | None = None, **options: Any) -> Ledger:
    chosen: dict[str, Any] = {"space": SPACE, "budget": "200 epochs", "max_steps": 50} | options
    return simulate(policy, source or Formula(), make_definition(policy, **chosen)).ledger


def firsts(ledger: Ledger) -> list[Order]:
    """Return the first order of each trial."""
    return [next(order for order in ledger.orders if order.trial == trial.number) for trial in ledger.trials]


def is_guided(order: Order) -> bool:
    return "expected_share" in order.why


def train_newcomers(thinking_s: float, step_s: float, budget: str, count: int = 20) -> Ledger:
    """Return a study of one-step looks in which each decision took `thinking_s`, and each step `step_s`."""
    ledger = Ledger([make_definition(GUIDED, space=SPACE, budget=budget, max_steps=50)])
    for _ in range(count):
        newcomer = find_newcomer(ledger, "guided")
        assert newcomer is not None
        at = ledger.state.clock
        order = place_order(ledger, newcomer.start(ledger, 1, {}), at=at, thinking_s=thinking_s)
        assert order is not None
        value, cost = Formula().value(newcomer.config), Cost(train=step_s)
        ledger = ledger.append(order).append(write_receipt(order, 1, value, cost, at=at + thinking_s + step_s))
    return ledger


# which newcomers are drawn --------------------------------------------------------------------------------------------


def test_the_first_four_and_every_fifth_newcomer_are_drawn() -> None:
    numbers = [order.trial for order in firsts(study()) if not is_guided(order)]
    assert numbers == [0, 1, 2, 3, *range(4, 50, 5)]


@pytest.mark.parametrize("policy", GUIDED_POLICIES, ids=lambda policy: policy.name)
def test_drawn_newcomers_are_those_of_the_same_number_without_a_guide(policy: Policy) -> None:
    drawn = replace(policy, newcomers="drawn")  # type: ignore[type-var]
    pairs = list(zip(firsts(study(policy)), firsts(study(drawn)), strict=False))
    assert all((guided.config == other.config) != is_guided(guided) for guided, other in pairs)
    assert any(is_guided(guided) for guided, _ in pairs)


def test_configurations_of_the_user_come_first() -> None:
    wanted = {"x": 0.123, "y": 0.456}
    ledger = study()
    cut = next(i for i, entry in enumerate(ledger.entries()) if isinstance(entry, Order) and entry.trial == 10)
    before = Ledger(list(ledger.entries())[:cut]).append(Note(topic="enqueue", facts={"config": wanted}))
    assert find_newcomer(before, "guided") == (wanted, NO_WHY, NO_MEMO)


def test_an_unknown_source_is_an_error() -> None:
    for kind in (SequentialHalving, GuidedHalving):
        with pytest.raises(PolicyError, match="newcomers='best'"):
            kind(newcomers="best")  # type: ignore[arg-type]


# how the model chooses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", GUIDED_POLICIES, ids=lambda policy: policy.name)
def test_guided_newcomers_are_better_than_drawn_ones(policy: Policy) -> None:
    orders = firsts(study(policy, budget="400 epochs"))
    values = {kind: [Formula().value(o.config) for o in orders if is_guided(o) == kind] for kind in (True, False)}
    assert np.mean(values[True]) < 0.5 * np.mean(values[False])


def test_expected_shares_are_about_right() -> None:
    """Newcomers that are expected to be among the best fifth are: at least three in four of them."""
    ledger = study(budget="400 epochs")
    losses = [loss for trial in ledger.trials if (loss := trial.losses[0]) is not None]
    hopeful = [order.trial for order in firsts(ledger) if float(str(order.why.get("expected_share", 1.0))) < 0.2]
    assert len(hopeful) > 20
    assert np.mean([np.mean([other < losses[n] for other in losses[:n]]) < 0.2 for n in hopeful]) > 0.75


def test_of_equally_good_configurations_the_cheaper_ones_are_chosen() -> None:
    source = Formula(value=lambda config: (config["y"] - 0.8) ** 2, seconds=lambda config: 10.0 ** config["x"])
    seconds = firsts(study(GUIDED, source, budget="800s"))
    epochs = firsts(study(GUIDED, source, budget="200 epochs"))
    mean_x = [np.mean([order.config["x"] for order in orders if is_guided(order)]) for orders in (seconds, epochs)]
    assert mean_x[0] < 0.3 < mean_x[1]
    assert all("price" in order.why for order in seconds if is_guided(order) and "guide_plan" in order.memo)
    assert not any("price" in order.why for order in epochs)


def test_the_reason_names_similar_trials() -> None:
    order = [order for order in firsts(study()) if "similar_to" in order.why][-1]
    numbers = [int(number) for number in str(order.why["similar_to"]).split(", ")]
    assert all(number < order.trial for number in numbers)
    clauses = SequentialHalving.describe_why(order).clauses
    assert clauses[1].startswith("expected to be among the best ")
    assert clauses[2].startswith("similar to trial")


def test_trials_under_way_count_as_if_they_had_come_out_as_predicted() -> None:
    ledger = study(budget="100 epochs", workers=8)
    guided = [order for order in firsts(ledger) if is_guided(order)]
    places = np.array([[order.config["x"], order.config["y"]] for order in guided])
    apart = np.abs(places[:, None] - places[None]).max(axis=2)[np.triu_indices(len(places), 1)]
    assert apart.min() > 1e-3


def test_a_newcomer_is_the_best_of_fewer_candidates_where_the_order_turns() -> None:
    """Losses after step 4 are in the opposite order, so the guide is trusted less."""

    @dataclass(frozen=True)
    class Turning(Formula):
        def step(self, config: Config, step: int) -> StepOutcome:
            value = Formula().value(config)
            return StepOutcome(value if step < 4 else 10.0 - value, Cost(train=1.0))

    asha = policies.make("asha", {"newcomers": "guided", "reduction_factor": 2})
    stays, turns = (make_guide(study(asha, source, budget="600 epochs"), {}) for source in (Formula(), Turning()))
    assert stays is not None
    assert turns is not None
    assert stays.compared == len(stays.seen)
    assert turns.compared == 1


def test_with_many_trials_a_look_chooses_several_newcomers_and_they_are_started_in_order() -> None:
    ledger = study(budget="2000 epochs")
    orders = firsts(ledger)
    looks = [order for order in orders if "guide_plan" in order.memo]
    planned = [order for order in orders if "chosen_at" in order.why]
    assert planned
    for order in planned:
        look = ledger.orders[int(str(order.why["chosen_at"]))]
        assert look in looks
        plan = np.array(look.memo["guide_plan"]).reshape(-1, 3)
        assert [order.config["x"], order.config["y"]] in plan[:, 1:].tolist()
        assert order.why["expected_share"] in plan[:, 0]


def test_the_prediction_of_a_newcomer_begins_with_it_and_covers_what_came() -> None:
    ledger = study()
    orders = [order for order in firsts(ledger) if "guide_plan" in order.memo]
    inside = []
    for order in orders[5:]:
        at = next(i for i, entry in enumerate(ledger.entries()) if entry == order)
        prediction = GUIDED.predict(Ledger(list(ledger.entries())[:at]), order)
        assert prediction is not None
        first = prediction.curves[0]
        assert first.config == order.config
        value = ledger.trials[order.trial].losses[0]
        assert value is not None
        inside.append(first.quantiles[0, 0] - 0.05 <= value <= first.quantiles[-1, 0] + 0.05)
    assert np.mean(inside) > 0.7
    assert GUIDED.predict(ledger, ledger.orders[0]) is None


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1000), st.booleans(), st.integers(1, 4))
def test_every_newcomer_is_new(seed: int, is_listed: bool, workers: int) -> None:
    mixed = Space({"kind": Choice(["a", "b"]), "n": Int(1, 6), "x": Float(1e-3, 1.0, log=True, when={"kind": "a"})})
    rows = [{"kind": "a", "n": 1 + i % 6, "x": 0.1 + 0.01 * i} for i in range(60)] + [{"kind": "b", "n": 1}]
    space = Space.from_configs(rows) if is_listed else mixed
    source = Formula(value=lambda config: config["n"] + config.get("x", 0.5) + (config["kind"] == "b"))
    ledger = study(GUIDED, source, space=space, seed=seed, workers=workers, budget="150 epochs", max_steps=20)
    keys = [ledger.space.key(trial.config) for trial in ledger.trials]
    assert len(set(keys)) == len(keys) > 10


# how long it may think ------------------------------------------------------------------------------------------------


def count_evaluations(ledger: Ledger) -> int:
    return ledger.view(EVALUATIONS).count


def test_without_thinking_time_each_newcomer_gets_a_look() -> None:
    assert count_evaluations(train_newcomers(0.0, 1.0, "1000s")) == 12  # of 20, the first five and three more are drawn


def test_quick_steps_get_no_look() -> None:
    assert count_evaluations(train_newcomers(0.01, 1e-4, "1000s")) == 0


def test_a_look_that_is_expensive_for_a_first_step_chooses_several_newcomers() -> None:
    ledger = train_newcomers(0.1, 0.1, "1000s")
    assert 1 < count_evaluations(ledger) < 6
    plan = ledger.view(EVALUATIONS).memo["guide_plan"]
    assert len(plan) == 3 * 6  # a look may cost 15 % of a step for each newcomer: 0.1 s are seven newcomers


@pytest.mark.parametrize(("thinking_s", "budget"), [(0.1, "40s"), (0.2, "100s"), (1.0, "$1 at 36/h")])
def test_thinking_stays_below_three_percent_of_a_budget_of_time(thinking_s: float, budget: str) -> None:
    ledger = train_newcomers(thinking_s, 1.0, budget, count=30)
    looked = count_evaluations(ledger) * thinking_s * ledger.budget.per_second(1)
    assert (
        looked <= 0.03 * ledger.budget.total + 2 * thinking_s
    )  # the first two looks are allowed without a measurement


def test_with_a_budget_in_epochs_thinking_is_limited_by_the_time_of_training() -> None:
    assert count_evaluations(train_newcomers(1.0, 1.0, "1000 epochs", count=40)) == 28
    assert (
        count_evaluations(train_newcomers(1.0, 1e-6, "1000 epochs", count=40)) == 5
    )  # five were drawn before ten seconds were over, one between the looks


@pytest.mark.parametrize("max_steps", [1, 20])
def test_in_a_space_of_many_parameters_all_newcomers_are_drawn(max_steps: int) -> None:
    space = Space({f"x{i}": Float(0.0, 1.0) for i in range(201)})
    options = {"space": space, "max_steps": max_steps, "budget": "30 epochs"}
    source = Formula(value=lambda config: config["x0"])
    wide, drawn = (study(policy, source, **options) for policy in (GuidedHalving(), SequentialHalving()))
    assert [order.config for order in wide.orders] == [order.config for order in drawn.orders]


# trials of one step ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", ["25 epochs", "25s"])
def test_one_step_is_decided_by_cost_aware_ei(budget: str) -> None:
    guided, cost_aware = (study(policy, budget=budget, max_steps=1) for policy in (GuidedHalving(), CostAwareEI()))
    assert [order.config for order in guided.orders] == [order.config for order in cost_aware.orders]
    assert [order.why for order in guided.orders] == [order.why for order in cost_aware.orders]
    prediction = GuidedHalving().predict(Ledger(list(guided.entries())[:-2]), guided.orders[-1])
    assert prediction is not None


def test_reasons_of_one_step_are_those_of_cost_aware_ei() -> None:
    orders = study(GuidedHalving(), budget="8 epochs", max_steps=1).orders
    assert [GuidedHalving.describe_why(order) for order in orders] == [CostAwareEI.describe_why(o) for o in orders]
    assert GuidedHalving.describe_why(orders[0]).clauses == ("part of the initial design",)


def test_one_step_without_a_guide_is_drawn() -> None:
    drawn = study(GuidedHalving(newcomers="drawn"), budget="25 epochs", max_steps=1)
    other = study(SequentialHalving(), budget="25 epochs", max_steps=1)
    assert [order.config for order in drawn.orders] == [order.config for order in other.orders]


def test_one_step_is_guided_or_drawn_when_decisions_took_too_long() -> None:
    slow = train_newcomers(0.5, 1.0, "1000s", count=5)
    assert not is_thinking_affordable(slow)
    one_step = replace(slow.definition, max_steps=1, policy="guided_halving")
    ledger = Ledger([one_step, *list(slow.entries())[1:]])
    decision = GuidedHalving().decide(ledger, ledger.decision_rng())
    assert isinstance(decision, Train)
    assert "predicted_cost" not in decision.why
