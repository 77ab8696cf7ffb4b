"""Compare the regret of cost-aware EI with that of other libraries that use a Gaussian process.

Regret is the best loss minus the optimum after 50 trials on Branin, Hartmann's function and a mixed table, at equal costs; all
methods start with the same 5 points. Runs are stored in -o and reused; `--slow-seeds` limits BoTorch, the slowest. The time of
decisions is measured by `python -m benchmarks decide --policy cost_aware_ei`. The last line is one JSON object; the exit code is
1 if the median regret of Optuna's GP sampler or of BoTorch is below ours.

    OMP_NUM_THREADS=1 python -m benchmarks cost_aware.regret [--seeds 20] [-o out] [--quick]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.cost_aware.functions import FUNCTIONS, Function, optimum
from benchmarks.cost_aware.peers import PEERS, Grid
from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.policies.cost_aware.cost_aware_ei import CostAwareEI
from shoestring.runners.runner import write_receipt

Array = NDArray[np.float64]
COMPETITORS = ("optuna GP", "botorch")
START = 5  # trials that all methods share


def ours(function: Function, trials: int, seed: int) -> tuple[Array, Array]:
    """Return the points and losses of cost-aware EI."""
    policy, space = CostAwareEI(), function.space
    ledger = Ledger([StudyDefinition(space=space, budget=Budget("1e9s"), policy=policy.name, settings={}, seed=seed)])
    x, y = np.empty((trials, space.dims)), np.empty(trials)
    for i in range(trials):
        decision = policy.decide(ledger, ledger.decision_rng())
        assert isinstance(decision, Train)
        order = place_order(ledger, decision)
        assert order is not None
        x[i] = function.at(order.config)
        y[i] = function.of(x[i])
        ledger = ledger.append(order).append(write_receipt(order, 1, y[i], Cost(train=1.0), at=0.0, saved_step=0))
    return x, y


def one_regret(method: str, name: str, seed: int, trials: int) -> float:
    function = FUNCTIONS[name]
    if method == "cost_aware_ei":
        return float(ours(function, trials, seed)[1].min()) - optimum(name)
    x, y = ours(function, START, seed)
    decide = PEERS[method](
        Grid(function.levels, tuple(j < function.n_categories for j in range(len(function.levels)))), seed
    )
    while len(y) < trials:
        point = decide(x, y)
        x, y = np.vstack([x, point]), np.append(y, function.of(point))
    return float(y.min()) - optimum(name)


def regret(seeds: int, slow_seeds: int, trials: int, minutes: float, path: Path) -> dict[str, dict[str, Any]]:
    """Return the quartiles of the regrets and the number of seeds per function and method."""
    stored = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    known = {(r["method"], r["function"], r["seed"]): r["regret"] for r in stored if r["trials"] == trials}
    deadline = time.monotonic() + 60 * minutes
    methods = ["cost_aware_ei", *PEERS]
    for seed in range(seeds):
        for name in FUNCTIONS:
            for method in list(methods):
                if (method, name, seed) in known or (method == "botorch" and seed >= slow_seeds):
                    continue
                if time.monotonic() > deadline:
                    break
                try:
                    value = one_regret(method, name, seed, trials)
                except ImportError:
                    methods.remove(method)
                    continue
                known[method, name, seed] = value
                record = {"method": method, "function": name, "seed": seed, "trials": trials, "regret": value}
                with path.open("a") as file:
                    file.write(json.dumps(record) + "\n")
        print(f"regret: seed {seed + 1} of {seeds}", file=sys.stderr, flush=True)
    found: dict[str, dict[str, Any]] = {}
    for name in FUNCTIONS:
        for method in methods:
            values = [v for (m, f, s), v in known.items() if m == method and f == name and s < seeds]
            if values:
                quartiles = [float(q) for q in np.quantile(values, [0.25, 0.5, 0.75])]
                found.setdefault(name, {})[method] = {"quartiles": quartiles, "seeds": len(values)}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--slow-seeds", type=int, default=20, help="seeds of BoTorch")
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=np.inf, help="start no new run after this time")
    parser.add_argument("-o", "--output", type=Path, default=Path("out"), help="folder of the stored runs")
    parser.add_argument("--quick", action="store_true", help="2 seeds, 30 trials")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.slow_seeds, options.trials = 2, 1, 30
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "regret.jsonl"
    quality = regret(options.seeds, options.slow_seeds, options.trials, options.minutes, path)
    for function, methods in quality.items():
        for name, result in methods.items():
            quartiles = "  ".join(f"{q:.3g}" for q in result["quartiles"])
            print(f"{function:12s} {name:14s} regret quartiles {quartiles} ({result['seeds']} seeds)")
    worse = [
        f"{name} on {function}"
        for function, methods in quality.items()
        for name in COMPETITORS
        if name in methods and methods[name]["quartiles"][1] < methods["cost_aware_ei"]["quartiles"][1]
    ]
    found = {function: methods.pop("cost_aware_ei") for function, methods in quality.items()}
    report = {"name": "cost_aware_ei regret", "measured": found, "lower_median": worse, "target": {"lower_median": []}}
    report |= {"peers": quality, "ok": not worse}
    print(json.dumps(report))
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
