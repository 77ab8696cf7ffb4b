"""Problems from tables: a listed space with a loss and a cost in seconds per row.

A folder holds .npz files with `hp` (n, d), `hp_names`, `cost` in seconds, the objective, and `meta`, JSON text with the keys
objective, direction, fidelity and hp_categories. A second axis is a fidelity (the last, full one is used) or repeats (their
mean is used). Positive losses that span more than a factor of 100 are replaced by their logarithms. `meta` may also describe the
task by the name of its `data`, `rows`, `columns` and `classes`: the meta-features of a transferred cost model.
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
from shoestring.models.cost_aware.cost_features import CostFeatures
from shoestring.models.cost_aware.cost_models import log_costs
from shoestring.models.cost_aware.linear import choose_columns, fit_transfer, pack
from shoestring.runners.simulated.simulated_runner import StepOutcome

Array = NDArray[np.float64]
# Parameters on which the cost of boosting depends, most important first. The paper names none; cost is about their product.
BOOSTING = (("num_round", "max_depth", "subsample"), ("nrounds", "max_depth", "subsample"))
PAPER = BOOSTING[0]  # their names in the paper's space of seven parameters
TRANSFER_ROWS = 200  # rows of each other problem to which a transferred model is fitted


@dataclass(frozen=True)
class Problem:
    """A table whose `losses` are minimised, whatever the direction of the table."""

    folder: str
    name: str
    configs: Sequence[Config]
    losses: Array  # (n,)
    seconds: Array  # (n,)
    is_logged: bool = field(default=False, kw_only=True)  # losses are logarithms of the measured ones
    data: str = field(default="", kw_only=True)  # name of the data set, if known
    task: tuple[float, ...] = field(default=(), kw_only=True)  # log rows, log columns, classes
    named: tuple[str, ...] = field(default=(), kw_only=True)  # parameters on which cost depends
    # the cost model of related problems
    transferred: Mapping[str, Sequence[float]] = field(default_factory=dict, kw_only=True)

    @cached_property
    def space(self) -> Space:
        return Space.from_configs(self.configs, log=wide_columns(self.configs))

    @cached_property
    def cost_features(self) -> Array:
        """Return the features of the cost models, (n, q)."""
        encoding = Encoding(self.space)
        return CostFeatures(encoding).of(encoding.points(self.configs))

    @property
    def key(self) -> str:
        """The key of the problem among stored runs."""
        return f"{self.folder}/{self.name}/{len(self.losses)}"

    @property
    def data_set(self) -> str:
        """The data set of the problem; a table without that name counts as its own data set."""
        return self.data or f"{self.folder}/{self.name}"

    @property
    def unit_loss(self) -> float:
        """The distance from the best to the median row, the unit of losses."""
        return float(np.median(self.losses) - self.losses.min()) or 1.0

    def step(self, config: Config, step: int) -> StepOutcome:
        row = self.space.row_number(config)
        assert row is not None
        return StepOutcome(float(self.losses[row]), Cost(train=float(self.seconds[row])))


def wide_columns(configs: Sequence[Config]) -> list[str]:
    """Return the columns of positive numbers that span two decades.

    These tables do not name their scales. In all of them such columns were drawn from a logarithmic scale.
    """
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
    """Load evenly spaced tables of each folder, at most `most` of them, each with at most `rows` random rows."""
    if len(most) not in (1, len(folders)):
        raise SystemExit(
            f"--problems {most} must be one number, or one for each of the {len(folders)} folders of --data"
        )
    problems = []
    for folder, count in zip(folders, list(most) * len(folders) if len(most) == 1 else most, strict=False):
        files = sorted(folder.glob("*.npz"))
        if not files:
            raise SystemExit(f"--data {folder} contains no .npz table: name a folder with tables")
        chosen = sorted({files[round(i)] for i in np.linspace(0, len(files) - 1, min(count, len(files)))})
        problems += [as_problem(path, _problem(path, rows)) for path in chosen]
    return [_with_cost_knowledge(problem, problems) for problem in problems]


def related_problems(problem: Problem, problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems with the same folder and space, on other data sets if these are known."""
    return [
        p
        for p in problems
        if p is not problem
        and p.folder == problem.folder
        and list(p.space.parameters) == list(problem.space.parameters)
        and p.cost_features.shape[1] == problem.cost_features.shape[1]
        and not (problem.data and p.data == problem.data)
    ]


def _with_cost_knowledge(problem: Problem, problems: Sequence[Problem]) -> Problem:
    """Return the problem with the parameters on which its cost depends, and with a transferred cost model."""
    features = CostFeatures(Encoding(problem.space))
    named = next((names for names in BOOSTING if set(names) <= set(problem.space.parameters)), ())
    others = related_problems(problem, problems)
    if not others:
        return replace(problem, named=named)
    tasks = [(p.cost_features[:TRANSFER_ROWS], log_costs(p.seconds)[:TRANSFER_ROWS]) for p in others]
    columns = features.columns_of(named)
    if not named:
        columns = choose_columns(np.vstack([f for f, _ in tasks]), np.concatenate([c for _, c in tasks]), 3)
        named = tuple(dict.fromkeys(features.names[j] for j in columns))
    has_meta = bool(problem.task) and all(p.task for p in others)
    described = {"task_meta": [p.task for p in others], "meta": problem.task} if has_meta else {}
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
    chosen = np.random.default_rng(len(usable)).permutation(usable)[:rows]
    names, categories, values = [str(name) for name in table["hp_names"]], meta.get("hp_categories", {}), table["hp"]
    whole = {name: bool(np.all(np.nan_to_num(column) % 1 == 0)) for name, column in zip(names, values.T, strict=True)}
    configs: dict[str, tuple[Config, int]] = {}
    for row in chosen:
        config: dict[str, Any] = {}
        for name, value in zip(names, values[row].tolist(), strict=True):
            if math.isnan(value):
                continue  # inactive in this configuration
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
