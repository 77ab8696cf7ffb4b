"""Recorded table -> decisions of cost-aware EI, one JSON line a study, in `traces/cost_aware_ei_on_a_table.jsonl`.

The table is a formula on fixed rows and the lines hold rows only: numbers of a fit may move, decisions may not.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from shoestring.core.ledger.entries import Cost
from shoestring.core.space.space import Config, Space
from shoestring.policies.cost_aware.cost_aware_ei import CostAwareEI
from shoestring.runners.simulated.simulated_runner import StepOutcome
from shoestring.testing.policies import make_definition, simulate

TRACES = Path(__file__).parent / "traces"
ROWS = [
    {"rate": 10 ** (-4 + 4 * ((0.618 * i) % 1)), "rounds": 1 + (37 * i) % 255, "kind": "ab"[i * i % 7 % 2]}
    for i in range(60)
]
WIDE = ["rate", "rounds"]
POLICIES = {
    "cei": CostAwareEI(slack=0.2),
    "ei": CostAwareEI(acquisition="ei"),
    "eipu": CostAwareEI(acquisition="eipu"),
    "carbo": CostAwareEI(acquisition="ei_cool", initial_design="cheap"),
}


class Table:
    def step(self, config: Config, step: int) -> StepOutcome:
        off = math.log10(config["rate"]) + 1.7
        loss = 0.2 * off * off + 1.0 / math.sqrt(config["rounds"]) + (0.1 if config["kind"] == "a" else 0.0)
        return StepOutcome(loss, Cost(train=0.02 * config["rounds"] * (2.0 if config["kind"] == "a" else 1.0)))


def test_decisions_on_a_table(request: pytest.FixtureRequest) -> None:
    space = Space.from_configs(ROWS, log=WIDE)
    lines = []
    for name, policy in POLICIES.items():
        for workers in (1, 2):
            start = make_definition(policy, space=space, budget="40s", max_steps=1, workers=workers, seed=7)
            ledger = simulate(policy, Table(), start).ledger
            rows = [space.row_number(order.config) for order in ledger.orders]
            lines.append(json.dumps({"rule": name, "workers": workers, "rows": rows}))
    path = TRACES / "cost_aware_ei_on_a_table.jsonl"
    if request.config.getoption("--update-golden"):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert path.read_text(encoding="utf-8").splitlines() == lines, f"cost_aware_ei decides differently: see {path}"
