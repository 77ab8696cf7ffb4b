"""Cost-aware EI on rough curves: the budget holds, the study ends, and resuming it anywhere changes nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.entries import Cost, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Space
from shoestring.policies.cost_aware.cost_aware_ei import DESIGN, LAST_COST_SHARE, CostAwareEI
from shoestring.runners.runner import write_receipt
from shoestring.testing.policies import (
    ROUGH_CURVES,
    list_cuts,
    list_orders,
    make_definition,
    simulate,
    summarise,
    watch,
)

CONDITIONAL = Space(
    {
        "x": Float(1e-4, 1.0, log=True),
        "n": Int(1, 6),
        "c": Choice(["a", "b"]),
        "m": Float(0.0, 1.0, when={"c": "a"}),
        "d": Choice([1, 2, 4], when={"c": "b"}),
    }
)
LISTED = Space.from_configs([{"i": i, "kind": "xyz"[i % 3]} | ({"extra": i * i} if i % 4 else {}) for i in range(9)])
MARKED = Space(
    {
        "n": Int(1, 500, log=True, cost="increases"),
        "b": Float(0.0, 1.0, cost="decreases"),
        "c": Choice(["a", "b"]),
        "d": Int(1, 4, cost="increases", when={"c": "a"}),
        "x": Float(1e-4, 1.0, log=True),
    }
)
LISTED_MARKED = Space.from_configs(
    [{"n": 1 + i % 4, "b": i // 4, "x": i % 7 / 7} | ({"d": i % 3} if i % 4 else {}) for i in range(28)],
    cost={"n": "increases", "b": "decreases", "d": "increases"},
)
FINITE = Space({"n": Int(1, 4), "c": Choice(["a", "b", "c"])})


@st.composite
def studies(
    draw: st.DrawFn, units: tuple[str, ...] = ("epochs", "seconds", "dollars")
) -> tuple[CostAwareEI, StudyDefinition]:
    policy = replace(
        CostAwareEI(initial_trials=2, candidates=40),
        acquisition=draw(st.sampled_from(["ei", "eipu", "ei_cool", "ei_alpha", "cei"])),
        slack=draw(st.sampled_from([0.0, 0.2, 1.0])),
        cost_model=draw(st.sampled_from(["auto", "lv1", "lv3", "gp3", "gplv"])),
        initial_design=draw(st.sampled_from(["fixed", "cheap"])),
        initial_trials=draw(st.integers(1, 4)),
        candidates=draw(st.sampled_from([1, 20])),
    )
    max_steps = draw(st.integers(1, 3))
    amount = draw(st.integers(1, 8 * max_steps))
    unit = draw(st.sampled_from(units))
    text = {"epochs": f"{amount} epochs", "seconds": f"{amount}s", "dollars": f"${amount} at 3600/h"}[unit]
    return policy, make_definition(
        policy,
        space=draw(st.sampled_from([CONDITIONAL, LISTED, FINITE, MARKED, LISTED_MARKED])),
        budget=text,
        max_steps=max_steps,
        workers=draw(st.integers(1, 3)),
        direction=draw(st.sampled_from(["min", "max"])),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


@examples(6, thorough=20)
@given(studies())
def test_every_decision_is_allowed_and_the_study_ends(study: tuple[CostAwareEI, StudyDefinition]) -> None:
    policy, start = study
    ledger = simulate(watch(policy), ROUGH_CURVES, start).ledger
    assert not ledger.open_orders
    assert ledger.spent <= ledger.budget.total * (1 + 1e-9)
    if ledger.budget.unit == "epochs":
        assert ledger.spent <= ledger.budget.total
    keys = [start.space.key(trial.config) for trial in ledger.trials]
    assert len(set(keys)) == len(keys)


@examples(6, thorough=20)
@given(studies(), st.data())
def test_a_study_cut_anywhere_and_resumed_equals_the_whole_one(
    study: tuple[CostAwareEI, StudyDefinition], data: st.DataObject
) -> None:
    policy, start = study
    whole = simulate(policy, ROUGH_CURVES, start).ledger
    cut = data.draw(st.sampled_from(list_cuts(whole)), label="cut after entry")
    resumed = simulate(policy, ROUGH_CURVES, *whole.entries()[:cut]).ledger
    assert summarise(resumed) == summarise(whole)


@examples(6, thorough=20)
@given(studies(units=("seconds",)), st.sampled_from([0.5, 4.0, 64.0]))
def test_the_rate_in_dollars_changes_no_choice(study: tuple[CostAwareEI, StudyDefinition], per_second: float) -> None:
    """Compare seconds with dollars at a rate that pays for as many seconds: every cost is multiplied by the same number."""
    policy, start = study
    seconds = start.budget.total
    text = f"${seconds * per_second!r} at {3600 * per_second!r}/h"
    in_dollars = replace(start, budget=type(start.budget)(text))

    def chosen(definition: StudyDefinition) -> list[Any]:
        return [order[:3] for order in list_orders(simulate(policy, ROUGH_CURVES, definition).ledger)]

    assert chosen(in_dollars) == chosen(start)


# marks of the cost ----------------------------------------------------------------------------------------------------


def without_marks(space: Space) -> Space:
    body = space.to_dict()
    if space.rows is not None:
        return Space.from_dict({"listed": body["listed"]})
    return Space({name: {k: v for k, v in one.items() if k != "cost"} for name, one in body.items()})


def design_of(space: Space, policy: CostAwareEI, budget: str, seed: int) -> list[dict[str, Any]]:
    """Return the configurations of the initial design, each trained for a second."""
    ledger = Ledger([make_definition(policy, space=space, budget=budget, max_steps=1, seed=seed)])
    for _ in range(policy.initial_trials):
        decision = policy.decide(ledger, ledger.decision_rng())
        assert isinstance(decision, Train)
        order = place_order(ledger, decision)
        assert order is not None
        assert order.why["phase"] == DESIGN
        ledger = ledger.append(order).append(write_receipt(order, 1, 0.5, Cost(train=1.0), at=0.0, saved_step=0))
    return [dict(order.config) for order in ledger.orders]


def cost_places(space: Space, config: dict[str, Any]) -> list[float]:
    """Return how far the marked parameters of a configuration are from their cheap ends, from 0 to 1."""
    places = []
    for name, mark in space.cost_marks.items():
        parameter = space.parameters[name]
        assert isinstance(parameter, Float | Int)
        if name in config:
            place = parameter.to_unit(config[name])
            places.append(place if mark == "increases" else 1.0 - place)
    return places


@examples(15, thorough=100)
@given(trials=st.integers(1, 6), seed=st.integers(0, 2**32 - 1), unit=st.sampled_from(["1000s", "$1000 at 3600/h"]))
def test_a_design_starts_at_the_cheap_end_and_moves_away_step_by_step(trials: int, seed: int, unit: str) -> None:
    policy = CostAwareEI(initial_trials=trials)
    chosen = design_of(MARKED, policy, unit, seed)
    plain = design_of(without_marks(MARKED), policy, unit, seed)
    assert (chosen[0]["n"], chosen[0]["b"], chosen[0].get("d", 1)) == (1, 1.0, 1)
    for k, (config, unmarked) in enumerate(zip(chosen, plain, strict=True)):
        share = LAST_COST_SHARE * k / max(1, trials - 1)
        assert (config["x"], config["c"]) == (unmarked["x"], unmarked["c"])  # they have no mark
        assert 1.0 - config["b"] == pytest.approx(share * (1.0 - unmarked["b"]))
        assert config["n"] <= max(1.0, 1.5 * unmarked["n"] ** share)
        assert config["n"] <= unmarked["n"]


@examples(15, thorough=100)
@given(trials=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_a_design_in_a_listed_space_begins_with_the_cheapest_rows(trials: int, seed: int) -> None:
    chosen = design_of(LISTED_MARKED, CostAwareEI(initial_trials=trials), "1000s", seed)
    assert LISTED_MARKED.rows is not None
    distance = {
        LISTED_MARKED.key(row): sum(cost_places(LISTED_MARKED, dict(row))) / len(LISTED_MARKED.cost_marks)
        for row in LISTED_MARKED.rows
    }
    left = dict(distance)
    for k, config in enumerate(chosen):
        allowed = math.ceil(LAST_COST_SHARE * k / max(1, trials - 1) * len(left))
        limit = sorted(left.values())[max(1, allowed) - 1]
        assert left.pop(LISTED_MARKED.key(config)) <= limit + 1e-12


@examples(5, thorough=30)
@given(
    space=st.sampled_from([MARKED, LISTED_MARKED]),
    seed=st.integers(0, 2**32 - 1),
    design=st.sampled_from(["fixed", "cheap"]),
)
def test_marks_change_nothing_in_epochs_nor_in_a_cheap_design(space: Space, seed: int, design: Any) -> None:
    policy = CostAwareEI(initial_trials=3, candidates=20, initial_design=design)
    budget = "8 epochs" if design == "fixed" else "8s"

    def run(chosen: Space) -> Any:
        start = make_definition(policy, space=chosen, budget=budget, max_steps=1, seed=seed)
        return list_orders(simulate(policy, ROUGH_CURVES, start).ledger)

    assert run(space) == run(without_marks(space))
