"""Figure of the stopping rule: the action at each step and mean error, for one run of a recorded table.

    python -m benchmarks bo_bos.decision_map [--table resnet] [--row 0] [--out results/decision_map.png] [--quick]

The map is solved after 8 of 50 steps with 100,000 simulated curves. The incumbent is the lowest error of the first six rows of
the table. The line is the run. Needs matplotlib.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from benchmarks.plotting import plt
from shoestring.models.stopping.optimal_stopping import StoppingRule
from shoestring.reports.figures.style import LIGHT
from shoestring.runners.simulated.recorded_table import Table

HERE = Path(__file__).parent
COLOURS = {
    "no simulated curve": LIGHT["rule"],
    "continue": LIGHT["c-validate"],
    "stop": LIGHT["c-repeated"],
    "finish": LIGHT["c-check"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", default="resnet")
    parser.add_argument("--row", type=int, default=None, help="default: the row of the first 40 that is stopped latest")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "decision_map.png")
    parser.add_argument("--quick", action="store_true", help="use the first row")
    options = parser.parse_args()
    if options.quick:
        options.row = 0
    table = Table.load(HERE.parent / "data" / "fashion_curves" / f"{options.table}.npz", max_steps=50)
    rule = StoppingRule(n0=8, n_max=table.max_steps)
    incumbent = float(np.nanmin(table.values[:6]))
    row = options.row if options.row is not None else _find_latest_stop(table, rule, incumbent)
    curve = table.values[row]
    plan = rule.plan(curve[:8], incumbent, np.random.default_rng(0))
    found = plan.decisions
    shown = np.where(found.count > 0, found.decision + 1, 0)  # (steps, cells)
    after = np.arange(rule.n0 + 1, rule.n_max + 1)
    mean_error = np.cumsum(curve[rule.n0 :]) / np.arange(1, after.size + 1)

    figure, axes = plt.subplots(figsize=(7.0, 4.2), layout="constrained")
    edges = np.arange(rule.n_cells + 1) / rule.n_cells
    axes.pcolormesh(
        np.append(after, rule.n_max + 1) - 0.5,
        edges,
        shown.T,
        cmap=ListedColormap(list(COLOURS.values())),
        vmin=0,
        vmax=3,
    )
    axes.plot(after, mean_error, color="black", lw=1.5)
    axes.plot(np.arange(1, 51), curve, color="black", lw=0.8, ls=":")
    axes.axhline(incumbent, color="black", lw=0.8, ls="--")
    stop = next((n for n in after if plan.decide(curve[:n]).stop), None)
    if stop is not None:
        axes.plot(stop, mean_error[stop - rule.n0 - 1], "kx", ms=9)
    seen = np.flatnonzero((found.count > 0).any(axis=0))
    axes.set_ylim(max(0.0, edges[seen[0]] - 0.02), min(1.0, max(edges[seen[-1] + 1], float(np.nanmax(curve))) + 0.02))
    axes.set(
        xlabel="step", ylabel="mean error since step 8", title=f"{options.table}, row {row}: incumbent {incumbent:.4f}"
    )
    axes.legend(handles=[Patch(color=colour, label=name) for name, colour in COLOURS.items()], loc="lower left")
    options.out.parent.mkdir(exist_ok=True)
    figure.savefig(options.out, dpi=110)
    print(f"{options.out}: stopped after step {stop}, would have ended at {curve[-1]:.4f}")


def _find_latest_stop(table: Table, rule: StoppingRule, incumbent: float) -> int:
    """Return the row that is stopped latest; its curve shows where the rule hesitates."""
    latest, chosen = -1, 0
    for row, curve in enumerate(table.values[:40]):
        if np.isnan(curve).any():
            continue
        plan = StoppingRule(n0=8, n_max=table.max_steps, n_paths=5000).plan(
            curve[:8], incumbent, np.random.default_rng(0)
        )
        stop = next((n for n in range(9, 51) if plan.decide(curve[:n]).stop), -1)
        if stop > latest:
            latest, chosen = stop, row
    return chosen


if __name__ == "__main__":
    main()
