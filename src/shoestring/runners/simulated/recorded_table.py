"""Tables of recorded training curves: each has a space of listed configs, and is a source for the simulated runner.

    table = Table.load("cnn_cifar10.npz", max_steps=50)
    SimulatedRunner(table, workers=4)        with Space: table.space(), steps: table.max_steps, direction: table.direction

The npz layout: `hp` (n, d) numbers, `hp_names` (d,), `meta` (JSON text with `objective`, `direction`, `fidelity`,
`hp_categories`: {name: [text of 0, text of 1, …]} and `log`: [names on a log scale]), the objective under its own name, and
optionally `cost` and `eval_cost` in seconds. A scale is never guessed: hyperparameters are on a linear scale unless the table or
the argument `log` names them.

    objective  (n, T), nan after the end of a curve; (n,) for one step; (n, repeats) where `fidelity` is null: their mean
    cost       (n, T) since the start of the run; (n,) of the whole run, spread evenly over its steps; absent: 1 s per step
    eval_cost  (n,) or one number: seconds of one validation pass, 0 when absent

A hyperparameter that is nan is inactive and left out of its config. Rows with equal hyperparameters, repeated runs, get a
parameter `run` that distinguishes them. A value that is nan before the end of its curve, or infinite, is a diverged step;
so is the first step of a row without any value.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoestring.core.ledger.entries import Cost, Direction
from shoestring.core.space.parameters import CostMark
from shoestring.core.space.space import Config, Space
from shoestring.core.values.arrays import Floats
from shoestring.core.values.strict_json import dumps
from shoestring.errors import StudyError
from shoestring.runners.simulated.simulated_runner import StepOutcome


@dataclass(frozen=True)
class Table:
    """Recorded curves of n configs, T steps each. It is a `Source` for the simulated runner."""

    configs: Sequence[Config]
    values: Floats  # (n, T), nan after the end
    costs_s: Floats  # (n, T): of each step
    direction: Direction = "min"
    eval_costs_s: Floats = field(default_factory=lambda: np.zeros(0))  # (n,): of one validation pass; empty: none
    name: str = ""
    log: Sequence[str] = ()  # hyperparameters on a log scale
    # what the cost of a trial does as a hyperparameter grows, by name; not read from the file
    cost_marks: Mapping[str, CostMark] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape != self.costs_s.shape or len(self.configs) != len(self.values):
            raise StudyError(
                f"the table {self.name!r} has {len(self.configs)} configs, values of shape {self.values.shape} and costs of "
                f"shape {self.costs_s.shape}: values and costs must both be (configs, steps)"
            )

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        max_steps: int | None = None,
        rows: Sequence[int] | NDArray[np.int64] | None = None,
        log: Sequence[str] | None = None,
    ) -> Table:
        """Return the table in an npz file.

        Parameters
        ----------
        path : str or Path
            The file, in the layout that this module describes.
        max_steps : int, optional
            Thin longer curves to so many steps.
        rows : sequence of int, optional
            Use these rows only.
        log : sequence of str, optional
            The hyperparameters on a log scale; by default those that the file names.

        Raises
        ------
        StudyError
            If the file is missing, damaged or in another layout.
        """
        name = Path(path).stem
        try:
            with np.load(path, allow_pickle=False) as arrays:
                meta = json.loads(str(arrays["meta"]))
                objective, hp, hp_names = arrays[meta["objective"]], arrays["hp"], arrays["hp_names"]
                cost, eval_cost = arrays.get("cost"), arrays.get("eval_cost")
        except FileNotFoundError:
            raise StudyError(f"the table {str(path)!r} does not exist: check the path") from None
        except KeyError as error:
            raise StudyError(f"the table {str(path)!r} lacks {error}: see the layout in {__name__}") from None
        except (OSError, ValueError) as error:
            why = error if zipfile.is_zipfile(path) else "it is not an .npz file"
            raise StudyError(f"the table {str(path)!r} cannot be read: {why}; see the layout in {__name__}") from None
        values = np.asarray(objective, dtype=float)
        if values.ndim == 2 and meta.get("fidelity", "") is None:
            values = _mean_over_repeats(values)
            cost = None if cost is None else _mean_over_repeats(np.asarray(cost, dtype=float))
        values = values[:, None] if values.ndim == 1 else values
        since_start = _since_start(cost, values)
        if max_steps is not None and values.shape[1] > max_steps:
            values, since_start = _thin(values, since_start, max_steps)
        configs = _configs(hp, [str(parameter) for parameter in hp_names], meta.get("hp_categories") or {})
        costs_s = np.maximum(0.0, np.diff(since_start, axis=1, prepend=0.0))
        eval_costs = np.zeros(0) if eval_cost is None else np.broadcast_to(np.asarray(eval_cost, float), len(values))
        scales = tuple(meta.get("log", ()) if log is None else log)
        table = cls(configs, values, costs_s, meta.get("direction", "min"), np.nan_to_num(eval_costs), name, scales)
        return table if rows is None else table.subset(rows)

    def subset(self, rows: Sequence[int] | NDArray[np.int64]) -> Table:
        chosen = [int(row) for row in rows]
        evals = self.eval_costs_s[chosen] if len(self.eval_costs_s) else self.eval_costs_s
        configs = [self.configs[row] for row in chosen]
        return replace(
            self, configs=configs, values=self.values[chosen], costs_s=self.costs_s[chosen], eval_costs_s=evals
        )

    @property
    def max_steps(self) -> int:
        return int(self.values.shape[1])

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """(n,): the last step of each curve that has a value; 1 for a row without any."""
        return np.maximum(1, _lengths(self.values))

    def space(self) -> Space:
        return self._space

    @cached_property
    def _space(self) -> Space:
        return Space.from_configs(self.configs, log=self.log, cost=self.cost_marks)

    def step(self, config: Config, step: int) -> StepOutcome | None:
        row = self._space.row_number(config)
        if row is None:
            raise StudyError(f"{dict(config)!r} is not one of the {len(self.configs)} rows of the table {self.name!r}")
        if step > self.lengths[row]:
            return None
        validate = float(self.eval_costs_s[row]) if len(self.eval_costs_s) else 0.0
        return StepOutcome(
            float(self.values[row, step - 1]), Cost(train=float(self.costs_s[row, step - 1]), validate=validate)
        )


def _lengths(values: Floats) -> NDArray[np.int64]:
    """Return (n,): one more than the index of the last value that is not nan; 0 where all are."""
    is_present = ~np.isnan(values)
    return np.where(is_present.any(axis=1), values.shape[1] - np.argmax(is_present[:, ::-1], axis=1), 0)


def _mean_over_repeats(values: Floats) -> Floats:
    """Return the mean of each row, (n,); nan where no repeat has a value."""
    is_present = ~np.isnan(values)
    count = is_present.sum(axis=-1)
    return np.where(count > 0, np.where(is_present, values, 0.0).sum(axis=-1) / np.maximum(count, 1), math.nan)


def _since_start(cost: ArrayLike | None, values: Floats) -> Floats:
    """Return (n, T): seconds from the start of the run to the end of each step, without gaps."""
    steps = np.arange(1.0, values.shape[1] + 1)
    if cost is None:
        return np.broadcast_to(steps, values.shape).copy()
    seconds = np.asarray(cost, dtype=float)
    if seconds.ndim == 1:
        lengths = np.maximum(1, _lengths(values))
        finished: Floats = np.minimum(1.0, steps / lengths[:, None])
        spread: Floats = np.nan_to_num(seconds)[:, None] * finished
        return spread
    if seconds.shape != values.shape:
        raise StudyError(f"the costs have the shape {seconds.shape}, the values {values.shape}: they must agree")
    gapless: Floats = np.maximum.accumulate(np.where(np.isfinite(seconds), seconds, 0.0), axis=1)
    return gapless


def _thin(values: Floats, since_start: Floats, steps: int) -> tuple[Floats, Floats]:
    """Return curves of `steps` blocks of steps: the last value within each block, and the time at its end."""
    ends = [math.ceil((i + 1) * values.shape[1] / steps) for i in range(steps)]
    lengths = np.maximum(1, _lengths(values))
    rows = np.arange(len(values))
    thin, time = np.full((len(values), steps), math.nan), np.zeros((len(values), steps))
    for i, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        last = np.minimum(lengths, end) - 1
        thin[:, i] = np.where(lengths > begin, values[rows, last], math.nan)
        time[:, i] = since_start[rows, last]
    return thin, time


def _configs(hp: Floats, names: Sequence[str], categories: Mapping[str, Sequence[str]]) -> list[Config]:
    columns = {name: _column(np.asarray(hp[:, j], dtype=float), categories.get(name)) for j, name in enumerate(names)}
    configs: list[dict[str, Any]] = [
        {name: column[i] for name, column in columns.items() if column[i] is not None} for i in range(len(hp))
    ]
    keys = [dumps(config) for config in configs]
    if len(set(keys)) == len(keys) and all(configs):
        return list(configs)
    runs: dict[str, int] = {}
    for config, key in zip(configs, keys, strict=True):
        config["run"] = runs.get(key, 0)
        runs[key] = config["run"] + 1
    return list(configs)


def _column(numbers: Floats, category: Sequence[str] | None) -> list[Any]:
    """Return one hyperparameter by row: text of a category, int where all are whole, else float; None where inactive."""
    is_present = np.isfinite(numbers)
    if category is not None:
        return [str(category[int(v)]) if ok else None for v, ok in zip(numbers, is_present, strict=True)]
    active = numbers[is_present]
    whole = bool(np.all(active == np.round(active))) and bool(np.all(np.abs(active) < 2**53))
    kind = int if whole else float
    return [kind(v) if ok else None for v, ok in zip(numbers, is_present, strict=True)]
