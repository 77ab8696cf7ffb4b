"""Tables of README.md, made from results/curves.json; `curves.py --show` prints them last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.bo_bos.compare import format_ratio, meets
from benchmarks.markdown import table

ALGORITHMS = {
    "bo_bos": "ours (default)",
    "printed": "as printed in the paper",
    "hyperband": "Hyperband, R = 50",
    "hyperband 80": "Hyperband, R = 80",
    "oracle": "oracle",
}
Summary = Mapping[str, Mapping[str, Mapping[str, Any]]]


def two_algorithms(summary: Summary) -> str:
    """Return the table of all algorithms over all data sets."""
    rows = []
    for method, name in ALGORITHMS.items():
        mine, found = [methods[method] for methods in summary.values()], meets(dict(summary), method)
        assert found is not None
        cells = [
            cell
            for kind in ("ratio_of_means", "ratio_of_seeds")
            for cell in (f"{found[kind]['at_target']} of {len(mine)}", format_ratio(found[kind]["median"]))
        ]
        count_all = sum(one["seeds"] - one["in_design"] for one in mine)
        slower, never = (sum(one[count] for one in mine) for count in ("slower", "never"))
        mistakes = f"{max(one['mistakes'] for one in mine):.1%}".replace("%", " %")
        has_stops = any(one["stops"] for one in mine) and method != "oracle"
        rows.append([name, *cells, f"{slower} of {count_all}", str(never), mistakes if has_stops else "—"])
    heads = ["method", "at 0.75 by the means", "median", "at 0.75 by the seeds", "median"]
    return table([*heads, "studies slower than GP-UCB", "never reached", "most mistakes on a table"], rows)


def recorded_curves(summary: Summary) -> str:
    """Return the table of each data set: our default and the method as printed."""
    rows = []
    for name, methods in summary.items():
        ours, paper = methods["bo_bos"], methods["printed"]
        count = ours["seeds"] - ours["in_design"]
        cells = [name, str(ours["seeds"])]
        for one in (ours, paper):
            cells += [with_interval(one, "ratio_of_means"), format_ratio(one["ratio_of_seeds"])]
            cells.append(f"{one['slower']} of {count}")
        cells.append(format_ratio(methods["oracle"]["ratio_of_means"]))
        cells += [f"{ours[key]:.0f} / {paper[key]:.0f}" for key in ("runs", "stops")]
        cells.append(f"{100 * ours['mistakes']:.1f} / {100 * paper['mistakes']:.1f} %")
        cells += [format_loss(ours["final_gp_ucb"]), f"{format_loss(ours['final'])} / {format_loss(paper['final'])}"]
        rows.append(cells)
    heads = ["table", "seeds", "ours, ratio of means", "of seeds", "slower", "printed, ratio of means", "of seeds"]
    return table([*heads, "slower", "oracle", "runs", "stops", "mistakes", "final, GP-UCB", "final"], rows)


def families(summary: Summary) -> str:
    """Return the table of LC prediction with the eleven families, for the data sets on which it was run."""
    rows = [
        [
            name,
            str(one["seeds"]),
            with_interval(one, "ratio_of_means"),
            with_interval(one, "ratio_of_seeds"),
            f"{one['slower']} of {one['seeds'] - one['in_design']}",
            f"{one['runs']:.0f}",
            f"{one['stops']:.0f}",
            f"{one['stopped_at']:.0f}",
            f"{100 * one['mistakes']:.1f} %",
            f"{one['decide_s']:.0f}",
        ]
        for name, methods in summary.items()
        if (one := methods.get("lc_families"))
    ]
    heads = ["table", "seeds", "ratio of means", "ratio of seeds", "slower", "runs", "stops", "stopped at", "mistakes"]
    return table([*heads, "processor s per study"], rows)


def tables(summary: Summary) -> list[str]:
    return [two_algorithms(summary), recorded_curves(summary), families(summary)]


def with_interval(found: Mapping[str, Any], kind: str) -> str:
    low, high = found[f"{kind}_90"]
    return f"{format_ratio(found[kind])} ({format_ratio(low)}–{format_ratio(high)})"


def format_loss(loss: float) -> str:
    """Format a final loss; accuracies of LCBench are stored as negative losses."""
    return f"{abs(loss):.1f}" if abs(loss) >= 100 else f"{abs(loss):.4f}"
