"""The golden trace through policy and ledger: the policy decides as the formulas that the other golden tests check."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.space import Space
from shoestring.policies.online.ce_gp_ucb import CEGPUCB
from shoestring.runners.runner import write_receipt


@pytest.mark.golden("ce_gp_ucb", "trace")
def test_trace(case: Any) -> None:
    given = case.inputs
    space = Space.from_configs([{"x": float(x)} for x in np.linspace(0.0, 1.0, given["grid"])])
    policy = CEGPUCB(
        query="kappa",
        unvalidated="acquisition",
        kappa=given["kappa"],
        kernel="matern32",
        lengthscale=given["lengthscale"],
        variance=given["variance"],
        noise_variance=given["noise_variance"],
        forgetting_rate=given["epsilon"],
        reward="value",
        clip=None,
    )
    rounds = given["rounds"]
    definition = StudyDefinition(
        space=space,
        budget=Budget(f"{rounds} epochs"),
        policy=policy.name,
        settings={},
        seed=0,
        direction="max",
        max_steps=rounds,
    )
    ledger = Ledger([definition])
    truth, regrets, queries = np.array(given["f"]), [], 0
    for t, step in enumerate(case.records("steps") or [{}] * rounds, start=1):
        decision = policy.decide(ledger, ledger.decision_rng())
        assert isinstance(decision, Train)
        order = place_order(ledger, decision)
        assert order is not None
        point, query = space.row_number(order.config), order.validate == "last"
        value = float(truth[t - 1, point] + given["noise"][t - 1]) if query else None
        ledger = ledger.append(order).append(write_receipt(order, t, value, Cost(), at=0.0))
        regrets.append(truth[t - 1].max() - truth[t - 1, point])
        queries += query
        result = {"t": order.until, "x": point, "query": query, "min_prob": order.why.get("pr_better")}
        type(case)(given, step).check_part(result, rtol=1e-9)
        if t > 1 and "local_optima" in step:
            assert order.why["competitors"] == len(step["local_optima"])
    case.check_part({"queries": queries, "average_regret": np.mean(regrets)}, rtol=1e-12)
