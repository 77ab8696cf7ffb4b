"""How long cost-aware EI thinks, beside peers that are given the same past, and whether it finds as much.

Time: 20 consecutive decisions around 30, 100 and 200 finished trials of a six-dimensional problem, refits included; mean, median
and 95 % quantile in milliseconds of the clock, and the mean of processor time, which a busy machine leaves alone. Peers get our
trials as their past and decide 20 times at the same places:

    sklearn GP    GaussianProcessRegressor (Matérn 5/2, one length-scale a dimension, noise), fitted again at each decision
                  from its last optimum; EI on 2250 random points, L-BFGS-B with numerical slopes from the best one
    Optuna TPE    TPESampler, its default
    Optuna GP     GPSampler, where torch is installed

Regret (`--regret`): best loss above the optimum after 50 trials on Branin and Hartmann6, equal costs, `--seeds` seeds.
Last line: one JSON object; exit 1 when the target at 100 trials is missed.

    OMP_NUM_THREADS=1 python benchmarks/cost_aware/speed.py [--regret] [--seeds 20] [--quick]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from shoestring.core.decision import Train
from shoestring.core.entries import Cost, Opened
from shoestring.core.ledger import Ledger
from shoestring.core.money import Budget
from shoestring.core.parameters import Float
from shoestring.core.space import Space
from shoestring.models.acquisition import log_expected_improvement
from shoestring.policies.cost_aware_ei import CostAwareEI
from shoestring.runners.runner import receipt

Array = NDArray[np.float64]
Decide = Callable[[Array, Array], Array]  # past (n, d) and (n,) -> next point of the cube, (d,)
TARGET_MS = 50.0
DECISIONS = 20

_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann6(u: Array) -> float:
    return float(-np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-np.sum(_A * (u - _P) ** 2, axis=1)))


def branin(u: Array) -> float:
    x, y = 15 * u[0] - 5, 15 * u[1]
    return float(
        (y - 5.1 / (4 * np.pi**2) * x * x + 5 / np.pi * x - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10
    )


FUNCTIONS: dict[str, tuple[Callable[[Array], float], int, float]] = {
    "branin": (branin, 2, 0.39788735772973816),
    "hartmann6": (hartmann6, 6, -3.322368011391339),
}


def space_of(dims: int) -> Space:
    return Space({f"x{j}": Float(0.0, 1.0) for j in range(dims)})


def ours(
    function: Callable[[Array], float], dims: int, trials: int, seed: int, policy: CostAwareEI, priced: bool
) -> tuple[Array, Array, Array, Array]:
    """Points, losses, and the clock and processor milliseconds of each decision."""
    space = space_of(dims)
    ledger = Ledger([Opened(space=space, budget=Budget("1e9s"), policy=policy.name, settings={}, seed=seed)])
    x, y, wall, cpu = np.empty((trials, dims)), np.empty(trials), np.empty(trials), np.empty(trials)
    for i in range(trials):
        began, busy = time.perf_counter(), time.process_time()
        decision = policy.decide(ledger, ledger.decision_rng())
        wall[i], cpu[i] = time.perf_counter() - began, time.process_time() - busy
        assert isinstance(decision, Train)
        order = ledger.accept(decision)
        assert order is not None
        x[i] = space.to_cube(order.config)
        y[i] = function(x[i])
        cost = Cost(train=float(np.exp(3 * x[i, 0] + 2 * x[i, -1])) if priced else 1.0)
        ledger = ledger.append(order).append(receipt(order, 1, y[i], cost, at=0.0, saved=0))
    return x, y, 1e3 * wall, 1e3 * cpu


def sklearn_gp(dims: int, seed: int) -> Decide:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    warnings.simplefilter("ignore", ConvergenceWarning)
    kernel = [ConstantKernel(1.0) * Matern(np.full(dims, 0.5), (5e-3, 200.0), nu=2.5) + WhiteKernel(1e-3, (1e-8, 10.0))]
    rng = np.random.default_rng(seed)

    def decide(x: Array, y: Array) -> Array:
        gp = GaussianProcessRegressor(kernel[0], normalize_y=True).fit(x, y)
        kernel[0] = gp.kernel_
        f_min = float(gp.predict(x).min())

        def negative(points: Array) -> Array:
            mean, std = gp.predict(np.atleast_2d(points), return_std=True)
            return -log_expected_improvement(mean, np.maximum(std, 1e-9), f_min)

        pool = rng.random((2250, dims))
        start = pool[np.argmin(negative(pool))]
        found = minimize(lambda p: float(negative(p)[0]), start, method="L-BFGS-B", bounds=[(0, 1)] * dims)
        return np.asarray(found.x)

    return decide


def optuna_sampler(dims: int, seed: int, gp: bool) -> Decide:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.GPSampler(seed=seed) if gp else optuna.samplers.TPESampler(seed=seed)
    study = optuna.create_study(sampler=sampler)
    distributions = {f"x{j}": optuna.distributions.FloatDistribution(0.0, 1.0) for j in range(dims)}

    told = [0]

    def decide(x: Array, y: Array) -> Array:
        for row, value in zip(x[told[0] :], y[told[0] :], strict=True):
            params = {f"x{j}": float(v) for j, v in enumerate(row)}
            study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=float(value)))
        told[0] = len(y)
        trial = study.ask(distributions)
        study.tell(trial, state=optuna.trial.TrialState.FAIL)  # its value comes with the past of the next decision
        return np.array([trial.params[f"x{j}"] for j in range(dims)])

    return decide


def timed(decide: Decide, x: Array, y: Array, around: int) -> dict[str, float]:
    decide(
        x[: around - DECISIONS // 2], y[: around - DECISIONS // 2]
    )  # the past is told and first fits are made untimed
    wall, cpu = [], []
    for n in range(around - DECISIONS // 2, around + DECISIONS // 2):
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
    x, y, wall, cpu = ours(hartmann6, 6, max(sizes) + DECISIONS // 2, 1, CostAwareEI(), priced=True)
    found: dict[str, dict[str, dict[str, float]]] = {"cost_aware_ei": {}}
    for n in sizes:
        part = slice(n - DECISIONS // 2, n + DECISIONS // 2)
        found["cost_aware_ei"][str(n)] = summary(wall[part], cpu[part])
    peers: dict[str, Callable[[], Decide]] = {
        "sklearn GP": lambda: sklearn_gp(6, 1),
        "optuna TPE": lambda: optuna_sampler(6, 1, gp=False),
        "optuna GP": lambda: optuna_sampler(6, 1, gp=True),
    }
    for name, make in peers.items():
        try:
            found[name] = {str(n): timed(make(), x, y, n) for n in sizes}
        except ImportError as missing:
            print(f"{name} left out: {missing}", file=sys.stderr)
    return found


def regret(seeds: int, trials: int) -> dict[str, dict[str, list[float]]]:
    """Quartiles over seeds of the best loss above the optimum."""
    found: dict[str, dict[str, list[float]]] = {}
    for function, (f, dims, optimum) in FUNCTIONS.items():
        results: dict[str, list[float]] = {"cost_aware_ei": [], "sklearn GP": [], "optuna TPE": []}
        for seed in range(seeds):
            x, y, _, _ = ours(f, dims, trials, seed, CostAwareEI(), priced=False)
            results["cost_aware_ei"].append(float(y.min()) - optimum)
            for name, decide in (
                ("sklearn GP", sklearn_gp(dims, seed)),
                ("optuna TPE", optuna_sampler(dims, seed, False)),
            ):
                xs, ys = x[:5], y[:5]  # the same initial design for all
                while len(ys) < trials:
                    point = decide(xs, ys)
                    xs, ys = np.vstack([xs, point]), np.append(ys, f(point))
                results[name].append(float(ys.min()) - optimum)
        found[function] = {name: [float(q) for q in np.quantile(v, [0.25, 0.5, 0.75])] for name, v in results.items()}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--regret", action="store_true")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="30 and 100 trials only; 3 seeds, 30 trials")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.trials = 3, 30
    found = speed([30, 100] if options.quick else [30, 100, 200])
    for name, sizes in found.items():
        for n, numbers in sizes.items():
            print(f"{name:14s} {n:>4s} trials  " + "  ".join(f"{key} {value:8.2f}" for key, value in numbers.items()))
    quality: dict[str, Any] = {}
    if options.regret:
        quality = regret(options.seeds, options.trials)
        for function, methods in quality.items():
            for name, quartiles in methods.items():
                print(f"{function:10s} {name:14s} regret quartiles " + "  ".join(f"{q:.3g}" for q in quartiles))
    measured = found.pop("cost_aware_ei")
    ok = measured["100"]["mean_ms"] <= TARGET_MS
    report = {
        "name": "cost_aware_ei decide",
        "measured": measured,
        "target": {"mean_ms at 100 trials": TARGET_MS},
        "peers": found,
        "regret": quality,
        "ok": ok,
    }
    print(json.dumps(report))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
