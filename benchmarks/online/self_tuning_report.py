"""The tables, figure and verdict of the race of few_images.py, between schedules of tuning steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import markdown
from benchmarks.online.runs import mean_and_error, plus_minus

Runs = Sequence[dict[str, Any]]
PAPER = {  # test loss, test accuracy, time; VGG16 on CIFAR-10
    "EXP3.S, Ber(0.2)": (0.455, 84.7, 1.13),
    "UCB1, Ber(0.2)": (0.421, 87.1, 1.13),
    "GP-UCB, Ber(0.2)": (0.439, 87.0, 1.17),
    "CE@0.7": (0.428, 88.1, 1.10),
    "CE@0.8": (0.404, 88.1, 1.21),
}
CONSTANT = ("never", "5:1", "2:1", "1:1")
ORDER = (*CONSTANT, "1:1 > 2:1", *PAPER)
CURVE_METHODS = ("never", "2:1", "1:1", "EXP3.S, Ber(0.2)", "CE@0.7", "CE@0.8")  # as curves


def by_method(runs: Runs) -> dict[str, list[dict[str, Any]]]:
    grouped: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        grouped[run["method"]].append(run)
    return {name: grouped[name] for name in ORDER if name in grouped}


def relative_time(runs: Runs) -> dict[tuple[str, int], float]:
    """Return the time of each run, by method and seed, divided by that of 1:1.

    The prices of a training step and a tuning step come from least squares over all runs, those of a pass and a decision are
    means.
    """
    steps = np.array([[run["plan"]["rounds"] * run["plan"]["steps"], run["tuning_steps"]] for run in runs], dtype=float)
    prices = np.linalg.lstsq(steps, np.array([run["train_s"] for run in runs]), rcond=None)[0]
    passes = sum(run["passes"] for run in runs)
    tuned = [run for run in runs if run["decide_s"] > 0.0]
    pass_s = sum(run["validate_s"] for run in runs) / max(passes, 1)
    decide_s = sum(run["decide_s"] for run in tuned) / max(len(tuned), 1)  # of all decisions of a run
    spent = steps @ prices + [run["passes"] * pass_s + (run["decide_s"] > 0.0) * decide_s for run in runs]
    dense = [float(seconds) for seconds, run in zip(spent, runs, strict=True) if run["method"] == "1:1"]
    unit = float(np.mean(dense)) if dense else np.nan
    return {(run["method"], run["seed"]): float(seconds) / unit for seconds, run in zip(spent, runs, strict=True)}


def tuned_share(run: dict[str, Any]) -> float:
    return sum(arm in "tT" for arm in run["arms"]) / len(run["arms"])


def mean_dropout(run: dict[str, Any]) -> float:
    """Return the mean dropout of all layers at the end of the run."""
    is_dropout = [name.startswith("dropout") for name in run["hyper_names"]]
    return float(np.mean(np.array(run["hyper"][-1])[is_dropout]))


def table(runs: Runs) -> str:
    grouped, times = by_method(runs), relative_time(runs)
    heads = ["method", "validation loss", "accuracy, %", "test loss", "accuracy, %", "mean dropout at the end"]
    heads += ["rounds tuned", "passes", "time", "paper: test, time"]
    rows = []
    for name, some in grouped.items():
        cells = [name]
        for kind in ("validation", "test"):
            cells.append(plus_minus([run[f"{kind}_loss"] for run in some], 4))
            cells.append(plus_minus([100.0 * run[kind] for run in some], 2))
        cells.append(f"{np.mean([mean_dropout(run) for run in some]):.2f}")
        cells.append(f"{np.mean([tuned_share(run) for run in some]):.0%}")
        cells.append(f"{np.mean([run['passes'] for run in some]):.0f}")
        cells.append(f"{np.mean([times[name, run['seed']] for run in some]):.2f}x")
        cells.append("{:.3f}, {:.1f}, {:.2f}x".format(*PAPER[name]) if name in PAPER else "")
        rows.append(cells)
    n = max(map(len, grouped.values()))
    return "\n".join(
        [markdown.table(heads, rows), f"\n± standard error over {n} seed{'s' * (n > 1)}; time over that of 1:1."]
    )


def compare(runs: Runs) -> str:
    """Return a table of differences in validation loss from other methods with the same seed.

    These are 1:1, the constant schedule of the same time (interpolated between two of them), and for CE the bandits that
    validate at random.
    """
    losses = {name: {run["seed"]: run["validation_loss"] for run in some} for name, some in by_method(runs).items()}
    at_random = [name for name in losses if "Ber(" in name]
    heads = ["validation loss over that of", "1:1", "a constant schedule of the same time", *at_random]
    rows = []
    for name in [name for name in losses if name not in CONSTANT]:
        cells = [name, _over(losses[name], losses.get("1:1", {})), _over(losses[name], at_equal_time(runs, name))]
        cells += [_over(losses[name], losses[other]) if name.startswith("CE") else "" for other in at_random]
        rows.append(cells)
    return markdown.table(heads, rows)


def at_equal_time(runs: Runs, name: str) -> dict[int, float]:
    """Return, by seed, the validation loss of a constant schedule with the time of the method."""
    times, losses = relative_time(runs), {}
    for seed in sorted({run["seed"] for run in runs if run["method"] == name}):
        some = [run for run in runs if run["method"] in CONSTANT and run["seed"] == seed]
        line = sorted((times[run["method"], seed], run["validation_loss"]) for run in some)
        if line:
            losses[seed] = float(np.interp(times[name, seed], *zip(*line, strict=True)))
    return losses


def _over(own: Mapping[int, float], others: Mapping[int, float]) -> str:
    return plus_minus([own[seed] - others[seed] for seed in sorted(set(own) & set(others))], 3, sign="+")


def judge(runs: Runs) -> dict[str, Any]:
    """Judge the paper's claim: both CE rows have a lower validation loss than every schedule and every random bandit."""
    grouped = by_method(runs)
    losses = {
        name: round(float(np.mean([run["validation_loss"] for run in some])), 4) for name, some in grouped.items()
    }
    ce = {name: loss for name, loss in losses.items() if name.startswith("CE")}
    others = {name: loss for name, loss in losses.items() if name not in ce}
    ok = bool(ce and others) and max(ce.values()) < min(others.values())
    target = "validation loss of CE below that of every schedule and every Bernoulli bandit"
    return {"name": "few_images_race", "measured": losses, "target": target, "ok": ok}


def figure(runs: Runs, path: Path) -> None:
    """Draw validation loss during the run, loss against time, and the share of rounds that were tuned."""
    from benchmarks.plotting import plt as pyplot

    grouped, times = by_method(runs), relative_time(runs)
    fig, (left, middle, right) = pyplot.subplots(1, 3, figsize=(15, 4.6))
    ends = {}
    for name, some in grouped.items():
        style = {"color": f"C{CURVE_METHODS.index(name)}" if name in CURVE_METHODS else "grey"}
        mean, error = mean_and_error([run["validation_loss"] for run in some])
        ends[name] = (float(np.mean([times[name, run["seed"]] for run in some])), mean)
        middle.errorbar(*ends[name], yerr=0.0 if np.isnan(error) else error, fmt="o", capsize=3, **style)
        if name not in CURVE_METHODS:
            middle.annotate(name, ends[name], xytext=(-5, -10), textcoords="offset points", fontsize=7, ha="right")
            continue
        at = [round for round, _, _ in some[0]["watched"]]
        left.plot(at, np.mean([[loss for _, loss, _ in run["watched"]] for run in some], axis=0), label=name, **style)
        if name in PAPER:  # a bandit
            tuned = np.mean([[arm in "tT" for arm in run["arms"]] for run in some], axis=0)
            window = max(1, len(tuned) // 12)
            smooth = np.convolve(tuned, np.full(window, 1 / window), mode="valid")
            right.plot(np.arange(len(smooth)) + window / 2, smooth, label=name, **style)
            right.set_title(f"when it is tuned (mean of {window} rounds)")
    line = [ends[name] for name in CONSTANT if name in ends]
    middle.plot(*zip(*line, strict=True), color="grey", linewidth=0.8, linestyle=":", label="constant schedules")
    left.set(xlabel="round", ylabel="validation loss", title="on the way")
    middle.set(xlabel="time over that of 1:1", ylabel="validation loss", title="at the end (± s.e.)")
    right.set(xlabel="round", ylabel="share of rounds with tuning", ylim=(-0.03, 1.03))
    for axes in (left, middle, right):
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    fig.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, metadata={"Date": None})
    pyplot.close(fig)
