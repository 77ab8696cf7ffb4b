"""Synthetic race of the paper: 84 arms, 48 steps of 6 epochs, normalised regret against budget (Fig. 1, 5a, 5b).

    python benchmarks/bhpt/synthetic.py -o out/bhpt --sets 100
    python benchmarks/bhpt/synthetic.py -o out/bhpt --generator raw --sets 30
    python benchmarks/bhpt/synthetic.py -o out/bhpt --methods bhpt,bhpt_sampled --sets 20

Runs that the folder already holds are not run again, so a long race can be done in parts. Sets are paired: every method
sees the same curves, and differences are judged by the standard error of the paired difference.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from problems import synthetic
from racing import race, read, write

BUDGETS = (24, 48, 96, 192)
METHODS = (
    "bhpt,bhpt_eps,random_search,hyperband,gp_ei,rollout,"
    "freeze_thaw_bo,fabolas_epochs,q_alone,q_eps_alone,greedy,bhpt_tol"
)
MUST_LOSE = ("random_search", "hyperband", "gp_ei", "rollout")
REGRET_AT_192 = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for JSON lines and figures")
    parser.add_argument("--generator", choices=("decay", "raw"), default="decay")
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)))
    parser.add_argument("--dims", type=int, default=2)
    asked = parser.parse_args()
    path = asked.out / f"synthetic_{asked.generator}.jsonl"
    budgets = [int(b) for b in asked.budgets.split(",")]
    have = {(r["method"], r["seed"], r["budget"]) for r in read(path)}
    write(
        path,
        (
            race(name, table, budget, seed)
            for seed in range(asked.sets)
            for table in [synthetic(seed, asked.generator, asked.dims)]
            for name in asked.methods.split(",")
            for budget in budgets
            if (name, seed, budget) not in have
        ),
    )
    rows = [r for r in read(path) if r["seed"] < asked.sets]
    show(rows)
    from figures import synthetic_figures

    synthetic_figures(rows, asked.out, asked.generator)
    verdict = judge(rows)
    print(json.dumps(verdict))
    sys.exit(0 if verdict["ok"] else 1)


def by_set(rows: list[dict[str, Any]], name: str, budget: int) -> dict[int, float]:
    return {r["seed"]: r["regret"] for r in rows if r["method"] == name and r["budget"] == budget}


def show(rows: list[dict[str, Any]]) -> None:
    budgets = sorted({r["budget"] for r in rows})
    print("normalised regret, mean ± standard error (sets)")
    for name in dict.fromkeys(r["method"] for r in rows):
        cells = []
        for budget in budgets:
            regrets = np.array(list(by_set(rows, name, budget).values()))
            error = regrets.std(ddof=1) / np.sqrt(len(regrets)) if len(regrets) > 1 else np.nan
            cells.append(f"{regrets.mean():.3f} ± {error:.3f} ({len(regrets)})" if len(regrets) else "—")
        print(f"{name:18}" + "".join(f"{cell:>24}" for cell in cells))


def judge(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Whether BHPT and BHPT-eps lie below each baseline by two standard errors of the paired difference."""
    exceptions, measured = [], {}
    for ours in ("bhpt", "bhpt_eps"):
        for budget in sorted({r["budget"] for r in rows}):
            mine = by_set(rows, ours, budget)
            if mine:
                measured[f"{ours}@{budget}"] = round(float(np.mean(list(mine.values()))), 4)
            for theirs in MUST_LOSE:
                other = by_set(rows, theirs, budget)
                both = sorted(mine.keys() & other.keys())
                if len(both) < 2:
                    continue
                ahead = np.array([other[s] - mine[s] for s in both])
                error = float(ahead.std(ddof=1) / np.sqrt(len(both)))
                if not ahead.mean() > 2.0 * error:
                    exceptions.append(f"{ours} against {theirs} at {budget}: ahead by {ahead.mean():.3f} ± {error:.3f}")
    last = {name: measured.get(f"{name}@192") for name in ("bhpt", "bhpt_eps")}
    ok = not exceptions and all(v is None or v <= REGRET_AT_192 for v in last.values())
    peers = {
        f"{name}@{b}": round(float(np.mean(list(found.values()))), 4)
        for name in MUST_LOSE
        for b in sorted({r["budget"] for r in rows})
        if (found := by_set(rows, name, b))
    }
    return {
        "name": "bhpt_synthetic",
        "measured": measured,
        "target": {"below_every_peer_by": "2 standard errors", "regret@192": REGRET_AT_192},
        "peers": peers,
        "exceptions": exceptions,
        "ok": ok,
    }


if __name__ == "__main__":
    main()
