"""Experiments with searches: time saved and loss (b), ranks under a budget (c), and cost models inside the search (e).

(b) and (c) use the same runs. The unit budget of a problem and seed is the least time that any alpha needed for its N trials. The
rank of a method at a multiple of it is the rank of its best loss until then. Runs end at `--cap` times N trials: after that the
loss of a method with very cheap trials no longer changes, and `share_at_cap` is the share of such runs. Multiples above 1 need
long runs and can be limited to the first `--deep-seeds` seeds.

Intervals of (b) and (c) resample whole data sets (a table is one): the seeds of a problem are not independent, nor are the
pipelines of a data set, some of which give a tree the same splits.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from typing import Any

import numpy as np

from benchmarks.cost_aware.problems import Problem
from benchmarks.cost_aware.traces import LIKELIHOOD, Trace, Traces, with_interval
from shoestring.policies.cost_aware.cost_aware_ei import CostAwareEI

Line = dict[str, Any]
BUDGET_DEPENDENT = ("ei_cool", "carbo")  # these depend on the budget, so each budget has its own run
REFERENCES = ("alpha=0", "alpha=1")  # EI and EI per unit cost
PRINTED_EI = f"{REFERENCES[0]}{LIKELIHOOD}"
DEFAULT = f"cei={CostAwareEI().slack:g}"
SEARCH_COST_MODELS = ("lv3", "lv3*", "gp", "auto*", "transfer")  # compared inside the search; *: with named features


def grid(options: Namespace) -> list[str]:
    return [f"alpha={a:g}" for a in options.alphas] + [f"cei={s:g}" for s in options.slacks]


def race(
    problem: Problem, seed: int, options: Namespace, traces: Traces
) -> tuple[float, dict[float, dict[str, Trace]]]:
    """Return the unit budget in seconds, and the runs of all methods for each of its multiples."""
    for name in grid(options):
        traces.get(problem, name, seed, options.trials)
    unit = min(
        float(traces.get(problem, f"alpha={a:g}", seed, options.trials).first(options.trials).seconds.sum())
        for a in options.alphas
    )
    multiples = [m for m in options.multiples if m <= 1.0 or seed < options.deep_seeds]
    cap, most = round(options.cap * options.trials), unit * max(multiples)
    free = [name for name in (*grid(options), *options.competitors) if name not in BUDGET_DEPENDENT]
    runs = {name: traces.get(problem, name, seed, cap, seconds=most) for name in free}
    budget_dependent = [name for name in BUDGET_DEPENDENT if name in options.competitors]
    return unit, {
        m: runs
        | {name: traces.get(problem, name, seed, cap, budget_s=float(f"{unit * m:.6g}")) for name in budget_dependent}
        for m in multiples
    }


def compare_cost_models(problem: Problem, seed: int, options: Namespace, traces: Traces) -> dict[str, dict[str, Trace]]:
    """Return the runs of each rule with each cost model; a transferred model needs related problems."""

    def of(rule: str, model: str) -> Trace:
        # LV-3 is the default, so its runs are those of (b) and (c).
        name = rule if model == "lv3" else f"{rule}/{model}"
        return traces.get(problem, name, seed, options.trials).first(options.trials)

    models = [
        model
        for model in options.models
        if (model != "transfer" or problem.transferred) and (problem.named or not model.endswith("*"))
    ]
    return {rule: {model: of(rule, model) for model in models} for rule in options.rules}


def collect(problems: list[Problem], options: Namespace, traces: Traces) -> bool:
    """Execute the runs of this part, seed by seed, until all are done or the time is up; return whether all are done."""
    deadline = time.monotonic() + 60.0 * options.minutes
    job = {"races": race, "cost_models": compare_cost_models}[options.collect]
    jobs = [(p, seed) for seed in options.seeds for p in problems][options.part :: options.parts]
    for number, (problem, seed) in enumerate(jobs, 1):
        if time.monotonic() > deadline:
            return False
        job(problem, seed, options, traces)
        print(f"{number}/{len(jobs)} {problem.folder}/{problem.name} seed {seed}", file=sys.stderr, flush=True)
    return True


def tradeoff(problems: list[Problem], options: Namespace, traces: Traces) -> tuple[list[Line], Line]:
    """(b) Total time and final loss after N trials, relative to EI on the same problem and seed.

    Runs with the fit as printed are compared with EI fitted as printed, and that EI with ours.
    """
    lines = []
    printed = [f"{name}{LIKELIHOOD}" for name in options.printed]
    for name in (*grid(options), *printed):
        time_s, loss, accuracy, alphas, missed, folders, data = [], [], [], [], [], [], []
        both_s = np.zeros(2)
        for problem in problems:
            for seed in options.seeds:
                is_printed = name.endswith(LIKELIHOOD) and name != PRINTED_EI
                reference = PRINTED_EI if is_printed else REFERENCES[0]
                ei = traces.get(problem, reference, seed, options.trials).first(options.trials)
                run = traces.get(problem, name, seed, options.trials).first(options.trials)
                time_s.append(float(run.seconds.sum() / ei.seconds.sum()))
                both_s += (run.seconds.sum(), ei.seconds.sum())
                loss.append(float(run.losses.min() - ei.losses.min()) / problem.unit_loss)
                accuracy.append(accuracy_lost(problem, run, ei))
                alphas += [a for a in run.implied_alpha if a is not None]
                missed += [float(a > 0) for a in run.alpha_misses_by if a is not None]
                folders.append(problem.folder)
                data.append(problem.data_set)
        line: Line = {
            "method": name,
            "runs": len(time_s),
            **with_interval("time_relative_to_ei", time_s, data),
            "time_median": float(np.median(time_s)),
            "time_in_all": float(both_s[0] / both_s[1]),
            **with_interval("loss_above_ei", loss, data),
            "loss_median": float(np.median(loss)),
            **interval_of_known("accuracy_lost", accuracy, data),
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
    target = {"time_relative_to_ei": 0.8, "loss_above_ei": 0.01}  # the paper: "a large share of time at a small loss"
    ok = all(measured[key] <= target[key] for key in target)
    return lines, {"name": "alpha=0.1 against EI", "measured": measured, "target": target, "ok": ok}


def accuracy_lost(problem: Problem, run: Trace, ei: Trace) -> float:
    """Return the lost accuracy as a share of EI's, the unit of the paper; nan if the loss is not an error rate."""
    is_share = len(problem.task) > 0 and problem.task[-1] > 0 and not problem.is_logged
    return float((run.losses.min() - ei.losses.min()) / (1.0 - ei.losses.min())) if is_share else float("nan")


def interval_of_known(name: str, values: list[float], groups: list[str]) -> Line:
    known = [(value, group) for value, group in zip(values, groups, strict=True) if not np.isnan(value)]
    return with_interval(name, [v for v, _ in known], [g for _, g in known]) if known else {}


def time_allocation(problems: list[Problem], options: Namespace, traces: Traces) -> tuple[list[Line], Line]:
    """(c) Average rank by best loss at multiples of the unit budget, and differences from EI and from EI per cost."""
    ranks: dict[float, dict[str, list[float]]] = {m: {} for m in options.multiples}
    regrets: dict[float, dict[str, list[float]]] = {m: {} for m in options.multiples}
    capped: dict[float, dict[str, list[float]]] = {m: {} for m in options.multiples}
    data: dict[float, list[str]] = {m: [] for m in options.multiples}  # data set of each run
    for problem in problems:
        for seed in options.seeds:
            unit, at = race(problem, seed, options, traces)
            for multiple, runs in at.items():
                data[multiple].append(problem.data_set)
                best = np.array([run.best_after(unit * multiple) for run in runs.values()])
                worst = float(problem.losses.max())
                for (name, run), value in zip(runs.items(), best, strict=True):
                    # ties share their ranks
                    rank = float(np.sum(best < value) + 0.5 * (np.sum(best == value) + 1))
                    ranks[multiple].setdefault(name, []).append(rank)
                    regret = (min(value, worst) - float(problem.losses.min())) / problem.unit_loss
                    regrets[multiple].setdefault(name, []).append(regret)
                    is_at_cap = (
                        run.seconds.size >= round(options.cap * options.trials) and run.seconds.sum() < unit * multiple
                    )
                    capped[multiple].setdefault(name, []).append(float(is_at_cap))
    lines: list[Line] = [
        {
            "method": name,
            "multiple": multiple,
            "runs": len(values),
            **with_interval("rank", values, data[multiple]),
            **with_interval("regret", regrets[multiple][name], data[multiple]),
            "share_at_cap": float(np.mean(capped[multiple][name])),
        }
        for multiple, by_name in ranks.items()
        for name, values in by_name.items()
    ]
    for multiple, by_name in ranks.items():
        for name in grid(options):
            for reference in [one for one in REFERENCES if name not in (one, REFERENCES[0])]:
                difference = np.array(by_name[name]) - np.array(by_name[reference])
                regret = np.array(regrets[multiple][name]) - np.array(regrets[multiple][reference])
                lines.append(
                    {
                        "method": name,
                        "against": reference,
                        "multiple": multiple,
                        **with_interval("rank_less", difference.tolist(), data[multiple]),
                        **with_interval("regret_less", regret.tolist(), data[multiple]),
                    }
                )
    pairs = [line for line in lines if line.get("method") == DEFAULT and "against" in line]
    measured = {f"{line['multiple']:g} against {line['against']}": round(line["rank_less"], 3) for line in pairs}
    ok = all(value < 0 for value in measured.values())
    return lines, {
        "name": f"rank of {DEFAULT} minus that of EI and EI per cost",
        "measured": measured,
        "target": "all < 0",
        "ok": ok,
    }


def cost_model_effect(problems: list[Problem], options: Namespace, traces: Traces) -> tuple[list[Line], Line]:
    """(e) Total time and final loss of CEI and EI / cost^alpha with each cost model, relative to LV-3."""
    time_s: dict[tuple[str, str], list[float]] = {}
    loss: dict[tuple[str, str], list[float]] = {}
    for problem in problems:
        for seed in options.seeds:
            for rule, runs in compare_cost_models(problem, seed, options, traces).items():
                for model, run in runs.items():
                    default = runs["lv3"]
                    time_s.setdefault((rule, model), []).append(float(run.seconds.sum() / default.seconds.sum()))
                    difference = float(run.losses.min() - default.losses.min()) / problem.unit_loss
                    loss.setdefault((rule, model), []).append(difference)
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
