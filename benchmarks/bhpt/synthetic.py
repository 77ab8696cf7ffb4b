"""Synthetic experiment of the paper: 84 arms, 48 steps of 6 epochs, normalised regret against budget (Fig. 1, 5a, 5b).

    python -m benchmarks bhpt.synthetic -o out/bhpt --sets 100
    python -m benchmarks bhpt.synthetic -o out/bhpt --generator raw --sets 30           or slow
    python -m benchmarks bhpt.synthetic -o out/bhpt --methods bhpt_printed,bhpt_sampled --sets 20
    python -m benchmarks bhpt.synthetic -o out/quick --quick                            a minute, to check that it runs

Runs that the folder already holds are not repeated, so a long experiment can be done in parts. Sets are paired: every method
has the same curves, and differences are judged by the standard error of the paired difference. The output is one JSON line per
run, and a summary with one line per method and budget.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bhpt.problems import GENERATORS, synthetic
from benchmarks.bhpt.racing import race, read, write

BUDGETS = (24, 48, 96, 192)
METHODS = (
    "bhpt_printed,bhpt_eps,random_search,hyperband,gp_ei,rollout,"
    "freeze_thaw_bo,fabolas_epochs,q_alone,q_eps_alone,greedy"
)
OURS = ("bhpt_printed", "bhpt_eps")
BASELINES = ("random_search", "hyperband", "gp_ei", "rollout")
REGRET_AT_192 = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for JSON lines and figures")
    parser.add_argument("--generator", choices=GENERATORS, default="decay")
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)))
    parser.add_argument("--dims", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="three sets, two budgets")
    options = parser.parse_args()
    if options.quick:
        options.sets, options.budgets = 3, "24,48"
    path = options.out / f"synthetic_{options.generator}.jsonl"
    write(path, runs(options, {(r["method"], r["seed"], r["budget"]) for r in read(path)}))
    rows = [r for r in read(path) if r["seed"] < options.sets]
    show(rows)
    summary = options.out / f"synthetic_{options.generator}_summary.jsonl"
    summary.write_text("".join(json.dumps(line) + "\n" for line in summarise(rows)), encoding="utf-8")
    from benchmarks.bhpt.figures import synthetic_figures

    synthetic_figures(rows, options.out, options.generator)
    verdict = judge(rows)
    if options.quick:
        verdict |= {"target": None, "ok": True}  # three sets only show that it runs
    print(json.dumps(verdict))
    sys.exit(0 if verdict["ok"] else 1)


def runs(options: argparse.Namespace, have: set[tuple[str, int, int]]) -> Iterator[dict[str, Any]]:
    for seed in range(options.sets):
        table = synthetic(seed, options.generator, options.dims)
        for name in options.methods.split(","):
            for budget in map(int, options.budgets.split(",")):
                if (name, seed, budget) not in have:
                    yield race(name, table, budget, seed)
        print(f"set {seed + 1} of {options.sets}", file=sys.stderr, flush=True)


def by_set(rows: list[dict[str, Any]], name: str, budget: int) -> dict[int, float]:
    return {r["seed"]: r["regret"] for r in rows if r["method"] == name and r["budget"] == budget}


def summarise(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield one line per method and budget. `never_begun` counts the missed sets whose best arm got no step."""
    for name in dict.fromkeys(r["method"] for r in rows):
        for budget in sorted({r["budget"] for r in rows}):
            found = [r for r in rows if r["method"] == name and r["budget"] == budget]
            if found:
                regret = np.array([r["regret"] for r in found])
                missed = [r for r in found if r["rank"] > 0]
                committed = [r["committed"] for r in found if r["committed"] is not None]
                yield {
                    "method": name,
                    "budget": budget,
                    "sets": len(found),
                    "regret_mean": round(float(regret.mean()), 4),
                    "regret_se": round(float(regret.std(ddof=1) / np.sqrt(len(found))), 4) if len(found) > 1 else None,
                    **{f"hit_{top}": round(float(np.mean([r["rank"] < top for r in found])), 3) for top in (1, 3, 5)},
                    "share": round(float(np.mean([r["share"] for r in found])), 3),
                    "arms_begun": round(float(np.mean([r["arms_begun"] for r in found])), 1),
                    "committed": round(float(np.mean(committed)), 3) if committed else None,
                    "missed": len(missed),
                    "never_begun": sum(r["best_arm_steps"] == 0 for r in missed),
                }


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
    """Return whether BHPT and BHPT-eps are below each baseline by two standard errors of the paired difference."""
    exceptions, measured = [], {}
    for ours in OURS:
        for budget in sorted({r["budget"] for r in rows}):
            mine = by_set(rows, ours, budget)
            if mine:
                measured[f"{ours}@{budget}"] = round(float(np.mean(list(mine.values()))), 4)
            for theirs in BASELINES:
                other = by_set(rows, theirs, budget)
                both = sorted(mine.keys() & other.keys())
                if len(both) < 2:
                    continue
                ahead = np.array([other[s] - mine[s] for s in both])
                error = float(ahead.std(ddof=1) / np.sqrt(len(both)))
                if not ahead.mean() > 2.0 * error:
                    exceptions.append(f"{ours} against {theirs} at {budget}: ahead by {ahead.mean():.3f} ± {error:.3f}")
    last = {name: measured.get(f"{name}@192") for name in OURS}
    ok = not exceptions and all(v is None or v <= REGRET_AT_192 for v in last.values())
    peers = {
        f"{name}@{b}": round(float(np.mean(list(found.values()))), 4)
        for name in BASELINES
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
