"""Experiment on recorded curves: normalised regret at budgets of 0.5, 1, 2, 5 and 10 full curves (Fig. 2, 3b).

    python -m benchmarks bhpt.real -o out/bhpt                          the four tasks of benchmarks/data/fashion_curves
    python -m benchmarks bhpt.real -o out/bhpt --data FOLDER FOLDER     every table with curves in other folders
    python -m benchmarks bhpt.real -o out/bhpt --seeds 3 --methods bhpt,bhpt_printed --tables vae,fcnet
    python -m benchmarks bhpt.real -o out/bhpt --seconds --tables resnet_alexnet        budgets in time, as in the paper
    python -m benchmarks bhpt.real -o out/quick --quick                 a minute, to check that it runs

A budget of one curve is the steps of one full training, or with `--seconds` the time of a median one. Curves are thinned to
`--steps`; from large tables `--arms` configurations are drawn for each seed. Runs that the folder already holds are not
repeated, so the experiment can be done in parts. The output is one JSON line per run, and a summary with one line per table,
method and budget.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student_t

from benchmarks.bhpt import page
from benchmarks.bhpt.problems import Table, load_table
from benchmarks.bhpt.racing import can_run, race, read, write

CURVES = (0.5, 1.0, 2.0, 5.0, 10.0)
PAPER_BASELINES = "random_search,hyperband,gp_ei,smac,fabolas_epochs,freeze_thaw_bo,rollout"  # baselines of the paper
METHODS = (
    f"{PAPER_BASELINES},asha,successive_halving,sequential_halving,"
    "bhpt,bhpt_start,bhpt_ten,bhpt_unlimited,bhpt_printed,bhpt_printed_start,bhpt_eps"
)
# Targets by full curves of budget. They were set before the default was run with other seeds than it was chosen on. At two
# curves it meets both by less than the error of the runs.
REGRET_AT_MOST = {0.5: 0.16, 1.0: 0.12, 2.0: 0.05}
AHEAD_UP_TO = 2.0  # full curves of budget up to which the regret must be less than that of Hyperband
OWN = Path(__file__).parent.parent / "data" / "fashion_curves"
LEAST_STEPS = 5  # in tables of shorter curves there is nothing to pause


def main() -> None:
    options = arguments().parse_args()
    if options.quick:
        options.seeds, options.curves, options.tables = 1, "0.5,1", options.tables or "resnet_alexnet,vae"
        options.methods = options.methods.replace(",smac", "")
    verdicts = []
    for folder in options.data:
        name = folder.name + "_seconds" * options.seconds
        path = options.out / f"real_{name}.jsonl"
        write(path, runs(options, folder, {(r["table"], r["method"], r["curves"], r["seed"]) for r in read(path)}))
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        rows = [r for r in read(path) if r["seed"] in seeds]
        if not rows:
            raise SystemExit(f"{folder} holds no table with curves of {LEAST_STEPS} steps or more.")
        show(rows)
        if options.store and folder == OWN:
            print("", *page.store(rows), sep="\n\n")
        summary = options.out / f"real_{name}_summary.jsonl"
        summary.write_text("".join(json.dumps(line) + "\n" for line in summarise(rows)), encoding="utf-8")
        from benchmarks.bhpt.figures import real_figures

        real_figures(rows, options.out, name)
        result = judge(rows, options.seconds, own=folder == OWN) | {"data": name}
        # one seed is too little for a verdict
        verdicts.append(result | {"target": None, "ok": True} if options.quick else result)
    for verdict in verdicts:
        print(json.dumps(verdict))
    raise SystemExit(0 if all(v["ok"] for v in verdicts) else 1)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for JSON lines and figures")
    parser.add_argument("--data", type=Path, nargs="+", default=[OWN], help="folders of npz tables")
    parser.add_argument("--tables", default="", help="names of the tables; default: all")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--curves", default=",".join(map(str, CURVES)), help="budgets, in full curves")
    parser.add_argument("--arms", type=int, default=200)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seconds", action="store_true", help="budgets in training seconds instead of steps")
    parser.add_argument("--store", action="store_true", help="write results/default.jsonl and print its tables")
    parser.add_argument("--quick", action="store_true", help="one seed, two tables, up to one curve")
    return parser


def runs(options: argparse.Namespace, folder: Path, have: set[tuple[str, str, float, int]]) -> Iterator[dict[str, Any]]:
    wanted = options.tables.split(",") if options.tables else None
    names = [name for name in options.methods.split(",") if can_run(name)]
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for file in sorted(folder.glob("*.npz")):
            if wanted is not None and file.stem not in wanted:
                continue
            table = load_table(file, options.arms, options.steps, seed)
            if table.losses.shape[1] < LEAST_STEPS:
                continue
            for curves in map(float, options.curves.split(",")):
                if options.seconds:
                    budget, unit = round(curves * float(np.median(table.seconds.sum(axis=1))), 3), "s"
                else:
                    budget, unit = max(1, round(curves * table.losses.shape[1])), "epochs"
                for name in names:
                    if (table.name, name, curves, seed) not in have:
                        row = race(name, table, budget, seed, unit) | {"curves": curves}
                        print(
                            f"seed {seed} {table.name} {name} at {curves:g}: {row['regret']:.3f}",
                            file=sys.stderr,
                            flush=True,
                        )
                        yield row | {"resnet_share": _resnet_share(table, row["spent_by_trial"], options.seconds)}


def _resnet_share(table: Table, steps_of: dict[str, int], in_seconds: bool) -> float | None:
    """Return the share of the spending on ResNets, or None if the architecture is not a hyperparameter."""
    configs = table.space.rows
    if not configs or "architecture" not in configs[0]:
        return None
    spent = {
        int(arm): float(table.seconds[int(arm), :steps].sum()) if in_seconds else float(steps)
        for arm, steps in steps_of.items()
    }
    on = sum(much for arm, much in spent.items() if "resnet" in str(configs[arm]["architecture"]).lower())
    return on / sum(spent.values())


def cell(rows: list[dict[str, Any]], table: str | None, name: str, curves: float) -> list[float]:
    return [
        r["regret"]
        for r in rows
        if r["method"] == name and r["curves"] == curves and (table is None or r["table"] == table)
    ]


def summarise(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield one line per table (and for all tables), method and budget, with no data of single runs or configurations."""
    for table in [*dict.fromkeys(r["table"] for r in rows), None]:
        for name in dict.fromkeys(r["method"] for r in rows):
            for curves in sorted({r["curves"] for r in rows}):
                if found := cell(rows, table, name, curves):
                    yield {
                        "table": table or "all",
                        "method": name,
                        "curves": curves,
                        "runs": len(found),
                        "regret_mean": round(float(np.mean(found)), 4),
                        "regret_sd": round(float(np.std(found)), 4),
                    }


def show(rows: list[dict[str, Any]]) -> None:
    budgets = sorted({r["curves"] for r in rows})
    names = list(dict.fromkeys(r["method"] for r in rows))
    for table in [*dict.fromkeys(r["table"] for r in rows), None]:
        print(
            f"\n{table or 'all tasks'}: normalised regret, mean ± one standard deviation (runs), by full curves of budget"
        )
        print(" " * 20 + "".join(f"{b:>22g}" for b in budgets))
        for name in names:
            cells = [cell(rows, table, name, b) for b in budgets]
            print(
                f"{name:20}"
                + "".join(f"{f'{np.mean(c):.3f} ± {np.std(c):.3f} ({len(c)})' if c else '—':>22}" for c in cells)
            )


def resnet_growth(rows: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """Return the mean share by budget, and its growth per doubling of the budget with a 95 % interval over seeds."""
    mine = [r for r in rows if r["method"] == name and r["resnet_share"] is not None]
    budgets = sorted({r["curves"] for r in mine})
    if len(budgets) < 2:
        return None
    slopes = []
    for seed in sorted({r["seed"] for r in mine}):
        of_seed = [(np.log2(r["curves"]), r["resnet_share"]) for r in mine if r["seed"] == seed]
        if len(of_seed) > 1:
            slopes.append(np.polyfit(*zip(*of_seed, strict=True), deg=1)[0])
    middle = float(np.mean(slopes))
    half = np.inf
    if len(slopes) > 1:
        half = student_t.ppf(0.975, len(slopes) - 1) * float(np.std(slopes, ddof=1)) / np.sqrt(len(slopes))
    return {
        "share": {
            f"{b:g}": round(float(np.mean([r["resnet_share"] for r in mine if r["curves"] == b])), 3) for b in budgets
        },
        "growth": [round(float(middle + side * half), 3) for side in (-1, 0, 1)] if np.isfinite(half) else None,
        "seeds": len(slopes),
    }


def judge(rows: list[dict[str, Any]], in_seconds: bool = False, own: bool = False) -> dict[str, Any]:
    """Return the verdict on the targets; everything else is only reported.

    In steps, for our default: on our own tables the regrets of `REGRET_AT_MOST`, and on all tables less regret than Hyperband
    up to `AHEAD_UP_TO`. In seconds, the paper's unit: the share of ResNets in resnet_alexnet grows with the budget, that is,
    the 95 % interval of its growth over seeds is above 0. With one seed there is no verdict.
    """
    names = list(dict.fromkeys(r["method"] for r in rows))
    growths = {name: found for name in names if (found := resnet_growth(rows, name)) is not None}
    mean = {
        name: {
            f"{b:g}": round(float(np.mean(c)), 4)
            for b in sorted({r["curves"] for r in rows})
            if (c := cell(rows, None, name, b))
        }
        for name in names
    }
    ours = {name: means for name, means in mean.items() if name.startswith("bhpt")}
    target: dict[str, Any] = {}
    misses: list[str] = []
    if in_seconds and (grown := growths.get("bhpt", {}).get("growth")):
        target = {"resnet_share": "grows with the budget"}
        misses += ["resnet_share"] * (grown[0] <= 0.0)
    elif not in_seconds and "bhpt" in ours:
        limits = {f"{curves:g}": limit for curves, limit in REGRET_AT_MOST.items() if f"{curves:g}" in ours["bhpt"]}
        below = ["hyperband"] if "hyperband" in mean else []
        target = {"regret_at_most": limits if own else {}, "regret_below": below, "up_to_curves": AHEAD_UP_TO}
        misses += [f"{at}: above {limit}" for at, limit in limits.items() if own and ours["bhpt"][at] > limit]
        early = [at for at in limits if float(at) <= AHEAD_UP_TO]
        misses += [f"{at}: not below {name}" for name in below for at in early if ours["bhpt"][at] >= mean[name][at]]
    return {
        "name": "bhpt_real",
        "measured": {"regret": ours, "resnet_share": growths},
        "target": target or None,
        "peers": {name: means for name, means in mean.items() if name not in ours},
        "missed": misses,
        "ok": not misses,
    }


if __name__ == "__main__":
    main()
