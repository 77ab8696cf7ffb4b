"""Tables of README.md from what results/curves.json says; `curves.py --show` prints them last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.bo_bos.compare import meets, shown
from benchmarks.markdown import table

ALGORITHMS = {
    "bo_bos": "ours (default)",
    "printed": "the paper's own combination",
    "hyperband": "Hyperband, R = 50",
    "hyperband 80": "Hyperband, R = 80",
    "oracle": "oracle",
}
Summary = Mapping[str, Mapping[str, Mapping[str, Any]]]


def two_algorithms(summary: Summary) -> str:
    """Each algorithm over all tables."""
    rows = []
    for method, name in ALGORITHMS.items():
        mine, found = [methods[method] for methods in summary.values()], meets(dict(summary), method)
        assert found is not None
        cells = [
            cell
            for kind in ("ratio_of_means", "ratio_of_seeds")
            for cell in (f"{found[kind]['at_target']} of {len(mine)}", shown(found[kind]["median"]))
        ]
        told = sum(one["seeds"] - one["in_design"] for one in mine)
        slower, never = (sum(one[count] for one in mine) for count in ("slower", "never"))
        mistakes = f"{max(one['mistakes'] for one in mine):.1%}".replace("%", " %")
        judges = any(one["stops"] for one in mine) and method != "oracle"
        rows.append([name, *cells, f"{slower} of {told}", str(never), mistakes if judges else "—"])
    heads = ["method", "at 0.75 by the means", "median", "at 0.75 by the seeds", "median"]
    return table([*heads, "studies slower than GP-UCB", "never there", "most mistakes on a table"], rows)


def recorded_curves(summary: Summary) -> str:
    """Each table: ours and the paper's."""
    rows = []
    for name, methods in summary.items():
        ours, paper = methods["bo_bos"], methods["printed"]
        told = ours["seeds"] - ours["in_design"]
        cells = [name, str(ours["seeds"])]
        for one in (ours, paper):
            cells += [spread(one, "ratio_of_means"), shown(one["ratio_of_seeds"]), f"{one['slower']} of {told}"]
        cells.append(shown(methods["oracle"]["ratio_of_means"]))
        cells += [f"{ours[key]:.0f} / {paper[key]:.0f}" for key in ("runs", "stops")]
        cells.append(f"{100 * ours['mistakes']:.1f} / {100 * paper['mistakes']:.1f} %")
        cells += [final(ours["final_gp_ucb"]), f"{final(ours['final'])} / {final(paper['final'])}"]
        rows.append(cells)
    heads = ["table", "seeds", "ours, ratio of means", "of seeds", "slower", "paper's, ratio of means", "of seeds"]
    return table([*heads, "slower", "oracle", "runs", "stops", "mistakes", "final, GP-UCB", "final"], rows)


def families(summary: Summary) -> str:
    """LC prediction with the eleven parametric families, where it was run."""
    rows = [
        [
            name,
            str(one["seeds"]),
            spread(one, "ratio_of_means"),
            spread(one, "ratio_of_seeds"),
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
    return table([*heads, "processor s a study"], rows)


def tables(summary: Summary) -> list[str]:
    return [two_algorithms(summary), recorded_curves(summary), families(summary)]


def spread(found: Mapping[str, Any], kind: str) -> str:
    low, high = found[f"{kind}_90"]
    return f"{shown(found[kind])} ({shown(low)}–{shown(high)})"


def final(loss: float) -> str:
    """Accuracies of LCBench are kept with a minus sign: less is better."""
    return f"{abs(loss):.1f}" if abs(loss) >= 100 else f"{abs(loss):.4f}"
