"""Figures of the studies of curves.py and live.py. Needs matplotlib.

    python -m benchmarks bo_bos.figures progress [--tables resnet,vae]      best error against epochs and against seconds
    python -m benchmarks bo_bos.figures stopped [--table cnn_fashion]       one BO-BOS study: its curves, and the ends of stopped
                                                                            runs (Figs. 7 and 8 of the paper)
    python -m benchmarks bo_bos.figures swimmer                             best return against steps of Swimmer

Lines are means over seeds, bands one standard error to each side. `-o` is the folder for the figures; `--studies` is
the folder with the outputs of these scripts, `studies/` and `live/`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from numpy.typing import NDArray

from benchmarks.bo_bos.compare import read
from benchmarks.bo_bos.curves import HERE, tables
from benchmarks.bo_bos.studies import DESIGN, recorded_problem, run_study
from benchmarks.bo_bos.tasks import EPISODES, EPOCHS, STEPS_OF_AN_EPOCH
from benchmarks.plotting import plt

Array = NDArray[np.float64]
STUDIES = HERE.parents[1] / "out" / "bo_bos"
FEWEST = 3  # seeds for a line
LINES = {
    "gp_ucb": ("GP-UCB", "black"),
    "bo_bos": ("BO-BOS", "#d62728"),
    "printed": ("BO-BOS as printed in the paper", "#ff9896"),
    "boca": ("BOCA", "#1f77b4"),
    "lc_prediction": ("LC prediction (process)", "#2ca02c"),
    "lc_families": ("LC prediction (families)", "#98df8a"),
    "hyperband": ("Hyperband", "#9467bd"),
    "oracle": ("oracle", "#bbbbbb"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", choices=("progress", "stopped", "swimmer"))
    parser.add_argument("--tables", default="cnn_fashion,logreg_fashion,xgboost_spambase,resnet,fcnet,vae")
    parser.add_argument("--table", default="cnn_fashion")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--studies", type=Path, default=STUDIES)
    parser.add_argument("--data", type=Path, help="folder with further tables, as for curves.py")
    parser.add_argument("-o", "--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    if options.picture == "progress":
        rows = [row for path in sorted((options.studies / "studies").glob("*.jsonl")) for row in read(path)]
        names = [name for name in options.tables.split(",") if any(row["table"] == name for row in rows)]
        figure, axes = plt.subplots(2, len(names), figsize=(2.9 * len(names), 5.6), layout="constrained", squeeze=False)
        for column, name in enumerate(names):
            mine = [row for row in rows if row["table"] == name]
            draw_progress(axes[0, column], mine, "epochs")
            draw_progress(axes[1, column], mine, "seconds")
            axes[0, column].set(title=name, xlabel="epochs")
            axes[1, column].set(xlabel="training seconds")
        for row in axes:
            row[0].set_ylabel("best validation loss")
        known = {
            label: line for panel in axes[0] for line, label in zip(*panel.get_legend_handles_labels(), strict=True)
        }
        figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=len(known))
    elif options.picture == "stopped":
        figure = draw_stopped_runs(tables(options.data)[options.table], options.table, options.seed)
    else:
        figure = draw_swimmer(
            [row for path in sorted((options.studies / "live").glob("*.jsonl")) for row in read(path)]
        )
    figure.savefig(options.out / f"{options.picture}.png", dpi=100)
    print(json.dumps({"name": f"figure_{options.picture}", "measured": str(options.out), "target": None, "ok": True}))


def draw_progress(axes: Axes, rows: list[dict[str, Any]], unit: str) -> None:
    """Draw one panel.

    It has the methods with at least `FEWEST` seeds and at least half as many seeds as any other method. The seeds are those
    that all these methods have.
    """
    seeds = {method: {row["seed"] for row in rows if row["method"] == method} for method in LINES}
    enough = max(FEWEST, max(map(len, seeds.values())) / 2)
    seeds = {method: found for method, found in seeds.items() if len(found) >= enough}
    common = set.intersection(*seeds.values())
    rows = [row for row in rows if row["method"] in seeds and row["seed"] in common]
    shown = []
    for method in seeds:
        label, colour = LINES[method]
        mine = [row for row in rows if row["method"] == method]
        end = min(row["epochs"] if unit == "epochs" else row["train_s"] for row in rows)
        grid = np.linspace(0.0, end, 400)[1:]
        best = np.array([_at(row, grid, unit) for row in mine])
        started = np.isfinite(best).all(axis=0)
        _band(axes, grid[started], best[:, started], label, colour)
        shown.append(best[:, started].mean(axis=0))
    design = np.mean([row["design"] for row in rows if row["method"] == "gp_ucb"])
    if unit == "epochs":
        axes.axvline(design, color="#dddddd", lw=0.8, zorder=0)  # up to here all methods except Hyperband are equal
    low = min(line.min() for line in shown)
    high = max(line[line.size // 6] for line in shown)  # cuts off the steep beginning
    axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))


def _at(row: dict[str, Any], grid: Array, unit: str) -> Array:
    """Return the best loss at each point of the grid; inf before the first loss."""
    points = np.array([point[0 if unit == "epochs" else 2] for point in row["improved"]])
    losses = np.array([np.inf, *(point[1] for point in row["improved"])])
    return losses[np.searchsorted(points, grid, side="right")]


def _band(axes: Axes, x: Array, y: Array, label: str, colour: str) -> None:
    """Draw mean and standard error of y, (seeds, points)."""
    mean, error = y.mean(axis=0), y.std(axis=0) / np.sqrt(len(y))
    axes.plot(x, mean, color=colour, lw=1.3, label=label)
    axes.fill_between(x, mean - error, mean + error, color=colour, alpha=0.15, lw=0)


def draw_stopped_runs(path: Path, name: str, seed: int) -> plt.Figure:
    """Draw the curves of one study, dotted after a stop, and the final errors in the order of the runs."""
    problem = recorded_problem(path, name=name)
    row = run_study(problem, "bo_bos", seed, with_configs=True)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.0), layout="constrained")
    ends = []
    for number, (steps, config) in enumerate(row["configs"]):
        curve = problem.curve(config)
        is_full = steps == curve.size
        ends.append((curve[-1], is_full))
        if number >= DESIGN and (is_full or number % 4 == 0):  # a quarter of the stopped runs, for a readable figure
            left.plot(
                np.arange(1, steps + 1), curve[:steps], color="#2ca02c" if is_full else "#d62728", lw=0.9, alpha=0.8
            )
            left.plot(np.arange(steps, curve.size + 1), curve[steps - 1 :], color="#d62728", lw=0.6, ls=":", alpha=0.7)
    left.set(xlabel="epoch", ylabel="validation error", title="finished (green), stopped (red)")
    values, whole = np.array([end for end, _ in ends]), np.array([w for _, w in ends])
    runs = np.arange(1, values.size + 1)
    right.plot(runs[whole], values[whole], "^", color="#2ca02c", ms=5, label="finished")
    right.plot(
        runs[~whole], values[~whole], "o", color="#d62728", ms=4, mfc="none", label="stopped: in a full training"
    )
    best = np.minimum.accumulate(np.where(whole, values, np.inf))
    right.step(runs, best, where="post", color="black", lw=0.9, label="best finished")
    right.set(xlabel="run", ylabel=f"error after {problem.max_steps} epochs", title=f"{name}, seed {seed}")
    for axes in (left, right):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    figure.legend(loc="outside lower right", ncols=3)
    return figure


def draw_swimmer(rows: list[dict[str, Any]]) -> plt.Figure:
    """Draw the undiscounted return of the best finished run against steps of the environment."""
    figure, axes = plt.subplots(figsize=(6.0, 4.0), layout="constrained")
    for name, style in (("swimmer_discounted", "-"), ("swimmer", "--")):
        for method in ("gp_ucb", "bo_bos"):
            mine = [row for row in rows if row["table"] == name and row["method"] == method]
            if not mine:
                continue
            grid = np.arange(DESIGN * EPOCHS, mine[0]["epochs"] + 1)
            best = np.array([_returns(row, grid) for row in mine])
            label, colour = LINES[method]
            objective = "discounted" if name == "swimmer_discounted" else "undiscounted"
            mean, error = best.mean(axis=0), best.std(axis=0) / np.sqrt(len(best))
            steps = grid * STEPS_OF_AN_EPOCH * EPISODES / 1000.0
            axes.plot(steps, mean, style, color=colour, lw=1.3, label=f"{label}, {objective} ({len(best)} seeds)")
            axes.fill_between(steps, mean - error, mean + error, color=colour, alpha=0.12, lw=0)
    axes.set(xlabel="thousand steps in the environment", ylabel="return of the best finished policy")
    axes.legend()
    return figure


def _returns(row: dict[str, Any], grid: NDArray[np.int64]) -> Array:
    epochs = np.array([epoch for epoch, _ in row["scores"]])
    best = np.maximum.accumulate([-score for _, score in row["scores"]])
    return best[np.searchsorted(epochs, grid, side="right") - 1]


if __name__ == "__main__":
    main()
