"""Every policy without a model in any study: the budget holds, the study ends, and resuming it changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring import policies
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.ledger import Ledger
from shoestring.runners.simulated.simulated_runner import Source
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

MODEL_FREE = (
    "asha",
    "grid",
    "hyperband",
    "random_search",
    "replay_fixed",
    "sequential_halving",
    "successive_halving",
    "top_k_after_one",
)
SPACES = st.sampled_from([SPACE, LISTED, FINITE])


@st.composite
def any_policy(draw: st.DrawFn, name: str) -> Policy:
    kind = policies.find_class(name)
    eta, least = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    some_arms = st.none() | st.integers(2, 9)
    settings: dict[str, object] = {
        "asha": {"reduction_factor": eta, "min_steps": least},
        "hyperband": {"reduction_factor": eta, "min_steps": least},
        "successive_halving": {"reduction_factor": eta, "min_steps": least, "arms": draw(some_arms)},
        "sequential_halving": {
            "reduction_factor": eta,
            "arms": draw(some_arms),
            "arms_per_curve": draw(st.floats(0.1, 30)),
        },
        "top_k_after_one": {"first_share": draw(st.floats(0.01, 0.99))},
        "grid": {"levels": draw(st.integers(1, 4))},
        "replay_fixed": policies.settings_of(make_small_policy("replay_fixed")),
    }.get(name, {})  # type: ignore[assignment]
    return kind(**settings)


@st.composite
def any_curves(draw: st.DrawFn) -> Source:
    seed = draw(st.integers(0, 2**16))
    shares = st.sampled_from([0.0, 0.2, 1.0])
    source: Source = DecayingCurves(seed, cost_s=draw(st.floats(0.2, 10.0)), setup_s=draw(st.sampled_from([0.0, 1.0])))
    source = DivergingCurves(NoisyCurves(source, draw(st.floats(0, 2))), draw(shares), draw(st.integers(1, 12)), seed)
    source = FailingCurves(source, draw(st.sampled_from([0.0, 0.1, 0.5])), draw(st.integers(1, 12)), seed)
    return EarlyEndingCurves(source, draw(shares), draw(st.integers(1, 12)), seed)


@pytest.mark.parametrize("name", MODEL_FREE)
@examples(30, thorough=200)
@given(data=st.data())
def test_budget_resume_and_end(name: str, data: st.DataObject) -> None:
    policy = data.draw(any_policy(name), label="policy")
    source = data.draw(any_curves(), label="curves")
    epochs = data.draw(st.booleans(), label="epochs")
    amount = data.draw(st.integers(1, 60), label="amount")
    start = make_definition(
        policy,
        space=data.draw(SPACES, label="space"),
        budget=f"{amount} epochs" if epochs else f"{amount}s",
        max_steps=data.draw(st.integers(1, 12), label="max_steps"),
        workers=data.draw(st.integers(1, 5), label="workers"),
        seed=data.draw(st.integers(0, 2**16), label="seed"),
    )
    whole = simulate(_CheckedPolicy(policy), source, start)  # type: ignore[arg-type]
    ledger = whole.ledger
    assert ledger.spent + ledger.reserved <= ledger.budget.total * (1 if epochs else 1 + 1e-9)
    cuts = list_cuts(ledger)
    if whole.reason == "failing":  # a study that was stopped for its failures tries again when it is started again
        cuts.remove(len(ledger))
    resumed = simulate(policy, source, *ledger.entries()[: data.draw(st.sampled_from(cuts), label="cut")])
    assert summarise(resumed.ledger) == summarise(ledger)


class _CheckedPolicy:
    """Checks every decision, and the state of the study before it."""

    def __init__(self, policy: Policy) -> None:
        self.name, self._policy = policy.name, watch(policy, thorough=False)

    def decide(self, ledger: Ledger, rng: object) -> object:
        if ledger.budget.unit == "epochs":
            assert ledger.spent + ledger.reserved <= ledger.budget.total
        return self._policy.decide(ledger, rng)  # type: ignore[arg-type]
