"""Why BOIL trains so few short runs: what they lose in expected improvement, and what they can gain by their lower cost.

    python -m benchmarks boil.short_runs                   our tables, 3 seeds each: five seconds
    python -m benchmarks boil.short_runs --quick           one table, 1 seed

At each decision of a study, for lengths from the shortest to a full training: the largest ln EI of any untried config, less the
largest at full length; and -ln cost of that config at that length, less -ln cost of the best at full length. BOIL trains the run
with the largest sum. A cost counts as a share of the range seen plus 0.1, so the cost can gain ln 11 = 2.4 at most. Numbers are
medians over decisions. Last line: one JSON object.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: with small matrices threads are slower

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.boil.problems import Problem, load, table_paths
from benchmarks.boil.studies import BUDGET_RUNS
from shoestring import policies
from shoestring.core.deciding.decision import Decision
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.models.boil.choice import FLOOR, Tradeoff
from shoestring.policies.boil.boil import BOIL
from shoestring.policies.boil.score_model import fit_score_model
from shoestring.policies.config_table import ConfigsView
from shoestring.runners.simulated.simulated_runner import SimulatedRunner
from shoestring.study.loop import run_in_memory

RESULTS = Path(__file__).parent / "results" / "short_runs.json"
TIMES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])  # t~: from the shortest run to a full training


@dataclass
class RecordingPolicy:
    """BOIL, which also records the predictions of its model for every length whenever it chooses a run."""

    policy: BOIL
    name: str = "boil"
    records: list[Any] = field(default_factory=list)

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        decision = self.policy.decide(ledger, rng)
        if getattr(decision, "why", {}).get("phase") == "chosen":
            self.records.append(self.compare_lengths(ledger))
        return decision

    def compare_lengths(self, ledger: Ledger) -> tuple[list[float], list[float]]:
        """Return ln EI and -ln cost of the best untried config at each length, less those at full length."""
        table = ledger.view(ConfigsView())
        model = fit_score_model(self.policy.model_settings(ledger), ledger, table, ledger.decision_rng())
        assert model is not None
        free = table.pool(ledger, 1, ledger.decision_rng())
        x = table.encoding.on_simplex(free.points)  # (m, d)
        z = np.concatenate([np.column_stack([x, np.full(len(x), time)]) for time in TIMES])
        means = model.gp.predict(z)[0]
        predicted = Tradeoff(model.gp, model.cost, max(means.max(), model.gp.predict_observed().max())).predict(z)
        log_ei = predicted.log_ei.reshape(len(TIMES), -1)
        price = -np.log(np.maximum(model.cost.share(model.cost.predict(z)), 0.0) + FLOOR).reshape(log_ei.shape)
        best = np.argmax(log_ei, axis=1)  # of each length
        at = np.arange(len(TIMES))
        return (
            (log_ei[at, best] - log_ei[-1, best[-1]]).tolist(),
            (price[at, best] - price[-1, best[-1]]).tolist(),
        )


def record_study(problem: Problem, seed: int) -> list[Any]:
    policy = RecordingPolicy(BOIL())
    table = problem.table(seed)
    seconds = min(BUDGET_RUNS, len(problem.configs) // 3) * problem.full_cost_s
    definition = StudyDefinition(
        space=table.space(),
        budget=Budget(f"{seconds}s"),
        policy="boil",
        settings=policies.settings_of(policy.policy),
        seed=seed,
        direction="max",
        max_steps=table.max_steps,
    )
    run_in_memory(Ledger([definition]), policy, SimulatedRunner(table))
    return policy.records


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    paths = table_paths(None)
    measured: dict[str, Any] = {}
    for name, path in list(paths.items())[: 1 if options.quick else None]:
        problem = load(name, path)
        seeds = range(1 if options.quick else options.seeds)
        seen = np.array([record for seed in seeds for record in record_study(problem, seed)])
        improvement, price = np.median(seen, axis=0)  # (lengths,) each
        wins = (seen.sum(axis=1)[:, :-1].max(axis=1) > 0.0).mean()  # shorter than full
        measured[name] = {
            "decisions": len(seen),
            "improvement": np.round(improvement, 2).tolist(),
            "price": np.round(price, 2).tolist(),
            "shorter_wins": round(float(wins), 2),
        }
        print(f"\n{name}, {len(seen)} decisions; a shorter run wins {100 * wins:.0f} % of them")
        print("length      " + "".join(f"{time:8.2f}" for time in TIMES))
        print("ln EI       " + "".join(f"{value:8.2f}" for value in improvement))
        print("-ln cost    " + "".join(f"{value:8.2f}" for value in price), flush=True)
    if not options.quick:
        RESULTS.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({"name": "boil_short_runs", "measured": measured, "target": None, "peers": {}, "ok": True}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
