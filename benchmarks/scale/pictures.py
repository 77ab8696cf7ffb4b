"""Two pictures: how busy the workers are, and how flat a long study is.

    python -m benchmarks scale.pictures FOLDER

draws them from the scale.json in that folder, beside it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.scale.utilisation import QUICK_POLICIES


def main(arguments: list[str]) -> int:
    draw(Path(arguments[0]))
    return 0


def draw(folder: Path) -> None:
    told = json.loads((folder / "scale.json").read_text(encoding="utf-8"))
    _draw_utilisation(told["runs"], folder / "scale_utilisation.svg")
    _draw_growth(told["growth"], folder / "scale_growth.svg")


def _draw_utilisation(runs: list[dict[str, Any]], path: Path) -> None:
    import matplotlib.pyplot as plt

    runs = [run for run in runs if run["busy_outside_tail"] is not None]
    names = list(dict.fromkeys(run["policy"] for run in runs))
    groups = [[n for n in names if n in QUICK_POLICIES], [n for n in names if n not in QUICK_POLICIES]]
    shown = [(title, group) for title, group in zip(("without a model", "with a model"), groups, strict=True) if group]
    figure, axes = plt.subplots(1, len(shown), figsize=(5 * len(shown), 3.6), sharey=True, squeeze=False)
    for axis, (title, group) in zip(axes[0], shown, strict=True):
        for name in group:
            own = sorted((run["workers"], run["busy_outside_tail"]) for run in runs if run["policy"] == name)
            axis.plot(*zip(*own, strict=True), marker="o", markersize=3, label=name)
        axis.set_xscale("log")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("workers, 40 epochs for each")
        axis.set_ylim(0, 1.05)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    axes[0][0].set_ylabel("share of workers busy, outside the tail")
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def _draw_growth(growth: list[dict[str, Any]], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
    for one in growth:
        left.plot(one["receipts"], one["ms"], marker="o", markersize=3, label=one["store"])
        right.plot(
            one["receipts"], [size / 1024 for size in one["bytes"]], marker="o", markersize=3, label=one["store"]
        )
    for axis, label in ((left, "milliseconds of processor time an entry"), (right, "kilobytes of memory an entry")):
        axis.set_xlabel("receipts")
        axis.set_ylabel(label, fontsize=8)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
