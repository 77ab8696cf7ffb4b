"""GP-UCB, BO-BOS, BOCA and LC prediction in any study: the budget holds, resuming changes nothing, and they end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.space.parameters import Choice, Float
from shoestring.core.space.space import Space
from shoestring.policies.stopping.bo_bos import BOBOS
from shoestring.testing.curves import DecayingCurves, DivergingCurves, EarlyEndingCurves, FailingCurves, NoisyCurves
from shoestring.testing.policies import (
    FINITE,
    LISTED,
    SPACE,
    list_cuts,
    make_definition,
    make_small_policy,
    simulate,
    summarise,
    watch,
)

CONDITIONAL = Space(
    {
        "optimizer": Choice(["sgd", "adam"]),
        "momentum": Float(0.0, 0.99, when={"optimizer": "sgd"}),
        "lr": Float(0.0, 1.0),
    }
)


@pytest.mark.parametrize("name", ["gp_ucb", "bo_bos", "boca", "lc_prediction"])
@examples(6, thorough=20)
@given(data=st.data())
def test_budget_resume_and_end(name: str, data: st.DataObject) -> None:
    policy = make_small_policy(name)
    if isinstance(policy, BOBOS):
        flags = st.booleans()
        policy = replace(
            policy,
            k1=data.draw(st.sampled_from([1.0, 100.0]), label="k1"),
            replan_every=data.draw(st.sampled_from([None, 1, 3]), label="replan_every"),
            noise_allowance=data.draw(flags, label="noise_allowance"),
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
    assert ledger.spent + ledger.reserved <= ledger.budget.total * (1 if epochs else 1 + 1e-9)
    cuts = list_cuts(ledger)
    if whole.reason == "failing":  # a study that was stopped for its failures tries again when it is started again
        cuts.remove(len(ledger))
    resumed = simulate(policy, curves, *ledger.entries()[: data.draw(st.sampled_from(cuts), label="cut")])
    assert summarise(resumed.ledger) == summarise(ledger)
