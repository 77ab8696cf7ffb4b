"""BOIL and its ablations in any study: the budget holds, the study ends, and resuming it anywhere changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.space.parameters import Choice, Float
from shoestring.core.space.space import Space
from shoestring.policies.boil.boil import BOIL
from shoestring.testing.curves import DecayingCurves, DivergingCurves, EarlyEndingCurves, FailingCurves, NoisyCurves
from shoestring.testing.policies import FINITE, LISTED, SPACE, list_cuts, make_definition, simulate, summarise, watch

CONDITIONAL = Space(
    {
        "optimizer": Choice(["sgd", "adam"]),
        "momentum": Float(0.0, 0.99, when={"optimizer": "sgd"}),
        "lr": Float(0.0, 1.0),
    }
)


@examples(8, thorough=25)
@given(data=st.data())
def test_budget_resume_and_end(data: st.DataObject) -> None:
    lengths: Literal["chosen", "full"] = data.draw(st.sampled_from(["chosen", "chosen", "full"]), label="lengths")
    ways = ["selected", "random", "full", "none"] if lengths == "chosen" else ["none"]
    policy = replace(
        BOIL(initial_trials=2, candidates=40, max_points=4),
        lengths=lengths,
        augmentation=data.draw(st.sampled_from(ways), label="augmentation"),
        score=data.draw(st.sampled_from(["compressed", "tail_mean", "log", "average", "last_mean"]), label="score"),
        min_steps=data.draw(st.none() | st.integers(1, 12), label="min_steps"),
        learn_noise=data.draw(st.booleans(), label="learn_noise"),
        refit_every=data.draw(st.none() | st.integers(1, 3), label="refit_every"),
    )
    seed = data.draw(st.integers(0, 2**16), label="seed")
    share = data.draw(st.sampled_from([0.0, 0.2, 1.0]), label="share")
    source = FailingCurves(
        DivergingCurves(NoisyCurves(DecayingCurves(seed), 0.3), share / 2, 6, seed), share / 4, 6, seed
    )
    epochs, amount = data.draw(st.booleans(), label="epochs"), data.draw(st.integers(1, 45), label="amount")
    start = make_definition(
        policy,
        space=data.draw(st.sampled_from([SPACE, LISTED, FINITE, CONDITIONAL]), label="space"),
        budget=f"{amount} epochs" if epochs else f"{amount}s",
        max_steps=data.draw(st.integers(1, 9), label="max_steps"),
        workers=data.draw(st.integers(1, 4), label="workers"),
        seed=seed,
    )
    curves = EarlyEndingCurves(source, share, 8, seed)
    whole = simulate(watch(policy), curves, start)
    ledger = whole.ledger
    assert not ledger.open_orders
    assert ledger.spent <= ledger.budget.total * (1 if epochs else 1 + 1e-9)
    cut = data.draw(st.sampled_from(list_cuts(ledger)), label="cut")
    resumed = simulate(policy, curves, *ledger.entries()[:cut])
    if whole.reason != "failing":  # a resumed study looks for its next order before it looks at failures
        again, before = summarise(resumed.ledger), summarise(ledger)
        assert (again[0], again[2]) == (before[0], before[2])
        # Several steps interrupted at the limit of a time budget share what is left; their sum depends on the order of adding.
        assert again[1] == (before[1] if epochs else pytest.approx(before[1], rel=1e-15))
