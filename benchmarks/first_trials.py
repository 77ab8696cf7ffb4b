"""Rules without a model on recorded curves: how near do they come to the best, by budget?

    python -m benchmarks first_trials --data DIR [--seeds 20] [--tables 3] [--budgets 1 2 5 10] [--steps 50]

DIR holds folders of npz tables in the layout of `shoestring.runners.tables`; of each folder the first few tables with 40
configs and 10 steps or more are taken, so that a folder with many tables does not outvote the others. Per seed up to 300
configs are drawn; curves are thinned to at most 50 steps; losses above the 95 % quantile of first losses, and steps that
diverged, count as that quantile. A budget of 1 buys one full curve.

    regret = (best found - l*) / (median first loss - l*)      l*: the best loss of any drawn config within the budget

Target: the default policy has the lowest mean regret over all runs at every budget. Last line: one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from shoestring import policies
from shoestring.runners.tables import Table
from shoestring.testing.policies import opened, simulate

RULES = ("random_search", "hyperband", "asha", "top_k_after_one", "successive_halving", "sequential_halving")
FEWEST_CONFIGS, FEWEST_STEPS, MOST_CONFIGS, CLIP = 40, 10, 300, 0.95


def tables(folder: Path, per_source: int, steps: int) -> Iterator[Table]:
    for source in sorted(path for path in folder.iterdir() if path.is_dir()):
        found = 0
        for path in sorted(source.glob("*.npz")):
            with np.load(path, allow_pickle=False) as arrays:
                if "hp" not in arrays or "meta" not in arrays or len(arrays["hp"]) < FEWEST_CONFIGS:
                    continue
            table = Table.load(path, max_steps=steps)
            if table.max_steps >= min(FEWEST_STEPS, steps) and found < per_source:
                found += 1
                yield replace(table, name=f"{source.name}/{path.stem}")


def drawn(table: Table, seed: int) -> Table:
    """The configs of one run as losses to be minimised, none of them wild."""
    rows = np.random.default_rng(seed).permutation(len(table.configs))[:MOST_CONFIGS]
    part = table.subset(rows)
    losses = part.values if part.direction == "min" else -part.values
    first = losses[np.isfinite(losses[:, 0]), 0]
    wild = float(np.quantile(first, CLIP))
    within = np.arange(part.max_steps) < part.lengths[:, None]
    losses = np.where(within, np.minimum(np.where(np.isfinite(losses), losses, wild), wild), np.nan)
    return replace(part, values=losses, direction="min")


def regret(table: Table, rule: str, curves: float, seed: int) -> float:
    budget = max(1, round(curves * table.max_steps))
    policy = policies.make(rule)
    start = opened(policy, space=table.space(), budget=f"{budget} epochs", max_steps=table.max_steps, seed=seed)
    best = simulate(policy, table, start).ledger.best
    assert best is not None
    optimum = float(np.nanmin(table.values[:, :budget]))
    return (best.best_loss - optimum) / (float(np.median(table.values[:, 0])) - optimum)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tables", type=int, default=3, help="at most so many of each folder")
    parser.add_argument("--budgets", type=float, nargs="+", default=[1, 2, 5, 10])
    parser.add_argument("--steps", type=int, default=50, help="curves are thinned to at most so many")
    parser.add_argument("--rules", nargs="+", default=list(RULES))
    told = parser.parse_args()
    measured: dict[str, dict[float, list[float]]] = {rule: {b: [] for b in told.budgets} for rule in told.rules}
    names = []
    for table in tables(told.data, told.tables, told.steps):
        names.append(table.name)
        for seed in range(told.seeds):
            part = drawn(table, seed)
            for rule in told.rules:
                for budget in told.budgets:
                    measured[rule][budget].append(regret(part, rule, budget, seed))
        print(f"{table.name}: {len(table.configs)} configs, {table.max_steps} steps", file=sys.stderr, flush=True)
    if not names:
        print(f"there are no tables in {told.data}", file=sys.stderr)
        return 1
    means = {rule: {f"{b:g}": float(np.mean(runs)) for b, runs in row.items()} for rule, row in measured.items()}
    print(f"{len(names)} tables, {told.seeds} seeds: mean regret (median)")
    print("| rule | " + " | ".join(f"{b:g}" for b in told.budgets) + " |\n|---" + "|---" * len(told.budgets) + "|")
    for rule, row in measured.items():
        print(
            f"| {rule} | " + " | ".join(f"{np.mean(runs):.3f} ({np.median(runs):.3f})" for runs in row.values()) + " |"
        )
    ours = means.pop(policies.DEFAULT, {})
    ok = all(ours[budget] <= min(row[budget] for row in means.values()) for budget in ours) if means else True
    print(json.dumps({"name": "first_trials", "measured": ours, "target": "lowest mean", "peers": means, "ok": ok}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
