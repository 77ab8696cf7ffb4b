"""Experiments on the models: the error of cost predictions (a), and the front of EI and cost during a run (d)."""

from __future__ import annotations

from argparse import Namespace
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.cost_aware.problems import PAPER, Problem
from benchmarks.cost_aware.traces import Traces, continue_run, empty_ledger, interval, method, with_interval
from shoestring.core.space.encoding import Encoding
from shoestring.models.cost_aware.cost_features import CostFeatures
from shoestring.models.cost_aware.cost_models import COST_MODELS, cost_quantile, fit_cost_model, log_costs
from shoestring.models.cost_aware.linear import fit_linear, unpack
from shoestring.models.cost_aware.trade_off import pareto_front
from shoestring.policies.cost_aware.cost_aware_ei import CostAwareEI

Line = dict[str, Any]
OBSERVATIONS = (3, 5, 8, 10, 15, 20, 50, 100)
FEW = 15  # the claim: up to so many observations a line in named features is better than the GP
NAMED = ("lv1", "lv2", "lv3", "auto", "gp3")
FRONT_TRIALS = (6, 10, 15, 20, 30, 40, 60, 80, 100)


def cost_model_error(problems: list[Problem], options: Namespace, traces: Traces) -> tuple[list[Line], Line]:
    """(a) RMSE of log cost on unseen rows after n random observations, by folder.

    A star marks models with the three named features on which cost depends (`Problem.named`), as in the paper. "lv3* at once"
    uses all three of them from the first observation, as printed. "transfer" is fitted to the other problems of the folder and
    not updated. `within_reserve` is the share of costs below the 90 % quantile, the reserve of an order. The claim is tested in
    the paper's space only; elsewhere the result is only reported.
    """
    errors: dict[tuple[str, str, int], list[float]] = {}
    covered: dict[tuple[str, str, int], list[float]] = {}
    differences: dict[tuple[str, int], list[float]] = {}
    for problem in problems:
        features, log_cost = problem.cost_features, log_costs(problem.seconds)
        columns = CostFeatures(Encoding(problem.space)).columns_of(problem.named)
        for seed in options.seeds:
            order = np.random.default_rng(seed).permutation(log_cost.size)
            test = order[-min(500, log_cost.size // 2) :]
            for n in (n for n in OBSERVATIONS if n + test.size <= log_cost.size):
                seen, cost = features[order[:n]], log_cost[order[:n]]
                models: dict[str, Any] = {
                    name: fit_cost_model(name, seen, cost) for name in COST_MODELS if name != "auto"
                }
                if columns:
                    models |= {f"{name}*": fit_cost_model(name, seen, cost, columns=columns) for name in NAMED}
                    models["lv3* at once"] = fit_linear(seen, cost, columns[:3])
                if problem.transferred:
                    models["transfer"] = unpack(problem.transferred)
                for name, model in models.items():
                    mean, std = model.predict(features[test])
                    rmse = float(np.sqrt(np.mean((mean - log_cost[test]) ** 2)))
                    errors.setdefault((problem.folder, name, n), []).append(rmse)
                    within = float(np.mean(np.exp(log_cost[test]) <= cost_quantile(mean, std)))
                    covered.setdefault((problem.folder, name, n), []).append(within)
                if columns:
                    pair = (errors[problem.folder, name, n][-1] for name in ("lv3*", "gp"))
                    differences.setdefault((problem.folder, n), []).append(next(pair) - next(pair))
    lines: list[Line] = [
        {
            "folder": folder,
            "model": name,
            "observations": n,
            "runs": len(v),
            **with_interval("rmse_log_cost", v),
            "within_reserve": float(np.mean(covered[folder, name, n])),
        }
        for (folder, name, n), v in errors.items()
    ]
    lines += [
        {"folder": folder, "lv3*_less_gp_at": n, "runs": len(v), **with_interval("difference", v)}
        for (folder, n), v in differences.items()
    ]
    papers = {p.folder for p in problems if p.named == PAPER}
    tested = {
        f"{folder} at {n}": (n, interval(v)) for (folder, n), v in differences.items() if folder in papers and n <= FEW
    }
    measured = {at: [round(number, 3) for number in found] for at, (_, found) in tested.items()}
    ok = all(mean < 0 for _, (mean, _, _) in tested.values())
    verdict = {"name": "RMSE of LV-3 with named features minus that of GP, in the paper's space", "measured": measured}
    return lines, verdict | {"target": f"< 0 up to {FEW}" if papers else None, "ok": ok}


def front(problems: list[Problem], options: Namespace, traces: Traces) -> tuple[list[Line], Line]:
    """(d) Return the size of the front during a run, the number of rows that CEI may choose, and the share that stays."""
    policy = CostAwareEI(**method("cei=0.2"))
    lines: list[Line] = []
    moments = [n for n in FRONT_TRIALS if n <= options.trials]
    sizes: dict[int, list[float]] = {n: [] for n in moments}
    pools: dict[int, list[float]] = {n: [] for n in moments}
    admitted: dict[int, list[float]] = {n: [] for n in moments}
    saved: dict[int, list[float]] = {n: [] for n in moments}
    stays: dict[tuple[int, int], list[float]] = {}
    for problem in problems:
        for seed in options.seeds:
            ledger = continue_run(problem, empty_ledger(problem, "cei=0.2", seed), options.trials)
            fronts: dict[int, set[int]] = {}
            for n in moments:
                then = ledger.fork(1 + 2 * n)  # the first entry, then an order and a receipt per trial
                seen = policy.score_candidates(then, then.decision_rng())
                if seen is None:  # the whole table was trained
                    continue
                found = seen.found
                where = pareto_front(found.log_ei, found.log_cost)
                fronts[n] = {int(row) for row in seen.pool.rows[where]}
                sizes[n].append(len(fronts[n]))
                pools[n].append(found.log_ei.size)
                assert found.threshold is not None
                admitted[n].append(float(np.count_nonzero(found.log_ei >= found.threshold)))
                log_cost_of_best = found.log_cost[np.argmax(found.log_ei)]
                saved[n].append(1.0 - float(np.exp(found.log_cost[found.index] - log_cost_of_best)))
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
