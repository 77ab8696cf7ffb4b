"""BO-BOS and its baselines on recorded curves: steps to the final error of GP-UCB, wrong stops, ablations.

    python -m benchmarks bo_bos.curves                  our own tables in benchmarks/data, 20 seeds
    python -m benchmarks bo_bos.curves --data DIR       also klein_cnn_cifar10, lcbench_surrogate and hpolib_grids below DIR
    python -m benchmarks bo_bos.curves --quick          one table, 3 seeds, few methods: under two minutes, nothing written
    python -m benchmarks bo_bos.curves --show           print results/curves.json and the tables of README.md; nothing is run
    python -m benchmarks bo_bos.curves --methods gp_ucb,bo_bos,oracle --tables fcnet,vae --seeds 20
    python -m benchmarks bo_bos.curves --steps 10 -o out/short            curves thinned to 10 steps; results/curves_10_steps.json

Every study is stored as a JSON line in the folder `-o` and not repeated. (`--lines` names the file: several processes need one
each, and all of them are read.) results/curves.json is the summary of all studies, and `figures.py` draws the figures. The
measures are explained in `compare.py`, the methods in `studies.py`. Last line: one JSON object; exit 1 when a target is missed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: threads slow down small matrices

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.bo_bos.compare import read, show, summarise
from benchmarks.bo_bos.page import tables as tables_of_page
from benchmarks.bo_bos.studies import EPOCHS, METHODS, recorded_problem, run_study

HERE = Path(__file__).parent
SUMMARY = HERE / "results" / "curves.json"
OWN = (HERE.parent / "data" / "fashion_curves", HERE.parent / "data" / "stopping_curves")
LCBENCH = ("126025", "167149", "168329", "189862", "7593")  # first, last and three in between of the list of tasks
LCBENCH_LATER = ("126029", "167161", "168910", "189905", "189909")  # not used while the policy was developed
QUICK = ("gp_ucb", "bo_bos", "k1 fixed", "k1 large")


def tables(data: Path | None) -> dict[str, Path]:
    found = {path.stem: path for folder in OWN for path in sorted(folder.glob("*.npz"))}
    if data is not None:
        found["klein_cnn_cifar10"] = data / "klein_cnn_cifar10" / "cnn_cifar10.npz"
        found["logreg_mnist"] = data / "hpolib_grids" / "logreg_mnist.npz"
        tasks = (*LCBENCH, *LCBENCH_LATER)
        found |= {f"lcbench_{task}": data / "lcbench_surrogate" / f"task_{task}.npz" for task in tasks}
    return {name: path for name, path in found.items() if path.exists()}


def race(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the requested studies, including those of earlier calls."""
    stored = [] if options.quick else [row for path in sorted(options.out.glob("*.jsonl")) for row in read(path)]
    rows = list({(row["table"], row["method"], row["seed"]): row for row in stored}.values())
    paths = {"resnet": OWN[0] / "resnet.npz"} if options.quick else tables(options.data)
    methods = options.methods.split(",") if options.methods else list(QUICK if options.quick else METHODS)
    names = options.tables.split(",") if options.tables else list(paths)
    done = {(row["table"], row["method"], row["seed"]) for row in rows}
    for seed in range(options.first_seed, options.first_seed + (3 if options.quick else options.seeds)):
        for name in names:
            problem = recorded_problem(paths[name], options.steps, name=name)
            for method in methods:
                if (name, method, seed) in done:
                    continue
                rows.append(run_study(problem, method, seed))
                print(f"seed {seed} {name} {method}: {rows[-1]['decide_s']} s", file=sys.stderr, flush=True)
                if not options.quick:
                    options.out.mkdir(parents=True, exist_ok=True)
                    with (options.out / options.lines).open("a", encoding="utf-8") as out:
                        out.write(json.dumps(rows[-1]) + "\n")
    return rows


def update_summary(summary: dict[str, Any], file: Path | None = None) -> dict[str, Any]:
    """Replace the results of these methods on these tables in results/curves.json, and return the whole content."""
    file = SUMMARY if file is None else file
    file.parent.mkdir(exist_ok=True)
    stored = json.loads(file.read_text()) if file.exists() else {}
    for table, methods in summary.items():
        known = stored.get(table, {}) | methods
        stored[table] = {method: known[method] for method in METHODS if method in known}
    file.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    return stored


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with klein_cnn_cifar10/, lcbench_surrogate/, hpolib_grids/")
    parser.add_argument(
        "-o", "--out", type=Path, default=HERE.parents[1] / "out" / "bo_bos" / "studies", help="folder for the studies"
    )
    parser.add_argument("--lines", default="studies.jsonl", help="name of the file for new studies in that folder")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--tables", help="names separated by commas; default: all")
    parser.add_argument("--methods", help="names separated by commas; default: all")
    parser.add_argument(
        "--steps", type=int, default=EPOCHS, help="steps of a full training, to which curves are thinned"
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    file = SUMMARY if options.steps == EPOCHS else SUMMARY.with_name(f"curves_{options.steps}_steps.json")
    if options.show:
        summary = json.loads(file.read_text())
    else:
        summary = summarise(race(options))
        if not options.quick:
            summary = update_summary(summary, file)
    result, ok = show(summary)
    if options.show:
        print("", *tables_of_page(summary), sep="\n\n")
    print(json.dumps(result))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
