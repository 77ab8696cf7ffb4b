"""What the freeze-thaw belief gets right and wrong on recorded curves: coverage and order of its predictions.

    python benchmarks/bhpt/belief_quality.py -o out/bhpt [--data FOLDER] [--seeds 3]

Every arm is shown up to a few steps (1, 2, 5, 10, 20), unequally as a tuner leaves them; then the belief predicts the
step 1, 5, 10 ahead and the last one. Reported: share of true losses inside the central 50 % and 90 % intervals (0.5 and
0.9 would be right), and the rank correlation of predicted and true losses over arms, beside that of simply taking each
arm's last loss.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from problems import recorded
from racing import write
from real import OWN
from scipy.special import ndtri
from scipy.stats import spearmanr

from shoestring.models.freeze_thaw import Belief
from shoestring.models.freeze_thaw_curves import Curves
from shoestring.models.freeze_thaw_fit import LogPosterior, Prior, sample_parameters
from shoestring.models.loss_scaling import scaling

SHOWN = (1, 2, 5, 10, 20)
AHEAD = (1, 5, 10, None)  # None: the last step
SAMPLES = 10


def measure(path: Path, seed: int, steps: int, arms: int, log: bool) -> list[dict[str, Any]]:
    table = recorded(path, arms, steps, seed)
    losses, n = table.losses, table.losses.shape[1]
    rng = np.random.default_rng(seed)
    rows = []
    for most in (s for s in SHOWN if s < n):
        shown = np.maximum(1, rng.integers(most // 2, most + 1, len(losses)))
        seen = np.where(np.arange(n) < shown[:, None], losses, np.nan)
        scale = scaling(seen, ~np.isnan(seen), log=log)
        curves = Curves.of(np.where(np.isnan(seen), np.nan, scale.apply(seen)))
        samples, _ = sample_parameters(LogPosterior(curves, Prior.of(curves)), rng, SAMPLES, burn_in=30)
        beliefs = [Belief.given(curves, p).predict() for p in samples]
        mean, variance = np.stack([m for m, _ in beliefs]), np.stack([v for _, v in beliefs])
        noise = np.array([p.noise for p in samples])[:, None, None]
        centre = mean.mean(axis=0)
        spread = np.sqrt((variance + noise).mean(axis=0) + mean.var(axis=0))
        for ahead in AHEAD:
            at = np.full(len(losses), n - 1) if ahead is None else shown + ahead - 1
            keep = np.flatnonzero(at < n)
            truth = losses[keep, at[keep]]
            z = (scale.apply(truth) - centre[keep, at[keep]]) / spread[keep, at[keep]]
            last = losses[keep, shown[keep] - 1]
            rows.append(
                {
                    "table": table.name,
                    "seed": seed,
                    "log": log,
                    "shown": most,
                    "ahead": "horizon" if ahead is None else ahead,
                    "arms": len(keep),
                    "inside_50": float(np.mean(np.abs(z) < ndtri(0.75))),
                    "inside_90": float(np.mean(np.abs(z) < ndtri(0.95))),
                    "bias": float(np.median(z)),
                    "order": float(spearmanr(centre[keep, at[keep]], truth)[0]),
                    "order_of_last_losses": float(spearmanr(last, truth)[0]),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=OWN)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--arms", type=int, default=200)
    asked = parser.parse_args()
    path = asked.out / f"belief_{asked.data.name}.jsonl"
    path.unlink(missing_ok=True)
    rows = write(
        path,
        (
            row
            for seed in range(asked.seeds)
            for file in sorted(asked.data.glob("*.npz"))
            for log in (False, True)
            for row in measure(file, seed, asked.steps, asked.arms, log)
        ),
    )
    columns = ("inside_50", "inside_90", "bias", "order", "order_of_last_losses")
    summary = {}
    for log in (False, True):
        print(f"\n{'log' if log else 'plain'} losses{'shown':>14}{'ahead':>9}" + "".join(f"{c:>22}" for c in columns))
        for shown in SHOWN:
            for ahead in (1, 5, 10, "horizon"):
                found = [r for r in rows if r["log"] == log and r["shown"] == shown and r["ahead"] == ahead]
                if found:
                    means = {c: round(float(np.nanmean([r[c] for r in found])), 3) for c in columns}
                    print(f"{shown:>24}{ahead:>9}" + "".join(f"{v:>22}" for v in means.values()))
                    summary[f"{'log' if log else 'plain'}, {shown} shown, {ahead} ahead"] = means
    from figures import belief_figure

    belief_figure(rows, asked.out, asked.data.name)
    told = {"name": "bhpt_belief", "measured": summary, "target": None, "peers": "order_of_last_losses", "ok": True}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
