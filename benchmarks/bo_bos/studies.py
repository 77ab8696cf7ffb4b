"""One study of one method on one problem; its result is a JSON line.

A problem is a space and a source of curves: a recorded table, or a real training whose curve is given step by step. For a seed
every study begins with the same 6 configurations, trained in full. The budget is `BUDGET_RUNS` full trainings (or a third of the
configurations of a table, if that is less).

    method            description
    gp_ucb            every run in full; the other methods are compared with it
    bo_bos            the default of the library, with 20,000 simulated curves instead of 100,000
    k1 fixed … large  growth of the loss of stopping a winner: none, 1, (5,) 11 % per run
    one plan a run    curves are simulated once, after step 8, as in the paper
    no C2             stopping without the condition on the surrogate
    printed           the method as in the paper: one plan per run; the search by the paper's surrogate, with n / N and one
                      length-scale for all columns, refitted every 10 runs from 10 restarts without priors
    no intermediate   the same, with only the last step of a run in the surrogate
    hyperband 80      Hyperband with the brackets of a longest run of 80 steps, as in the paper, cut at 50
    lc_families       LC prediction with the eleven parametric curves; lc_prediction: with the cheap process
    oracle            GP-UCB that stops losers, and only losers, at the first allowed step, and has their true ends in its
                      surrogate. No rule with the same first stop can save more on the same configurations.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.bo_bos.tasks import EPOCHS, Task, TaskSource
from shoestring import policies
from shoestring.core.deciding.decision import Decision
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Direction, Receipt, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.space.space import Config, Space
from shoestring.policies.config_table import ConfigTable
from shoestring.policies.halving.brackets import Rung, decide_in_brackets
from shoestring.policies.halving.hyperband import Hyperband, make_brackets
from shoestring.policies.stopping.active_trials import (
    ActiveTrial,
    ActiveTrials,
    ContinueTrial,
    StopTrial,
    find_incumbent,
)
from shoestring.policies.stopping.surrogate import Surrogate, fit_surrogate, observe
from shoestring.policies.stopping.ucb_policy import GPUCB
from shoestring.runners.simulated.recorded_table import Table
from shoestring.runners.simulated.simulated_runner import SimulatedRunner, Source
from shoestring.study.loop import run_in_memory

Array = NDArray[np.float64]
BUDGET_RUNS = 40
PATHS = 20_000
DESIGN = 6  # trials

PRINTED: dict[str, Any] = {"search_by": "lengths", "replan_every": None, "refit_every": 10}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "gp_ucb": ("gp_ucb", {}),
    "bo_bos": ("bo_bos", {"paths": PATHS}),
    "k1 fixed": ("bo_bos", {"paths": PATHS, "k1_growth": "fixed"}),
    "k1 small": ("bo_bos", {"paths": PATHS, "k1_growth": "small"}),
    "k1 large": ("bo_bos", {"paths": PATHS, "k1_growth": "large"}),
    "one plan a run": ("bo_bos", {"paths": PATHS, "replan_every": None}),
    "no C2": ("bo_bos", {"paths": PATHS, "kappa": float("inf")}),
    "printed": ("bo_bos", {"paths": PATHS, **PRINTED}),
    "printed all steps": ("bo_bos", {"paths": PATHS, "printed": True}),
    "no intermediate": ("bo_bos", {"paths": PATHS, **PRINTED, "intermediate": False}),
    "boca": ("boca", {}),
    "lc_prediction": ("lc_prediction", {"forecast": "process"}),
    "lc_families": ("lc_prediction", {"forecast": "families"}),
    "hyperband": ("hyperband", {}),
    "hyperband 80": ("hyperband_80", {}),
    "oracle": ("oracle", {}),
}


@dataclass(frozen=True, slots=True)
class Problem:
    name: str
    space: Space
    source: Source
    curve: Callable[[Config], Array]  # curve of a configuration, (steps,), as the source gives it
    max_steps: int
    budget_runs: int = BUDGET_RUNS
    direction: Direction = "min"


def recorded_problem(path: Path, max_steps: int = EPOCHS, name: str = "") -> Problem:
    """Return the problem of a table, with its curves thinned to `max_steps`."""
    table = Table.load(path, max_steps=max_steps)

    def curve(config: Config) -> Array:
        row = table.space().row_number(config)
        assert row is not None
        return table.values[row, : table.lengths[row]]

    runs = min(BUDGET_RUNS, len(table.configs) // 3)
    return Problem(name or path.stem, table.space(), table, curve, table.max_steps, runs, table.direction)


def live_problem(task: Task) -> Problem:
    """Return the problem of a real task; a configuration is trained when its first step is needed."""
    source = TaskSource(task)
    return Problem(task.name, task.space, source, lambda config: source.curve(config).errors, EPOCHS)


def warm_up(problem: Problem) -> int:
    """Return the steps of a run before its first check: 8 of 50, as in the paper, and in proportion for short trainings."""
    return 8 if problem.max_steps >= 40 else max(2, round(8 * problem.max_steps / 50))


def run_study(problem: Problem, method: str, seed: int, with_configs: bool = False) -> dict[str, Any]:
    """Run a study; return best losses by step, all runs with their lowest losses (and configurations), and stopped runs."""
    name, settings = METHODS[method]
    if name in ("bo_bos", "lc_prediction"):
        settings = {**settings, "n0": warm_up(problem)}
    own: dict[str, Policy] = {"oracle": Oracle(problem), "hyperband_80": Hyperband80()}
    policy = own[name] if name in own else policies.make(name, settings)
    epochs = problem.budget_runs * problem.max_steps
    definition = StudyDefinition(
        space=problem.space,
        budget=Budget(f"{epochs} epochs"),
        policy=name,
        settings={} if name in own else policies.settings_of(policy),
        seed=seed,
        direction=problem.direction,
        max_steps=problem.max_steps,
    )
    began = time.process_time()
    ledger = run_in_memory(Ledger([definition]), policy, SimulatedRunner(problem.source)).ledger
    seconds = time.process_time() - began
    sign, best, spent_s, improved = ledger.state.sign, np.inf, 0.0, []
    receipts = [entry for entry in ledger.entries() if isinstance(entry, Receipt)]
    for step, entry in enumerate(receipts, 1):
        spent_s += entry.cost.train + entry.cost.validate
        loss = sign * entry.value if entry.status == "ok" and entry.value is not None else np.inf
        if loss < best or step == 1:
            best = loss
            improved.append([step, float(best), round(spent_s, 4)])  # best loss from this step on
    configs = [[trial.steps, trial.config] for trial in ledger.trials]
    return ({"configs": configs} if with_configs else {}) | {
        "table": problem.name,
        "method": method,
        "seed": seed,
        "epochs": epochs,
        "train_s": round(spent_s, 3),
        "improved": improved,
        "design": sum(trial.steps for trial in ledger.trials[:DESIGN]),
        "runs": [[trial.steps, lowest_loss(problem, ledger, trial)] for trial in ledger.trials],
        "first_stop": warm_up(problem) + 1,
        "stopped": stopped_runs(problem, ledger),
        "decide_s": round(seconds, 2),
    }


def lowest_loss(problem: Problem, ledger: Ledger, trial: Trial) -> float:
    """Return the best loss of a full training of this run."""
    curve = ledger.state.sign * problem.curve(trial.config)
    return float(np.nanmin(curve)) if np.isfinite(curve).any() else np.inf


def stopped_runs(problem: Problem, ledger: Ledger) -> list[list[float]]:
    """Return for each stopped run: its steps, the incumbent, the final loss of a full training, and its best loss."""
    sign, found = ledger.state.sign, []
    for order in ledger.orders:
        if "stopped" in order.why:
            trial = ledger.trials[int(order.why["stopped"])]  # type: ignore[arg-type]
            best = sign * float(order.why["stopped_incumbent"])  # type: ignore[arg-type]
            final = sign * float(problem.curve(trial.config)[-1])
            found.append([trial.steps, best, final, lowest_loss(problem, ledger, trial)])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperband80(Hyperband):
    """Hyperband with brackets for 80 steps where a full training has 50 steps, which limits every run."""

    name: ClassVar[str] = "hyperband_80"

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        def plan(number: int) -> list[Rung]:
            table = make_brackets(round(1.6 * ledger.max_steps), self.min_steps, self.reduction_factor)
            return [Rung(arms, min(until, ledger.max_steps)) for arms, until in table[number % len(table)]]

        return decide_in_brackets(ledger, plan, self.reduction_factor, self.newcomers)


class Oracle(GPUCB):
    """Upper limit of what stopping can save: it uses the complete curves."""

    name: ClassVar[str] = "oracle"

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        object.__setattr__(self, "_problem", problem)

    def make_surrogate(self, ledger: Ledger, table: ConfigTable, active: ActiveTrials) -> Surrogate | None:
        cut = [t for t in ledger.trials if t.open_order is None and 0 < t.steps < t.limit and not t.diverged]
        ends = {trial.number: lowest_loss(self._problem, ledger, trial) for trial in cut}  # type: ignore[attr-defined]
        seen = observe(ledger, intermediate=False, idle_only=True, predicted=ends)
        return fit_surrogate(ledger, table, seen, lengths=False, refit_every=self.refit_every) if seen else None

    def first_goal(self, ledger: Ledger) -> int:
        return min(warm_up(self._problem) + 1, ledger.max_steps)  # type: ignore[attr-defined]

    def continue_or_stop(self, ledger: Ledger, checked: ActiveTrial, active: ActiveTrials) -> ContinueTrial | StopTrial:
        best = find_incumbent(ledger, checked.number)
        if lowest_loss(self._problem, ledger, ledger.trials[checked.number]) < best:  # type: ignore[attr-defined]
            return ContinueTrial(checked.goal)
        return StopTrial({"incumbent": ledger.state.sign * best})
