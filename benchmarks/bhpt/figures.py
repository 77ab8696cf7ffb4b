"""Pictures of the races; matplotlib, PNG files in the folder given by -o."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

Rows = list[dict[str, Any]]
LABELS = {
    "bhpt": "BHPT",
    "bhpt_eps": "BHPT-ε",
    "bhpt_tol": "BHPT, tolerance 5 %",
    "bhpt_sampled": "BHPT, sampled parameters",
    "bhpt_eps_sampled": "BHPT-ε, sampled parameters",
    "q_alone": "Q alone",
    "q_eps_alone": "Q-ε alone",
    "greedy": "greedy",
    "random_search": "random",
    "hyperband": "Hyperband",
    "gp_ei": "GP-EI",
    "rollout": "Rollout",
    "freeze_thaw_bo": "freeze-thaw BO",
    "fabolas_epochs": "Fabolas on epochs",
    "asha": "ASHA",
    "successive_halving": "successive halving",
    "sequential_halving": "sequential halving",
}
ORDER = list(LABELS)
ABLATIONS = ("bhpt", "bhpt_eps", "bhpt_tol", "q_alone", "q_eps_alone", "greedy")
PARAMETERS = ("bhpt", "bhpt_sampled", "bhpt_eps", "bhpt_eps_sampled")


def _style(name: str) -> dict[str, Any]:
    colour = plt.get_cmap("tab20")(ORDER.index(name) % 20) if name in ORDER else "black"
    return {"color": colour, "label": LABELS.get(name, name), "linewidth": 2.5 if name in ("bhpt", "bhpt_eps") else 1.5}


def _lines(ax: Axes, rows: Rows, names: Sequence[str], x: str, y: str, band: str = "error") -> None:
    for name in names:
        mine = [r for r in rows if r["method"] == name]
        at = sorted({r[x] for r in mine})
        each = [np.array([float(r[y]) for r in mine if r[x] == b]) for b in at]
        if not at:
            continue
        mean = np.array([e.mean() for e in each])
        width = np.array([e.std() / (np.sqrt(len(e)) if band == "error" else 1.0) for e in each])
        ax.plot(at, mean, marker="o", markersize=4, **_style(name))
        ax.fill_between(at, mean - width, mean + width, color=_style(name)["color"], alpha=0.15, linewidth=0)


def _budget_axis(ax: Axes, rows: Rows, x: str, label: str) -> None:
    at = sorted({r[x] for r in rows})
    ax.set_xscale("log")
    ax.set_xticks(at, [f"{b:g}" for b in at])
    ax.minorticks_off()
    ax.set_xlabel(label)
    ax.grid(alpha=0.3)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, bbox_inches="tight")
    plt.close(figure)


def synthetic_figures(rows: Rows, out: Path, generator: str) -> None:
    for row in rows:
        for top in (1, 3, 5):
            row[f"hit_{top}"] = row["rank"] < top
    raced = [n for n in ORDER if n not in (*ABLATIONS[2:], *PARAMETERS[1::2]) and any(r["method"] == n for r in rows)]
    figure, axes = plt.subplots(1, 3, figsize=(16, 4.6))
    told = (
        ("regret", "normalised regret"),
        ("hit_1", "output arm is the best one (share of sets)"),
        ("share", "share of budget on the output arm"),
    )
    for ax, (y, label) in zip(axes, told, strict=True):
        _lines(ax, rows, raced, "budget", y)
        _budget_axis(ax, rows, "budget", "budget (units of 6 epochs)")
        ax.set_ylabel(label)
    axes[0].legend(fontsize=8)
    figure.suptitle(f"Synthetic curves ({generator}), mean ± one standard error")
    _save(figure, out / f"synthetic_{generator}.png")

    figure, axes = plt.subplots(1, 3, figsize=(16, 4.2), sharey=True)
    for ax, top in zip(axes, (1, 3, 5), strict=True):
        _lines(ax, rows, raced, "budget", f"hit_{top}")
        _budget_axis(ax, rows, "budget", "budget (units of 6 epochs)")
        ax.set_ylabel(f"output arm among the best {top}")
    axes[0].legend(fontsize=8)
    _save(figure, out / f"synthetic_{generator}_hits.png")

    for names, file in ((ABLATIONS, "ablations"), (PARAMETERS, "parameters")):
        there = [n for n in names if any(r["method"] == n for r in rows)]
        if len(there) > 2:
            both = set.intersection(*({r["seed"] for r in rows if r["method"] == n} for n in there))  # the same sets
            figure, ax = plt.subplots(figsize=(6.5, 4.5))
            kept = [r for r in rows if r["seed"] in both]
            _lines(ax, kept, there, "budget", "regret")
            _budget_axis(ax, kept, "budget", "budget (units of 6 epochs)")
            ax.set_ylabel(f"normalised regret ({len(both)} sets)")
            ax.legend(fontsize=8)
            _save(figure, out / f"synthetic_{generator}_{file}.png")


def real_figures(rows: Rows, out: Path, data: str) -> None:
    tables = list(dict.fromkeys(r["table"] for r in rows))
    names = [n for n in ORDER if any(r["method"] == n for r in rows)]
    across = min(4, len(tables))
    figure, axes = plt.subplots(
        -(-len(tables) // across), across, figsize=(5 * across, 4.3 * -(-len(tables) // across)), squeeze=False
    )
    for ax, table in zip(axes.flat, tables, strict=False):
        mine = [r for r in rows if r["table"] == table]
        _lines(ax, mine, names, "curves", "regret", band="deviation")
        _budget_axis(ax, mine, "curves", "budget (full curves)")
        ax.set_yscale("symlog", linthresh=0.01)
        ax.set_ylim(bottom=0.0)
        ax.set_title(table)
        ax.set_ylabel("normalised regret")
    axes.flat[0].legend(fontsize=7)
    figure.suptitle("Recorded curves, mean ± one standard deviation")
    figure.tight_layout()
    _save(figure, out / f"real_{data}.png")
    shared = [r for r in rows if r.get("resnet_share") is not None]
    if shared:
        figure, ax = plt.subplots(figsize=(6, 4.2))
        for r in shared:
            r["resnet_share"] = float(r["resnet_share"])
        _lines(
            ax,
            shared,
            [n for n in ("bhpt", "bhpt_eps", "hyperband", "sequential_halving") if n in names],
            "curves",
            "resnet_share",
            band="deviation",
        )
        _budget_axis(ax, shared, "curves", "budget (full curves)")
        ax.set_ylabel("share of the steps that ResNets got")
        ax.legend(fontsize=8)
        _save(figure, out / "real_resnet_share.png")


def belief_figure(rows: Rows, out: Path, data: str) -> None:
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.4))
    plain = [r for r in rows if not r["log"]]
    shown = sorted({r["shown"] for r in plain})
    for i, ahead in enumerate((1, 5, 10, "horizon")):
        mine = [r for r in plain if r["ahead"] == ahead]
        for ax, y in zip(axes, ("inside_50", "inside_90", "order"), strict=True):
            mean = [np.nanmean([r[y] for r in mine if r["shown"] == s] or [np.nan]) for s in shown]
            ax.plot(
                shown, mean, marker="o", color=f"C{i}", label=f"{ahead} ahead" if ahead != "horizon" else "last step"
            )
    last = [r for r in plain if r["ahead"] == "horizon"]
    axes[2].plot(
        shown,
        [np.nanmean([r["order_of_last_losses"] for r in last if r["shown"] == s]) for s in shown],
        "k--",
        label="last step, by last loss seen",
    )
    for ax, right, label in zip(
        axes,
        (0.5, 0.9, None),
        ("inside the 50 % interval", "inside the 90 % interval", "rank correlation with the truth"),
        strict=True,
    ):
        if right is not None:
            ax.axhline(right, color="black", linewidth=0.8, linestyle=":")
        ax.set_xscale("log")
        ax.set_xticks(shown, [str(s) for s in shown])
        ax.minorticks_off()
        ax.set_xlabel("steps shown at most")
        ax.set_ylabel(label)
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    figure.suptitle(f"What the freeze-thaw belief knows ({data})")
    _save(figure, out / f"belief_{data}.png")
