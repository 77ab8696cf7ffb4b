"""What the freeze-thaw belief gets right and wrong on recorded curves: coverage and order of its predictions.

    python -m benchmarks bhpt.belief_quality -o out/bhpt [--data FOLDER ...] [--seeds 3]
    python -m benchmarks bhpt.belief_quality -o out/quick --quick

Every arm is shown up to a few steps (1, 2, 5, 10, 20), unequally as a tuner leaves them; then the belief predicts the
step 1, 5, 10 ahead and the last one. Reported: share of true losses inside the central 50 % and 90 % intervals (0.5 and
0.9 would be right), median error in predicted standard deviations (0 would be right), and the rank correlation of
predicted and true losses over arms, beside that of simply taking each arm's last loss. Three beliefs: the paper's on plain
losses, the same on logarithms of the losses, and on plain losses with a prior whose curves fall (`falling`).
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

from benchmarks.bhpt.problems import Table, recorded
from benchmarks.bhpt.racing import read, write
from benchmarks.bhpt.real import LEAST_STEPS, OWN
from shoestring.models.freeze_thaw.curve_posterior import FreezeThawBelief
from shoestring.models.freeze_thaw.curves import Curves
from shoestring.models.freeze_thaw.fit import CurvePrior, LogPosterior, sample_parameters
from shoestring.models.loss_scaling import fit_scaling

SHOWN = (1, 2, 5, 10, 20)
AHEAD = (1, 5, 10, None)  # None: the last step
BELIEFS = ("plain", "log", "falling")
COLUMNS = ("inside_50", "inside_90", "bias", "order", "order_of_last_losses")
SAMPLES = 10


def measure(table: Table, seed: int, most: int, kind: str) -> Iterator[dict[str, Any]]:
    """One row for each distance ahead, when arms are shown between half of `most` and `most` steps."""
    losses, n = table.losses, table.losses.shape[1]
    rng = np.random.default_rng([seed, most])
    shown = np.maximum(1, rng.integers(most // 2, most + 1, len(losses)))
    seen = np.where(np.arange(n) < shown[:, None], losses, np.nan)
    scale = fit_scaling(seen, ~np.isnan(seen), log=kind == "log")
    curves = Curves.of(np.where(np.isnan(seen), np.nan, scale.apply(seen)))
    posterior = LogPosterior(curves, CurvePrior.of(curves, falling=kind == "falling"))
    samples = sample_parameters(posterior, rng, SAMPLES, burn_in=30)
    beliefs = [FreezeThawBelief.given(curves, p).predict() for p in samples]
    mean, variance = np.stack([m for m, _ in beliefs]), np.stack([v for _, v in beliefs])
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
            "belief": kind,
            "shown": most,
            "ahead": "horizon" if ahead is None else ahead,
            "arms": len(keep),
            "inside_50": float(np.mean(np.abs(z) < ndtri(0.75))),
            "inside_90": float(np.mean(np.abs(z) < ndtri(0.95))),
            "bias": float(np.median(z)),
            "order": float(spearmanr(centre[keep, at[keep]], truth)[0]),
            "order_of_last_losses": float(spearmanr(last, truth)[0]),
        }


def runs(asked: argparse.Namespace, folder: Path, have: set[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    wanted = asked.tables.split(",") if asked.tables else None
    for seed in range(asked.seeds):
        for file in sorted(folder.glob("*.npz")):
            if wanted is not None and file.stem not in wanted:
                continue
            table = recorded(file, asked.arms, asked.steps, seed)
            for most in (s for s in SHOWN if LEAST_STEPS <= table.losses.shape[1] > s):
                for kind in BELIEFS:
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
    asked = parser.parse_args()
    if asked.quick:
        asked.seeds, asked.tables = 1, asked.tables or "resnet_alexnet"
    from benchmarks.bhpt.figures import belief_figure

    for folder in asked.data:
        path = asked.out / f"belief_{folder.name}.jsonl"
        write(path, runs(asked, folder, {(r["table"], r["seed"], r["shown"], r["belief"]) for r in read(path)}))
        rows = [r for r in read(path) if r["seed"] < asked.seeds]
        summary = show(rows)
        belief_figure(rows, asked.out, folder.name)
        print(json.dumps({"name": "bhpt_belief", "measured": summary, "target": None, "data": folder.name, "ok": True}))


def show(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    summary = {}
    for kind in BELIEFS:
        print(f"\n{kind:10}{'shown':>14}{'ahead':>9}" + "".join(f"{c:>22}" for c in COLUMNS))
        for shown in SHOWN:
            for ahead in (1, 5, 10, "horizon"):
                found = [r for r in rows if r["belief"] == kind and r["shown"] == shown and r["ahead"] == ahead]
                if found:
                    means = {c: round(float(np.nanmean([r[c] for r in found])), 3) for c in COLUMNS}
                    print(f"{shown:>24}{ahead:>9}" + "".join(f"{v:>22}" for v in means.values()))
                    summary[f"{kind}, {shown} shown, {ahead} ahead"] = means
    return summary


if __name__ == "__main__":
    main()
