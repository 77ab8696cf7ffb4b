"""The methods of the comparison, and a study of one method on one problem, run by the real loop.

    boil                BOIL with default settings        bo, bo_l, cm_tf_bo    the paper's baselines, see the policy
    boil printed        sum and soft-plus, as the paper prints them
    boil as printed     all that the paper prints: also the noise is fitted, runs have two fifths of a full training at least, each
                        run gets as many prefixes, and no floor ends their selection
    boil programs       the authors' programs: tail mean, log ratio, runs of 0.4 of a full training at least, at most 10
                        prefixes per run up to ln cond 15, with a floor that is never reached
    boil tail mean      only the score of these programs
    boil log, average   other preferences
    boil freeze-thaw, cm_tf_bo freeze-thaw                time kernel of freeze-thaw
    boil random, full   random prefixes, or all of them, in place of the most uncertain ones
    hyperband           on the curves' scores under the average preference, see `problems`

The result of a study is the run that it would have recommended at each moment, its leader. For BOIL the leader has the largest
posterior mean at full length. For random search, and during the initial design, it has the best weighted mean of its curve, and
for Hyperband the best score, both with the weights of the utility (see `problems`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from benchmarks.boil.problems import Problem, average_preference
from shoestring import policies
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Order, Receipt, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.runners.simulated.recorded_table import Table
from shoestring.runners.simulated.simulated_runner import SimulatedRunner
from shoestring.study.loop import run_in_memory

BUDGET_RUNS = 25  # full trainings of average cost, or a third of the configs if that is less
FULL = {"lengths": "full", "augmentation": "none"}

PROGRAMS = {"score": "tail_mean", "max_points": 10, "max_log_condition": 15.0, "floor": "std"}


class Method(NamedTuple):
    policy: str
    settings: Mapping[str, Any] = {}
    seeds: int = 20  # at most
    min_share: float | None = None  # shortest run, of a full training


METHODS = {
    "boil": Method("boil"),
    "bo": Method("boil", FULL | {"score": "last_mean"}),
    "bo_l": Method("boil", FULL),
    "cm_tf_bo": Method("boil", {"augmentation": "none"}),
    "hyperband": Method("hyperband"),
    "random": Method("random_search"),
    "boil printed": Method("boil", {"rule": "softplus"}),
    "boil as printed": Method("boil", {"printed": True}),
    "boil programs": Method("boil", PROGRAMS, min_share=0.4),
    "boil tail mean": Method("boil", {"score": "tail_mean"}),
    "boil average": Method("boil", {"score": "average"}),
    "boil log": Method("boil", {"score": "log"}),
    "boil freeze-thaw": Method("boil", {"time_kernel": "freeze_thaw"}),
    "cm_tf_bo freeze-thaw": Method("boil", {"augmentation": "none", "time_kernel": "freeze_thaw"}),
    "boil random": Method("boil", {"augmentation": "random"}),
    "boil full": Method("boil", {"augmentation": "full"}, seeds=3),
}


def run_study(problem: Problem, method: str, seed: int) -> dict[str, Any]:
    name, settings, _, min_share = METHODS[method]
    table = problem.table(seed)
    shortest = {} if min_share is None else {"min_steps": math.ceil(min_share * table.max_steps)}
    policy = policies.make(name, {**settings, **shortest})
    seconds = min(BUDGET_RUNS, len(problem.configs) // 3) * problem.full_cost_s
    definition = StudyDefinition(
        space=table.space(),
        budget=Budget(f"{seconds}s"),
        policy=name,
        settings=policies.settings_of(policy),
        seed=seed,
        direction="max",
        max_steps=table.max_steps,
    )
    began = time.process_time()
    source = replace_values_by_scores(table) if name == "hyperband" else table
    ledger = run_in_memory(Ledger([definition]), policy, SimulatedRunner(source)).ledger
    decide_s = time.process_time() - began
    rows = [table.space().row_number(trial.config) for trial in ledger.trials]
    chosen = [order for order in ledger.orders if order.why.get("phase") == "chosen"]
    result: dict[str, Any] = {
        "method": method,
        "seed": seed,
        "budget_s": seconds,
        "leaders": [[round(at, 4), runs, rows[leader]] for at, runs, leader in changes(leaders(ledger, table, name))],
        "runs": [[row, trial.steps] for row, trial in zip(rows, ledger.trials, strict=True)],
        "decide_ms": round(1000.0 * decide_s / max(1, len(ledger.orders)), 1),
    }
    if chosen:
        result["lengths"] = [int(order.memo["goal"][0]) for order in chosen]
        result["added"] = [len(order.memo["prefix_steps"]) for order in chosen]
        result["log_conditions"] = [round(float(order.why["log_condition"]), 2) for order in chosen]  # type: ignore[arg-type]
        result["logistic"] = [round(float(chosen[-1].why[p]), 3) for p in ("midpoint", "growth")]  # type: ignore[arg-type]
    return result


def leaders(ledger: Ledger, table: Table, policy: str) -> Iterator[tuple[float, int, int]]:
    """Yield (seconds spent, runs begun, leading trial) whenever it may have changed: at a decision of BOIL, or after a step."""
    weights = average_preference(table.max_steps)
    spent, begun, has_model = 0.0, 0, False
    curves: dict[int, list[float]] = {}
    for entry in ledger.entries():
        if isinstance(entry, Order):
            if "best_run" in entry.why:
                has_model = True
                yield spent, begun, int(entry.why["best_run"])  # type: ignore[arg-type]
            begun = max(begun, entry.trial + 1)
        elif isinstance(entry, Receipt):
            spent += entry.cost.total
            if entry.value is None:  # interrupted by the budget limit
                continue
            curves.setdefault(entry.trial, []).append(entry.value)
            if policy == "hyperband":
                yield spent, begun, max(curves, key=lambda trial: curves[trial][-1])
            elif not has_model and len(curves[entry.trial]) == table.max_steps:
                whole = [trial for trial in curves if len(curves[trial]) == table.max_steps]
                yield spent, begun, max(whole, key=lambda trial: float(weights @ curves[trial]))


def changes(moments: Iterable[tuple[float, int, int]]) -> Iterator[tuple[float, int, int]]:
    """Yield the first of consecutive moments with the same leader and number of runs."""
    last: tuple[int, int] | None = None
    for at, begun, leader in moments:
        if (begun, leader) != last:
            last = (begun, leader)
            yield at, begun, leader


def replace_values_by_scores(table: Table) -> Table:
    """Return the table with the score of the curve up to each step in place of its value."""
    shifted = table.values - min(0.0, float(table.values.min()))
    scores = np.cumsum(shifted * average_preference(table.max_steps), axis=1)
    return Table(table.configs, scores, table.costs_s, "max", name=table.name, log=table.log)
