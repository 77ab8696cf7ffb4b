"""The contract of `believe`, for policies that have it: see `core/deciding/prediction.py`.

from shoestring.testing.predictions import BELIEF_CHECKS

@pytest.mark.parametrize("check", BELIEF_CHECKS)
def test_beliefs(check):
    check(MyPolicy())
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np

from shoestring.core.deciding.policy import Policy
from shoestring.core.deciding.prediction import LEVELS, MOST_CURVES, Believed, Believing
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps
from shoestring.testing.curves import Decaying, Negated
from shoestring.testing.policies import ROUGH, Check, fingerprint, make_anew, opened, simulate


def decisions_of(ledger: Ledger, every: int = 1) -> Iterator[tuple[Ledger, Order]]:
    """Each order, with the ledger as it was before it."""
    for place, entry in enumerate(ledger.entries()):
        if isinstance(entry, Order) and entry.number % every == 0:
            yield ledger.fork(place), entry


def beliefs_make_sense(policy: Policy, light: bool = False) -> None:
    """Finite quantiles in their order, of steps that there are, beginning with what was bought; some order has a belief."""
    believing, found = cast(Believing, policy), 0
    for source, direction in ((Decaying(), "min"), (ROUGH, "min"), (Negated(ROUGH), "max")):
        start = opened(policy, budget="30 epochs" if light else "90 epochs", direction=direction)  # type: ignore[arg-type]
        for ledger, order in decisions_of(simulate(policy, source, start).ledger):
            believed = believing.believe(ledger, order)
            if believed is None:
                continue
            found += 1
            says = f"{policy.name} at order {order.number}"
            assert 1 <= len(believed.curves) <= MOST_CURVES, f"{says} tells of {len(believed.curves)} curves"
            assert dict(believed.curves[0].config) == dict(order.config), f"{says} tells first of what was not bought"
            for curve in believed.curves:
                assert curve.trial is None or curve.trial <= len(ledger.trials), f"{says} tells of trial {curve.trial}"
                assert curve.quantiles.shape == (len(LEVELS), len(curve.steps)), f"{says}: a quantile for each step"
                assert np.isfinite(curve.quantiles).all(), f"{says} expects what is not finite"
                assert (np.diff(curve.quantiles, axis=0) >= 0.0).all(), f"{says}: quantiles are not in their order"
                assert (np.diff(curve.steps) > 0).all(), f"{says}: steps are not in their order"
                assert 1 <= curve.steps[0] <= curve.steps[-1] <= ledger.max_steps, f"{says} tells of no such step"
    assert found, f"{policy.name} has a `believe` that never tells anything"


def looking_back_changes_nothing(policy: Policy, light: bool = False) -> None:
    """The same ledger, the same belief, also of a policy made anew; and the same decision as if nobody had asked."""
    ledger = simulate(policy, ROUGH, opened(policy, budget="30 epochs" if light else "60 epochs")).ledger
    for then, order in decisions_of(ledger, every=5 if light else 3):
        before = fingerprint(then)
        first = cast(Believing, policy).believe(then, order)
        assert fingerprint(then) == before, f"{policy.name} changed the ledger when it was asked what it believed"
        again = cast(Believing, make_anew(policy)).believe(then.fork(len(then)), order)
        assert _as_text(first) == _as_text(again), f"{policy.name} asked twice believes differently"
        untouched = then.fork(len(then))
        decision = policy.decide(untouched, untouched.decision_rng())
        assert policy.decide(then, then.decision_rng()) == decision, (
            f"{policy.name} decides differently after it was asked"
        )


def _as_text(believed: Believed | None) -> str:
    if believed is None:
        return ""
    curves = [(c.trial, dumps(c.config), c.steps.tolist(), c.quantiles.tolist()) for c in believed.curves]
    offers, regions = believed.offers, believed.regions
    offered = offers and (offers.gain.tolist(), offers.cost.tolist(), offers.runner_up)
    mapped = regions and (regions.trial, regions.edges.tolist(), regions.verdict.tolist(), regions.means.tolist())
    return repr((believed.about, curves, offered, mapped))


BELIEF_CHECKS: tuple[Check, ...] = (beliefs_make_sense, looking_back_changes_nothing)
