"""The table, figure and verdict of the runs of contrastive.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import markdown
from benchmarks.online.runs import mean_and_error, plus_minus

Runs = Sequence[dict[str, Any]]
ORDER = ("baseline", "TV-GP-UCB", "Ber(0.6)", "CE@0.9", "CE@0.8", "CE@0.7", "CE@0.6", "expert")
PAPER = {  # accuracy after the long read-out, time; ImageNet100, ResNet-50
    "baseline": (73.20, 1.00),
    "TV-GP-UCB": (77.95, 1.97),
    "Ber(0.6)": (75.31, 1.64),
    "CE@0.9": (77.56, 1.88),
    "CE@0.8": (77.62, 1.71),
    "CE@0.7": (77.27, 1.61),
    "expert": (77.99, None),
}
MIN_GAIN_SHARE, MAX_PASS_SHARE = 0.9, 0.6  # the claim: this share of the gain at this share of the passes


def by_method(runs: Runs) -> dict[str, dict[int, dict[str, Any]]]:
    grouped: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for run in runs:
        grouped[run["method"]][run["seed"]] = run
    return {name: grouped[name] for name in ORDER if name in grouped}


def gains(
    grouped: dict[str, dict[int, dict[str, Any]]], name: str, over: str = "baseline", beside: str | None = None
) -> list[float]:
    """Return the difference in test accuracy from another method with the same seed, in percentage points.

    A third method limits the seeds to those that it has.
    """
    seeds = sorted(set(grouped[name]) & set(grouped.get(over, {})) & set(grouped[beside or name]))
    return [100.0 * (grouped[name][seed]["test"] - grouped[over][seed]["test"]) for seed in seeds]


def table(runs: Runs) -> str:
    grouped = by_method(runs)
    heads = ["method", "seeds", "test accuracy, %", "over the baseline", "quick read-out, %", "passes", "time"]
    rows = []
    for name, of_seed in grouped.items():
        some = list(of_seed.values())
        spent = [sum(run[f"{kind}_s"] for kind in ("decide", "train", "validate")) / run["train_s"] for run in some]
        cells = [
            name,
            str(len(some)),
            plus_minus([100.0 * run["test"] for run in some], 2),
            "" if name == "baseline" else plus_minus(gains(grouped, name), 2, sign="+"),
            plus_minus([100.0 * run["test_quick"] for run in some], 2),
            f"{np.mean([run['passes'] for run in some]):.0f}",
            f"{np.mean(spent):.2f}x",
            _paper_cell(name),
        ]
        rows.append(cells)
    shown = markdown.table([*heads, "paper: accuracy, time"], rows)
    return f"{shown}\n\n± standard error over seeds; time over the time of training alone."


def _paper_cell(name: str) -> str:
    if name not in PAPER:
        return ""
    accuracy, times = PAPER[name]
    return f"{accuracy:.2f}" + (f", {times:.2f}x" if times else "")


def judge(runs: Runs) -> dict[str, Any]:
    """Judge the share of the full-query gain that each CE run keeps (None: there is none), and its share of the passes."""
    grouped = by_method(runs)
    verdict: dict[str, Any] = {"name": "contrastive", "measured": {}}
    verdict["target"] = (
        f"a kappa keeps {MIN_GAIN_SHARE:.0%} of the full-query gain for {MAX_PASS_SHARE:.0%} of its passes or fewer"
    )
    full = gains(grouped, "TV-GP-UCB") if "TV-GP-UCB" in grouped else []
    if not full:
        return verdict | {"ok": False}
    verdict["measured"]["full_gain"] = round(float(np.mean(full)), 3)
    all_passes = np.mean([run["passes"] for run in grouped["TV-GP-UCB"].values()])
    ok = False
    for name, of_seed in grouped.items():
        if name in ("baseline", "TV-GP-UCB", "expert"):
            continue
        behind = gains(grouped, name, over="TV-GP-UCB")
        there = float(np.mean(gains(grouped, "TV-GP-UCB", beside=name)))
        gain_share = float(np.mean(gains(grouped, name, beside="TV-GP-UCB")) / there) if there > 0.0 else None
        passes = float(np.mean([run["passes"] for run in of_seed.values()]) / all_passes)
        over_full, error = mean_and_error(behind)
        verdict["measured"][name] = {
            "gain_share": None if gain_share is None else round(gain_share, 3),
            "passes": round(passes, 3),
            "over_full": round(over_full, 3),
            "over_full_se": None if np.isnan(error) else round(error, 3),
        }
        if name.startswith("CE") and gain_share is not None:
            ok |= gain_share >= MIN_GAIN_SHARE and passes <= MAX_PASS_SHARE
    return verdict | {"ok": ok}


def effects(runs: Runs) -> str:
    """Return the effects on the gain in one round: least squares over pairs of validated rounds of all tuned runs."""
    rows = []
    for run in runs:
        values = {round: 100.0 * value for round, value in run["validated"]}
        for round in sorted(values):
            if round - 1 in values:
                level, config = values[round - 1], np.array(run["configs"][round - 1])
                rows.append((round / run["plan"]["rounds"], values[round] - level, level, config))
    names = [*runs[0]["names"], "level before"]
    quarters: dict[str, list[str]] = {
        name: [] for name in ("pairs of rounds", *names, "explained", "left over, points")
    }
    for quarter in range(4):
        some = [row for row in rows if quarter / 4 < row[0] <= (quarter + 1) / 4]
        gain = np.array([row[1] for row in some])
        inputs = np.array([[1.0, *row[3], row[2]] for row in some]).reshape(-1, len(names) + 1)
        quarters["pairs of rounds"].append(str(len(some)))
        if len(some) <= 2 * inputs.shape[1]:
            for name in (*names, "explained", "left over, points"):
                quarters[name].append("")
            continue
        slopes, *_ = np.linalg.lstsq(inputs, gain, rcond=None)
        left = gain - inputs @ slopes
        variance = left @ left / (len(gain) - len(slopes))
        errors = np.sqrt(variance * np.diag(np.linalg.pinv(inputs.T @ inputs)))
        for name, slope, error in zip(names, slopes[1:], errors[1:], strict=True):
            quarters[name].append(f"{slope:+.2f} ± {error:.2f}")
        quarters["explained"].append(f"{1.0 - left.var() / gain.var():.0%}")
        quarters["left over, points"].append(f"{np.sqrt(variance):.2f}")
    heads = ["points gained in a round, by", "first quarter", "second", "third", "last"]
    return markdown.table(heads, [[name, *cells] for name, cells in quarters.items()])


def figure(runs: Runs, path: Path) -> None:
    """Draw accuracy during the run, accuracy against passes, and the final probabilities of each tuned method."""
    from benchmarks.plotting import plt as pyplot

    grouped = by_method(runs)
    left_out = runs[0].get("plan", {}).get("without", ())
    shown = [i for i, name in enumerate(runs[0]["names"]) if name not in left_out]
    names = [runs[0]["names"][i] for i in shown]
    fig, (left, middle, right) = pyplot.subplots(1, 3, figsize=(15, 4.6), width_ratios=(1.1, 1, 1.3))
    tuned = [name for name in grouped if name not in ("baseline", "expert")]
    for i, (name, of_seed) in enumerate(grouped.items()):
        colour, some = f"C{i}", list(of_seed.values())
        at = [round for round, _ in some[0]["watched"]]
        seen = np.mean([[100.0 * value for _, value in run["watched"]] for run in some], axis=0)
        left.plot(at, seen, color=colour, label=name, linestyle=":" if name not in tuned else "-")
        mean, error = mean_and_error([100.0 * run["test"] for run in some])
        passes = np.mean([run["passes"] for run in some])
        middle.errorbar(
            passes, mean, yerr=0.0 if np.isnan(error) else error, fmt="o", color=colour, capsize=3, label=name
        )
        if name in tuned:
            last = [np.mean(run["configs"][-len(run["configs"]) // 4 :], axis=0)[shown] for run in some]
            where = np.arange(len(names)) + 0.16 * (tuned.index(name) - (len(tuned) - 1) / 2)
            right.bar(where, np.mean(last, axis=0), width=0.15, color=colour, label=name)
    left.set(xlabel="round", ylabel="validation accuracy of the quick read-out, %", title="on the way")
    middle.set(xlabel="validation passes", ylabel="test accuracy of the long read-out, %", title="at the end (± s.e.)")
    right.axhline(0.5, color="grey", linewidth=0.8)
    right.set_xticks(range(len(names)), [name.replace("_", "\n") for name in names], fontsize=8)
    right.set(ylabel="probability", title="augmentations, mean of the last quarter of the rounds")
    left.legend(fontsize=8)
    for axes in (left, middle):
        axes.grid(alpha=0.3)
    fig.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, metadata={"Date": None})
    pyplot.close(fig)
