"""Set up matplotlib in the style of a report, for the figures of the papers: `from benchmarks.plotting import plt`.

It writes files and opens no window. `benchmarks.lines` draws line plots without matplotlib.
"""

from __future__ import annotations

import matplotlib as mpl

from shoestring.reports.figures.style import LIGHT

mpl.use("Agg")
import matplotlib.pyplot as plt

__all__ = ["plt"]

plt.rcParams.update(
    {
        "axes.prop_cycle": mpl.cycler(color=[LIGHT[f"l{number}"] for number in range(6)] + [LIGHT["soft"]]),
        "axes.edgecolor": LIGHT["soft"],
        "axes.labelcolor": LIGHT["ink"],
        "axes.titlesize": "medium",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "figure.facecolor": LIGHT["card"],
        "grid.color": LIGHT["rule"],
        "grid.linewidth": 0.7,
        "legend.edgecolor": LIGHT["rule"],
        "svg.hashsalt": "shoestring",  # makes the file reproducible
        "text.color": LIGHT["ink"],
        "xtick.color": LIGHT["soft"],
        "ytick.color": LIGHT["soft"],
    }
)
