"""Two figures for scale.json: the utilisation of workers, and time and memory in a long study."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.lines import draw_lines, write_panels
from benchmarks.scale.utilisation import QUICK_POLICIES, WITH_MODELS

OF_CURVES = ["bhpt", "freeze_thaw_bo", "lc_prediction"]


def draw(folder: Path) -> None:
    result = json.loads((folder / "scale.json").read_text(encoding="utf-8"))
    (folder / "scale_utilisation.svg").write_text(draw_utilisation(result["runs"]), encoding="utf-8")
    (folder / "scale_growth.svg").write_text(draw_growth(result["growth"]), encoding="utf-8")


def draw_utilisation(runs: Sequence[Mapping[str, Any]]) -> str:
    busy: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        if run["busy_outside_tail"] is not None:
            busy.setdefault(run["policy"], []).append((run["workers"], run["busy_outside_tail"]))
    of_results = [name for name in WITH_MODELS if name not in OF_CURVES]
    kinds = {"without a model": QUICK_POLICIES, "a model of curves": OF_CURVES, "a model of results": of_results}
    most, panels = max(run["workers"] for run in runs), []
    for title, names in kinds.items():
        if lines := {name: sorted(busy[name]) for name in names if name in busy}:
            y_label = f"share of workers busy, {title}"
            panels.append(draw_lines(lines, "workers, 40 epochs of budget each", y_label, log_x=True, x_until=most))
    return write_panels(panels, "share of busy workers against their number")


def draw_growth(growth: Sequence[Mapping[str, Any]]) -> str:
    panels = []
    for field, scale, label in (
        ("ms", 1, "milliseconds of processor time per entry"),
        ("bytes", 1024, "kilobytes of memory per entry"),
    ):
        lines = {
            one["store"]: [
                (count / 1000, amount / scale) for count, amount in zip(one["receipts"], one[field], strict=True)
            ]
            for one in growth
        }
        panels.append(draw_lines(lines, "receipts, in thousands", label))
    return write_panels(panels, "time and memory per entry in a long study")
