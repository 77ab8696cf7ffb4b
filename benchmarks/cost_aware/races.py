"""Experiments in which methods search: what they save and lose (b), how they rank under a budget (c), cost models inside (e).

(b) and (c) read the same runs. The unit budget of a problem and seed is the least time that any alpha needed for its N trials; a
method's rank at a multiple of it is that of its best loss by then. Runs end at `--cap` times N trials: past that a method that
buys very cheap trials stands still, and `share_at_cap` tells how often that happened. Multiples above 1, whose runs are long,
can be left to the first `--deep-seeds` seeds.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from typing import Any

import numpy as np

from benchmarks.cost_aware.problems import Problem
from benchmarks.cost_aware.traces import LIKELIHOOD, Trace, Traces, interval, with_interval
from shoestring.policies.cost_aware.cost_aware_ei import CostAwareEI

Line = dict[str, Any]
COOLED = ("ei_cool", "carbo")  # depend on the budget: one run for each
REFERENCES = ("alpha=0", "alpha=1")  # EI and EI per unit cost
DEFAULT = f"cei={CostAwareEI().slack:g}"
INSIDE = ("lv3", "lv3*", "gp", "auto*", "transfer")  # cost models raced inside the search; *: told the features


def grid(options: Namespace) -> list[str]:
    return [f"alpha={a:g}" for a in options.alphas] + [f"cei={s:g}" for s in options.slacks]


def race(
    problem: Problem, seed: int, options: Namespace, traces: Traces
) -> tuple[float, dict[float, dict[str, Trace]]]:
    """The unit budget in seconds, and at each of its multiples the runs of all methods."""
    for name in grid(options):
        traces.of(problem, name, seed, options.trials)
    unit = min(
        float(traces.of(problem, f"alpha={a:g}", seed, options.trials).first(options.trials).seconds.sum())
        for a in options.alphas
    )
    multiples = [m for m in options.multiples if m <= 1.0 or seed < options.deep_seeds]
    cap, most = round(options.cap * options.trials), unit * max(multiples)
    free = [name for name in (*grid(options), *options.rivals) if name not in COOLED]
    runs = {name: traces.of(problem, name, seed, cap, seconds=most) for name in free}
    cooled = [name for name in COOLED if name in options.rivals]
    return unit, {
        m: runs | {name: traces.of(problem, name, seed, cap, budget_s=float(f"{unit * m:.6g}")) for name in cooled}
        for m in multiples
    }


def compare_cost_models(problem: Problem, seed: int, options: Namespace, traces: Traces) -> dict[str, dict[str, Trace]]:
    """For each rule the runs with every cost model; one that is told of other problems only where there are such."""

    def of(rule: str, model: str) -> Trace:
        name = (
            rule if model == "lv3" else f"{rule}/{model}"
        )  # a rule without a model has LV-3: the runs of the race serve
        return traces.of(problem, name, seed, options.trials).first(options.trials)

    there = [
        model
        for model in options.models
        if (model != "transfer" or problem.transferred) and (problem.named or not model.endswith("*"))
    ]
    return {rule: {model: of(rule, model) for model in there} for rule in options.rules}


def collect(problems: list[Problem], options: Namespace, traces: Traces) -> bool:
    """Make this part's runs, one seed of all problems after the other, until all are there or the time is up."""
    deadline = time.monotonic() + 60.0 * options.minutes
    job = {"races": race, "cost_models": compare_cost_models}[options.collect]
    jobs = [(p, seed) for seed in range(options.seeds) for p in problems][options.part :: options.parts]
    for number, (problem, seed) in enumerate(jobs, 1):
        if time.monotonic() > deadline:
            return False
        job(problem, seed, options, traces)
        print(f"{number}/{len(jobs)} {problem.folder}/{problem.name} seed {seed}", file=sys.stderr, flush=True)
    return True


def tradeoff(problems: list[Problem], options: Namespace, traces: Traces) -> tuple[list[Line], Line]:
    """(b) Total time and final loss after N trials, relative to EI on the same problem and seed."""
    lines = []
    ei_of = {LIKELIHOOD: f"alpha=0{LIKELIHOOD}"}  # runs fitted as printed are compared with EI fitted as printed
    printed = [f"{name}{LIKELIHOOD}" for name in options.printed]
    for name in (*grid(options), *printed):
        time_s, loss, alphas, missed, folders = [], [], [], [], []
        for problem in problems:
            for seed in range(options.seeds):
                reference = ei_of.get(name[-1], "alpha=0")
                ei = traces.of(problem, reference, seed, options.trials).first(options.trials)
                it = traces.of(problem, name, seed, options.trials).first(options.trials)
                time_s.append(float(it.seconds.sum() / ei.seconds.sum()))
                loss.append(float(it.losses.min() - ei.losses.min()) / problem.unit_loss)
                alphas += [a for a in it.implied_alpha if a is not None]
                missed += [float(a > 0) for a in it.alpha_misses_by if a is not None]
                folders.append(problem.folder)
        line: Line = {
            "method": name,
            "runs": len(time_s),
            **with_interval("time_relative_to_ei", time_s),
            "time_median": float(np.median(time_s)),
            **with_interval("loss_above_ei", loss),
            "loss_median": float(np.median(loss)),
            "implied_alpha_median": float(np.median(alphas)) if alphas else None,
            "share_no_alpha": float(np.mean(missed)) if missed else None,
        }
        for folder in dict.fromkeys(folders):
            inside = np.array(folders) == folder
            line[f"time in {folder}"] = float(np.mean(np.array(time_s)[inside]))
            line[f"loss in {folder}"] = float(np.mean(np.array(loss)[inside]))
        lines.append(line)
    tenth = next(line for line in lines if line["method"] == "alpha=0.1")
    measured = {key: tenth[key] for key in ("time_relative_to_ei", "loss_above_ei")}
    target = {"time_relative_to_ei": 0.8, "loss_above_ei": 0.01}  # "a large share of time at a small loss"
    ok = all(measured[key] <= target[key] for key in target)
    return lines, {"name": "alpha=0.1 against EI", "measured": measured, "target": target, "ok": ok}


def time_allocation(problems: list[Problem], options: Namespace, traces: Traces) -> tuple[list[Line], Line]:
    """(c) Average rank by best loss at multiples of the unit budget, and CEI's rank less that of EI and of EI per cost."""
    ranks: dict[float, dict[str, list[float]]] = {m: {} for m in options.multiples}
    regrets: dict[float, dict[str, list[float]]] = {m: {} for m in options.multiples}
    capped: dict[float, dict[str, list[float]]] = {m: {} for m in options.multiples}
    clusters: dict[float, list[int]] = {m: [] for m in options.multiples}  # the problem of each run
    for number, problem in enumerate(problems):
        for seed in range(options.seeds):
            unit, at = race(problem, seed, options, traces)
            for multiple, runs in at.items():
                clusters[multiple].append(number)
                best = np.array([it.best_after(unit * multiple) for it in runs.values()])
                worst = float(problem.losses.max())
                for (name, it), value in zip(runs.items(), best, strict=True):
                    # ties share their ranks
                    rank = float(np.sum(best < value) + 0.5 * (np.sum(best == value) + 1))
                    ranks[multiple].setdefault(name, []).append(rank)
                    regret = (min(value, worst) - float(problem.losses.min())) / problem.unit_loss
                    regrets[multiple].setdefault(name, []).append(regret)
                    stuck = (
                        it.seconds.size >= round(options.cap * options.trials) and it.seconds.sum() < unit * multiple
                    )
                    capped[multiple].setdefault(name, []).append(float(stuck))
    lines: list[Line] = [
        {
            "method": name,
            "multiple": multiple,
            "runs": len(values),
            **with_interval("rank", values),
            **with_interval("regret", regrets[multiple][name]),
            "share_at_cap": float(np.mean(capped[multiple][name])),
        }
        for multiple, by_name in ranks.items()
        for name, values in by_name.items()
    ]
    for multiple, by_name in ranks.items():
        for slack in options.slacks:
            for reference in REFERENCES:
                less = np.array(by_name[f"cei={slack:g}"]) - np.array(by_name[reference])
                regret = np.array(regrets[multiple][f"cei={slack:g}"]) - np.array(regrets[multiple][reference])
                lines.append(
                    {
                        "method": f"cei={slack:g}",
                        "against": reference,
                        "multiple": multiple,
                        **with_interval("rank_less", less.tolist()),
                        "rank_less_by_problem": interval_by_problem(less, np.array(clusters[multiple])),
                        **with_interval("regret_less", regret.tolist()),
                    }
                )
    pairs = [line for line in lines if line.get("method") == DEFAULT and "against" in line]
    measured = {f"{line['multiple']:g} against {line['against']}": round(line["rank_less"], 3) for line in pairs}
    ok = all(value < 0 for value in measured.values())
    return lines, {
        "name": f"rank of {DEFAULT} less that of EI and EI per cost",
        "measured": measured,
        "target": "all < 0",
        "ok": ok,
    }


def interval_by_problem(values: np.ndarray[Any, Any], problem: np.ndarray[Any, Any]) -> list[float]:
    """95 % bootstrap interval of the mean when whole problems are drawn: seeds of one problem are not independent news."""
    means = [float(values[problem == number].mean()) for number in np.unique(problem)]
    return list(interval(means)[1:])


def cost_model_effect(problems: list[Problem], options: Namespace, traces: Traces) -> tuple[list[Line], Line]:
    """(e) Total time and final loss of CEI and EI / cost^alpha with each cost model, relative to LV-3."""
    time_s: dict[tuple[str, str], list[float]] = {}
    loss: dict[tuple[str, str], list[float]] = {}
    for problem in problems:
        for seed in range(options.seeds):
            for rule, runs in compare_cost_models(problem, seed, options, traces).items():
                for model, it in runs.items():
                    usual = runs["lv3"]
                    time_s.setdefault((rule, model), []).append(float(it.seconds.sum() / usual.seconds.sum()))
                    better = float(it.losses.min() - usual.losses.min()) / problem.unit_loss
                    loss.setdefault((rule, model), []).append(better)
    lines = [
        {
            "rule": rule,
            "model": model,
            "runs": len(values),
            **with_interval("time_relative_to_lv3", values),
            "time_median": float(np.median(values)),
            **with_interval("loss_above_lv3", loss[rule, model]),
        }
        for (rule, model), values in time_s.items()
    ]
    measured = {line["rule"]: round(line["loss_above_lv3_high"], 4) for line in lines if line["model"] == "gp"}
    ok = all(high >= 0 for high in measured.values())
    return lines, {
        "name": "loss with the GP cost model above LV-3, upper end",
        "measured": measured,
        "target": ">= 0",
        "ok": ok,
    }
