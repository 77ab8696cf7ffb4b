"""One figure for each experiment, drawn from its lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

Lines = list[dict[str, Any]]


def cost_model_error(lines: Lines, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    _bands(axes, lines, "model", "observations", "rmse_log_cost")
    axes.set(xscale="log", yscale="log", xlabel="observations", ylabel="RMSE of log cost")
    _save(figure, axes, path)


def tradeoff(lines: Lines, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for family, mark in (("alpha", "o-"), ("cei", "s-")):
        part = [line for line in lines if line["method"].startswith(family)]
        x, y = [line["time_relative_to_ei"] for line in part], [line["loss_above_ei"] for line in part]
        below = [v - line["loss_above_ei_low"] for v, line in zip(y, part, strict=True)]
        above = [line["loss_above_ei_high"] - v for v, line in zip(y, part, strict=True)]
        axes.errorbar(x, y, yerr=[below, above], fmt=mark, label=family, capsize=2, lw=1)
        for a, b, line in zip(x, y, part, strict=True):
            axes.annotate(
                line["method"].partition("=")[2], (a, b), fontsize=7, xytext=(3, 3), textcoords="offset points"
            )
    axes.set(xlabel="time relative to EI", ylabel="loss above EI (best to median row = 1)")
    _save(figure, axes, path)


def time_allocation(lines: Lines, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    _bands(axes, lines, "method", "multiple", "rank", bands=False)
    axes.set(xscale="log", xlabel="multiple of the unit budget", ylabel="average rank (1 is best)")
    _save(figure, axes, path)


def front(lines: Lines, path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for line in lines:
        if "front_ei" in line:
            left.plot(line["front_cost_s"], line["front_ei"], ".-", lw=1, label=f"{line['trials']} trials")
    left.set(xscale="log", yscale="log", xlabel="predicted cost (s)", ylabel="EI (loss)")
    stay = [line for line in lines if "share_staying" in line]
    right.plot(
        [line["to"] for line in stay], [line["share_staying"] for line in stay], "o-", label="still on the front"
    )
    low, high = ([line[f"share_staying_{side}"] for line in stay] for side in ("low", "high"))
    right.fill_between([line["to"] for line in stay], low, high, alpha=0.2)
    right.set(xlabel="trials", ylabel="share of the earlier front", ylim=(0, 1))
    left.legend(fontsize=7)
    _save(figure, right, path)


def cost_model_effect(lines: Lines, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for rule in dict.fromkeys(line["rule"] for line in lines):
        part = [line for line in lines if line["rule"] == rule]
        axes.plot([p["time_relative_to_lv3"] for p in part], [p["loss_above_lv3"] for p in part], "o", label=rule)
        for p in part:
            axes.annotate(
                p["model"],
                (p["time_relative_to_lv3"], p["loss_above_lv3"]),
                fontsize=7,
                xytext=(3, 3),
                textcoords="offset points",
            )
    axes.set(xlabel="time relative to LV-3", ylabel="loss above LV-3 (best to median row = 1)")
    _save(figure, axes, path)


def _bands(axes: Any, lines: Lines, group: str, x: str, y: str, bands: bool = True) -> None:
    for name in dict.fromkeys(line[group] for line in lines):
        part = sorted((line for line in lines if line[group] == name), key=lambda line: float(line[x]))
        across = [line[x] for line in part]
        axes.plot(across, [line[y] for line in part], "o-", ms=3, lw=1, label=name)
        if bands:
            axes.fill_between(
                across, [line[f"{y}_low"] for line in part], [line[f"{y}_high"] for line in part], alpha=0.12
            )


def _save(figure: Any, axes: Any, path: Path) -> None:
    axes.legend(fontsize=7, ncols=2)
    axes.grid(alpha=0.2)
    figure.savefig(path, dpi=130)
    plt.close(figure)
