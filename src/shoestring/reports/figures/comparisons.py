"""Draw studies side by side, and a study beside the replay of another policy on its recorded curves.

The comparison draws the best value against the budget spent, one colour for each policy, with an interval where a policy has
several studies. The replay figure shows the recorded curves twice: as far as each of the two policies trained them until it
found its best value. After that moment a replay goes on until it has trained nearly everything that is recorded, because there
is nothing else to spend its budget on; so its end would not show what it had paused.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Receipt
from shoestring.core.ledger.state import Trial
from shoestring.core.values.arrays import Floats
from shoestring.core.values.strict_json import dumps
from shoestring.core.values.text import count
from shoestring.reports.facts import format_config, rank_trials
from shoestring.reports.figures.costs import choose_range, make_staircase, range_of_bests
from shoestring.reports.figures.drawing import (
    LEFT,
    MAX_TABLE_ROWS,
    RIGHT,
    Figure,
    PlotAxis,
    Point,
    Sheet,
    budget_axis,
    draw_frame,
    plot_area,
    show_number,
    thin,
    value_axis,
)
from shoestring.reports.figures.history import StudyHistory

_COLOURS = 6
_PLACES = 120  # points along the budget axis at which means are computed
_MIN_STUDIES_FOR_MEAN = 3  # studies of one policy
_REPEATS = 500  # of the bootstrap
_MAX_POINTS = 24  # of one replayed curve: two pictures of every curve must stay small
_GAP = 24.0

# studies --------------------------------------------------------------------------------------------------------------


def draw_comparison(
    histories: Sequence[StudyHistory], *, title: str = "Studies side by side", caution: str = ""
) -> Figure | None:
    """Draw the best values of several studies; `caution` is what the reader must know, such as missing steps of a replay."""
    with_value = [history for history in histories if history.bests]
    units = Counter(history.budget.unit for history in with_value)
    known = [history for history in with_value if history.budget.unit == units.most_common(1)[0][0]]
    if len(known) < 2:
        return None
    budget = known[0].budget
    sheet = Sheet(height=340, label="best value against the budget spent, by policy")
    left, right, bottom, top = plot_area(sheet)
    x = budget_axis(max(history.ledger.spent for history in known), left, right)
    low, high, log = range_of_bests(known)
    y = value_axis(low, high, bottom, top, log=log)
    metrics = {history.metric for history in known}
    sheet.axes(x, y, f"spent ({budget.unit})", f"best {metrics.pop() if len(metrics) == 1 else 'value'}")
    groups: dict[str, list[StudyHistory]] = {}
    for history in known:
        groups.setdefault(history.state.policy, []).append(history)
    rows = []
    for number, (policy, members) in enumerate(groups.items()):
        colour = number % _COLOURS
        if len(members) >= _MIN_STUDIES_FOR_MEAN:
            _draw_mean(sheet, members, x, y, colour)
        else:
            for history in members:
                points = [(x(spent), y(value)) for spent, value in make_staircase(history.bests, history.ledger.spent)]
                sheet.line(points, f"curve line-{colour}", f"{history.name} ({policy}): {history.bests[-1].value:.6g}")
        sheet.text(right - 6, top + 14 + 16 * number, f"{policy} ({len(members)})", f"label fill-{colour}", "end")
        rows.append(_summarise(policy, members, budget))
    parts = [_name_best(groups)]
    if any(len(members) >= _MIN_STUDIES_FOR_MEAN for members in groups.values()):
        parts.append(f"Bands are 95% intervals of the mean, for policies with {_MIN_STUDIES_FOR_MEAN} studies or more.")
    if len(histories) > len(known):
        parts.append(f"Left out: {len(histories) - len(known)} without a value or with a budget in another unit.")
    sentence = " ".join([*parts, *([caution] if caution else [])])
    columns = ("policy", "studies", "mean of the best values", "from", "to", "mean spent")
    return Figure("comparison", title, sentence, str(sheet), columns, rows)


def _name_best(groups: dict[str, list[StudyHistory]]) -> str:
    means = {name: float(np.mean([member.state.best_loss for member in members])) for name, members in groups.items()}
    best = [name for name, mean in means.items() if math.isclose(mean, min(means.values()), rel_tol=1e-9)]
    has_several = any(len(members) > 1 for members in groups.values())
    value = "mean final value" if has_several else "final value"
    if len(best) == 1:
        return f"{best[0]} has the best {value}."
    return f"{', '.join(best[:-1])} and {best[-1]} have the same {value}."


def _draw_mean(sheet: Sheet, members: Sequence[StudyHistory], x: PlotAxis, y: PlotAxis, colour: int) -> None:
    begin = max(history.bests[0].spent for history in members)
    end = min(history.ledger.spent for history in members)
    places = np.linspace(begin, max(begin, end), _PLACES)
    curves = np.array([best_values_at(history, places) for history in members])
    mean = curves.mean(axis=0)
    low, high = bootstrap_mean(curves)
    band = [(x(float(p)), y(float(v))) for p, v in zip(places, low, strict=True)]
    band += [(x(float(p)), y(float(v))) for p, v in zip(places[::-1], high[::-1], strict=True)]
    sheet.line(band, f"band fill-{colour}")
    tip = f"{members[0].state.policy}: mean of {len(members)}, {mean[-1]:.6g}"
    sheet.line([(x(float(p)), y(float(v))) for p, v in zip(places, mean, strict=True)], f"curve line-{colour}", tip)


def best_values_at(history: StudyHistory, places: Floats) -> Floats:
    """Return the best value so far at each amount spent; before the first value, the first one."""
    spent = np.array([best.spent for best in history.bests])
    values = np.array([best.value for best in history.bests])
    return values[np.maximum(0, np.searchsorted(spent, places, side="right") - 1)]


def bootstrap_mean(curves: Floats) -> tuple[Floats, Floats]:
    """Return the 95% bootstrap interval of the mean over studies at each place; `curves` is (studies, places)."""
    rng = np.random.default_rng(0)
    rows = rng.integers(len(curves), size=(_REPEATS, len(curves)))
    low, high = np.quantile(curves[rows].mean(axis=1), (0.025, 0.975), axis=0)
    return low, high


def _summarise(policy: str, members: Sequence[StudyHistory], budget: Budget) -> list[str]:
    ends = np.array([[history.bests[-1].value] for history in members])
    spent = budget.show(float(np.mean([history.ledger.spent for history in members])))
    interval = ["–", "–"] if len(members) == 1 else [f"{float(end[0]):.6g}" for end in bootstrap_mean(ends)]
    return [policy, str(len(members)), f"{ends.mean():.6g}", *interval, spent]


# a replay -------------------------------------------------------------------------------------------------------------


def draw_replayed(history: StudyHistory, other: StudyHistory, missing_share: float) -> Figure | None:
    """Draw how far this study and the replay of another policy trained each curve.

    `other` is the replay on the curves of this study, `missing_share` the share of its steps that are not recorded.
    """
    longest = max((trial.steps for trial in history.trials), default=0)
    values = [v for trial in history.trials for v in trial.values if v is not None and math.isfinite(v)]
    best = history.ledger.best
    if longest < 2 or not values or best is None or not other.bests:
        return None
    steps_of = {dumps(other.trials[number].config): steps for number, steps in _steps_at_best(other).items()}
    other_steps = {trial.number: steps_of.get(dumps(trial.config), 0) for trial in history.trials}
    own_steps = _steps_at_best(history)
    name = other.state.policy
    sheet = Sheet(height=340, label=f"curves as far as this study trained them, and as far as {name} would have")
    left, right, bottom, top = plot_area(sheet)
    width = (right - left - _GAP) / 2
    low, high, log = choose_range(values, is_max=history.is_max)
    y = PlotAxis(low, high, bottom, top, log=log)
    for place, (title, ends) in enumerate(((f"this study: {history.state.policy}", own_steps), (name, other_steps))):
        start = left + place * (width + _GAP)
        x = PlotAxis(1.0, float(longest), start, start + width)
        draw_frame(sheet, x, y, with_numbers=not place)
        sheet.text(start, 14, title, "name")
        for trial in sorted(history.trials, key=lambda t: t is best):  # the best one last, so that it is on top
            own, others = own_steps.get(trial.number, 0), other_steps[trial.number]
            tip = f"trial {trial.number}: {own} steps by then, {others} with {name}\n{format_config(trial.config)}"
            _draw_trial(sheet, trial, ends.get(trial.number, 0), x, y, tip, is_best=trial is best)
    sheet.text((LEFT + sheet.width - RIGHT) / 2, sheet.height - 4, "step", "name", "middle")
    rows = [
        [
            trial.number,
            trial.steps,
            own_steps.get(trial.number) or "–",
            other_steps[trial.number] or "–",
            "–" if trial.best_value is None else show_number(trial.best_value),
            format_config(trial.config),
        ]
        for trial in rank_trials(history.ledger)[:MAX_TABLE_ROWS]
    ]
    columns = ("trial", "recorded steps", "steps by then", f"with {name}", "best value", "configuration")
    sentence = _describe_replay(history, other, own_steps, other_steps, missing_share)
    return Figure("replayed", f"What {name} would have paused", sentence, str(sheet), columns, rows, choice=name)


def _steps_at_best(history: StudyHistory) -> dict[int, int]:
    """Return how far each trial was trained when the study found its best value."""
    last, steps = history.bests[-1], dict[int, int]()
    for entry in history.ledger.entries():
        if isinstance(entry, Receipt) and entry.is_finished:
            steps[entry.trial] = max(entry.step, steps.get(entry.trial, 0))
            if (entry.trial, entry.step) == (last.trial, last.step):
                break
    return steps


def _draw_trial(sheet: Sheet, trial: Trial, end: int, x: PlotAxis, y: PlotAxis, tip: str, *, is_best: bool) -> None:
    """Draw the recorded curve faintly, the part up to step `end` in colour, and a dot where that part ends."""
    recorded: list[tuple[int, Point]] = [
        (step, (x(step), y(value)))
        for step, value in enumerate(trial.values, 1)
        if value is not None and math.isfinite(value)
    ]
    trained = [point for step, point in recorded if step <= end]
    if len(trained) < len(recorded):
        sheet.line(thin([point for _, point in recorded], _MAX_POINTS), "curve shade-1", tip)
    if trained:
        sheet.line(thin(trained, _MAX_POINTS), f"curve {'best' if is_best else 'shade-4'}", tip)
        sheet.dot(trained[-1], f"dot {'best' if is_best else 'paused'}", tip, radius=3.5 if is_best else 2.0)


def _describe_replay(
    history: StudyHistory,
    other: StudyHistory,
    own_steps: dict[int, int],
    other_steps: dict[int, int],
    missing_share: float,
) -> str:
    name, best, budget = other.state.policy, history.ledger.best, history.budget
    assert best is not None
    steps = other_steps[best.number]
    if not steps:
        outcome = f"had not started the best trial, {best.number}"
    elif steps < best.best_step:
        outcome = (
            f"had paused the best trial, {best.number}, at step {steps}; its best value came at step {best.best_step}"
        )
    else:
        outcome = f"had trained the best trial, {best.number}, to its best value"
    started = sum(steps > 0 for steps in other_steps.values())
    return (
        f"This study found its best value after {budget.show(history.bests[-1].spent)}, "
        f"with {count(len(own_steps), 'trial')} started. "
        f"{name} found its best after {budget.show(other.bests[-1].spent)}, with {started} of them started. By then it "
        f"{outcome}. "
        f"{missing_share:.0%} of the steps that it would have trained are not recorded."
    )
