"""Table, figure and verdict of self_tuning.py's runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.online.runs import mean_and_error

Runs = Sequence[dict[str, Any]]
PAPER = {  # test loss, test accuracy, time; VGG16 on CIFAR-10
    "EXP3.S, Ber(0.1)": (0.479, 83.5, 0.93),
    "eps-greedy, Ber(0.1)": (0.438, 85.9, 0.92),
    "Softmax, Ber(0.1)": (0.459, 84.6, 0.93),
    "UCB1, Ber(0.1)": (0.451, 86.7, 0.94),
    "GP-UCB, Ber(0.1)": (0.449, 86.8, 0.96),
    "EXP3.S, Ber(0.2)": (0.455, 84.7, 1.13),
    "eps-greedy, Ber(0.2)": (0.443, 87.3, 1.13),
    "Softmax, Ber(0.2)": (0.480, 85.2, 1.13),
    "UCB1, Ber(0.2)": (0.421, 87.1, 1.13),
    "GP-UCB, Ber(0.2)": (0.439, 87.0, 1.17),
    "CE@0.7": (0.428, 88.1, 1.10),
    "CE@0.8": (0.404, 88.1, 1.21),
}
ORDER = ("never", "5:1", "2:1", "1:1", "1:1 > 2:1", *PAPER)
SHOWN = ("never", "1:1", "1:1 > 2:1", "UCB1, Ber(0.2)", "GP-UCB, Ber(0.2)", "CE@0.7", "CE@0.8")  # as curves


def by_method(runs: Runs) -> dict[str, list[dict[str, Any]]]:
    grouped: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        grouped[run["method"]].append(run)
    return {name: grouped[name] for name in ORDER if name in grouped}


def relative_time(runs: Runs) -> dict[tuple[str, int], float]:
    """Time of each run, by method and seed, over that of 1:1.

    A training step and a tuning step are priced by least squares over all runs, a pass and a decision at their means.
    """
    steps = np.array([[run["plan"]["rounds"] * run["plan"]["steps"], run["tuning_steps"]] for run in runs], dtype=float)
    prices = np.linalg.lstsq(steps, np.array([run["train_s"] for run in runs]), rcond=None)[0]
    passes = sum(run["passes"] for run in runs)
    tuned = [run for run in runs if run["decide_s"] > 0.0]
    pass_s = sum(run["validate_s"] for run in runs) / max(passes, 1)
    decide_s = sum(run["decide_s"] for run in tuned) / max(len(tuned), 1)  # of a whole run
    spent = steps @ prices + [run["passes"] * pass_s + (run["decide_s"] > 0.0) * decide_s for run in runs]
    dense = [float(seconds) for seconds, run in zip(spent, runs, strict=True) if run["method"] == "1:1"]
    unit = float(np.mean(dense)) if dense else np.nan
    return {(run["method"], run["seed"]): float(seconds) / unit for seconds, run in zip(spent, runs, strict=True)}


def tuned_share(run: dict[str, Any]) -> float:
    return sum(arm in "tT" for arm in run["arms"]) / len(run["arms"])


def table(runs: Runs) -> str:
    grouped, times = by_method(runs), relative_time(runs)
    heads = ("method", "validation loss", "accuracy, %", "test loss", "accuracy, %", "rounds tuned", "passes", "time")
    lines = ["| " + " | ".join([*heads, "paper: test, time"]) + " |", "|---" * 9 + "|"]
    for name, some in grouped.items():
        cells = [name]
        for kind in ("validation", "test"):
            cells.append(_pm([run[f"{kind}_loss"] for run in some], 4))
            cells.append(_pm([100.0 * run[kind] for run in some], 2))
        cells.append(f"{np.mean([tuned_share(run) for run in some]):.0%}")
        cells.append(f"{np.mean([run['passes'] for run in some]):.0f}")
        cells.append(f"{np.mean([times[name, run['seed']] for run in some]):.2f}x")
        cells.append("{:.3f}, {:.1f}, {:.2f}x".format(*PAPER[name]) if name in PAPER else "")
        lines.append("| " + " | ".join(cells) + " |")
    n = max(map(len, grouped.values()))
    return "\n".join([*lines, f"\n± standard error over {n} seed{'s' * (n > 1)}; time over that of 1:1."])


def _pm(values: Sequence[float], digits: int) -> str:
    mean, error = mean_and_error(values)
    return f"{mean:.{digits}f}" + ("" if np.isnan(error) else f" ± {error:.{digits}f}")


def judge(runs: Runs) -> dict[str, Any]:
    """The paper's claim: both CE rows have a lower validation loss than every bandit that validates at random."""
    grouped = by_method(runs)
    losses = {
        name: round(float(np.mean([run["validation_loss"] for run in some])), 4) for name, some in grouped.items()
    }
    ce = {name: loss for name, loss in losses.items() if name.startswith("CE")}
    others = {name: loss for name, loss in losses.items() if "Ber(" in name}
    ok = bool(ce and others) and max(ce.values()) < min(others.values())
    target = "validation loss of CE below that of every Bernoulli bandit"
    return {"name": "self_tuning", "measured": losses, "target": target, "ok": ok}


def figure(runs: Runs, path: Path) -> None:
    """Left: validation loss on the way. Middle: loss against time. Right: rounds that were tuned, as the run goes on."""
    from benchmarks.plotting import plt as pyplot

    grouped, times = by_method(runs), relative_time(runs)
    fig, (left, middle, right) = pyplot.subplots(1, 3, figsize=(15, 4.6))
    for name, some in grouped.items():
        style = {"color": f"C{SHOWN.index(name)}" if name in SHOWN else "lightgrey"}
        mean, error = mean_and_error([run["test_loss"] for run in some])
        time = np.mean([times[name, run["seed"]] for run in some])
        middle.errorbar(time, mean, yerr=0.0 if np.isnan(error) else error, fmt="o", capsize=3, **style)
        if name not in SHOWN:
            continue
        at = [round for round, _, _ in some[0]["watched"]]
        left.plot(at, np.mean([[loss for _, loss, _ in run["watched"]] for run in some], axis=0), label=name, **style)
        tuned = np.mean([[arm in "tT" for arm in run["arms"]] for run in some], axis=0)
        window = max(1, len(tuned) // 12)
        smooth = np.convolve(tuned, np.full(window, 1 / window), mode="valid")
        right.plot(np.arange(len(smooth)) + window / 2, smooth, label=name, **style)
    left.set(xlabel="round", ylabel="validation loss", yscale="log", title="on the way")
    left.set_yticks(ticks := [0.2, 0.25, 0.3, 0.4, 0.5], [f"{tick:g}" for tick in ticks])
    left.minorticks_off()
    middle.set(xlabel="time over that of 1:1", ylabel="test loss", title="at the end (± s.e.)")
    right.set(xlabel="round", ylabel="share of rounds with tuning", title=f"when it is tuned (mean of {window} rounds)")
    left.legend(fontsize=8)
    middle.plot([], [], "o", color="lightgrey", label="other schedules and bandits")
    middle.legend(fontsize=8)
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
    fig.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path)
    pyplot.close(fig)
