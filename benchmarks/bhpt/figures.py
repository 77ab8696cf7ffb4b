"""Figures of the experiments: matplotlib, PNG files in the folder given by -o."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from benchmarks.plotting import plt

Rows = list[dict[str, Any]]
LINES = {  # label, colour, line
    "bhpt": ("BHPT, our default", "tab:green", "-"),
    "bhpt_start": ("BHPT, our default, given the loss of guessing", "tab:green", "--"),
    "bhpt_ten": ("BHPT, our default, ten samples", "tab:cyan", "-"),
    "bhpt_unlimited": ("BHPT, our default, any number of arms", "tab:cyan", "--"),
    "bhpt_printed": ("BHPT", "tab:blue", "-"),
    "bhpt_printed_start": ("BHPT, given the loss of guessing", "tab:blue", "--"),
    "bhpt_eps": ("BHPT-ε", "tab:red", "-"),
    "bhpt_sampled": ("BHPT, sampled parameters", "tab:blue", "--"),
    "bhpt_eps_sampled": ("BHPT-ε, sampled parameters", "tab:red", "--"),
    "q_alone": ("Q alone", "tab:purple", ":"),
    "q_eps_alone": ("Q-ε alone", "tab:brown", ":"),
    "greedy": ("greedy", "black", ":"),
    "random_search": ("random", "black", ":"),
    "hyperband": ("Hyperband", "tab:orange", "--"),
    "gp_ei": ("GP-EI", "tab:purple", "--"),
    "rollout": ("Rollout", "tab:green", "-."),
    "freeze_thaw_bo": ("freeze-thaw BO", "tab:brown", "-."),
    "fabolas_epochs": ("Fabolas on epochs", "tab:pink", "-."),
    "asha": ("ASHA", "tab:olive", "--"),
    "smac": ("SMAC", "tab:gray", "-."),
    "successive_halving": ("successive halving", "tab:gray", "--"),
    "sequential_halving": ("sequential halving", "tab:cyan", "--"),
}
ORDER = list(LINES)
ABLATIONS = ("bhpt_printed", "bhpt_eps", "q_alone", "q_eps_alone", "greedy")
PARAMETERS = ("bhpt_printed", "bhpt_sampled", "bhpt_eps", "bhpt_eps_sampled")


def _style(name: str) -> dict[str, Any]:
    label, colour, line = LINES.get(name, (name, "black", "-"))
    width = 2.5 if name in ("bhpt", "bhpt_printed", "bhpt_eps") else 1.4
    return {"label": label, "color": colour, "linestyle": line, "linewidth": width}


def _lines(ax: Axes, rows: Rows, names: Sequence[str], x: str, y: str, spread: str = "error") -> None:
    """Draw means by budget with bars of one standard error or standard deviation. Points are shifted to avoid overlap."""
    for i, name in enumerate(names):
        mine = [r for r in rows if r["method"] == name]
        at = np.array(sorted({r[x] for r in mine}))
        each = [np.array([float(r[y]) for r in mine if r[x] == b]) for b in at]
        if len(at):
            mean = [e.mean() for e in each]
            width = [e.std() / (np.sqrt(len(e)) if spread == "error" else 1.0) for e in each]
            shift = 1.0 + 0.012 * (i - len(names) / 2)
            _, _, bars = ax.errorbar(at * shift, mean, width, marker="o", markersize=4, elinewidth=0.8, **_style(name))
            for bar in bars:
                bar.set_alpha(0.4)


def _budget_axis(ax: Axes, rows: Rows, x: str, label: str) -> None:
    at = sorted({r[x] for r in rows})
    ax.set_xscale("log")
    ax.set_xticks(at, [f"{b:g}" for b in at])
    ax.minorticks_off()
    ax.set_xlabel(label)
    ax.grid(alpha=0.3)


def _legend(figure: Any, axes: Sequence[Axes]) -> None:
    """Draw one legend for all panels, beside them."""
    handles = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", fontsize=9)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100, bbox_inches="tight")
    plt.close(figure)


def synthetic_figures(rows: Rows, out: Path, generator: str) -> None:
    for row in rows:
        for top in (1, 3, 5):
            row[f"hit_{top}"] = row["rank"] < top
    shown = [n for n in ORDER if n not in (*ABLATIONS[2:], *PARAMETERS[1::2]) and any(r["method"] == n for r in rows)]
    figure, axes = plt.subplots(1, 3, figsize=(17, 4.6), layout="constrained")
    panels = (
        ("regret", "normalised regret"),
        ("hit_1", "output arm is the best one (share of sets)"),
        ("share", "share of budget on the output arm"),
    )
    for ax, (y, label) in zip(axes, panels, strict=True):
        _lines(ax, rows, shown, "budget", y)
        _budget_axis(ax, rows, "budget", "budget (units of 6 epochs)")
        ax.set_ylabel(label)
    _legend(figure, axes)
    n_sets = len({r["seed"] for r in rows})
    figure.suptitle(f"Synthetic curves ({generator}), mean ± one standard error over {n_sets} sets")
    _save(figure, out / f"synthetic_{generator}.png")

    figure, axes = plt.subplots(1, 3, figsize=(17, 4.2), sharey=True, layout="constrained")
    for ax, top in zip(axes, (1, 3, 5), strict=True):
        _lines(ax, rows, shown, "budget", f"hit_{top}")
        _budget_axis(ax, rows, "budget", "budget (units of 6 epochs)")
        ax.set_ylabel(f"output arm among the best {top}")
    _legend(figure, axes)
    _save(figure, out / f"synthetic_{generator}_hits.png")

    for names, file in ((ABLATIONS, "ablations"), (PARAMETERS, "parameters")):
        there = [n for n in names if any(r["method"] == n for r in rows)]
        if len(there) > 2:
            # the same sets for all
            both = set.intersection(*({r["seed"] for r in rows if r["method"] == n} for n in there))
            figure, ax = plt.subplots(figsize=(8.0, 4.5), layout="constrained")
            common = [r for r in rows if r["seed"] in both]
            _lines(ax, common, there, "budget", "regret")
            _budget_axis(ax, common, "budget", "budget (units of 6 epochs)")
            ax.set_ylabel(f"normalised regret ({len(both)} sets)")
            _legend(figure, [ax])
            _save(figure, out / f"synthetic_{generator}_{file}.png")


def real_figures(rows: Rows, out: Path, data: str) -> None:
    tables = list(dict.fromkeys(r["table"] for r in rows))
    names = [n for n in ORDER if any(r["method"] == n for r in rows)]
    across = min(2, len(tables))
    down = -(-len(tables) // across)
    figure, axes = plt.subplots(down, across, figsize=(6.5 * across, 4.5 * down), squeeze=False, layout="constrained")
    for ax, table in zip(axes.flat, tables, strict=False):
        mine = [r for r in rows if r["table"] == table]
        _lines(ax, mine, names, "curves", "regret", spread="deviation")
        _budget_axis(ax, mine, "curves", "budget (full curves)")
        ax.set_yscale("symlog", linthresh=0.02)
        ax.set_ylim(bottom=-0.001)
        ax.set_title(table)
        ax.set_ylabel("normalised regret")
    _legend(figure, list(axes.flat))
    figure.suptitle("Recorded curves, mean and one standard deviation over seeds")
    _save(figure, out / f"real_{data}.png")
    shared = [r for r in rows if r.get("resnet_share") is not None]
    if shared:
        figure, ax = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
        for r in shared:
            r["resnet_share"] = float(r["resnet_share"])
        _lines(
            ax,
            shared,
            [n for n in ("bhpt", "bhpt_printed", "bhpt_eps", "hyperband", "sequential_halving") if n in names],
            "curves",
            "resnet_share",
            spread="deviation",
        )
        _budget_axis(ax, shared, "curves", "budget (full curves)")
        ax.set_ylim(0.0, 1.0)
        ax.set_ylabel("share of the budget on ResNets")
        ax.set_title("mean and one standard deviation over seeds")
        _legend(figure, [ax])
        _save(figure, out / f"real_{data}_resnet_share.png")


def prediction_figure(rows: Rows, out: Path, data: str) -> None:
    """Draw the predictions of the last step, by the number of observed steps, with one line per model."""
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.4))
    last = [r for r in rows if r["ahead"] == "horizon"]
    shown = sorted({r["shown"] for r in last})
    kinds = {"plain": "as in the paper", "log": "on logarithms of the losses", "falling": "curves are expected to fall"}
    panels = (
        ("inside_90", 0.9, "losses inside the 90 % interval"),
        ("bias", 0.0, "median error (predicted standard deviations)"),
        ("order", None, "rank correlation with the truth"),
    )
    for ax, (y, right, label) in zip(axes, panels, strict=True):
        for i, (kind, name) in enumerate(kinds.items()):
            mine = [r for r in last if r["model"] == kind]
            mean = [np.nanmean([r[y] for r in mine if r["shown"] == s] or [np.nan]) for s in shown]
            ax.plot(shown, mean, marker="o", color=f"C{i}", label=name)
        if right is not None:
            ax.axhline(right, color="black", linewidth=0.8, linestyle=":", label="ideal")
        else:
            plain = [r for r in last if r["model"] == "plain"]
            by_last = [np.nanmean([r["order_of_last_losses"] for r in plain if r["shown"] == s]) for s in shown]
            ax.plot(shown, by_last, "k--", label="by the last observed loss")
        ax.set_xscale("log")
        ax.set_xticks(shown, [str(s) for s in shown])
        ax.minorticks_off()
        ax.set_xlabel("limit on observed steps")
        ax.set_ylabel(label)
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    figure.suptitle(f"Freeze-thaw predictions of the last step ({data})")
    _save(figure, out / f"predictions_{data}.png")
