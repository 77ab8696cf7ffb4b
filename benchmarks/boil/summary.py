"""The measurements of a method on one table, from its studies.

    utility           utility of the run that the method would recommend now, see `problems`
    over time         mean utility over the whole budget of seconds; before there is a recommended run, that of a random config
    s of BO-L         first second at which the mean utility over seeds is as high as BO-L's at the end, divided by BO-L's own
                      second; share: divided by the whole budget
    s to 90 %         the same for nine tenths of the way from a random config to BO-L's end
    best trained      utility of the best run that was trained in full, recommended or not
    boil ahead by     BOIL's utility over time less the method's
    iterations        the paper's comparison, after as many runs as all studies of BOIL, BO-L and random search had: utility of
                      the recommended run, and seconds spent, divided by BO-L's
    clear             whether BO-L ends above random search, by the 90 % interval of the difference: otherwise the time to
                      BO-L's end has no information about models
    runs, short       runs of at least a fifth of a full training; share of the chosen ones that are at most half a training long

Intervals are 90 % bootstrap intervals over seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.boil.problems import Problem
from benchmarks.boil.studies import METHODS

Floats = NDArray[np.float64]
MOMENTS = 400  # moments of the budget at which utilities are compared


def utilities(problem: Problem, row: dict[str, Any]) -> Floats:
    """Return the utility of the recommended run at each moment of the budget, (MOMENTS,); before, that of a random config."""
    moments = np.linspace(0.0, row["budget_s"], MOMENTS + 1)[1:]
    at = [since for since, _, _ in row["leaders"]]
    known = np.append(problem.utility.mean(), problem.utility[[leader for _, _, leader in row["leaders"]]])
    return np.asarray(known[np.searchsorted(at, moments, side="right")])


def after(problem: Problem, row: dict[str, Any], runs: int) -> tuple[float, float]:
    """Return the utility of the recommended run after `runs` runs, and the seconds spent by then; nan if there were fewer."""
    for at, begun, leader in row["leaders"]:
        if begun >= runs:
            return float(problem.utility[leader]), float(at)
    return np.nan, np.nan


def first_at(mean: Floats, goal: float) -> float:
    """Return the share of the budget after which the goal is reached."""
    there = np.flatnonzero(mean >= goal - 1e-9)
    return float(there[0] + 1) / MOMENTS if there.size else np.inf


def interval(draw: Callable[[NDArray[np.int64]], float], n: int) -> list[float]:
    rng = np.random.default_rng(0)
    values = [draw(rng.integers(n, size=n)) for _ in range(500)]
    if np.isnan(values).any():
        return [None, None]  # type: ignore[list-item]
    return [number(v) for v in np.quantile(values, (0.05, 0.95), method="nearest")]  # type: ignore[misc]


def number(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None


def ratio(ours: Floats, theirs: Floats, start: float | None = None) -> float:
    """Return the seconds to the final value of `theirs`, or to nine tenths of the way there from `start`, as a ratio.

    `ours` and `theirs` are (seeds, moments).
    """
    reference = theirs.mean(axis=0)
    goal = reference[-1] if start is None else start + 0.9 * (reference[-1] - start)
    return first_at(ours.mean(axis=0), goal) / first_at(reference, goal)


def summary_of(problem: Problem, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the measurements of each method on one table."""
    by = {(row["method"], row["seed"]): row for row in rows}
    curves = {key: utilities(problem, row) for key, row in by.items()}
    shortest = problem.values.shape[2] / 5  # shorter runs are those at the end of the budget, and most of Hyperband's
    blind = float(problem.utility.mean())
    both = [row for (name, _), row in by.items() if name in ("boil", "bo_l", "random")]
    iterations = min((row["leaders"][-1][1] for row in both), default=0)
    measured: dict[str, Any] = {}
    for method in (m for m in METHODS if any(name == m for name, _ in by)):
        seeds = [seed for name, seed in by if name == method and ("bo_l", seed) in by and ("boil", seed) in by]
        if not seeds:
            continue
        ours, n = np.array([curves[method, seed] for seed in seeds]), len(seeds)
        bo_l, boil = (np.array([curves[name, seed] for seed in seeds]) for name in ("bo_l", "boil"))
        lead = (boil - ours).mean(axis=1)
        mean_after, spent_after = np.array([after(problem, by[method, seed], iterations) for seed in seeds]).T
        spent_bo_l = np.array([after(problem, by["bo_l", seed], iterations)[1] for seed in seeds])
        mine = [by[method, seed] for seed in seeds]
        lengths = [length for row in mine for length in row.get("lengths", ())]
        measured[method] = {
            "seeds": n,
            "final": number(ours[:, -1].mean()),
            "final_90": interval(lambda pick, u=ours: float(u[pick, -1].mean()), n),
            "best_trained": number(np.mean([_best_trained(problem, row) for row in mine])),
            "over_time": number(ours.mean()),
            "over_time_90": interval(lambda pick, u=ours: float(u[pick].mean()), n),
            "seconds_of_bo_l": number(ratio(ours, bo_l)),
            "seconds_of_bo_l_90": interval(lambda pick, u=ours, v=bo_l: ratio(u[pick], v[pick]), n),
            "seconds_to_90": number(ratio(ours, bo_l, blind)),
            "seconds_to_90_90": interval(lambda pick, u=ours, v=bo_l: ratio(u[pick], v[pick], blind), n),
            "share_of_budget": number(first_at(ours.mean(axis=0), bo_l[:, -1].mean())),
            "boil_ahead_by": number(lead.mean()),
            "boil_ahead_by_90": interval(lambda pick, d=lead: float(d[pick].mean()), n),
            "boil_ahead_seeds": number((lead > 0).mean() + 0.5 * (lead == 0).mean()),
            "iterations": iterations,
            "after_iterations": number(mean_after.mean()),
            "after_iterations_90": interval(lambda pick, u=mean_after: float(u[pick].mean()), n),
            "cost_of_iterations": number(spent_after.mean() / spent_bo_l.mean()),
            "cost_of_iterations_90": interval(
                lambda pick, u=spent_after, v=spent_bo_l: float(u[pick].mean() / v[pick].mean()), n
            ),
            "runs": number(np.mean([sum(steps >= shortest for _, steps in row["runs"]) for row in mine])),
            "shortest_half": number(np.mean(np.array(lengths) <= problem.values.shape[2] / 2)) if lengths else None,
            "log_condition": max(
                (max(row["log_conditions"]) for row in mine if row.get("log_conditions")), default=None
            ),
            "decide_ms": number(np.mean([row["decide_ms"] for row in mine])),
        }
    if "bo_l" in measured and "random" in measured:
        seeds = [seed for name, seed in by if name == "random" and ("bo_l", seed) in by]
        ahead = np.array([curves["bo_l", seed][-1] - curves["random", seed][-1] for seed in seeds])
        low, _ = interval(lambda pick: float(ahead[pick].mean()), len(ahead))
        measured["bo_l"]["clear"] = bool(low > 0.0)
    return measured


def _best_trained(problem: Problem, row: dict[str, Any]) -> float:
    return max(float(problem.utility[config]) for config, steps in row["runs"] if steps == problem.values.shape[2])
