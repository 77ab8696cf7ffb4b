"""Run a policy on a table of curves under the real loop, and measure it."""

from __future__ import annotations

import atexit
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.bhpt.problems import Table
from benchmarks.race.peers import environments
from benchmarks.race.peers.policy import Driver, PeerPolicy
from shoestring import policies
from shoestring.core.deciding.decision import Decision, Finish, Train
from shoestring.core.deciding.policy import Policy, find_untried_config
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.models.gp.acquisition import log_expected_improvement
from shoestring.models.gp.kernels import Kernel
from shoestring.models.gp.posterior import condition
from shoestring.runners.simulated.simulated_runner import SimulatedRunner
from shoestring.study.loop import run_in_memory

SMAC = "smac"  # random forest on full trainings, a baseline of the paper
_PATIENCE_S = 600.0


@dataclass(frozen=True)
class TrueGpEi:
    """GP-EI with the generating kernel, as in the paper's synthetic experiment: full trainings, expected improvement."""

    name: ClassVar[str] = "gp_ei"
    lengthscale: Sequence[float]

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        space = ledger.space
        done = [t for t in ledger.trials if t.losses]
        config = find_untried_config(ledger)
        if config is None:
            return Finish("every configuration was trained to its end")
        if done:  # the model is known, so it chooses from the second configuration on
            x = np.array([space.to_cube(t.config) for t in done])
            y = np.array([t.losses[-1] for t in done], dtype=float)
            # asymptotes have variance 1; what remains of a curve is noise
            theta = np.log([1.0, *self.lengthscale, 1e-2])
            gp = condition(Kernel.ard("se", space.dims), theta, x, y, mean="zero", standardise=False)
            open_rows = [row for row in space.rows or () if space.key(row) not in ledger.state.used]
            mean, variance = gp.predict(np.array([space.to_cube(row) for row in open_rows]))
            config = open_rows[int(np.argmax(log_expected_improvement(mean, np.sqrt(variance), float(y.min()))))]
        return Train(trial=len(ledger.trials), config=config, until=ledger.max_steps)


def method(name: str, table: Table) -> Policy:
    """Return a policy by a short name. Those that model curves get the settings of the table.

    "bhpt" is our default; "bhpt_printed" and the variants are the method as printed.
    """
    known: dict[str, Any] = table.settings
    paper = known | {"printed": True}
    sampled = {"parameters": "sampled", "scale": "standard"}
    start = {"start": table.chance}
    variants = {
        "bhpt": ("bhpt", known),
        "bhpt_start": ("bhpt", known | start),
        "bhpt_ten": ("bhpt", known | {"samples": 10}),
        "bhpt_unlimited": ("bhpt", known | {"steps_per_arm": 0.0}),
        "bhpt_printed": ("bhpt", paper),
        "bhpt_printed_start": ("bhpt", paper | start),
        "bhpt_eps": ("bhpt", paper | {"eps": 0.5}),
        "q_alone": ("bhpt", paper | {"commit": False}),
        "q_eps_alone": ("bhpt", paper | {"commit": False, "eps": 0.5}),
        "greedy": ("bhpt", paper | {"eps": 1.0}),
        "bhpt_sampled": ("bhpt", paper | sampled),
        "bhpt_eps_sampled": ("bhpt", paper | sampled | {"eps": 0.5}),
        "rollout": ("rollout", {"parameters": "most_probable"} | known),
        "freeze_thaw_bo": ("freeze_thaw_bo", {"parameters": "most_probable"} | known),
    }
    if name == SMAC:
        return PeerPolicy(name, "forest", _smac(), _PATIENCE_S)
    if name == "gp_ei" and known:
        return TrueGpEi(known["lengthscale"])
    if name == "gp_ei":
        return policies.make("cost_aware_ei", {"acquisition": "ei"})
    policy, settings = variants.get(name, (name, {}))
    return policies.make(policy, settings)


def can_run(name: str) -> bool:
    """Return whether a method can run here. SMAC has its own environment (`python -m benchmarks race peers smac`)."""
    return name != SMAC or environments.find_python("smac") is not None


@cache
def _smac() -> Driver:
    python = environments.find_python("smac")
    if python is None:
        raise SystemExit(f"{SMAC}: SMAC is not installed; python -m benchmarks race peers smac")
    driver = Driver(python, "smac")
    atexit.register(driver.close)
    return driver


def race(name: str, table: Table, budget: float, seed: int, unit: str = "epochs") -> dict[str, Any]:
    """Run one study and return normalised regret, rank of the output arm, its share of the budget, and time per decision.

    `best_arm_steps` are the steps of the best arm in hindsight. `committed` is the share of decisions that a policy calls
    committed, None if the policy has no such number. The unit of the budget is "epochs", which means steps of the table,
    or "s".
    """
    policy = method(name, table)
    definition = StudyDefinition(
        space=table.space,
        budget=Budget(f"{budget} {unit}"),
        policy=policy.name,
        settings={},
        seed=seed,
        max_steps=table.losses.shape[1],
    )
    began = time.perf_counter()
    ledger = run_in_memory(Ledger([definition]), policy, SimulatedRunner(table)).ledger
    wall_s = time.perf_counter() - began
    if isinstance(policy, PeerPolicy):
        policy.close()
    winner = ledger.best
    assert winner is not None
    row = table.space.row_number(winner.config)
    # the best loss of each arm if it gets the whole budget
    lowest = table.lowest_within(budget, in_seconds=unit == "s")
    least = float(np.nanmin(lowest))
    spent = {int(table.space.row_number(t.config) or 0): t.steps for t in ledger.trials}
    committed = [bool(order.why["committed"]) for order in ledger.orders if "committed" in order.why]
    return {
        "table": table.name,
        "method": name,
        "budget": budget,
        "seed": seed,
        "regret": (winner.best_loss - least) / (table.start - least),
        "rank": int((lowest < lowest[row]).sum()),
        "share": winner.steps / ledger.state.steps,
        "arms_begun": len(ledger.trials),
        "spent_by_trial": {str(arm): steps for arm, steps in spent.items()},
        "best_arm_steps": spent.get(int(np.nanargmin(lowest)), 0),
        "committed": float(np.mean(committed)) if committed else None,
        "decide_ms": 1000.0 * wall_s / max(1, len(ledger.orders)),
    }


def write(path: Path, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Append each row as a JSON line as soon as it is ready; existing lines are kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    done = []
    with path.open("a", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")
            out.flush()
            done.append(row)
    return done


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
