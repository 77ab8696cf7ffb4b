"""Recorded curves -> decisions, one JSON line an order: `traces/POLICY.jsonl`. `--update-golden` records them anew.

The curves are written down below, not drawn from a model, so a line that changes is a decision that changed. Each file
holds three studies: epochs with one worker, epochs with three, seconds with two.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoestring import policies
from shoestring.core.ledger import Ledger
from shoestring.core.policy import Policy
from shoestring.core.space import Space
from shoestring.testing.curves import WrittenCurves
from shoestring.testing.policies import opened, simulate

TRACES = Path(__file__).parent / "traces"
CURVES = {  # good early, good late, crossing, noisy, flat, diverging, ending early
    "a": [0.90, 0.70, 0.60, 0.55, 0.52, 0.50, 0.49, 0.48, 0.47],
    "b": [0.80, 0.75, 0.73, 0.72, 0.71, 0.71, 0.70, 0.70, 0.70],
    "c": [0.95, 0.80, 0.50, 0.35, 0.28, 0.24, 0.22, 0.21, 0.20],
    "d": [0.60, 0.58, 0.61, 0.57, 0.62, 0.56, 0.60, 0.59, 0.58],
    "e": [1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00],
    "f": [0.70, 0.50, float("nan")],
    "g": [0.65, 0.45, 0.40, 0.38],
    "h": [0.85, 0.60, 0.45, 0.40, 0.36, 0.33, 0.31, 0.30, 0.29],
    "i": [0.99, 0.97, 0.90, 0.70, 0.40, 0.20, 0.10, 0.05, 0.02],
    "j": [0.75, 0.65, 0.55, 0.50, 0.45, 0.44, 0.43, 0.42, 0.41],
    "k": [float("inf")],
    "l": [0.88, 0.66, 0.55, 0.50, 0.47, 0.45, 0.44, 0.43, 0.42],
}
COSTS_S = {name: 1.0 + 0.25 * i for i, name in enumerate(CURVES)}
FIXED = {"orders": [[0, {"name": "c"}, 2], [1, {"name": "f"}, 4], [0, None, 5], [1, None, 9], [2, {"name": "g"}, 9]]}
# Curve beliefs get their parameters: the numbers of a fit may move from machine to machine, decisions may not.
BELIEF = {"parameters": [1.0, 5.0, 1.0, 0.01, 1.0, 0.0]}
SETTINGS: dict[str, Any] = {"replay_fixed": FIXED, "bhpt": BELIEF, "freeze_thaw_bo": BELIEF, "rollout": BELIEF}
EARLY = {"initial_trials": 2}  # or these short studies would end within the initial design
SETTINGS |= {"gp_ucb": EARLY, "boca": EARLY, "bo_bos": EARLY | {"n0": 2, "paths": 5000}}
SETTINGS |= {"lc_prediction": EARLY | {"n0": 2, "forecast": "process"}}
SETTINGS |= {"boil": EARLY}
SETTINGS |= {"thrift": {"opening": 0.25}}  # or halving would decide all of so small a budget
# These always fit: what they bought is recorded, not the numbers behind it.
FITTED = {"bo_bos", "boca", "boil", "cost_aware_ei", "fabolas_epochs", "gp_ucb", "lc_prediction", "thrift"}
FITTED |= {"bhpt_learned"}
VARIANTS = {"bhpt_learned": ("bhpt", {"belief": "learned"})}  # settings that decide by other numbers altogether


def trace(policy: Policy, budget: str, workers: int) -> list[str]:
    space = Space.listed([{"name": name} for name in CURVES])
    start = opened(policy, space=space, budget=budget, max_steps=9, workers=workers, seed=7)
    ledger = simulate(policy, WrittenCurves(CURVES, costs_s=COSTS_S), start).ledger
    head = {"budget": budget, "workers": workers, "orders": len(ledger.orders), "spent": round(ledger.spent, 9)}
    best = ledger.best
    assert best is not None
    head["best"] = [best.config["name"], best.best_step, best.best_loss]
    return [json.dumps(head), *(json.dumps(told) for told in _orders(ledger))]


def _orders(ledger: Ledger) -> list[dict[str, Any]]:
    why = [
        {k: round(v, 9) + 0.0 if isinstance(v, float) else v for k, v in order.why.items()} for order in ledger.orders
    ]
    return [
        {
            "trial": order.trial,
            "config": order.config["name"],
            "until": order.until,
            "at": round(order.at, 9),
            "why": told,
        }
        for order, told in zip(ledger.orders, why, strict=True)
    ]


@pytest.mark.parametrize("name", sorted({*policies.REGISTRY, *VARIANTS}))
def test_decisions_on_recorded_curves(name: str, request: pytest.FixtureRequest) -> None:
    path, update = TRACES / f"{name}.jsonl", request.config.getoption("--update-golden")
    assert update or path.exists(), f"{name} has no trace yet: record it with --update-golden, and read it"
    policy = policies.make(*VARIANTS.get(name, (name, SETTINGS.get(name))))
    lines = [*trace(policy, "45 epochs", 1), *trace(policy, "45 epochs", 3), *trace(policy, "70s", 2)]
    if name in FITTED:
        lines = [json.dumps({k: v for k, v in json.loads(line).items() if k != "why"}) for line in lines]
    if update:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert path.read_text(encoding="utf-8").splitlines() == lines, f"{name} decides differently: see {path}"
