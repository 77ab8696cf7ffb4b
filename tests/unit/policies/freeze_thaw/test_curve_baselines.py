"""Rollout, freeze-thaw BO and Fabolas on epochs: what each buys on curves made for it, and its settings."""

from __future__ import annotations

from typing import Any

import pytest

from shoestring import policies
from shoestring.core.space.space import Space
from shoestring.errors import PolicyError
from shoestring.policies.freeze_thaw.fabolas_epochs import FabolasEpochs
from shoestring.policies.freeze_thaw.freeze_thaw_bo import FreezeThawBO
from shoestring.policies.freeze_thaw.rollout import Rollout
from shoestring.testing.curves import WrittenCurves
from shoestring.testing.policies import opened, simulate

GIVEN = (1.0, 5.0, 1.0, 0.01, 1.0, 0.0)
CURVES = {f"arm {i}": [0.1 * i + 1.0 / step for step in range(1, 9)] for i in range(6)}
SPACE = Space.listed([{"name": name} for name in CURVES])


def study(policy: Any, budget: str = "24 epochs", **more: Any) -> Any:
    return simulate(
        policy, WrittenCurves(CURVES), opened(policy, space=SPACE, budget=budget, max_steps=8, **more)
    ).ledger


@pytest.mark.parametrize(
    "policy", [Rollout(parameters=GIVEN), FreezeThawBO(parameters=GIVEN), FabolasEpochs(representatives=6)]
)
def test_the_lowest_of_parallel_curves_is_found(policy: Any) -> None:
    ledger = study(policy)
    assert ledger.best.config == {"name": "arm 0"}
    assert ledger.spent == 24.0


def test_rollout_looks_no_further_than_the_budget() -> None:
    stages = [order.why["stages"] for order in study(Rollout(parameters=GIVEN, horizon=3)).orders]
    assert stages[-4:] == [4, 3, 2, 1]


def test_freeze_thaw_bo_has_old_and_new_runs_in_its_basket() -> None:
    orders = study(FreezeThawBO(parameters=GIVEN)).orders
    assert {order.why["new"] for order in orders} == {True, False}
    assert all(order.until == 1 for order in orders if order.why["new"])


def test_fabolas_asks_for_its_lengths_only() -> None:
    ledger = study(FabolasEpochs(lengths=(0.25, 1.0)), budget="200 epochs")
    assert {order.until for order in ledger.orders} <= {2, 8}
    assert all(trial.steps == 8 for trial in ledger.trials)  # all the money there is trains every arm to its end


def test_fabolas_cuts_the_last_order_to_what_can_be_paid() -> None:
    ledger = study(FabolasEpochs(), budget="13 epochs")
    assert ledger.spent == 13.0


def test_refits_travel_in_the_memo() -> None:
    ledger = study(policies.make("fabolas_epochs"), budget="40 epochs", workers=2)
    fitted = [order.memo for order in ledger.orders if order.memo]
    assert fitted
    assert all({"log_lengthscales", "receipts"} <= set(memo) for memo in fitted)


@pytest.mark.parametrize(
    ("kind", "setting", "text"),
    [
        (Rollout, {"horizon": -1}, "horizon"),
        (Rollout, {"shortlist": 0}, "nothing to choose among"),
        (Rollout, {"nodes": 0}, "node"),
        (FreezeThawBO, {"old": 0}, "go on"),
        (FreezeThawBO, {"new": 0}, "no run ever begins"),
        (FreezeThawBO, {"fantasies": 0}, "imagined"),
        (FabolasEpochs, {"lengths": (0.0, 1.0)}, "shares of a full training"),
        (FabolasEpochs, {"representatives": 0}, "tell apart"),
        (FabolasEpochs, {"arms": 0}, "nothing to choose among"),
    ],
)
def test_settings_out_of_range_say_so(kind: Any, setting: dict[str, Any], text: str) -> None:
    with pytest.raises(PolicyError, match=text):
        kind(**setting)
