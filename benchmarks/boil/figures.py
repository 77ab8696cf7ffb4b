"""Figures of the comparison, after those of the BOIL paper.

its figure   here                   shows
3            conditioning.png       the covariance's condition number with no, selected, full augmentation
4            added_prefixes.png     how many prefixes a decision adds
5            best_curves.png        full trainings of the runs that BO, BO-L and BOIL recommended
6            utility.png            utility against runs and seconds
11           weights.png            learned compression curves
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.boil.problems import Problem
from benchmarks.plotting import plt
from shoestring.models.boil.compression import preference_weights

Rows = Mapping[str, Sequence[Mapping[str, Any]]]  # by table
COLOURS = {
    "boil": "tab:red",
    "bo": "tab:gray",
    "bo_l": "tab:blue",
    "cm_tf_bo": "tab:green",
    "hyperband": "tab:purple",
    "random": "tab:olive",
}
NAMES = {
    "boil": "BOIL",
    "bo": "BO",
    "bo_l": "BO-L",
    "cm_tf_bo": "CM-T/F-BO",
    "hyperband": "Hyperband",
    "random": "random",
}


def draw_all(
    folder: Path, problems: Mapping[str, Problem], rows: Rows, utilities: Mapping[tuple[str, str, int], Any]
) -> None:
    shown = {name: problem for name, problem in problems.items() if any(row["method"] == "boil" for row in rows[name])}
    if not shown:
        return
    draw_utility(folder / "utility.png", shown, rows, utilities)
    draw_best_curves(folder / "best_curves.png", shown, rows)
    draw_added_prefixes(folder / "added_prefixes.png", shown, rows)
    draw_weights(folder / "weights.png", shown, rows)


def _rows_of(rows: Sequence[Mapping[str, Any]], method: str) -> list[Mapping[str, Any]]:
    return sorted((row for row in rows if row["method"] == method), key=lambda row: row["seed"])


def draw_utility(
    path: Path, problems: Mapping[str, Problem], rows: Rows, utilities: Mapping[tuple[str, str, int], Any]
) -> None:
    """Draw Fig. 6: mean over seeds and a band of one standard error, against runs begun and against seconds."""
    figure, axes = plt.subplots(len(problems), 2, figsize=(10, 3.0 * len(problems)), squeeze=False)
    for (name, problem), (left, right) in zip(problems.items(), axes, strict=True):
        lowest = np.inf
        for method, colour in COLOURS.items():
            mine = _rows_of(rows[name], method)
            if not mine:
                continue
            over_runs = np.array([_by_run(problem, row) for row in mine])
            over_time = np.array([utilities[name, method, row["seed"]] for row in mine])
            seconds = np.linspace(0.0, mine[0]["budget_s"], over_time.shape[1] + 1)[1:]
            for axis, x, y in ((left, np.arange(1, over_runs.shape[1] + 1), over_runs), (right, seconds, over_time)):
                mean, error = y.mean(axis=0), y.std(axis=0) / np.sqrt(len(y))
                axis.plot(x, mean, color=colour, label=NAMES[method])
                axis.fill_between(x, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
            lowest = min(lowest, float(over_time[:, len(seconds) // 10 :].mean(axis=0).min()))
        left.set(xlabel="runs begun", ylabel="utility", title=name.replace("_", " "))
        right.set(xlabel="seconds of training", ylabel="utility", title=name.replace("_", " "))
        for axis in (left, right):
            top = float(problem.utility.max())
            axis.axhline(top, color="black", linewidth=0.8, linestyle=":")
            margin = 0.05 * (top - lowest) or 1.0
            axis.set_ylim(lowest - margin, top + margin)
    axes[0, 0].legend(fontsize=8, ncols=2)
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)


def _by_run(problem: Problem, row: Mapping[str, Any], runs: int = 40) -> Any:
    """Return the utility of the recommended run once 1, 2, … runs were begun."""
    begun, leader = (np.array([entry[j] for entry in row["leaders"]]) for j in (1, 2))
    known = np.append(problem.utility.mean(), problem.utility[leader])
    return known[np.searchsorted(begun, np.arange(1, runs + 1), side="right")]


def draw_best_curves(path: Path, problems: Mapping[str, Problem], rows: Rows) -> None:
    """Draw Fig. 5: the full training of the run that each study recommends in the end, mean over studies and recorded runs."""
    figure, axes = plt.subplots(1, len(problems), figsize=(4.0 * len(problems), 3.2), squeeze=False)
    for (name, problem), axis in zip(problems.items(), axes[0], strict=True):
        for method in ("bo", "bo_l", "boil"):
            final = [row["leaders"][-1][2] for row in _rows_of(rows[name], method)]
            if final:
                curves = problem.values[:, final].mean(axis=0)  # (studies, steps)
                share = np.arange(1, curves.shape[1] + 1) / curves.shape[1]
                mean, error = curves.mean(axis=0), curves.std(axis=0) / np.sqrt(len(curves))
                axis.plot(share, mean, color=COLOURS[method], label=NAMES[method])
                axis.fill_between(share, mean - error, mean + error, color=COLOURS[method], alpha=0.15, linewidth=0)
        axis.set(xlabel="share of a full training", ylabel="reward", title=name.replace("_", " "))
    axes[0, 0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)


def draw_added_prefixes(path: Path, problems: Mapping[str, Problem], rows: Rows) -> None:
    """Draw Fig. 4: prefixes added at each decision, mean over seeds."""
    figure, axis = plt.subplots(figsize=(6, 3.4))
    for name in problems:
        counts = [row["added"] for row in _rows_of(rows[name], "boil") if row.get("added")]
        length = int(np.median([len(c) for c in counts]))  # few seeds have later decisions
        mean = [np.mean([c[i] for c in counts if len(c) > i]) for i in range(1, length)]
        axis.plot(np.arange(2, length + 1), mean, label=name.replace("_", " "))
    axis.set(
        xlabel="decision after the initial design (without the first, which adds those of three runs)",
        ylabel="prefixes added",
    )
    axis.xaxis.label.set_fontsize(8)
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)


def draw_weights(path: Path, problems: Mapping[str, Problem], rows: Rows) -> None:
    """Draw Fig. 11: the logistic that each study learned in the end, and that of the median parameters."""
    figure, axes = plt.subplots(1, len(problems), figsize=(3.2 * len(problems), 3.0), squeeze=False, sharey=True)
    for (name, problem), axis in zip(problems.items(), axes[0], strict=True):
        steps = problem.values.shape[2]
        share = np.arange(1, steps + 1) / steps
        learned = np.array([row["logistic"] for row in _rows_of(rows[name], "boil") if "logistic" in row])
        for m0, g0 in learned:
            axis.plot(
                share,
                preference_weights(steps, midpoint=m0, growth=g0)[:, 0],
                color="tab:gray",
                alpha=0.3,
                linewidth=0.8,
            )
        m0, g0 = np.median(learned, axis=0)
        axis.plot(share, preference_weights(steps, midpoint=m0, growth=g0)[:, 0], color="tab:red", linewidth=2)
        axis.set(xlabel="share of a full training", title=f"{name.replace('_', ' ')}\nmedian m0 {m0:.2f}, g0 {g0:.2f}")
        axis.title.set_fontsize(9)
    axes[0, 0].set_ylabel("weight of a step")
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)
