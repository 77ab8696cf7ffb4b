"""The experiments of arXiv:2011.11456 on tables: one command each.

    python benchmarks/cost_aware/run.py cost_model_error --data DIR ... -o out/     cost models against observations (Figs. 2, 8)
    python benchmarks/cost_aware/run.py tradeoff         --data DIR ... -o out/     loss against time at N trials (Figs. 3, 5)
    python benchmarks/cost_aware/run.py time_allocation  --data DIR ... -o out/     ranks at multiples of a budget (Figs. 4, 6)
    python benchmarks/cost_aware/run.py front            --data DIR ... -o out/     EI-cost front over a run (Figs. 1, 7)
    python benchmarks/cost_aware/run.py cost_model_effect --data DIR ... -o out/    cost models inside the search (Fig. 9)

Each writes <experiment>.jsonl (one line a number, with its interval) and <experiment>.png to -o, and prints the lines. Runs are
kept in traces.jsonl there and reused. `--quick` takes fewer problems, seeds and trials: two minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import figures
import numpy as np
from problems import Problem, load
from traces import ALPHAS, SLACKS, Traces, interval, ledger_of, method

from shoestring import policies
from shoestring.models.acquisition import pareto_front
from shoestring.models.cost import COST_MODELS, fit_cost_model, fit_transfer, log_costs
from shoestring.models.cost_linear import choose_columns

Line = dict[str, Any]
MULTIPLES = (0.5, 1.0, 2.0, 4.0, 8.0)
GRID = [f"alpha={a:g}" for a in ALPHAS] + [f"cei={s:g}" for s in SLACKS]


def cost_model_error(problems: list[Problem], options: argparse.Namespace, traces: Traces) -> list[Line]:
    """(a) RMSE of log cost on rows not seen, after n random observations."""
    errors: dict[tuple[str, int], list[float]] = {}
    for problem in problems:
        features, log_cost = problem.cost_features, log_costs(problem.seconds)
        others = [p for p in problems if p.folder == problem.folder and p is not problem and _alike(p, problem)]
        for seed in range(options.seeds):
            order = np.random.default_rng(seed).permutation(log_cost.size)
            test = order[-min(500, log_cost.size // 2) :]
            for n in (3, 5, 10, 20, 50, 100):
                if n + test.size > log_cost.size:
                    continue
                train = order[:n]
                models = {name: fit_cost_model(name, features[train], log_cost[train]) for name in COST_MODELS}
                if others:
                    tasks = [(p.cost_features[:200], log_costs(p.seconds)[:200]) for p in others]
                    columns = choose_columns(np.vstack([f for f, _ in tasks]), np.concatenate([c for _, c in tasks]), 3)
                    models["transfer"] = fit_transfer(tasks, columns)  # type: ignore[index]
                    # features known beforehand, as the paper's are: those that the other tables would choose
                    models["lv3 named"] = fit_cost_model("lv3", features[train], log_cost[train], columns=columns)  # type: ignore[index]
                for name, model in models.items():
                    miss = model.predict(features[test])[0] - log_cost[test]
                    errors.setdefault((name, n), []).append(float(np.sqrt(np.mean(miss**2))))
    return [
        {"model": name, "observations": n, "runs": len(values), **_with_interval("rmse_log_cost", values)}
        for (name, n), values in errors.items()
    ]


def _alike(one: Problem, other: Problem) -> bool:
    return list(one.space.parameters) == list(other.space.parameters) and (
        one.cost_features.shape[1] == other.cost_features.shape[1]
    )


def tradeoff(problems: list[Problem], options: argparse.Namespace, traces: Traces) -> list[Line]:
    """(b) Total time and final loss after N trials, relative to EI on the same problem and seed."""
    lines = []
    for name in GRID:
        time, loss, alphas, unsupported = [], [], [], []
        for problem in problems:
            for seed in range(options.seeds):
                ei = traces.of(problem, "alpha=0", seed, options.trials)
                it = traces.of(problem, name, seed, options.trials)
                time.append(float(it.seconds.sum() / ei.seconds.sum()))
                loss.append(float(it.losses.min() - ei.losses.min()) / problem.unit_loss)
                told = [w for w in it.why if "implied_alpha" in w]
                alphas += [w["implied_alpha"] for w in told]
                unsupported += [float(w["alpha_misses_by"] > 0) for w in told]
        lines.append(
            {
                "method": name,
                "runs": len(time),
                **_with_interval("time_relative_to_ei", time),
                "time_median": float(np.median(time)),
                **_with_interval("loss_above_ei", loss),
                "loss_median": float(np.median(loss)),
                "implied_alpha_median": float(np.median(alphas)) if alphas else None,
                "share_no_alpha": float(np.mean(unsupported)) if unsupported else None,
            }
        )
    return lines


def time_allocation(problems: list[Problem], options: argparse.Namespace, traces: Traces) -> list[Line]:
    """(c) Average rank by best loss at multiples of the unit budget: the least time any alpha needed for N trials."""
    fixed = ["ei", "eipu", *[f"alpha={a:g}" for a in ALPHAS[1:-1]], *[f"cei={s:g}" for s in SLACKS], "random"]
    cooled = ["ei_cool", "carbo"]  # depend on the budget: one run for each
    ranks: dict[tuple[str, float], list[float]] = {}
    regrets: dict[tuple[str, float], list[float]] = {}
    for problem in problems:
        for seed in range(options.seeds):
            unit = min(float(traces.of(problem, f"alpha={a:g}", seed, options.trials).seconds.sum()) for a in ALPHAS)
            whole = unit * MULTIPLES[-1]
            runs = {name: traces.of(problem, name, seed, 2 * options.trials, whole) for name in fixed}
            for multiple in MULTIPLES:
                best = {name: it.best_after(unit * multiple) for name, it in runs.items()}
                for name in cooled:
                    it = traces.of(problem, name, seed, 2 * options.trials, unit * multiple)
                    best[name] = it.best_after(unit * multiple)
                values = np.array(list(best.values()))
                for name, value in best.items():
                    rank = float(np.sum(values < value) + 0.5 * (np.sum(values == value) + 1))  # ties share their ranks
                    ranks.setdefault((name, multiple), []).append(rank)
                    regret = (
                        min(value, float(np.max(problem.losses))) - float(problem.losses.min())
                    ) / problem.unit_loss
                    regrets.setdefault((name, multiple), []).append(regret)
    return [
        {
            "method": name,
            "multiple": multiple,
            "runs": len(values),
            **_with_interval("rank", values),
            **_with_interval("regret", regrets[name, multiple]),
        }
        for (name, multiple), values in ranks.items()
    ]


def front(problems: list[Problem], options: argparse.Namespace, traces: Traces) -> list[Line]:
    """(d) How many rows are on the front as a run goes on, and how many of them still are later."""
    policy = policies.make("cost_aware_ei", method("cei=0.2"))
    lines: list[Line] = []
    moments = [n for n in (6, 10, 15, 20, 30, 40, 60, 80) if n <= options.trials]
    sizes: dict[int, list[float]] = {n: [] for n in moments}
    stays: dict[tuple[int, int], list[float]] = {}
    for problem in problems:
        for seed in range(options.seeds):
            ledger = ledger_of(problem, "cei=0.2", seed, options.trials)
            fronts: dict[int, set[int]] = {}
            for n in moments:
                then = ledger.fork(1 + 2 * n)  # opened, then an order and a receipt for each trial
                seen = policy.look(then, then.decision_rng())  # type: ignore[attr-defined]
                found = seen.found
                where = pareto_front(found.log_ei, found.log_cost)
                fronts[n] = {int(row) for row in seen.rows[where]}
                sizes[n].append(len(fronts[n]))
                if problem is problems[0] and seed == 0:
                    by_cost = where[np.argsort(found.log_cost[where])]
                    lines.append(
                        {
                            "trials": n,
                            "problem": problem.name,
                            "front_cost_s": np.exp(found.log_cost[by_cost]).tolist(),
                            "front_ei": (seen.loss_unit * np.exp(found.log_ei[by_cost])).tolist(),
                        }
                    )
            for earlier, later in pairwise(moments):
                share = len(fronts[earlier] & fronts[later]) / len(fronts[earlier])
                stays.setdefault((earlier, later), []).append(share)
    lines += [{"trials": n, "runs": len(v), **_with_interval("front_size", v)} for n, v in sizes.items()]
    lines += [{"from": a, "to": b, "runs": len(v), **_with_interval("share_staying", v)} for (a, b), v in stays.items()]
    return lines


def cost_model_effect(problems: list[Problem], options: argparse.Namespace, traces: Traces) -> list[Line]:
    """(e) Total time and final loss of CEI and EI per cost with each cost model, relative to LV-3."""
    lines = []
    for rule in ("cei=0.2", "eipu"):
        for model in COST_MODELS:
            time, loss = [], []
            for problem in problems:
                for seed in range(options.seeds):
                    usual = traces.of(problem, f"{rule}/lv3", seed, options.trials)
                    it = traces.of(problem, f"{rule}/{model}", seed, options.trials)
                    time.append(float(it.seconds.sum() / usual.seconds.sum()))
                    loss.append(float(it.losses.min() - usual.losses.min()) / problem.unit_loss)
            lines.append(
                {
                    "rule": rule,
                    "model": model,
                    "runs": len(time),
                    **_with_interval("time_relative_to_lv3", time),
                    **_with_interval("loss_above_lv3", loss),
                }
            )
    return lines


def _with_interval(name: str, values: list[float]) -> Line:
    mean, low, high = interval(values)
    return {name: mean, f"{name}_low": low, f"{name}_high": high}


EXPERIMENTS: dict[str, Callable[[list[Problem], argparse.Namespace, Traces], list[Line]]] = {
    "cost_model_error": cost_model_error,
    "tradeoff": tradeoff,
    "time_allocation": time_allocation,
    "front": front,
    "cost_model_effect": cost_model_effect,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="folders of .npz tables")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for results and figures")
    parser.add_argument("--problems", type=int, default=5, help="tables taken from each folder (default 5)")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=100, help="N, trials of a run")
    parser.add_argument("--rows", type=int, default=2000, help="rows kept of each table")
    parser.add_argument("--quick", action="store_true", help="2 tables a folder, 2 seeds, 25 trials, 300 rows")
    options = parser.parse_args()
    if options.quick:
        options.problems, options.seeds, options.trials, options.rows = 2, 2, 25, 300
    problems = load(options.data, options.rows, options.problems)
    lines = EXPERIMENTS[options.experiment](problems, options, Traces(options.output / "traces.jsonl"))
    text = "\n".join(json.dumps(line) for line in lines)
    (options.output / f"{options.experiment}.jsonl").write_text(text + "\n")
    getattr(figures, options.experiment)(lines, options.output / f"{options.experiment}.png")
    print(text)


if __name__ == "__main__":
    main()
