"""Which parameter mattered? How differently the good configs are spread along it than all configs, with honest intervals.

A local importance after the idea of PED-ANOVA (Watanabe, Bansal, Hutter, "PED-ANOVA", IJCAI 2023): for each parameter the
Pearson divergence between its distribution among the best third and among all, sum over bins of q (p/q - 1)^2. Written here
in a few lines on bins of the unit interval, since a study has tens of trials, not thousands. The interval is a bootstrap over
trials. What chance alone gives is found by shuffling who is good: a bar that does not rise above it says nothing.
"""

from __future__ import annotations

import math

import numpy as np

from shoestring.core.space.parameters import Choice
from shoestring.core.values.arrays import Floats
from shoestring.reports.figures.configs import Compared, compare, varying
from shoestring.reports.figures.drawing import Figure, PlotAxis, Sheet, show_number
from shoestring.reports.figures.history import Story

_GOOD = 1 / 3  # of the trials
_MOST_BINS = 8
_REPEATS = 200
_MOST_SHOWN = 20


def draw_importance(story: Story) -> Figure | None:
    compared = compare(story)
    if compared is None or len(compared.numbers) < 12:
        return None
    names = list(varying(story.ledger.space))[:_MOST_SHOWN]
    found = {name: measure(bins_of(story, compared, name), np.array(compared.losses)) for name in names}
    ordered = sorted(names, key=lambda name: -found[name][0])
    sheet = Sheet(height=24 + 26 * len(names) + 20, label="importance of the parameters")
    x = PlotAxis(0.0, max(high for _, _, high, _ in found.values()) or 1.0, 170, sheet.width - 20)
    for row, name in enumerate(ordered):
        amount, low, high, chance = found[name]
        top = 8 + 26 * row
        tip = f"{name}: {amount:.3g} (95 % interval {low:.3g} to {high:.3g}); chance alone gives up to {chance:.3g}"
        sheet.text(162, top + 14, name, "name", "end")
        sheet.box(x.start, top, x(amount) - x.start, 18, "bar ok" if low > chance else "bar faint", tip)
        sheet.segment((x(low), top + 9), (x(high), top + 9), "axis")
        sheet.segment((x(chance), top - 2), (x(chance), top + 20), "guide")
    sheet.text((x.start + x.end) / 2, sheet.height - 4, "divergence of the best third from all", "name", "middle")
    clear = [name for name in ordered if found[name][1] > found[name][3]]
    told = f"{', '.join(clear)} {'stands' if len(clear) == 1 else 'stand'} out" if clear else "No parameter stands out"
    sentence = (
        f"{told} from what chance alone gives (the upright marks), judged on {len(compared.numbers)} trials at step "
        f"{compared.step}. Configs were chosen by the policy, so this tells about where it looked."
    )
    rows = [[name, *(show_number(number) for number in found[name])] for name in ordered]
    columns = ("parameter", "importance", "95 % from", "to", "chance gives up to")
    return Figure("importance", "What mattered", sentence, str(sheet), columns, rows)


def bins_of(story: Story, compared: Compared, name: str) -> Floats:
    """The bin of each trial; an inactive parameter has a bin of its own."""
    parameter = story.ledger.space.parameters[name]
    count = _count_bins(len(compared.numbers))
    if isinstance(parameter, Choice):
        count = len(parameter.options)
    bins = []
    for config in compared.configs:
        u = parameter.to_unit(config[name]) if name in config else None  # type: ignore[union-attr]
        bins.append(count if u is None else min(count - 1, int(u * count)))
    return np.array(bins, dtype=float)


def _count_bins(trials: int) -> int:
    return max(2, min(_MOST_BINS, round(math.sqrt(trials / 2))))


def measure(bins: Floats, losses: Floats) -> tuple[float, float, float, float]:
    """(importance, low and high end of its 95 % interval, what chance alone stays below in 95 % of shuffles)."""
    rng = np.random.default_rng(0)  # the same picture each time
    n_good = max(2, round(_GOOD * len(bins)))
    is_good = np.zeros(len(bins), dtype=bool)
    is_good[np.argsort(losses, kind="stable")[:n_good]] = True
    drawn, shuffled = [], []
    for _ in range(_REPEATS):
        rows = rng.integers(len(bins), size=len(bins))
        drawn.append(divergence(bins[rows], is_good[rows]))
        shuffled.append(divergence(bins, rng.permutation(is_good)))
    low, high = np.quantile(drawn, (0.025, 0.975))
    return divergence(bins, is_good), float(low), float(high), float(np.quantile(shuffled, 0.95))


def divergence(bins: Floats, is_good: Floats) -> float:
    """Pearson's chi-square divergence of the good from all, each bin with half a trial more so that none is empty."""
    count = int(bins.max()) + 1
    everyone = np.bincount(bins.astype(int), minlength=count) + 0.5
    good = np.bincount(bins[is_good.astype(bool)].astype(int), minlength=count) + 0.5
    q, p = everyone / everyone.sum(), good / good.sum()
    return float(np.sum(q * (p / q - 1.0) ** 2))
