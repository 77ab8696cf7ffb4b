"""Race on recorded curves: normalised regret at 0.5, 1, 2, 5 and 10 full curves of budget (Fig. 2, 3b).

    python benchmarks/bhpt/real.py -o out/bhpt                          the four tasks of benchmarks/data/fashion_curves
    python benchmarks/bhpt/real.py -o out/bhpt --data FOLDER            every table with curves in another folder
    python benchmarks/bhpt/real.py -o out/bhpt --seeds 3 --methods bhpt,bhpt_eps

A budget of one curve is as many steps as one full training. Curves are thinned to `--steps`; of large tables `--arms`
configs are drawn for each seed. Runs that the folder already holds are not run again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from problems import recorded
from racing import race, read, write

CURVES = (0.5, 1.0, 2.0, 5.0, 10.0)
METHODS = (
    "random_search,hyperband,asha,successive_halving,sequential_halving,gp_ei,freeze_thaw_bo,rollout,bhpt,bhpt_eps"
)
OWN = Path(__file__).parent.parent / "data" / "fashion_curves"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for JSON lines and figures")
    parser.add_argument("--data", type=Path, default=OWN, help="folder of npz tables")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--curves", default=",".join(map(str, CURVES)), help="budgets, in full curves")
    parser.add_argument("--arms", type=int, default=200)
    parser.add_argument("--steps", type=int, default=50)
    asked = parser.parse_args()
    path = asked.out / f"real_{asked.data.name}.jsonl"
    write(path, runs(asked, {(r["table"], r["method"], r["curves"], r["seed"]) for r in read(path)}))
    rows = [r for r in read(path) if r["seed"] < asked.seeds]
    show(rows)
    from figures import real_figures

    real_figures(rows, asked.out, asked.data.name)
    verdict = judge(rows)
    print(json.dumps(verdict))
    raise SystemExit(0 if verdict["ok"] else 1)


def runs(asked: argparse.Namespace, have: set[tuple[str, str, float, int]]) -> Iterator[dict[str, Any]]:
    for seed in range(asked.seeds):
        for file in sorted(asked.data.glob("*.npz")):
            table = recorded(file, asked.arms, asked.steps, seed)
            if table.losses.shape[1] < 5:
                continue  # no curve to speak of
            for curves in map(float, asked.curves.split(",")):
                for name in asked.methods.split(","):
                    if (table.name, name, curves, seed) not in have:
                        budget = max(1, round(curves * table.losses.shape[1]))
                        row = race(name, table, budget, seed) | {"curves": curves}
                        yield row | {"resnet_share": _resnet_share(table.space.rows, row["spent_by_trial"])}


def _resnet_share(configs: Any, spent: dict[str, int]) -> float | None:
    """Share of the steps that went to ResNets, where the architecture is a hyperparameter."""
    if not configs or "architecture" not in configs[0]:
        return None
    on = sum(steps for row, steps in spent.items() if "resnet" in str(configs[int(row)]["architecture"]).lower())
    return on / max(1, sum(spent.values()))


def cell(rows: list[dict[str, Any]], table: str | None, name: str, curves: float) -> list[float]:
    return [
        r["regret"]
        for r in rows
        if r["method"] == name and r["curves"] == curves and (table is None or r["table"] == table)
    ]


def show(rows: list[dict[str, Any]]) -> None:
    budgets = sorted({r["curves"] for r in rows})
    names = list(dict.fromkeys(r["method"] for r in rows))
    for table in [*dict.fromkeys(r["table"] for r in rows), None]:
        print(
            f"\n{table or 'all tasks'}: normalised regret, mean ± one standard deviation (runs), by full curves of budget"
        )
        print(" " * 20 + "".join(f"{b:>22g}" for b in budgets))
        for name in names:
            told = [cell(rows, table, name, b) for b in budgets]
            print(
                f"{name:20}"
                + "".join(f"{f'{np.mean(c):.3f} ± {np.std(c):.3f} ({len(c)})' if c else '—':>22}" for c in told)
            )


def judge(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What is promised on real curves: ResNet's share of resnet_alexnet grows with the budget. The table is reported."""
    shares = {
        name: {
            f"{b:g}": round(float(np.mean(found)), 3)
            for b in sorted({r["curves"] for r in rows})
            if (
                found := [
                    r["resnet_share"]
                    for r in rows
                    if r["method"] == name and r["curves"] == b and r["resnet_share"] is not None
                ]
            )
        }
        for name in ("bhpt", "bhpt_eps")
    }
    grows = all(list(s.values())[-1] > next(iter(s.values())) for s in shares.values() if len(s) > 1)
    mean = {
        name: {
            f"{b:g}": round(float(np.mean(c)), 4)
            for b in sorted({r["curves"] for r in rows})
            if (c := cell(rows, None, name, b))
        }
        for name in dict.fromkeys(r["method"] for r in rows)
    }
    ours = {name: told for name, told in mean.items() if name.startswith("bhpt")}
    return {
        "name": "bhpt_real",
        "measured": {"regret": ours, "resnet_share": shares},
        "target": {"resnet_share": "grows with the budget"},
        "peers": {name: told for name, told in mean.items() if name not in ours},
        "ok": grows,
    }


if __name__ == "__main__":
    main()
