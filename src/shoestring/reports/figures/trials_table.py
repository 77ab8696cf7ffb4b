"""The table of all trials, with a column for each parameter and each metric.

It is a plain table. Where scripts run, `trials_table.js` makes it sortable and filterable, and shows a part of its rows at a
time. A cell is text; a duration also has its seconds, which are sorted and compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shoestring.core.ledger.budget import show_seconds
from shoestring.core.ledger.entries import Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.values.text import count, printable
from shoestring.reports.facts import rank_trials, state_of
from shoestring.reports.figures.history import StudyHistory

MAX_CELLS = 250_000  # more make a page too large to open quickly; `shoestring export` has all
_OWN_COLUMNS = ("study", "trial", "state", "steps", "at step", "time", "started", "ended")


class Duration(NamedTuple):
    """A cell that shows a duration."""

    seconds: float


Cell = str | int | float | Duration | None  # None: the trial does not have it


@dataclass(frozen=True)
class TrialsTable:
    """The trials of one or several studies, the best first."""

    sentence: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    ranked_by: str  # the column by which the rows are sorted
    is_max: bool  # whether the largest value comes first


def list_trials(histories: Sequence[StudyHistory]) -> TrialsTable | None:
    """Return the table; None before the first trial. It may lack the worst trials of a very long study."""
    total = sum(len(history.trials) for history in histories)
    if not total:
        return None
    values = {history.metric for history in histories}
    value_name = values.pop() if len(values) == 1 else "value"
    taken = {*_OWN_COLUMNS, value_name}
    facts = [(history, _metrics_at_best(history.ledger)) for history in histories]
    parameters = dict.fromkeys(name for history in histories for name in history.ledger.space.parameters)
    metrics = dict.fromkeys(name for _, found in facts for by_name in found.values() for name in by_name)
    parameter_names = {name: f"config.{name}" if name in taken else name for name in parameters}
    taken |= set(parameter_names.values())
    metric_names = {name: f"metrics.{name}" if name in taken else name for name in metrics}
    several = len(histories) > 1
    columns = [
        *(["study"] if several else []),
        *("trial", value_name, "state", "steps", "at step"),
        *parameter_names.values(),
        *metric_names.values(),
        *("time", "started", "ended"),
    ]
    most = max(1, MAX_CELLS // len(columns) // len(histories))
    rows = [
        [*([history.name] if several else []), *_row(trial, times, found.get(trial.number, {}), parameters, metrics)]
        for history, found in facts
        for trial, times in _best_trials(history, most)
    ]
    left_out = f" The table has the best {len(rows):,} of them." if len(rows) < total else ""
    sentence = (
        f"{count(total, 'trial')}, the best first, each with the {value_name} of its best step.{left_out} "
        "Started and ended: running time of the study."
    )
    return TrialsTable(sentence, columns, rows, value_name, histories[0].is_max)


def _best_trials(history: StudyHistory, most: int) -> Iterator[tuple[Trial, tuple[float, float]]]:
    """Yield the best trials, each with the times at which its training began and ended."""
    segments = history.segments_of_trials()
    for trial in rank_trials(history.ledger)[:most]:
        own = segments[trial.number]
        yield trial, (own[0].began_s, max(segment.ended_s for segment in own))


def _metrics_at_best(ledger: Ledger) -> dict[int, Mapping[str, float]]:
    """Return the metrics that were reported with the best value of each trial."""
    found: dict[int, Mapping[str, float]] = {}
    for entry in ledger.entries():
        if isinstance(entry, Receipt) and entry.metrics and entry.step == ledger.trials[entry.trial].best_step:
            found.setdefault(entry.trial, entry.metrics)
    return found


def _row(
    trial: Trial,
    times: tuple[float, float],
    metrics: Mapping[str, float],
    parameter_names: Mapping[str, None],
    metric_names: Mapping[str, None],
) -> list[Cell]:
    config = trial.best_config or trial.config
    return [
        *(trial.number, trial.best_value, state_of(trial), trial.steps, trial.best_step or None),
        *(_plain(config[name]) if name in config else None for name in parameter_names),
        *(metrics.get(name) for name in metric_names),
        *map(Duration, (trial.seconds, *times)),
    ]


def _plain(value: Any) -> Cell:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def show_cell(cell: Cell) -> str:
    """Return the text of a cell. Numbers have six digits, and no separators that a script would have to remove."""
    if cell is None:
        return ""
    if isinstance(cell, Duration):
        return show_seconds(cell.seconds)
    return f"{cell:.6g}" if isinstance(cell, float) else printable(str(cell))
