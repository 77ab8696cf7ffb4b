"""Read trials of an earlier study from a table: CSV or JSON lines, as W&B, MLflow, Optuna and spreadsheets export them.

Each row is a trial, or one step of a trial. These columns have a meaning; all others are parameters, or are ignored.

    value       the column that the user names, else `value`, `loss`, `objective`, `score`, or the only column `metrics.…`
    trial       `trial`, `trial_id`, `run`, `run_id`, `number`, `id`: rows with the same entry are steps of one trial
    step        `step`, `epoch`, `iteration`: the order of these rows
    seconds     `seconds`, `duration`, `duration_s`, `time_s`, `_runtime`: of the step, or of the whole trial if it has one row

A parameter may have the prefix of its exporter: `config.lr`, `config/lr`, `params.lr`, `params_lr`, `param:lr`. If any column
has one, columns without one are no parameters. Text that is a number is read as a number, and `true`, `false` as booleans.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from shoestring.core.deciding.reproducible import sort_best_first
from shoestring.core.values.checks import is_finite, is_number
from shoestring.errors import StudyError, did_you_mean

TABLE_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")
_VALUES = ("value", "loss", "objective", "score")
_TRIALS = ("trial", "trial_id", "run", "run_id", "number", "id")
_STEPS = ("step", "epoch", "iteration")
_SECONDS = ("seconds", "duration", "duration_s", "time_s", "_runtime")
_PREFIXES = ("config.", "config/", "params.", "params/", "params_", "param:")
_METRICS = ("metrics.", "metrics/", "summary.")
_MAX_BYTES = 200_000_000  # of a table; a larger file is hardly a list of trials
_MAX_ROWS = 1_000_000
Row = Mapping[str, Any]
TableTrial = tuple[dict[str, Any], list[float | None], float | None]  # configuration, values by step, seconds of a step


def read_table(path: Path, column: str) -> Iterator[TableTrial]:
    """Yield the trials of a table, whose values are in `column`; without it the column is found by its name."""
    rows = _read_rows(path)
    if not rows:
        raise StudyError(
            f"the table {str(path)!r} has no rows: it needs one for each trial, or for each step of a trial"
        )
    names = list(dict.fromkeys(name for row in rows for name in row))
    values = _find_values(path, column, names)
    trial, step, seconds = (_find(names, known, besides=values) for known in (_TRIALS, _STEPS, _SECONDS))
    prefix = next((one for one in _PREFIXES if any(name.startswith(one) for name in names)), "")
    parameters = [name for name in names if name.startswith(prefix) and name not in (values, trial, step, seconds)]
    groups: dict[Any, list[Row]] = {}
    for number, row in enumerate(rows):
        groups.setdefault(number if trial is None else str(row.get(trial)), []).append(row)
    for group in groups.values():
        ordered = group if step is None else _order_by_step(group, step)
        config = {
            name.removeprefix(prefix): row[name] for row in ordered for name in parameters if _is_given(row, name)
        }
        losses = [_value(row.get(values)) for row in ordered]
        times = [time for row in ordered if (time := _number(row.get(seconds))) is not None] if seconds else []
        yield config, losses, math.fsum(times) / _count_steps(ordered, step) if times else None


def _order_by_step(rows: Sequence[Row], step: str) -> list[Row]:
    at = np.array([_number(row.get(step)) or 0.0 for row in rows])
    return [rows[int(i)] for i in sort_best_first(at, "lowest", exact=True)]


def _count_steps(rows: Sequence[Row], step: str | None) -> float:
    """Return over how many steps the seconds of these rows are spread: those of a single row are those of its whole trial."""
    last = _number(rows[-1].get(step)) if step is not None and len(rows) == 1 else None
    return max(1.0, last) if last is not None else float(len(rows))


def _find_values(path: Path, column: str, names: Sequence[str]) -> str:
    if column:
        if column not in names:
            raise StudyError(f"the table {str(path)!r} has no column {column!r}. {did_you_mean(column, names)}")
        return column
    metrics = [name for name in names if name.startswith(_METRICS)]
    if (found := _find(names, _VALUES)) is not None or len(metrics) == 1:
        return found or metrics[0]
    raise StudyError(
        f"the table {str(path)!r} has no column {', '.join(_VALUES)}: name the column with the values, as in "
        f"{path.name}#val_loss; it has {', '.join(names)}"
    )


def _find(names: Sequence[str], known: Sequence[str], besides: str = "") -> str | None:
    """Return the first of the known names that the table has, in any case of its letters."""
    lower = {name.lower(): name for name in reversed(names) if name != besides}
    return next((lower[name] for name in known if name in lower), None)


def _is_given(row: Row, name: str) -> bool:
    value = row.get(name)
    return value is not None and value != "" and not (isinstance(value, float) and not math.isfinite(value))


def _value(entry: Any) -> float | None:
    """Return the value of a row: infinite if it is no finite number, None if the cell is empty."""
    if entry is None or entry == "":
        return None
    return number if (number := _number(entry)) is not None else math.nan


def _number(entry: Any) -> float | None:
    return float(entry) if is_number(entry) and is_finite(entry) else None


# files ----------------------------------------------------------------------------------------------------------------


def _read_rows(path: Path) -> list[Row]:
    shown = str(path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise StudyError(
                f"the table {shown!r} is larger than {_MAX_BYTES // 1_000_000} MB: export fewer columns or rows"
            )
        text = path.read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise StudyError(f"the table {shown!r} cannot be read: {reason}") from None
    try:
        rows = list(islice(_parse(path, text), _MAX_ROWS + 1))
    except (csv.Error, ValueError, RecursionError) as error:
        raise StudyError(f"the table {shown!r} cannot be read: {str(error)[:200]}") from None
    if len(rows) > _MAX_ROWS:
        raise StudyError(f"the table {shown!r} has more than {_MAX_ROWS:,} rows: export one row for each trial")
    return rows


def _parse(path: Path, text: str) -> Iterator[Row]:
    ending = path.suffix.lower()
    if ending in (".csv", ".tsv"):
        for row in csv.DictReader(text.splitlines(), delimiter="\t" if ending == ".tsv" else ","):
            yield {
                name: _read_cell(cell) for name, cell in row.items() if isinstance(name, str) and isinstance(cell, str)
            }
        return
    is_list = ending == ".json" and text.lstrip().startswith("[")
    for line, entry in enumerate(json.loads(text) if is_list else map(_load, filter(str.strip, text.splitlines())), 1):
        if not isinstance(entry, dict):
            raise ValueError(f"entry {line} is no object with a name for each value: {str(entry)[:60]!r}")
        yield dict(_flatten(entry))


def _load(line: str) -> Any:
    return json.loads(line)


def _flatten(entry: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values of an object; those of an object inside it have its name before theirs, as in `config.lr`."""
    for name, value in entry.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{inner}", one) for inner, one in value.items() if not isinstance(one, dict))
        else:
            yield name, value


def _read_cell(cell: str) -> Any:
    """Return the value of a cell: a whole number, a number, a boolean, or text."""
    text = cell.strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text
