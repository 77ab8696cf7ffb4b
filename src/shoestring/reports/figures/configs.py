"""Draw configurations and their values: parallel coordinates, one panel for each parameter, and importances.

Trials are compared at a step that many of them reached. Otherwise a trial that was paused early would lose to one that was
trained to its end, whatever its configuration.

The importance of a parameter is a local one, after the idea of PED-ANOVA (Watanabe, Bansal, Hutter, "PED-ANOVA", IJCAI 2023):
the Pearson divergence between the parameter's distribution p among the best third of the trials and its distribution q among all
of them, the sum over bins of q (p/q - 1)^2. It is computed here on a few bins of the unit interval, since a study has tens of
trials, not thousands. What chance alone gives is found by drawing which trials are good. A parameter has a clear effect only if
its importance is above that. With several parameters the bound is higher, so that in a study in which none has an effect the
probability that any of them seems to have one is 5%.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoestring.core.space.parameters import Choice, Constant, Parameter
from shoestring.core.space.space import Space
from shoestring.core.values.arrays import Floats, Indices
from shoestring.reports.facts import format_config
from shoestring.reports.figures.costs import choose_range
from shoestring.reports.figures.drawing import MAX_TABLE_ROWS, Figure, PlotAxis, Sheet, show_number, show_numbers
from shoestring.reports.figures.history import StudyHistory

MIN_TRIALS = 10  # at a common step
_MAX_PARAMETERS = 12  # in one figure of configurations
_AXIS_TOP, _AXIS_BOTTOM = 46.0, 286.0  # of the vertical axes

MIN_TRIALS_FOR_IMPORTANCE = 12
_GOOD_SHARE = 1 / 3  # of the trials
_MAX_BINS = 8
_DRAWS = 4000  # of which trials are good
_ERROR_RATE = 0.05  # the probability that a study in which no parameter has an effect names one
_MAX_MEASURED = 200  # parameters; each takes milliseconds, and a page that follows a study is drawn again and again
_MAX_BARS = 20


@dataclass(frozen=True)
class ComparedTrials:
    """Trials that reached `step`, with their values there or at the last validated step before it."""

    step: int
    numbers: Sequence[int]  # numbers of the trials
    configs: Sequence[Mapping[str, Any]]
    values: Sequence[float]
    losses: Sequence[float]


def compare_trials(history: StudyHistory) -> ComparedTrials | None:
    """Return the trials at the largest step that ten of them have reached, or a third of them if that is more."""
    reached = sorted((trial.steps for trial in history.trials if trial.best_step), reverse=True)
    wanted = max(MIN_TRIALS, len(reached) // 3)
    if len(reached) < MIN_TRIALS:
        return None
    step = reached[wanted - 1]
    rows = []
    for trial in history.trials:
        losses = [loss for loss in trial.losses[:step] if loss is not None and math.isfinite(loss)]
        if trial.steps >= step and losses:
            rows.append((trial.number, trial.config, history.state.sign * losses[-1], losses[-1]))
    if len(rows) < MIN_TRIALS:
        return None
    numbers, configs, values, losses_at = zip(*rows, strict=True)
    return ComparedTrials(step, numbers, configs, values, losses_at)


def varying_parameters(space: Space) -> dict[str, Parameter]:
    return {name: p for name, p in space.parameters.items() if not isinstance(p, Constant)}


# configurations -------------------------------------------------------------------------------------------------------


def draw_parallel(history: StudyHistory) -> Figure | None:
    """Draw each configuration as a line across its parameters, ending at its value."""
    compared, parameters = compare_trials(history), varying_parameters(history.ledger.space)
    if compared is None or len(parameters) < 2:
        return None
    names = list(parameters)[:_MAX_PARAMETERS]
    sheet = Sheet(height=336, label="configurations by parameter and value")
    xs = [54 + i * (sheet.width - 96) / len(names) for i in range(len(names) + 1)]
    low, high, log = choose_range(list(compared.values), is_max=history.is_max)
    y_value = PlotAxis(low, high, _AXIS_BOTTOM, _AXIS_TOP, log=log)
    order = sorted(range(len(compared.numbers)), key=lambda i: -compared.losses[i])  # the best one is drawn last
    ranks = {i: rank / max(1, len(order) - 1) for rank, i in enumerate(order)}
    for i in order:
        config = compared.configs[i]
        points = [
            (
                x,
                _AXIS_BOTTOM - (_AXIS_BOTTOM - _AXIS_TOP) * parameters[n].to_unit(config[n])  # type: ignore[union-attr]
                if n in config
                else _AXIS_BOTTOM + 15,
            )
            for x, n in zip(xs, names, strict=False)
        ]
        points.append((xs[-1], y_value(compared.values[i])))
        shade = "best" if ranks[i] == 1.0 else f"shade-{1 + int(4.999 * ranks[i])}"
        sheet.line(
            points, f"curve {shade}", f"trial {compared.numbers[i]}: {compared.values[i]:.6g}\n{format_config(config)}"
        )
    ends = [*(_ends(parameters[name]) for name in names), show_numbers((high, low))]
    for number, (x, name, (top, bottom)) in enumerate(zip(xs, [*names, history.metric], ends, strict=True)):
        sheet.segment((x, _AXIS_TOP), (x, _AXIS_BOTTOM), "axis")
        sheet.text(x, 12 if number % 2 else 26, _shorten(name), "name", "middle")  # alternate, so long names have room
        sheet.text(x, _AXIS_TOP - 5, top, anchor="middle")
        sheet.text(x, _AXIS_BOTTOM + 34, bottom, anchor="middle")
    sentence = (
        f"{len(compared.numbers)} configurations and their values at step {compared.step}. "
        "Lines in a stronger colour are better; the best one is orange."
    )
    if any(name not in config for config in compared.configs for name in names):
        sentence += " A line that passes below an axis belongs to a configuration without that parameter."
    best_first = sorted(range(len(compared.numbers)), key=lambda i: compared.losses[i])[:MAX_TABLE_ROWS]
    rows = [[compared.numbers[i], f"{compared.values[i]:.6g}", format_config(compared.configs[i])] for i in best_first]
    columns = ("trial", f"{history.metric} at step {compared.step}", "configuration")
    return Figure("parallel", "Configurations side by side", sentence, str(sheet), columns, rows)


def draw_slices(history: StudyHistory) -> Figure | None:
    """Draw values against one parameter at a time."""
    compared, parameters = compare_trials(history), varying_parameters(history.ledger.space)
    if compared is None:
        return None
    names = list(parameters)[:_MAX_PARAMETERS]
    columns = min(3, len(names))
    width, height = 720 / columns, 190.0
    sheet = Sheet(height=height * math.ceil(len(names) / columns), label="value against each parameter")
    low, high, log = choose_range(list(compared.values), is_max=history.is_max)
    least = min(compared.losses)
    for number, name in enumerate(names):
        left, top = (number % columns) * width, (number // columns) * height
        y = PlotAxis(low, high, top + height - 38, top + 24, log=log)
        parameter = parameters[name]
        sheet.text(left + 8, top + 14, name, "name")
        sheet.segment((left + 12, y.start), (left + width - 16, y.start), "axis")
        lowest, highest = _ends(parameter)[::-1]
        sheet.text(left + 12, y.start + 15, lowest)
        sheet.text(left + width - 16, y.start + 15, highest, anchor="end")
        for i, config in enumerate(compared.configs):
            if name in config:
                u = parameter.to_unit(config[name])  # type: ignore[union-attr]
                at = (left + 12 + u * (width - 28), y(compared.values[i]))
                is_best = compared.losses[i] == least
                tip = f"trial {compared.numbers[i]}: {compared.values[i]:.6g}\n{name} = {config[name]}"
                sheet.dot(at, f"dot {'best' if is_best else ''}", tip, radius=2.5)
    sentence = f"Values at step {compared.step} against one parameter at a time; larger values are higher up."
    rows = [[name, *_ends(parameters[name])[::-1]] for name in names]
    return Figure("slices", "One parameter at a time", sentence, str(sheet), ("parameter", "from", "to"), rows)


def _ends(parameter: Parameter) -> tuple[str, str]:
    """Return the labels at the top and at the bottom of a parameter's axis."""
    if isinstance(parameter, Choice):
        options = [str(option) for option in parameter.stored_options]
        return _shorten(options[-1]), _shorten(options[0])
    assert not isinstance(parameter, Constant)
    high, low = show_numbers((parameter.high, parameter.low))
    return high, low


def _shorten(text: str) -> str:
    return text if len(text) <= 14 else f"{text[:13]}…"


# importance -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Importance:
    """How differently the best trials are spread along one parameter, and what chance alone gives.

    Parameters
    ----------
    importance : float
        The divergence of the best third of the trials from all trials along this parameter; 0 if both are spread alike.
    chance : float
        The divergence that a parameter without any effect stays below.
    """

    importance: float
    chance: float

    @property
    def is_clear(self) -> bool:
        """Whether the parameter has a clear effect: an importance above what chance alone gives."""
        return self.importance > self.chance


def find_importances(history: StudyHistory) -> tuple[ComparedTrials, dict[str, Importance]] | None:
    """Return the compared trials and the importances by parameter, the largest first; None if there are too few trials."""
    compared = compare_trials(history)
    if compared is None or len(compared.numbers) < MIN_TRIALS_FOR_IMPORTANCE:
        return None
    names, losses = list(varying_parameters(history.ledger.space))[:_MAX_MEASURED], np.array(compared.losses)
    found = {name: measure_importance(bin_trials(history, compared, name), losses, len(names)) for name in names}
    return compared, dict(sorted(found.items(), key=lambda item: -item[1].importance))


def draw_importance(history: StudyHistory) -> Figure | None:
    """Draw the importance of each parameter, and what chance alone gives."""
    found = find_importances(history)
    if found is None or not found[1]:
        return None
    compared, importances = found[0], dict(list(found[1].items())[:_MAX_BARS])
    sheet = Sheet(height=24 + 26 * len(importances) + 20, label="importance of the parameters")
    longest = max(max(one.importance, one.chance) for one in importances.values())
    x = PlotAxis(0.0, longest or 1.0, 170, sheet.width - 20)
    for row, (name, one) in enumerate(importances.items()):
        top = 8 + 26 * row
        tip = f"{name}: {one.importance:.3g}; chance alone gives up to {one.chance:.3g}"
        sheet.text(162, top + 14, name, "name", "end")
        sheet.box(x.start, top, x(one.importance) - x.start, 18, "bar" if one.is_clear else "bar faint", tip)
        sheet.segment((x(one.chance), top - 2), (x(one.chance), top + 20), "guide")
    sheet.text((x.start + x.end) / 2, sheet.height - 4, "divergence of the best third from all", "name", "middle")
    clear = [name for name, one in importances.items() if one.is_clear]
    verb = "has" if len(clear) == 1 else "have"
    finding = f"{', '.join(clear)} {verb} a clear effect" if clear else "No parameter has a clear effect"
    sentence = (
        f"{finding} on the {history.metric}, judged on {len(compared.numbers)} trials at step {compared.step}. The dashed marks "
        "show what chance alone gives; a bar that ends before its mark is pale. "
        "The policy chose the configurations, so the result holds for the region that it explored."
    )
    rows = [
        [name, show_number(one.importance), show_number(one.chance), "yes" if one.is_clear else "no"]
        for name, one in importances.items()
    ]
    columns = ("parameter", "importance", "chance gives up to", "clear effect")
    return Figure("importance", "Which parameters mattered", sentence, str(sheet), columns, rows)


def bin_trials(history: StudyHistory, compared: ComparedTrials, name: str) -> Floats:
    """Return the bin of each trial along a parameter; trials that do not use the parameter share a bin of their own."""
    parameter = history.ledger.space.parameters[name]
    count = _count_bins(len(compared.numbers))
    if isinstance(parameter, Choice):
        count = len(parameter.options)
    bins = []
    for config in compared.configs:
        u = parameter.to_unit(config[name]) if name in config else None  # type: ignore[union-attr]
        bins.append(count if u is None else min(count - 1, int(u * count)))
    return np.array(bins, dtype=float)


def _count_bins(trials: int) -> int:
    return max(2, min(_MAX_BINS, round(math.sqrt(trials / 2))))


def measure_importance(bins: Floats, losses: Floats, parameters: int = 1) -> Importance:
    """Return the importance of one of so many parameters; `bins` has the bin of each trial."""
    _, all_counts = np.unique(bins, return_counts=True)
    n_good = max(2, round(_GOOD_SHARE * len(bins)))
    good = np.argsort(losses, kind="stable")[:n_good]
    good_counts = np.array([np.count_nonzero(bins[good] == each) for each in np.unique(bins)])
    rng = np.random.default_rng(0)  # a fixed seed, so that the picture is the same each time
    drawn = rng.multivariate_hypergeometric(all_counts, n_good, size=_DRAWS)
    chance = np.quantile(measure_divergence(all_counts, drawn), (1.0 - _ERROR_RATE) ** (1.0 / parameters))
    return Importance(float(measure_divergence(all_counts, good_counts)), float(chance))


def measure_divergence(all_counts: Indices, good_counts: Indices) -> Floats:
    """Return Pearson's divergence of the good trials from all, given how many are in each bin, along the last axis.

    Half a trial is added to each bin, so that no bin is empty.
    """
    everyone, good = all_counts + 0.5, good_counts + 0.5
    q, p = everyone / everyone.sum(), good / good.sum(axis=-1, keepdims=True)
    divergence: Floats = np.sum(q * (p / q - 1.0) ** 2, axis=-1)
    return divergence
