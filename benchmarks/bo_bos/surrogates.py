"""Comparison of four surrogates: how well their means and bounds order untried configurations.

    python -m benchmarks bo_bos.surrogates [--data DIR] [--repeats 10]     results/surrogates.json, about two minutes
    python -m benchmarks bo_bos.surrogates --quick                         two tables, 2 repeats, nothing is written

30 random configurations of a table are observed: 10 are trained in full and 20 stopped at a random step from 9 to 25 of 50, as
in a study with stopping. There is no search and no stopping rule, only the fit of the surrogate.

    truth             surrogate of final losses, with the true ends of stopped runs: the best possible with these data
    ends              the same, with the best observed losses of stopped runs (the default of the policy)
    lengths           surrogate of configurations and lengths, with the first step, every fifth of a training and the last step
    lengths, last     the same, with the last step only

    order of means    rank correlation of predicted mean and true end over all other configurations; 1 is perfect
    order of bounds   the same for the confidence bound, with the multiplier of the 24th run after the design
    exploration       standard deviation over configurations of multiplier * std, divided by that of the mean: the weight of
                      exploration in the bound
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: threads slow down small matrices

import argparse
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from benchmarks.bo_bos.curves import HERE, OWN, tables
from shoestring.policies.config_table import ConfigTable
from shoestring.policies.stopping.surrogate import Observation, fit_surrogate
from shoestring.policies.stopping.ucb_search import multiplier
from shoestring.runners.simulated.recorded_table import Table

SUMMARY = HERE / "results" / "surrogates.json"
KNOWN, FULL, RUN = 30, 10, 24
STOPS = (9, 26)  # of 50 steps: first, and one past the last


def measure(table: Table, repeats: int) -> dict[str, dict[str, float]]:
    """Return {surrogate: the three numbers, means over repeats}."""
    steps, sign = table.max_steps, 1.0 if table.direction == "min" else -1.0
    losses = sign * table.values
    whole = np.flatnonzero(np.isfinite(losses).all(axis=1))
    best = np.minimum.accumulate(losses[whole], axis=1)  # (configs, steps)
    configs = [table.configs[row] for row in whole]
    found: dict[str, list[tuple[float, ...]]] = {}
    for repeat in range(repeats):
        rng = np.random.default_rng(repeat)
        order = rng.permutation(len(whole))
        known, others = order[:KNOWN], order[KNOWN:]
        stop = rng.integers(STOPS[0] * steps // 50, STOPS[1] * steps // 50, size=KNOWN)
        stop[:FULL] = steps
        view = ConfigTable(table.space())
        for row in known:
            view.add(configs[row])
        rest = view.encoding.points([configs[row] for row in others])
        weight = multiplier("practical", table.space().dims, RUN, len(others))
        for name, (seen, lengths) in observations_of(best[known], stop).items():
            ledger: Any = SimpleNamespace(memo={}, max_steps=steps)  # the parts of a ledger that a surrogate reads
            surrogate = fit_surrogate(ledger, view, seen, lengths=lengths, refit_every=1)
            mean, std = surrogate.predict(rest)
            found.setdefault(name, []).append(
                (
                    float(spearmanr(mean, best[others, -1]).statistic),
                    float(spearmanr(mean - weight * std, best[others, -1]).statistic),
                    float(np.std(weight * std) / np.std(mean)),
                )
            )
    keys = ("order_of_means", "order_of_bounds", "exploration")
    return {
        name: dict(zip(keys, np.round(np.nanmean(rows, axis=0), 3).tolist(), strict=True))
        for name, rows in found.items()
    }


def observations_of(best: NDArray[np.float64], stop: NDArray[np.int64]) -> dict[str, tuple[list[Observation], bool]]:
    """Return the observations of each surrogate for curves (configurations, steps) up to `stop`, and whether it has lengths."""
    steps = best.shape[1]
    marks = {1, *(math.ceil(i * steps / 5) for i in range(1, 5))}

    def observe_at(row: int, step: int) -> Observation:
        return Observation(row, step / steps, float(best[row, step - 1]))

    rows = range(len(best))
    return {
        "truth": ([Observation(row, 1.0, float(best[row, -1])) for row in rows], False),
        "ends": ([observe_at(row, stop[row]) for row in rows], False),
        "lengths": (
            [observe_at(row, n) for row in rows for n in sorted(marks | {int(stop[row])}) if n <= stop[row]],
            True,
        ),
        "lengths, last": ([observe_at(row, stop[row]) for row in rows], True),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with further tables, as for curves.py")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    paths = {"resnet": OWN[0] / "resnet.npz", "fcnet": OWN[0] / "fcnet.npz"} if options.quick else tables(options.data)
    summary: dict[str, Any] = {}
    for name, path in paths.items():
        table = Table.load(path, max_steps=50)
        if len(table.configs) < 2 * KNOWN or table.max_steps < 40:
            continue
        summary[name] = measure(table, 2 if options.quick else options.repeats)
        print(f"\n{name:24s} order of means  order of bounds  exploration")
        for kind, numbers in summary[name].items():
            print(f"  {kind:22s}" + "".join(f"{value:13.2f}   " for value in numbers.values()), flush=True)
    if not options.quick:
        SUMMARY.parent.mkdir(exist_ok=True)
        SUMMARY.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    kinds = {kind for found in summary.values() for kind in found}
    measured = {
        kind: {
            key: round(float(np.mean([found[kind][key] for found in summary.values()])), 3)
            for key in ("order_of_means", "order_of_bounds", "exploration")
        }
        for kind in sorted(kinds)
    }
    ok = measured["ends"]["order_of_bounds"] >= measured["lengths"]["order_of_bounds"]
    target = "the bound of ends orders configs no worse than that of lengths"
    print(json.dumps({"name": "bo_bos_surrogates", "measured": measured, "target": target, "ok": ok}))
    return 0 if ok or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
