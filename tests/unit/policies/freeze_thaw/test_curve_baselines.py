"""Rollout, freeze-thaw BO and Fabolas on epochs: their orders on simple curves, and their settings."""

from __future__ import annotations

from typing import Any

import pytest

from shoestring import policies
from shoestring.core.space.space import Space
from shoestring.errors import PolicyError
from shoestring.policies.freeze_thaw.fabolas_epochs import FabolasEpochs
from shoestring.policies.freeze_thaw.freeze_thaw_bo import FreezeThawBO
from shoestring.policies.freeze_thaw.rollout import Rollout
from shoestring.testing.curves import ListedCurves
from shoestring.testing.policies import make_definition, simulate

GIVEN = (1.0, 5.0, 1.0, 0.01, 1.0, 0.0)
CURVES = {f"arm {i}": [0.1 * i + 1.0 / step for step in range(1, 9)] for i in range(6)}
SPACE = Space.from_configs([{"name": name} for name in CURVES])


def study(policy: Any, budget: str = "24 epochs", **more: Any) -> Any:
    return simulate(
        policy, ListedCurves(CURVES), make_definition(policy, space=SPACE, budget=budget, max_steps=8, **more)
    ).ledger


@pytest.mark.parametrize("policy", [Rollout(parameters=GIVEN), FreezeThawBO(parameters=GIVEN), FabolasEpochs()])
def test_the_lowest_of_parallel_curves_is_found(policy: Any) -> None:
    ledger = study(policy)
    assert ledger.best.config == {"name": "arm 0"}
    assert ledger.spent == 24.0


def test_the_horizon_of_rollout_ends_with_the_budget() -> None:
    stages = [order.why["stages"] for order in study(Rollout(parameters=GIVEN, horizon=3)).orders]
    assert stages[-4:] == [4, 3, 2, 1]


def test_freeze_thaw_bo_trains_started_and_new_trials() -> None:
    orders = study(FreezeThawBO(parameters=GIVEN)).orders
    assert {order.why["new"] for order in orders} == {True, False}
    assert all(order.until == 1 for order in orders if order.why["new"])


def test_fabolas_trains_only_to_its_lengths() -> None:
    ledger = study(FabolasEpochs(lengths=(0.25, 1.0)), budget="200 epochs")
    assert {order.until for order in ledger.orders} <= {2, 8}
    assert all(trial.steps == 8 for trial in ledger.trials)  # the budget is enough to train every arm to its end


def test_fabolas_shortens_the_last_order_to_the_rest_of_the_budget() -> None:
    ledger = study(FabolasEpochs(), budget="13 epochs")
    assert ledger.spent == 13.0


def test_the_memo_holds_the_fitted_parameters() -> None:
    ledger = study(policies.make("fabolas_epochs"), budget="40 epochs", workers=2)
    fitted = [order.memo for order in ledger.orders if order.memo]
    assert fitted
    assert all({"log_lengthscales", "receipts"} <= set(memo) for memo in fitted)


@pytest.mark.parametrize(
    ("kind", "setting", "text"),
    [
        (Rollout, {"horizon": -1}, "horizon"),
        (FreezeThawBO, {"old": 0}, "continue"),
        (FreezeThawBO, {"new": 0}, "no trial is ever started"),
        (FreezeThawBO, {"fantasies": 0}, "simulated"),
        (FabolasEpochs, {"lengths": (0.0, 1.0)}, "shares of a full training"),
        (FabolasEpochs, {"arms": 0}, r"fabolas_epochs\(arms=0\)"),
    ],
)
def test_invalid_settings_raise_errors(kind: Any, setting: dict[str, Any], text: str) -> None:
    with pytest.raises(PolicyError, match=text):
        kind(**setting)
