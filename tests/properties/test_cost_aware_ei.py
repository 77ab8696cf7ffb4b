"""Cost-aware EI on rough curves: the budget holds, the study ends, and resuming it anywhere changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.ledger.entries import StudyDefinition
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Space
from shoestring.policies.cost_aware.cost_aware_ei import CostAwareEI
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
        space=draw(st.sampled_from([CONDITIONAL, LISTED, FINITE])),
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
