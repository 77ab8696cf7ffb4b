"""Experiments on the models themselves: how well cost is predicted (a), and what the front of EI and cost looks like (d)."""

from __future__ import annotations

from argparse import Namespace
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.cost_aware.problems import Problem
from benchmarks.cost_aware.traces import Traces, go_on, method, opened, with_interval
from shoestring.models.cost_aware.cost_models import COST_MODELS, fit_cost_model, log_costs
from shoestring.models.cost_aware.linear import choose_columns, fit_transfer
from shoestring.models.cost_aware.trade_off import pareto_front
from shoestring.policies.cost_aware.cost_aware_ei import CostAwareEI

Line = dict[str, Any]
OBSERVATIONS = (3, 5, 8, 10, 15, 20, 50, 100)
MOMENTS = (6, 10, 15, 20, 30, 40, 60, 80, 100)


def cost_model_error(problems: list[Problem], options: Namespace, traces: Traces) -> tuple[list[Line], Line]:
    """(a) RMSE of log cost on rows not seen, after n random observations.

    "transfer" and "lv3 named" know other problems of the folder: the first is fitted to 200 of their rows each and frozen, the
    second takes from them only which three features to use, as the paper's models are told. Problems that have no such
    fellow count for neither.
    """
    errors: dict[tuple[str, int], list[float]] = {}
    paired: dict[int, list[float]] = {n: [] for n in OBSERVATIONS}
    for problem in problems:
        features, log_cost = problem.cost_features, log_costs(problem.seconds)
        others = [p for p in problems if p.folder == problem.folder and p is not problem and _alike(p, problem)]
        tasks = [(p.cost_features[:200], log_costs(p.seconds)[:200]) for p in others]
        if tasks:
            columns = choose_columns(np.vstack([f for f, _ in tasks]), np.concatenate([c for _, c in tasks]), 3)
            transfer = fit_transfer(tasks, columns)
        for seed in range(options.seeds):
            order = np.random.default_rng(seed).permutation(log_cost.size)
            test = order[-min(500, log_cost.size // 2) :]
            for n in (n for n in OBSERVATIONS if n + test.size <= log_cost.size):
                seen, cost = features[order[:n]], log_cost[order[:n]]
                models: dict[str, Any] = {name: fit_cost_model(name, seen, cost) for name in COST_MODELS}
                if tasks:
                    models["transfer"] = transfer
                    models["lv3 named"] = fit_cost_model("lv3", seen, cost, columns=columns)
                rmse = {
                    name: float(np.sqrt(np.mean((model.predict(features[test])[0] - log_cost[test]) ** 2)))
                    for name, model in models.items()
                }
                for name, value in rmse.items():
                    errors.setdefault((name, n), []).append(value)
                if "lv3 named" in rmse:
                    paired[n].append(rmse["lv3 named"] - rmse["gp"])
    lines: list[Line] = [
        {"model": name, "observations": n, "runs": len(values), **with_interval("rmse_log_cost", values)}
        for (name, n), values in errors.items()
    ]
    lines += [
        {"lv3_named_less_gp_at": n, "runs": len(v), **with_interval("difference", v)} for n, v in paired.items() if v
    ]
    measured = {str(n): round(float(np.mean(v)), 3) for n, v in paired.items() if v and n < 20}
    told = {"name": "RMSE of LV-3 with named features less that of GP", "measured": measured, "target": "<= 0 below 20"}
    return lines, told | {"ok": all(value <= 0 for value in measured.values())}


def _alike(one: Problem, other: Problem) -> bool:
    return list(one.space.parameters) == list(other.space.parameters) and (
        one.cost_features.shape[1] == other.cost_features.shape[1]
    )


def front(problems: list[Problem], options: Namespace, traces: Traces) -> tuple[list[Line], Line]:
    """(d) How many rows are on the front as a run goes on, how many CEI may choose from, and how many are still on it later."""
    policy = CostAwareEI(**method("cei=0.2"))
    lines: list[Line] = []
    moments = [n for n in MOMENTS if n <= options.trials]
    sizes: dict[int, list[float]] = {n: [] for n in moments}
    pools: dict[int, list[float]] = {n: [] for n in moments}
    admitted: dict[int, list[float]] = {n: [] for n in moments}
    saved: dict[int, list[float]] = {n: [] for n in moments}
    stays: dict[tuple[int, int], list[float]] = {}
    for problem in problems:
        for seed in range(options.seeds):
            ledger = go_on(problem, opened(problem, "cei=0.2", seed), options.trials)
            fronts: dict[int, set[int]] = {}
            for n in moments:
                then = ledger.fork(1 + 2 * n)  # opened, then an order and a receipt for each trial
                seen = policy.score_candidates(then, then.decision_rng())
                if seen is None:  # the whole table was bought
                    continue
                found = seen.found
                where = pareto_front(found.log_ei, found.log_cost)
                fronts[n] = {int(row) for row in seen.pool.rows[where]}
                sizes[n].append(len(fronts[n]))
                pools[n].append(found.log_ei.size)
                assert found.threshold is not None
                admitted[n].append(float(np.count_nonzero(found.log_ei >= found.threshold)))
                dearest = found.log_cost[np.argmax(found.log_ei)]
                saved[n].append(1.0 - float(np.exp(found.log_cost[found.index] - dearest)))
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
            for earlier, later in pairwise(sorted(fronts)):
                share = len(fronts[earlier] & fronts[later]) / len(fronts[earlier])
                stays.setdefault((earlier, later), []).append(share)
    lines += [
        {
            "trials": n,
            "runs": len(v),
            **with_interval("front_size", v),
            "rows": float(np.mean(pools[n])),
            **with_interval("admitted", admitted[n]),
            "admitted_median": float(np.median(admitted[n])),
            **with_interval("saved_on_next", saved[n]),
        }
        for n, v in sizes.items()
    ]
    lines += [{"from": a, "to": b, "runs": len(v), **with_interval("share_staying", v)} for (a, b), v in stays.items()]
    measured = {f"{a} to {b}": round(float(np.mean(v)), 3) for (a, b), v in stays.items()}
    return lines, {"name": "share of the front that stays", "measured": measured, "target": None, "ok": True}
