"""BO-BOS and its baselines on recorded curves: epochs to GP-UCB's final error, stops that were mistakes, ablations.

    python benchmarks/bo_bos/curves.py                  Fashion-MNIST tables of benchmarks/data, 20 seeds
    python benchmarks/bo_bos/curves.py --data DIR       also klein_cnn_cifar10 and lcbench_surrogate below DIR
    python benchmarks/bo_bos/curves.py --quick          one table, 3 seeds, few methods: under two minutes, nothing written
    python benchmarks/bo_bos/curves.py --show           the tables of results/curves.json again, nothing run

Every study begins with the same 6 configs for a seed and may spend as many epochs as `BUDGET_RUNS` full trainings (a third of
the table's configs, if that is less). Every study is kept in the folder `-o` and not run again; results/curves.json is
the summary of them all.

    ratio of means    first epoch at which the mean best error over seeds is as low as GP-UCB's at the end, over GP-UCB's own
    ratio of seeds    the same seed by seed: median; a seed that never gets there counts as infinite, one whose answer
                      lies in the initial design is left out
    mistakes          share of stopped runs that would have beaten the incumbent they were stopped for, had they been finished

Intervals are 90 % bootstrap intervals over seeds. Last line: one JSON object, in which a ratio of null was never reached; exit 1
when a target is missed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: small matrices, threads only get in the way

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoestring import policies
from shoestring.core.entries import Opened, Receipt
from shoestring.core.ledger import Ledger
from shoestring.core.money import Budget
from shoestring.runners.loop import run
from shoestring.runners.recorded import append_in_memory
from shoestring.runners.simulated import Simulated
from shoestring.runners.tables import Table

HERE = Path(__file__).parent
SUMMARY = HERE / "results" / "curves.json"
FASHION = HERE.parent / "data" / "fashion_curves"
LCBENCH = ("126025", "167149", "168329", "189862", "7593")  # first, last and three in between of the list of tasks
BUDGET_RUNS = 40
MAX_STEPS = 50
PATHS = 20_000
TARGET_RATIO, TARGET_MISTAKES = 0.75, 0.05

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "gp_ucb": ("gp_ucb", {}),
    "bo_bos": ("bo_bos", {"paths": PATHS}),
    "k1 fixed": ("bo_bos", {"paths": PATHS, "k1_growth": "fixed"}),
    "k1 small": ("bo_bos", {"paths": PATHS, "k1_growth": "small"}),
    "k1 large": ("bo_bos", {"paths": PATHS, "k1_growth": "large"}),
    "one plan a run": ("bo_bos", {"paths": PATHS, "replan_every": None}),
    "no C2": ("bo_bos", {"paths": PATHS, "kappa": float("inf")}),
    "no intermediate": ("bo_bos", {"paths": PATHS, "intermediate": False}),
    "boca": ("boca", {}),
    "lc_prediction": ("lc_prediction", {"forecast": "process"}),
    "hyperband": ("hyperband", {}),
}
GROWTHS = ("k1 fixed", "k1 small", "bo_bos", "k1 large")  # from no growth to much


def tables(data: Path | None) -> dict[str, Path]:
    found = {path.stem: path for path in sorted(FASHION.glob("*.npz"))}
    if data is not None:
        found["klein_cnn_cifar10"] = data / "klein_cnn_cifar10" / "cnn_cifar10.npz"
        found |= {f"lcbench_{task}": data / "lcbench_surrogate" / f"task_{task}.npz" for task in LCBENCH}
    return found


def study(table: Table, method: str, seed: int) -> dict[str, Any]:
    """One study: best loss after each epoch, and every run that was stopped with what it would have come to."""
    name, settings = METHODS[method]
    policy = policies.make(name, settings)
    epochs = min(BUDGET_RUNS, len(table.configs) // 3) * table.max_steps
    opened = Opened(
        space=table.space(),
        budget=Budget(f"{epochs} epochs"),
        policy=name,
        settings=policies.settings_of(policy),
        seed=seed,
        direction=table.direction,
        max_steps=table.max_steps,
    )
    began = time.process_time()
    ledger = run(Ledger([opened]), policy, Simulated(table), append_in_memory).ledger
    seconds = time.process_time() - began
    sign = ledger.books.sign
    losses = [
        sign * entry.value if entry.status == "ok" and entry.value is not None else np.inf
        for entry in ledger.entries()
        if isinstance(entry, Receipt)
    ]
    best = np.minimum.accumulate(losses)
    falls = [0, *(int(i) + 1 for i in np.flatnonzero(np.diff(best)))]
    return {
        "method": method,
        "seed": seed,
        "epochs": epochs,
        "improved": [[i + 1, float(best[i])] for i in falls],  # (epoch, best loss from there on)
        "design": sum(trial.steps for trial in ledger.trials[:6]),
        "trials": len(ledger.trials),
        "stopped": stopped(ledger, table),
        "decide_s": round(seconds, 2),
    }


def stopped(ledger: Ledger, table: Table) -> list[list[float]]:
    """Of each run that was given up: steps, the incumbent, the loss it would have ended with, and its best on the way."""
    sign, found = ledger.books.sign, []
    for order in ledger.orders:
        if "gave_up" in order.why:
            trial = ledger.trials[int(order.why["gave_up"])]  # type: ignore[arg-type]
            row = table.space().row_number(trial.config)
            assert row is not None
            curve = sign * table.values[row, : table.lengths[row]]
            best = sign * float(order.why["gave_up_incumbent"])  # type: ignore[arg-type]
            found.append([trial.steps, best, float(curve[-1]), float(np.nanmin(curve))])
    return found


# reading the results -------------------------------------------------------------------------------------------------


def best_by_epoch(row: dict[str, Any]) -> NDArray[np.float64]:
    best = np.empty(row["epochs"])
    for epoch, loss in row["improved"]:
        best[epoch - 1 :] = loss
    return best


def first_at(best: NDArray[np.float64], goal: float) -> float:
    there = np.flatnonzero(best <= goal + 1e-12)
    return float(there[0] + 1) if there.size else np.inf


def ratio_of_means(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
    """Both (seeds, epochs)."""
    mean, reference = ours.mean(axis=0), theirs.mean(axis=0)
    return first_at(mean, reference[-1]) / first_at(reference, reference[-1])


def number(ratio: float) -> float | None:
    """Rounded; None: never reached."""
    return round(ratio, 4) if ratio < np.inf else None


def interval(draw: Any, n: int, rounds: int = 1000) -> list[float | None]:
    rng = np.random.default_rng(0)
    values = np.array([draw(rng.integers(n, size=n)) for _ in range(rounds)])
    return [number(float(v)) for v in np.quantile(values, (0.05, 0.95), method="nearest")]


def compare(rows: list[dict[str, Any]], method: str) -> dict[str, Any] | None:
    """A method against GP-UCB on one table."""
    by = {(row["method"], row["seed"]): row for row in rows}
    seeds = sorted(seed for name, seed in by if name == method and ("gp_ucb", seed) in by)
    if not seeds:
        return None
    ours = np.array([best_by_epoch(by[method, seed]) for seed in seeds])
    theirs = np.array([best_by_epoch(by["gp_ucb", seed]) for seed in seeds])
    single = []
    for seed, mine, other in zip(seeds, ours, theirs, strict=True):
        theirs_at = first_at(other, other[-1])
        if theirs_at > by["gp_ucb", seed]["design"]:
            single.append(first_at(mine, other[-1]) / theirs_at)
    each = np.array(single)
    stops = [stop for seed in seeds for stop in by[method, seed]["stopped"]]
    wrong = [final < best for _, best, final, _ in stops]
    on_the_way = [lowest < best for _, best, _, lowest in stops]
    return {
        "seeds": len(seeds),
        "ratio_of_means": number(ratio_of_means(ours, theirs)),
        "ratio_of_means_90": interval(lambda pick: ratio_of_means(ours[pick], theirs[pick]), len(seeds), 300),
        "ratio_of_seeds": number(float(np.median(each))) if each.size else None,
        "ratio_of_seeds_90": interval(lambda pick: np.median(each[pick]), each.size) if each.size else [None, None],
        "never": int(np.isinf(each).sum()),
        "in_design": len(seeds) - each.size,
        "final": float(ours[:, -1].mean()),
        "final_gp_ucb": float(theirs[:, -1].mean()),
        "runs": float(np.mean([by[method, seed]["trials"] for seed in seeds])),
        "stops": len(stops) / len(seeds),
        "stopped_at": float(np.mean([stop[0] for stop in stops])) if stops else None,
        "mistakes": float(np.mean(wrong)) if stops else 0.0,
        "mistakes_on_the_way": float(np.mean(on_the_way)) if stops else 0.0,
    }


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """{table: {method: comparison with GP-UCB}}"""
    summary: dict[str, Any] = {}
    for name in dict.fromkeys(row["table"] for row in rows):
        mine = [row for row in rows if row["table"] == name]
        found = {method: compare(mine, method) for method in METHODS}
        summary[name] = {method: result for method, result in found.items() if result is not None}
    return summary


def show(summary: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    ratios, mistakes, fewer = {}, {}, {}
    for name, methods in summary.items():
        print(f"\n{name}")
        print(
            "method           seeds  ratio of means [90 %]  ratio of seeds [90 %]  never     final  runs stops  at    mistakes"
        )
        for method, found in methods.items():
            print(_line(method, found))
        if "bo_bos" in methods:
            ratios[name], mistakes[name] = methods["bo_bos"]["ratio_of_means"], methods["bo_bos"]["mistakes"]
        counts = [methods[method]["stops"] for method in GROWTHS if method in methods]
        if len(counts) > 1:
            fewer[name] = bool(counts[0] > counts[-1])
    most = sum(ratio is not None and ratio <= TARGET_RATIO for ratio in ratios.values()) > len(ratios) / 2
    few = all(share <= TARGET_MISTAKES for share in mistakes.values())
    ok = bool(most and few and all(fewer.values()))
    told = {
        "name": "bo_bos_curves",
        "measured": {
            "ratio": ratios,
            "mistakes": mistakes,
            "larger_growth_fewer_stops": fewer,
        },
        "target": {"ratio": f"<= {TARGET_RATIO} on most tables", "mistakes": TARGET_MISTAKES},
        "peers": {"gp_ucb": 1.0},
        "ok": ok,
    }
    return told, ok


def _line(method: str, found: dict[str, Any]) -> str:
    def shown(ratio: float | None) -> str:
        return "never" if ratio is None else f"{ratio:.2f}"

    def spread(name: str) -> str:
        low, high = found[f"{name}_90"]
        return f"{shown(found[name]):>5s} [{shown(low)}, {shown(high)}]".ljust(22)

    at = "-" if found["stopped_at"] is None else f"{found['stopped_at']:.1f}"
    return (
        f"{method:16s} {found['seeds']:4d}   {spread('ratio_of_means')}  {spread('ratio_of_seeds')}  {found['never']:4d}  "
        f"{found['final']:8.4f} {found['runs']:5.1f} {found['stops']:5.1f}  {at:5s} {100 * found['mistakes']:5.1f} %"
    )


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with klein_cnn_cifar10/ and lcbench_surrogate/")
    parser.add_argument(
        "-o", "--out", type=Path, default=HERE.parents[1] / "out" / "bo_bos", help="where studies are kept"
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tables", help="only these, with commas between")
    parser.add_argument("--methods", help="only these, with commas between")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--show", action="store_true")
    chosen = parser.parse_args()
    if chosen.show:
        summary = json.loads(SUMMARY.read_text())
    else:
        raw = chosen.out / "curves.jsonl"
        rows = [] if chosen.quick else read(raw)
        paths = {"resnet": FASHION / "resnet.npz"} if chosen.quick else tables(chosen.data)
        paths = {name: path for name, path in paths.items() if not chosen.tables or name in chosen.tables.split(",")}
        methods = ("gp_ucb", "bo_bos", "k1 fixed", "k1 large") if chosen.quick else tuple(METHODS)
        methods = tuple(m for m in methods if not chosen.methods or m in chosen.methods.split(","))
        done = {(row["table"], row["method"], row["seed"]) for row in rows}
        for seed in range(3 if chosen.quick else chosen.seeds):
            for name, path in paths.items():
                table = Table.load(path, max_steps=MAX_STEPS)
                for method in methods:
                    if (name, method, seed) in done:
                        continue
                    rows.append({"table": name, **study(table, method, seed)})
                    if not chosen.quick:
                        raw.parent.mkdir(parents=True, exist_ok=True)
                        with raw.open("a", encoding="utf-8") as out:
                            out.write(json.dumps(rows[-1]) + "\n")
        summary = summarise(rows)
        if not chosen.quick:
            SUMMARY.parent.mkdir(exist_ok=True)
            SUMMARY.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    told, ok = show(summary)
    print(json.dumps(told))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
