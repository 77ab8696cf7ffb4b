"""Tables as problems: a listed space, a loss and a cost in seconds for each row.

A folder holds .npz files with `hp` (n, d), `hp_names`, `cost` in seconds, the objective, and `meta`, JSON text with the keys
objective, direction, fidelity and hp_categories. A second axis is a fidelity (the last, full one is taken) or repeats (their
mean is). A loss above 0 that spans more than a factor of 100 is replaced by its logarithm. `meta` may also describe the task: the
name of its `data`, `rows`, `columns` and `classes`, which a transferred cost model is told.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoestring.core.ledger.entries import Cost
from shoestring.core.space.encoding import Encoding
from shoestring.core.space.space import Config, Space
from shoestring.models.cost_aware.cost_models import log_costs
from shoestring.models.cost_aware.features import CostFeatures
from shoestring.models.cost_aware.linear import choose_columns, fit_transfer, pack
from shoestring.runners.simulated.simulated_runner import StepOutcome

Array = NDArray[np.float64]
# What the cost of boosting depends on, most important first. The paper names no parameters; work is about their product.
BOOSTING = (("num_round", "max_depth", "subsample"), ("nrounds", "max_depth", "subsample"))
PAPER = BOOSTING[0]  # as they are called in the paper's own space of seven
FELLOW_ROWS = 200  # of each other problem that a transferred model is fitted to


@dataclass(frozen=True)
class Problem:
    """`losses`: smaller is better, whatever the table's direction."""

    folder: str
    name: str
    configs: Sequence[Config]
    losses: Array  # (n,)
    seconds: Array  # (n,)
    is_logged: bool = field(default=False, kw_only=True)  # losses are logarithms of what was measured
    data: str = field(default="", kw_only=True)  # what was trained on, where that is told
    task: tuple[float, ...] = field(default=(), kw_only=True)  # log rows, log columns, classes
    named: tuple[str, ...] = field(default=(), kw_only=True)  # parameters that cost depends on
    transferred: Mapping[str, Sequence[float]] = field(default_factory=dict, kw_only=True)  # cost model of its fellows

    @cached_property
    def space(self) -> Space:
        return Space.listed(self.configs, log=wide_columns(self.configs))

    @cached_property
    def cost_features(self) -> Array:
        """(n, q), what the cost models see."""
        encoding = Encoding(self.space)
        return CostFeatures(encoding).of(encoding.points(self.configs))

    @property
    def place(self) -> str:
        """Names the problem among kept runs."""
        return f"{self.folder}/{self.name}/{len(self.losses)}"

    @property
    def data_set(self) -> str:
        """What was trained on; a table that does not tell stands for itself."""
        return self.data or f"{self.folder}/{self.name}"

    @property
    def unit_loss(self) -> float:
        """From the best row to the median one: losses are compared in this unit."""
        return float(np.median(self.losses) - self.losses.min()) or 1.0

    def step(self, config: Config, step: int) -> StepOutcome:
        row = self.space.row_number(config)
        assert row is not None
        return StepOutcome(float(self.losses[row]), Cost(train=float(self.seconds[row])))


def wide_columns(configs: Sequence[Config]) -> list[str]:
    """Columns of positive numbers that span two decades: these tables do not tell their scales, and such ranges were drawn
    by orders of magnitude in all of them."""
    columns: dict[str, list[Any]] = {}
    for config in configs:
        for name, value in config.items():
            columns.setdefault(name, []).append(value)
    return [
        name
        for name, values in columns.items()
        if all(type(v) in (int, float) and v > 0 for v in values) and max(values) / min(values) >= 100
    ]


def load(
    folders: Sequence[Path],
    rows: int,
    most: Sequence[int],
    as_problem: Callable[[Path, Problem], Problem] = lambda path, problem: problem,
) -> list[Problem]:
    """Up to so many problems of each folder (one number for all or one each; spread evenly), each cut to `rows` random rows."""
    if len(most) not in (1, len(folders)):
        raise SystemExit(
            f"--problems {most} must be one number, or one for each of the {len(folders)} folders of --data"
        )
    problems = []
    for folder, count in zip(folders, list(most) * len(folders) if len(most) == 1 else most, strict=False):
        files = sorted(folder.glob("*.npz"))
        if not files:
            raise SystemExit(f"--data {folder} holds no .npz table: name a folder that does")
        chosen = sorted({files[round(i)] for i in np.linspace(0, len(files) - 1, min(count, len(files)))})
        problems += [as_problem(path, _problem(path, rows)) for path in chosen]
    return [_introduce(problem, problems) for problem in problems]


def fellows(problem: Problem, problems: Sequence[Problem]) -> list[Problem]:
    """Problems of the same folder and the same space, on other data where that is told."""
    return [
        p
        for p in problems
        if p is not problem
        and p.folder == problem.folder
        and list(p.space.parameters) == list(problem.space.parameters)
        and p.cost_features.shape[1] == problem.cost_features.shape[1]
        and not (problem.data and p.data == problem.data)
    ]


def _introduce(problem: Problem, problems: Sequence[Problem]) -> Problem:
    """The problem with what its fellows, or its parameters' names, say about cost."""
    features = CostFeatures(Encoding(problem.space))
    named = next((names for names in BOOSTING if set(names) <= set(problem.space.parameters)), ())
    others = fellows(problem, problems)
    if not others:
        return replace(problem, named=named)
    tasks = [(p.cost_features[:FELLOW_ROWS], log_costs(p.seconds)[:FELLOW_ROWS]) for p in others]
    columns = features.columns_of(named)
    if not named:
        columns = choose_columns(np.vstack([f for f, _ in tasks]), np.concatenate([c for _, c in tasks]), 3)
        named = tuple(dict.fromkeys(features.names[j] for j in columns))
    told = bool(problem.task) and all(p.task for p in others)
    described = {"task_meta": [p.task for p in others], "meta": problem.task} if told else {}
    return replace(problem, named=named, transferred=pack(fit_transfer(tasks, columns, **described)))


def _problem(path: Path, rows: int) -> Problem:
    table = dict(np.load(path))  # read once: an open file unpacks its arrays at every access
    meta: dict[str, Any] = json.loads(str(table["meta"]))
    losses, seconds = (_final(table[key], meta) for key in (meta["objective"], "cost"))
    losses = losses if meta["direction"] == "min" else -losses
    usable = np.flatnonzero(np.isfinite(losses) & np.isfinite(seconds) & (seconds > 0))
    best = float(losses[usable].min())
    is_logged = bool(best > 0 and losses[usable].max() > 100 * best)
    if is_logged:
        losses = np.log(losses)
    kept = np.random.default_rng(len(usable)).permutation(usable)[:rows]
    names, categories, values = [str(name) for name in table["hp_names"]], meta.get("hp_categories", {}), table["hp"]
    whole = {name: bool(np.all(np.nan_to_num(column) % 1 == 0)) for name, column in zip(names, values.T, strict=True)}
    configs: dict[str, tuple[Config, int]] = {}
    for row in kept:
        config: dict[str, Any] = {}
        for name, value in zip(names, values[row].tolist(), strict=True):
            if math.isnan(value):
                continue  # does not apply to this config
            if name in categories:
                config[name] = categories[name][int(value)]
            else:
                config[name] = int(value) if whole[name] else value
        configs.setdefault(json.dumps(config), (config, int(row)))
    found = [row for _, row in configs.values()]
    size = [meta.get(key) for key in ("rows", "columns", "classes")]
    return Problem(
        path.parent.name,
        path.stem,
        [c for c, _ in configs.values()],
        losses[found],
        seconds[found],
        is_logged=is_logged,
        data=str(meta.get("data", "")),
        task=() if None in size else (math.log(size[0]), math.log(size[1]), float(size[2])),
    )


def _final(values: Any, meta: dict[str, Any]) -> Array:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim == 1:
        return values
    return values[:, -1] if meta.get("fidelity") else values.mean(axis=1)
