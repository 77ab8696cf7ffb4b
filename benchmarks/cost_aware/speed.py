"""How long cost-aware EI thinks, beside peers that are given the same past, and whether it finds as much.

Time: 20 consecutive decisions around 30, 100 and 200 finished trials of a six-dimensional problem, refits included; mean, median
and 95 % quantile in milliseconds of the clock, and the mean of processor time, which a busy machine leaves alone. Peers
(`peers.py`) get our trials as their past and decide 20 times at the same places.

Regret (`--regret`): best loss above the optimum after 50 trials on Branin, Hartmann's function and a mixed table, at equal
costs, all methods from the same first 5 points. Runs are kept in -o and reused; `--slow-seeds` limits BoTorch, the slowest.
Last line: one JSON object; exit 1 when a target is missed: 50 ms at 100 trials, at least 2 times quicker than the quicker of
Optuna's GP sampler and BoTorch where installed, and (with --regret) the median regret of neither of them below ours.

    OMP_NUM_THREADS=1 python -m benchmarks cost_aware.speed [--regret] [--seeds 20] [-o out] [--quick]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.cost_aware.functions import FUNCTIONS, HARTMANN6, Function, optimum
from benchmarks.cost_aware.peers import PEERS, Decide, Grid
from shoestring.core.decision import Train
from shoestring.core.entries import Cost, Opened
from shoestring.core.ledger import Ledger
from shoestring.core.money import Budget
from shoestring.policies.cost_aware.cost_aware_ei import CostAwareEI
from shoestring.runners.blas import OneThread
from shoestring.runners.runner import write_receipt

Array = NDArray[np.float64]
TARGET_MS, TIMES_QUICKER = 50.0, 2.0
RIVALS = ("optuna GP", "botorch")
DECISIONS = 20
START = 5  # trials that all methods share


def ours(
    function: Function, trials: int, seed: int, price: Callable[[Array], float]
) -> tuple[Array, Array, Array, Array]:
    """Points, losses, and the clock and processor milliseconds of each decision."""
    policy, space = CostAwareEI(), function.space
    ledger = Ledger([Opened(space=space, budget=Budget("1e9s"), policy=policy.name, settings={}, seed=seed)])
    x, y = np.empty((trials, space.dims)), np.empty(trials)
    wall, cpu = np.empty(trials), np.empty(trials)
    one_thread = OneThread()
    for i in range(trials):
        began, busy = time.perf_counter(), time.process_time()
        with one_thread:  # as the loop asks it
            decision = policy.decide(ledger, ledger.decision_rng())
        wall[i], cpu[i] = time.perf_counter() - began, time.process_time() - busy
        assert isinstance(decision, Train)
        order = ledger.accept(decision)
        assert order is not None
        x[i] = function.at(order.config)
        y[i] = function.of(x[i])
        cost = Cost(train=price(x[i]))
        ledger = ledger.append(order).append(write_receipt(order, 1, y[i], cost, at=0.0, saved=0))
    return x, y, 1e3 * wall, 1e3 * cpu


def timed(decide: Decide, x: Array, y: Array, around: int) -> dict[str, float]:
    first = around - DECISIONS // 2
    decide(x[:first], y[:first])  # the past is told and first fits are made untimed
    wall, cpu = [], []
    for n in range(first, around + DECISIONS // 2):
        began, busy = time.perf_counter(), time.process_time()
        decide(x[:n], y[:n])
        wall.append(1e3 * (time.perf_counter() - began))
        cpu.append(1e3 * (time.process_time() - busy))
    return summary(np.array(wall), np.array(cpu))


def summary(wall: Array, cpu: Array) -> dict[str, float]:
    return {
        "mean_ms": round(float(wall.mean()), 2),
        "median_ms": round(float(np.median(wall)), 2),
        "p95_ms": round(float(np.quantile(wall, 0.95)), 2),
        "cpu_mean_ms": round(float(cpu.mean()), 2),
    }


def speed(sizes: list[int]) -> dict[str, dict[str, dict[str, float]]]:
    def price(u: Array) -> float:
        return float(np.exp(3 * u[0] + 2 * u[-1]))  # a factor of 150

    x, y, wall, cpu = ours(HARTMANN6, max(sizes) + DECISIONS // 2, 1, price)
    found: dict[str, dict[str, dict[str, float]]] = {"cost_aware_ei": {}}
    for n in sizes:
        part = slice(n - DECISIONS // 2, n + DECISIONS // 2)
        found["cost_aware_ei"][str(n)] = summary(wall[part], cpu[part])
    for name, make in PEERS.items():
        try:
            found[name] = {str(n): timed(make(Grid.box(6), 1), x, y, n) for n in sizes}
        except ImportError as missing:
            print(f"{name} left out: {missing}", file=sys.stderr)
    return found


def one_regret(method: str, name: str, seed: int, trials: int) -> float:
    function = FUNCTIONS[name]
    if method == "cost_aware_ei":
        return float(ours(function, trials, seed, lambda u: 1.0)[1].min()) - optimum(name)
    x, y, _, _ = ours(function, START, seed, lambda u: 1.0)
    decide = PEERS[method](Grid(function.levels, tuple(j < function.names for j in range(len(function.levels)))), seed)
    while len(y) < trials:
        point = decide(x, y)
        x, y = np.vstack([x, point]), np.append(y, function.of(point))
    return float(y.min()) - optimum(name)


def regret(seeds: int, slow_seeds: int, trials: int, minutes: float, path: Path) -> dict[str, dict[str, Any]]:
    """For each function and method: the regrets' quartiles, and how many seeds."""
    kept = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    known = {(r["method"], r["function"], r["seed"]): r["regret"] for r in kept if r["trials"] == trials}
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
    parser.add_argument("--sizes", type=int, nargs="+", default=[30, 100, 200], help="finished trials; 100 among them")
    parser.add_argument("--regret", action="store_true")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--slow-seeds", type=int, default=20, help="seeds of BoTorch")
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=np.inf, help="no new run of the regret is begun after that")
    parser.add_argument("-o", "--output", type=Path, default=Path("out"), help="folder where the runs are kept")
    parser.add_argument("--quick", action="store_true", help="30 and 100 trials only; 2 seeds, 30 trials")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.slow_seeds, options.trials, options.sizes = 2, 1, 30, [30, 100]
    found = speed(options.sizes)
    for name, sizes in found.items():
        for n, numbers in sizes.items():
            print(f"{name:14s} {n:>4s} trials  " + "  ".join(f"{key} {value:8.2f}" for key, value in numbers.items()))
    quality: dict[str, dict[str, Any]] = {}
    if options.regret:
        options.output.mkdir(parents=True, exist_ok=True)
        kept = options.output / "regret.jsonl"
        quality = regret(options.seeds, options.slow_seeds, options.trials, options.minutes, kept)
        for function, methods in quality.items():
            for name, told in methods.items():
                quartiles = "  ".join(f"{q:.3g}" for q in told["quartiles"])
                print(f"{function:12s} {name:14s} regret quartiles {quartiles} ({told['seeds']} seeds)")
    measured = found.pop("cost_aware_ei")
    rivals = [found[name]["100"]["cpu_mean_ms"] for name in RIVALS if name in found]
    quicker = min(rivals) / measured["100"]["cpu_mean_ms"] if rivals else None
    worse = [
        f"{name} on {function}"
        for function, methods in quality.items()
        for name in RIVALS
        if name in methods and methods[name]["quartiles"][1] < methods["cost_aware_ei"]["quartiles"][1]
    ]
    ok = measured["100"]["mean_ms"] <= TARGET_MS and (quicker is None or quicker >= TIMES_QUICKER) and not worse
    report = {
        "name": "cost_aware_ei decide",
        "measured": measured | {"times quicker at 100 (processor)": quicker, "lower median regret": worse},
        "target": {
            "mean_ms at 100 trials": TARGET_MS,
            "times quicker at 100": TIMES_QUICKER,
            "lower median regret": [],
        },
        "peers": found,
        "regret": quality,
        "ok": ok,
    }
    print(json.dumps(report))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
