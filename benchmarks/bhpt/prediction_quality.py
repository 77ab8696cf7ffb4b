"""Quality of the freeze-thaw predictions on recorded curves: coverage and order.

    python -m benchmarks bhpt.prediction_quality -o out/bhpt [--data FOLDER ...] [--seeds 3]
    python -m benchmarks bhpt.prediction_quality -o out/quick --quick

The first steps of every arm are given, at most 1, 2, 5, 10 or 20, and not equally many, as in a study. The model predicts the
loss 1, 5 and 10 steps later and at the last step. Reported are: the share of true losses inside the central 50 % and 90 %
intervals (ideally 0.5 and 0.9), the median error in predicted standard deviations (ideally 0), and the rank correlation of
predicted and true losses over arms, beside that of the last observed losses. There are three models: the paper's on losses
(plain), on logarithms of losses (log), and on losses with a falling prior mean (falling).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import spearmanr

from benchmarks.bhpt.problems import Table, load_table
from benchmarks.bhpt.racing import read, write
from benchmarks.bhpt.real import LEAST_STEPS, OWN
from shoestring.models.freeze_thaw.arm_curves import Curves
from shoestring.models.freeze_thaw.curve_posterior import FreezeThawPosterior
from shoestring.models.freeze_thaw.parameter_fit import CurvePrior, LogPosterior, sample_parameters
from shoestring.models.loss_scaling import fit_scaling

OBSERVED_STEPS = (1, 2, 5, 10, 20)
AHEAD = (1, 5, 10, None)  # None: the last step
MODELS = ("plain", "log", "falling")
COLUMNS = ("inside_50", "inside_90", "bias", "order", "order_of_last_losses")
SAMPLES = 10


def measure(table: Table, seed: int, most: int, kind: str) -> Iterator[dict[str, Any]]:
    """Yield one row per prediction distance, if between half of `most` and `most` steps of each arm are given."""
    losses, n = table.losses, table.losses.shape[1]
    rng = np.random.default_rng([seed, most])
    shown = np.maximum(1, rng.integers(most // 2, most + 1, len(losses)))
    seen = np.where(np.arange(n) < shown[:, None], losses, np.nan)
    scale = fit_scaling(seen, ~np.isnan(seen), log=kind == "log")
    curves = Curves.of(np.where(np.isnan(seen), np.nan, scale.apply(seen)))
    posterior = LogPosterior(curves, CurvePrior.of(curves, falling=kind == "falling"))
    samples = sample_parameters(posterior, rng, SAMPLES, burn_in=30)
    predictions = [FreezeThawPosterior.from_curves(curves, p).predict() for p in samples]
    mean, variance = np.stack([m for m, _ in predictions]), np.stack([v for _, v in predictions])
    noise = np.array([p.noise for p in samples])[:, None, None]
    centre = mean.mean(axis=0)
    spread = np.sqrt((variance + noise).mean(axis=0) + mean.var(axis=0))
    for ahead in AHEAD:
        at = np.full(len(losses), n - 1) if ahead is None else shown + ahead - 1
        keep = np.flatnonzero(at < n)
        keep = keep[np.isfinite(losses[keep, at[keep]])]
        truth = losses[keep, at[keep]]
        z = (scale.apply(truth) - centre[keep, at[keep]]) / spread[keep, at[keep]]
        last = losses[keep, shown[keep] - 1]
        yield {
            "table": table.name,
            "seed": seed,
            "model": kind,
            "shown": most,
            "ahead": "horizon" if ahead is None else ahead,
            "arms": len(keep),
            "inside_50": float(np.mean(np.abs(z) < ndtri(0.75))),
            "inside_90": float(np.mean(np.abs(z) < ndtri(0.95))),
            "bias": float(np.median(z)),
            "order": float(spearmanr(centre[keep, at[keep]], truth)[0]),
            "order_of_last_losses": float(spearmanr(last, truth)[0]),
        }


def runs(options: argparse.Namespace, folder: Path, have: set[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    wanted = options.tables.split(",") if options.tables else None
    for seed in range(options.seeds):
        for file in sorted(folder.glob("*.npz")):
            if wanted is not None and file.stem not in wanted:
                continue
            table = load_table(file, options.arms, options.steps, seed)
            for most in (s for s in OBSERVED_STEPS if LEAST_STEPS <= table.losses.shape[1] > s):
                for kind in MODELS:
                    if (table.name, seed, most, kind) not in have:
                        yield from measure(table, seed, most, kind)
            print(f"seed {seed} {table.name}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, nargs="+", default=[OWN], help="folders of npz tables")
    parser.add_argument("--tables", default="", help="names of the tables; default: all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--arms", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="one seed, one table")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.tables = 1, options.tables or "resnet_alexnet"
    from benchmarks.bhpt.figures import prediction_figure

    for folder in options.data:
        path = options.out / f"predictions_{folder.name}.jsonl"
        write(path, runs(options, folder, {(r["table"], r["seed"], r["shown"], r["model"]) for r in read(path)}))
        rows = [r for r in read(path) if r["seed"] < options.seeds]
        summary = show(rows)
        prediction_figure(rows, options.out, folder.name)
        print(
            json.dumps(
                {"name": "bhpt_predictions", "measured": summary, "target": None, "data": folder.name, "ok": True}
            )
        )


def show(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    summary = {}
    for kind in MODELS:
        print(f"\n{kind:10}{'shown':>14}{'ahead':>9}" + "".join(f"{c:>22}" for c in COLUMNS))
        for shown in OBSERVED_STEPS:
            for ahead in (1, 5, 10, "horizon"):
                found = [r for r in rows if r["model"] == kind and r["shown"] == shown and r["ahead"] == ahead]
                if found:
                    means = {c: round(float(np.nanmean([r[c] for r in found])), 3) for c in COLUMNS}
                    print(f"{shown:>24}{ahead:>9}" + "".join(f"{v:>22}" for v in means.values()))
                    summary[f"{kind}, {shown} shown, {ahead} ahead"] = means
    return summary


if __name__ == "__main__":
    main()
