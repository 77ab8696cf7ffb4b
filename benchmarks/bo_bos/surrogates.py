"""Why the choice of the surrogate matters: how well four of them, and the bounds made of them, order configs not yet tried.

    python -m benchmarks bo_bos.surrogates [--data DIR] [--repeats 10]     results/surrogates.json, two minutes or so
    python -m benchmarks bo_bos.surrogates --quick                         two tables, 2 repeats, nothing written

30 random configs of a table are known, 10 of them trained in full and 20 stopped at a random step from 9 to 25 of 50 (those of
a stopped study): no search, no stopping rule, only what a surrogate makes of such data.

    truth             a surrogate of ends, told how stopped runs would have ended: what can be had from these configs
    ends              the same, with what stopped runs had reached in its place (the default of the policy)
    lengths           configs and lengths of training, told the first step, every fifth of a training and the last step (paper)
    lengths, last     the same, told the last step only

    order of means    rank correlation of the predicted mean with the true end, over all other configs: 1 is perfect
    order of bounds   the same of the bound that the search goes by, multiplier of the 24th run after the design
    exploration       deviation over those configs of multiplier * std, over that of the mean: what the bound listens to
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: small matrices, threads only get in the way

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
    """{surrogate: the three numbers, means over repeats}"""
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
            view.open(configs[row])
        rest = view.encoding.points([configs[row] for row in others])
        weight = multiplier("practical", table.space().dims, RUN, len(others))
        for name, (seen, lengths) in observed(best[known], stop).items():
            ledger: Any = SimpleNamespace(memo={}, max_steps=steps)  # all of a ledger that a surrogate looks at
            belief = fit_surrogate(ledger, view, seen, lengths=lengths, refit_every=1)
            mean, std = belief.predict(rest)
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


def observed(best: NDArray[np.float64], stop: NDArray[np.int64]) -> dict[str, tuple[list[Observation], bool]]:
    """What each surrogate is told of curves (configs, steps) seen up to `stop`, and whether lengths are an input."""
    steps = best.shape[1]
    marks = {1, *(math.ceil(i * steps / 5) for i in range(1, 5))}

    def told(row: int, step: int) -> Observation:
        return Observation(row, step / steps, float(best[row, step - 1]))

    rows = range(len(best))
    return {
        "truth": ([Observation(row, 1.0, float(best[row, -1])) for row in rows], False),
        "ends": ([told(row, stop[row]) for row in rows], False),
        "lengths": ([told(row, n) for row in rows for n in sorted(marks | {int(stop[row])}) if n <= stop[row]], True),
        "lengths, last": ([told(row, stop[row]) for row in rows], True),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with further tables, as for curves.py")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    paths = {"resnet": OWN[0] / "resnet.npz", "fcnet": OWN[0] / "fcnet.npz"} if asked.quick else tables(asked.data)
    summary: dict[str, Any] = {}
    for name, path in paths.items():
        table = Table.load(path, max_steps=50)
        if len(table.configs) < 2 * KNOWN or table.max_steps < 40:
            continue
        summary[name] = measure(table, 2 if asked.quick else asked.repeats)
        print(f"\n{name:24s} order of means  order of bounds  exploration")
        for kind, numbers in summary[name].items():
            print(f"  {kind:22s}" + "".join(f"{value:13.2f}   " for value in numbers.values()), flush=True)
    if not asked.quick:
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
    return 0 if ok or asked.quick else 1


if __name__ == "__main__":
    sys.exit(main())
