"""Table A1 of "Cost-Efficient Online Hyperparameter Optimization" (arXiv:2101.06590): three arms whose rewards drift.

2000 rounds, rewards with noise of standard deviation 0.1, CE-GP-UCB at kappa 0.95 against baselines that validate one round
in ten. The paper shows its three functions only as figures; ours, of the same shapes, are in `FUNCTIONS`. The paper's model for
this table is a Gaussian process in time for each arm. The rows "ce_gp_ucb@0.95, printed=true" (length-scale, variance and noise
fitted within bounds) and "ce_gp_ucb@0.95, time_kernel=se" (length-scale 200, variance 0.25 and noise given) are the policy, run
through the ledger as all policies are. Rows named "RBF in time" are the same model written out below, as a check; "RBF fitted":
length-scale and variance by maximum likelihood over all arms each time the observations have grown by half; "within bounds"
limits them to at most T/8 and at least 0.1, "freely" does not.

    python -m benchmarks online.table_a1              100 seeds, results/table_a1.json (about 17 minutes)
    python -m benchmarks online.table_a1 --quick      2 seeds, under two minutes, stored results are not changed
    python -m benchmarks online.table_a1 --methods "ce_gp_ucb@0.95, printed=true" --trials 50     only this row
    python -m benchmarks online.table_a1 --show       print the table of the stored results again

Finished seeds are stored in the folder `-o`, one JSON line each, and are not run again.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from shoestring import policies
from shoestring.core.deciding.decision import Train
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.parameters import Choice
from shoestring.core.space.space import Space
from shoestring.models.online.query_rules import (
    beta_schedule,
    other_arms,
    probability_better,
    query_by_chance,
    query_by_confidence,
)
from shoestring.runners.runner import write_receipt

Floats = NDArray[np.float64]
Run = Callable[[Floats, Floats, int], tuple[float, int]]  # truth (rounds, arms), noise (rounds,), seed -> (R / T, C)
RESULTS = Path(__file__).parent / "results"
SEEDS = 100
ROUNDS, ARMS, NOISE_STD, KAPPA, CHANCE = 2000, 3, 0.1, 0.95, 0.1
LENGTHSCALE, VARIANCE, MEAN = 200.0, 0.25, 0.5
FIRST_FIT, GROWTH = 8, 1.5  # observations
FIT_BOUNDS = (ROUNDS / 8, 0.1)  # largest length-scale, smallest variance
WIDE_BOUNDS = (10.0 * ROUNDS, 1e-3)
POLICY = ("ce_gp_ucb@0.95, printed=true", "ce_gp_ucb@0.95, time_kernel=se")
OWN = (*POLICY, "CE-GP-UCB@0.95, RBF in time", "CE-GP-UCB@0.95, RBF fitted within bounds")

PAPER = {  # (R / T, C) on sine, gaussian, piecewise
    "EXP3.S, Ber(0.1)": [(0.384, 201), (0.257, 200), (0.437, 201)],
    "eps-greedy, Ber(0.1)": [(0.167, 198), (0.145, 200), (0.196, 199)],
    "Softmax, Ber(0.1)": [(0.132, 199), (0.159, 201), (0.256, 198)],
    "UCB1, Ber(0.1)": [(0.084, 200), (0.112, 201), (0.172, 202)],
    "GP-UCB, RBF in time, Ber(0.1)": [(0.104, 200), (0.139, 200), (0.122, 201)],
    "CE-GP-UCB@0.95, RBF in time": [(0.017, 52), (0.038, 53), (0.028, 52)],
}


def sine(t: Floats) -> Floats:
    return np.stack([0.5 + 0.5 * np.sin(4 * np.pi * t / ROUNDS + 2 * np.pi * k / 3) for k in range(ARMS)], axis=1)


def gaussian(t: Floats) -> Floats:
    centres = (1 / 6, 1 / 2, 5 / 6)
    return np.stack([np.exp(-((t - c * ROUNDS) ** 2) / (2 * (0.15 * ROUNDS) ** 2)) for c in centres], axis=1)


def piecewise(t: Floats) -> Floats:
    levels = np.array([[0.9, 0.1, 0.5, 0.2], [0.5, 0.9, 0.1, 0.4], [0.1, 0.5, 0.9, 0.9]])
    return levels[:, np.minimum((4 * (t - 1) / ROUNDS).astype(int), 3)].T


FUNCTIONS: dict[str, Callable[[Floats], Floats]] = {"sine": sine, "gaussian": gaussian, "piecewise": piecewise}


class ArmInTime:
    """An exact squared-exponential Gaussian process in time; each observation adds a row to the Cholesky factor."""

    def __init__(self, lengthscale: float = LENGTHSCALE, variance: float = VARIANCE) -> None:
        self.lengthscale, self.variance, self.n = lengthscale, variance, 0
        self._times, self._white = np.empty(ROUNDS), np.empty(ROUNDS)  # white: L^-1 (y - mean)
        self._factor = np.zeros((64, 64))

    def predict(self, t: float) -> tuple[float, float]:
        row = self._row(t)
        return MEAN + float(row @ self._white[: self.n]), max(self.variance - float(row @ row), 1e-12)

    def observe(self, t: float, y: float) -> None:
        row = self._row(t)
        if self.n == len(self._factor):
            grown = np.zeros((2 * self.n, 2 * self.n))
            grown[: self.n, : self.n] = self._factor
            self._factor = grown
        pivot = np.sqrt(max(self.variance - float(row @ row), 0.0) + NOISE_STD**2)
        self._factor[self.n, : self.n], self._factor[self.n, self.n] = row, pivot
        self._white[self.n] = (y - MEAN - row @ self._white[: self.n]) / pivot
        self._times[self.n] = t
        self.n += 1

    def _row(self, t: float) -> Floats:
        if not self.n:
            return np.empty(0)
        k = self.variance * np.exp(-0.5 * ((t - self._times[: self.n]) / self.lengthscale) ** 2)
        factor = self._factor[: self.n, : self.n]
        return np.asarray(solve_triangular(factor, k, lower=True, check_finite=False))


def fit_arms(seen: list[list[tuple[int, float]]], bounds: tuple[float, float]) -> tuple[float, float]:
    """Return the length-scale and variance with the largest likelihood of all arms' observations, on a grid."""
    longest, least = bounds
    best, found = -np.inf, (LENGTHSCALE, VARIANCE)
    for lengthscale in np.geomspace(10.0, longest, 16):
        for variance in np.geomspace(least, 1.0, 5):
            total = 0.0
            for one in seen:
                t, y = np.array(one).reshape(-1, 2).T
                k = variance * np.exp(-0.5 * ((t[:, None] - t) / lengthscale) ** 2) + NOISE_STD**2 * np.eye(t.size)
                factor = np.linalg.cholesky(k)
                white = solve_triangular(factor, y - MEAN, lower=True, check_finite=False)
                total += -0.5 * white @ white - np.log(factor.diagonal()).sum()
            if total > best:
                best, found = total, (float(lengthscale), float(variance))
    return found


def run_in_time(
    kappa: float | None, truth: Floats, noise: Floats, seed: int, *, bounds: tuple[float, float] | None = None
) -> tuple[float, int]:
    """Run UCB on the arms' processes; validate by the kappa rule, or with probability CHANCE if kappa is None."""
    rng = np.random.default_rng(seed)
    arms = [ArmInTime() for _ in range(ARMS)]
    seen: list[list[tuple[int, float]]] = [[] for _ in range(ARMS)]
    regret, passes, next_fit = 0.0, 0, FIRST_FIT
    for t in range(1, ROUNDS + 1):
        mean, variance = np.array([arm.predict(t) for arm in arms]).T
        chosen = int(np.argmax(mean + np.sqrt(beta_schedule(t) * variance)))
        if kappa is None:
            validates = t == 1 or query_by_chance(CHANCE, rng)
        else:
            better = probability_better(mean, variance, chosen, other_arms(ARMS, chosen))
            validates = t == 1 or query_by_confidence(better, kappa)
        if validates:
            seen[chosen].append((t, truth[t - 1, chosen] + noise[t - 1]))
            arms[chosen].observe(*seen[chosen][-1])
        passes += validates
        regret += truth[t - 1].max() - truth[t - 1, chosen]
        if bounds is not None and validates and passes >= next_fit:
            next_fit = int(GROWTH * passes)
            arms = [ArmInTime(*fit_arms(seen, bounds)) for _ in range(ARMS)]
            for arm, one in zip(arms, seen, strict=True):
                for at, value in one:
                    arm.observe(at, value)
    return regret / ROUNDS, passes


def run_policy(policy: Policy, truth: Floats, noise: Floats, seed: int) -> tuple[float, int]:
    space = Space({"arm": Choice(list(range(ARMS)))})
    definition = StudyDefinition(
        space=space,
        budget=Budget(f"{ROUNDS} epochs"),
        policy=policy.name,
        settings={},
        seed=seed,
        direction="max",
        max_steps=ROUNDS,
    )
    ledger, regret, passes = Ledger([definition]), 0.0, 0
    for t in range(1, ROUNDS + 1):
        decision = policy.decide(ledger, ledger.decision_rng())
        assert isinstance(decision, Train)
        order = place_order(ledger, decision)
        assert order is not None
        arm, validates = order.config["arm"], order.validates(t)
        value = float(truth[t - 1, arm] + noise[t - 1]) if validates else None
        ledger = ledger.append(order).append(write_receipt(order, t, value, Cost(), at=0.0))
        regret += float(truth[t - 1].max() - truth[t - 1, arm])
        passes += validates
    return regret / ROUNDS, passes


def methods() -> dict[str, Run]:
    bandit: dict[str, Any] = {"query": "bernoulli", "query_probability": CHANCE, "reward": "value", "clip": None}
    ours: dict[str, Any] = {"reward": "value", "clip": None, "variance": VARIANCE, "prior_mean": MEAN}
    given = {"time_lengthscale": LENGTHSCALE, "variance": VARIANCE, "noise_variance": NOISE_STD**2}
    paper = {"query": "kappa", "unvalidated": "acquisition", "kappa": KAPPA}
    learned = {"forgetting_rate": None, "noise_variance": NOISE_STD**2}
    named = {
        "EXP3.S, Ber(0.1)": policies.make("exp3s", bandit),
        "eps-greedy, Ber(0.1)": policies.make("epsilon_greedy", bandit),
        "Softmax, Ber(0.1)": policies.make("softmax", bandit),
        "UCB1, Ber(0.1)": policies.make("ucb1", bandit),
        "tv_gp_ucb, learned rate, Ber(0.1)": policies.make(
            "tv_gp_ucb", ours | bandit | learned | {"unvalidated": "acquisition"}
        ),
        "ce_gp_ucb@0.95, learned rate": policies.make("ce_gp_ucb", ours | paper | learned),
        POLICY[0]: policies.make("ce_gp_ucb", {**ours, "variance": None, "kappa": KAPPA, "printed": True}),
        POLICY[1]: policies.make("ce_gp_ucb", ours | paper | given | {"time_kernel": "se"}),
    }
    runs: dict[str, Run] = {name: partial(run_policy, policy) for name, policy in named.items()}
    runs["GP-UCB, RBF in time, Ber(0.1)"] = partial(run_in_time, None)
    runs["CE-GP-UCB@0.95, RBF in time"] = partial(run_in_time, KAPPA)
    for word, bounds in (("within bounds", FIT_BOUNDS), ("freely", WIDE_BOUNDS)):
        runs[f"GP-UCB, RBF fitted {word}, Ber(0.1)"] = partial(run_in_time, None, bounds=bounds)
        runs[f"CE-GP-UCB@0.95, RBF fitted {word}"] = partial(run_in_time, KAPPA, bounds=bounds)
    return runs


def simulate(seeds: int, folder: Path, only: Sequence[str]) -> dict[str, Any]:
    """Return R / T and C of these methods on every function and seed; those in the folder are not computed again."""
    folder.mkdir(parents=True, exist_ok=True)
    stored_seeds = folder / "table_a1.jsonl"
    lines = stored_seeds.read_text().splitlines() if stored_seeds.exists() else []
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for row in map(_whole, lines):
        if row is not None:
            rows.setdefault((row["function"], row["seed"]), {}).update(row["methods"])
    t, began = np.arange(1.0, ROUNDS + 1), time.perf_counter()
    with stored_seeds.open("a") as out:
        if lines and _whole(lines[-1]) is None:
            out.write("\n")  # the process was killed while it wrote a line
        for seed in range(seeds):
            noise = np.random.default_rng([2101, 6590, seed]).normal(0.0, NOISE_STD, ROUNDS)
            for name, function in FUNCTIONS.items():
                known = rows.get((name, seed), {})
                lacking = {method: run for method, run in methods().items() if method in only and method not in known}
                if not lacking:
                    continue
                truth = function(t)
                found = {method: run(truth, noise, seed) for method, run in lacking.items()}
                new = {method: [round(regret, 6), passes] for method, (regret, passes) in found.items()}
                rows[name, seed] = {**known, **new}
                out.write(json.dumps({"function": name, "seed": seed, "methods": rows[name, seed]}) + "\n")
                out.flush()
            print(f"seed {seed} after {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return {
        method: {
            name: {key: [rows[name, seed][method][i] for seed in range(seeds)] for i, key in enumerate("RC")}
            for name in FUNCTIONS
        }
        for method in methods()
        if method in only
    }


def _whole(line: str) -> dict[str, Any] | None:
    """Return a line of the folder's file, or None if it is incomplete."""
    try:
        return dict(json.loads(line))
    except ValueError:
        return None


def show(found: dict[str, Any]) -> None:
    print("| method | " + " | ".join(FUNCTIONS) + " |")
    print("|---" * (len(FUNCTIONS) + 1) + "|")
    for method, by_function in found.items():
        cells = []
        for i, name in enumerate(FUNCTIONS):
            r, c = np.array(by_function[name]["R"]), np.array(by_function[name]["C"])
            cell = f"{r.mean():.3f}±{r.std():.3f} / {c.mean():.0f}"
            if method in PAPER:
                cell += f" ({PAPER[method][i][0]:.3f} / {PAPER[method][i][1]})"
            cells.append(cell)
        seeds = len(by_function["sine"]["R"])
        print(f"| {method}{f' ({seeds} seeds)' if seeds < SEEDS else ''} | " + " | ".join(cells) + " |")


def judge(found: dict[str, Any]) -> dict[str, Any]:
    """Judge the paper's claim: CE-GP-UCB, with its length-scale given or fitted within bounds, has the least regret."""
    measured, misses = {}, []
    for name in FUNCTIONS:
        regrets = {m: float(np.mean(by[name]["R"])) for m, by in found.items()}
        regret = max(regrets[own] for own in OWN if own in regrets)
        others = {m: regret for m, regret in regrets.items() if "Ber(0.1)" in m}
        measured[name] = {"ce": regret, "best_baseline": min(others.values())}
        if regret >= min(others.values()):
            misses.append(name)
    return {
        "name": "table_a1",
        "measured": measured,
        "target": "CE-GP-UCB has the least regret on every function",
        "peers": {},
        "misses": misses,
        "ok": not misses,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=SEEDS, help="seeds")
    parser.add_argument("--methods", nargs="+", choices=[*methods()], default=[*methods()], help="default: all")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("-o", type=Path, metavar="DIR", default=Path("out/online"), help="default: out/online")
    options = parser.parse_args()
    stored = RESULTS / "table_a1.json"
    if options.show:
        found = json.loads(stored.read_text())
    else:
        found = simulate(2 if options.quick else options.trials, options.o, options.methods)
        if not options.quick:
            before = json.loads(stored.read_text()) if stored.exists() else {}
            found = {method: (before | found)[method] for method in methods() if method in before | found}
            stored.write_text(json.dumps(found, separators=(",", ":")) + "\n")
    show(found)
    verdict = judge(found)
    print(json.dumps(verdict))
    sys.exit(0 if verdict["ok"] else 1)


if __name__ == "__main__":
    main()
