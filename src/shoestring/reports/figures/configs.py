"""Configs and what became of them: parallel coordinates, and one slice for each parameter, at a step that many trials reached.

Trials are compared at a common step: a trial frozen early would otherwise lose to one trained to its end, whatever its config.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoestring.core.space.parameters import Choice, Constant, Parameter
from shoestring.core.space.space import Space
from shoestring.reports.facts import say_config
from shoestring.reports.figures.costs import clip_range
from shoestring.reports.figures.drawing import MOST_TABLE_ROWS, Figure, PlotAxis, Sheet, show_number
from shoestring.reports.figures.history import Story

_ENOUGH = 10  # trials at a common step
_MOST_SHOWN = 12  # parameters in one figure
_HEAD, _FOOT = 46.0, 286.0  # of the upright axes


@dataclass(frozen=True)
class Compared:
    """Trials with a value at `step`, or at the last step before it that was validated."""

    step: int
    numbers: Sequence[int]  # of the trials
    configs: Sequence[Mapping[str, Any]]
    values: Sequence[float]
    losses: Sequence[float]


def compare(story: Story) -> Compared | None:
    """At the largest step that ten trials, or a third of them if those are more, have reached."""
    reached = sorted((trial.steps for trial in story.trials if trial.best_step), reverse=True)
    wanted = max(_ENOUGH, len(reached) // 3)
    if len(reached) < _ENOUGH:
        return None
    step = reached[wanted - 1]
    rows = []
    for trial in story.trials:
        losses = [loss for loss in trial.losses[:step] if loss is not None and math.isfinite(loss)]
        if trial.steps >= step and losses:
            rows.append((trial.number, trial.config, story.books.sign * losses[-1], losses[-1]))
    if len(rows) < _ENOUGH:
        return None
    numbers, configs, values, losses_at = zip(*rows, strict=True)
    return Compared(step, numbers, configs, values, losses_at)


def varying(space: Space) -> dict[str, Parameter]:
    return {name: p for name, p in space.parameters.items() if not isinstance(p, Constant)}


def draw_parallel(story: Story) -> Figure | None:
    compared, parameters = compare(story), varying(story.ledger.space)
    if compared is None or len(parameters) < 2:
        return None
    names = list(parameters)[:_MOST_SHOWN]
    sheet = Sheet(height=336, label="configs by parameter and value")
    xs = [54 + i * (sheet.width - 96) / len(names) for i in range(len(names) + 1)]
    low, high = clip_range(list(compared.values), is_max=story.is_max)
    y_value = PlotAxis(low, high, _FOOT, _HEAD)
    order = sorted(range(len(compared.numbers)), key=lambda i: -compared.losses[i])  # the best drawn last
    ranks = {i: rank / max(1, len(order) - 1) for rank, i in enumerate(order)}
    for i in order:
        config = compared.configs[i]
        points = [
            (x, _FOOT - (_FOOT - _HEAD) * parameters[n].to_unit(config[n]) if n in config else _FOOT + 15)  # type: ignore[union-attr]
            for x, n in zip(xs, names, strict=False)
        ]
        points.append((xs[-1], y_value(compared.values[i])))
        shade = "best" if ranks[i] == 1.0 else f"shade-{1 + int(4.999 * ranks[i])}"
        sheet.line(
            points, f"curve {shade}", f"trial {compared.numbers[i]}: {compared.values[i]:.6g}\n{say_config(config)}"
        )
    for number, (x, name) in enumerate(zip(xs, [*names, "value"], strict=True)):
        sheet.segment((x, _HEAD), (x, _FOOT), "axis")
        sheet.text(x, 12 if number % 2 else 26, _short(name), "name", "middle")  # long names make room for each other
        top, bottom = (show_number(high), show_number(low)) if name == "value" else _ends(parameters[name])
        sheet.text(x, _HEAD - 5, top, anchor="middle")
        sheet.text(x, _FOOT + 34, bottom, anchor="middle")
    sentence = (
        f"{len(compared.numbers)} configs at step {compared.step}, the better the stronger the colour; "
        "a line below the axes marks a parameter that is not active."
    )
    best_first = sorted(range(len(compared.numbers)), key=lambda i: compared.losses[i])[:MOST_TABLE_ROWS]
    rows = [[compared.numbers[i], f"{compared.values[i]:.6g}", say_config(compared.configs[i])] for i in best_first]
    columns = ("trial", f"value at step {compared.step}", "config")
    return Figure("parallel", "Configs side by side", sentence, str(sheet), columns, rows)


def draw_slices(story: Story) -> Figure | None:
    compared, parameters = compare(story), varying(story.ledger.space)
    if compared is None:
        return None
    names = list(parameters)[:_MOST_SHOWN]
    columns = min(3, len(names))
    width, height = 720 / columns, 190.0
    sheet = Sheet(height=height * math.ceil(len(names) / columns), label="value against each parameter")
    low, high = clip_range(list(compared.values), is_max=story.is_max)
    for number, name in enumerate(names):
        left, top = (number % columns) * width, (number // columns) * height
        y = PlotAxis(low, high, top + height - 38, top + 24)
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
                is_best = compared.losses[i] == min(compared.losses)
                tip = f"trial {compared.numbers[i]}: {compared.values[i]:.6g}\n{name} = {config[name]}"
                sheet.dot(at, f"dot {'best' if is_best else ''}", tip, radius=2.5)
    sentence = f"Values at step {compared.step} against one parameter at a time, up is larger."
    rows = [[name, *_ends(parameters[name])[::-1]] for name in names]
    return Figure("slices", "One parameter at a time", sentence, str(sheet), ("parameter", "from", "to"), rows)


def _ends(parameter: Parameter) -> tuple[str, str]:
    """What stands at the top and at the bottom of its axis."""
    if isinstance(parameter, Choice):
        options = [str(option) for option in parameter.options]
        return _short(options[-1]), _short(options[0])
    assert not isinstance(parameter, Constant)
    return show_number(parameter.high), show_number(parameter.low)


def _short(text: str) -> str:
    return text if len(text) <= 14 else f"{text[:13]}…"
