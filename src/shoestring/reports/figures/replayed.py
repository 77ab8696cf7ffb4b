"""What another policy would have frozen: the recorded curves twice, as far as each of the two bought them until its best value.

At the end a replay has bought nearly all that is recorded, since there is nothing else for its money. What it froze shows
when it has found what it was looking for.
"""

from __future__ import annotations

import math

from shoestring.core.ledger.entries import Receipt
from shoestring.core.ledger.state import Trial
from shoestring.core.values.strict_json import dumps
from shoestring.reports.facts import say_config, sort_best_first
from shoestring.reports.figures.costs import clip_range
from shoestring.reports.figures.drawing import (
    LEFT,
    MOST_TABLE_ROWS,
    RIGHT,
    Figure,
    PlotAxis,
    Point,
    Sheet,
    draw_frame,
    plot_area,
    show_number,
    thin,
)
from shoestring.reports.figures.history import Story

_MOST_POINTS = 24  # of one curve: two pictures of every curve must stay light
_GAP = 24.0


def draw_replayed(story: Story, other: Story, missing_share: float) -> Figure | None:
    """`other`: the replay of another policy on the curves of this study; `missing_share`: of its steps, those not recorded."""
    longest = max((trial.steps for trial in story.trials), default=0)
    values = [v for trial in story.trials for v in trial.values if v is not None and math.isfinite(v)]
    best = story.ledger.best
    if longest < 2 or not values or best is None or not other.bests:
        return None
    steps_of = {dumps(other.trials[number].config): steps for number, steps in _steps_when_best(other).items()}
    theirs = {trial.number: steps_of.get(dumps(trial.config), 0) for trial in story.trials}
    ours = _steps_when_best(story)
    name = other.books.policy
    sheet = Sheet(height=340, label=f"curves as far as they were bought, and as far as {name} would have bought them")
    left, right, bottom, top = plot_area(sheet)
    width = (right - left - _GAP) / 2
    y = PlotAxis(*clip_range(values, is_max=story.is_max), bottom, top)
    for place, (title, ends) in enumerate(((f"this study: {story.books.policy}", ours), (name, theirs))):
        start = left + place * (width + _GAP)
        x = PlotAxis(1.0, float(longest), start, start + width)
        draw_frame(sheet, x, y, with_numbers=not place)
        sheet.text(start, 14, title, "name")
        for trial in sorted(story.trials, key=lambda t: t is best):  # the best one last, so on top
            steps = ours.get(trial.number, 0), theirs[trial.number]
            tip = f"trial {trial.number}: {steps[0]} steps by then, {steps[1]} by {name}\n{say_config(trial.config)}"
            _draw_trial(sheet, trial, ends.get(trial.number, 0), x, y, tip, is_best=trial is best)
    sheet.text((LEFT + sheet.width - RIGHT) / 2, sheet.height - 4, "step", "name", "middle")
    rows = [
        [t.number, t.steps, ours.get(t.number) or "–", theirs[t.number] or "–", _best_value(t), say_config(t.config)]
        for t in sort_best_first(story.ledger)[:MOST_TABLE_ROWS]
    ]
    columns = ("trial", "recorded steps", "steps by then", f"by {name}", "best value", "config")
    sentence = _say(story, other, ours, theirs, missing_share)
    return Figure("replayed", f"What {name} would have frozen", sentence, str(sheet), columns, rows, choice=name)


def _steps_when_best(story: Story) -> dict[int, int]:
    """How far each trial was trained when the study found its best value."""
    last, steps = story.bests[-1], dict[int, int]()
    for entry in story.ledger.entries():
        if isinstance(entry, Receipt) and entry.is_finished:
            steps[entry.trial] = max(entry.step, steps.get(entry.trial, 0))
            if (entry.trial, entry.step) == (last.trial, last.step):
                break
    return steps


def _draw_trial(sheet: Sheet, trial: Trial, end: int, x: PlotAxis, y: PlotAxis, tip: str, *, is_best: bool) -> None:
    """The whole recorded curve faintly, what was bought of it in colour, and a dot where it was frozen."""
    recorded: list[tuple[int, Point]] = [
        (step, (x(step), y(value)))
        for step, value in enumerate(trial.values, 1)
        if value is not None and math.isfinite(value)
    ]
    bought = [point for step, point in recorded if step <= end]
    if len(bought) < len(recorded):
        sheet.line(thin([point for _, point in recorded], _MOST_POINTS), "curve shade-1", tip)
    if bought:
        sheet.line(thin(bought, _MOST_POINTS), f"curve {'best' if is_best else 'shade-4'}", tip)
        sheet.dot(bought[-1], f"dot {'best' if is_best else 'frozen'}", tip, radius=3.5 if is_best else 2.0)


def _say(story: Story, other: Story, ours: dict[int, int], theirs: dict[int, int], missing_share: float) -> str:
    name, best, budget = other.books.policy, story.ledger.best, story.budget
    assert best is not None
    got = theirs[best.number]
    if not got:
        fate = f"had not begun trial {best.number}, the winner"
    elif got < best.best_step:
        fate = (
            f"had frozen trial {best.number}, the winner, at step {got}, before its best value at step {best.best_step}"
        )
    else:
        fate = f"had trained trial {best.number}, the winner, to its best value"
    begun = sum(steps > 0 for steps in theirs.values())
    return (
        f"When each had found its best value: this study after {budget.show(story.bests[-1].spent)}, with {len(ours)} begun; "
        f"{name} after {budget.show(other.bests[-1].spent)}, with {begun} of them begun, and it {fate}. "
        f"{missing_share:.0%} of the steps that it asked for are not recorded."
    )


def _best_value(trial: Trial) -> str:
    return "–" if trial.best_value is None else show_number(trial.best_value)
