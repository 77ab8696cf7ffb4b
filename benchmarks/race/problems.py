"""The problems of the race: a space, learning curves with costs, and the best loss that a budget allows.

    suite      source                 what it is
    tables     a folder of --data     recorded curves of 10 steps or more, thinned to 50; 200 configurations are drawn per seed
    plain      a folder of --data     tables with one value per configuration (of shorter curves the last); 1000 configurations
               functions              Branin, Hartmann in six dimensions, a mixed table, with costs (functions.py)
    trained    a kind of model        models that are really trained, on a real clock (trained.py)

A budget is a number of full curves. In the unit `curves`, a full curve is as many steps as the longest curve has; in `seconds`,
it is the time of the median curve (for a trained task: `CURVE_S`).

    regret = (best found - l*) / (start - l*)        l*: the lowest loss of any drawn configuration within the budget
                                                     start: the median first loss of the drawn configurations

Losses above the 95 % quantile of first losses count as that quantile. So does a step that diverged, and so does a run that
found nothing at all.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.race.cost_marks import cost_marks
from benchmarks.race.scales import log_scales
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config, Space
from shoestring.runners.runner import Runner
from shoestring.runners.simulated.recorded_table import Table
from shoestring.runners.simulated.simulated_runner import SimulatedRunner

Unit = Literal["curves", "seconds"]
SUITES = ("tables", "plain", "trained")
SHIPPED = Path(__file__).parents[1] / "data"
MIN_CONFIGS, MIN_STEPS, CLIP = 40, 10, 0.95
SYNTHETIC_STEPS = 50
POOL = {"tables": 200, "plain": 1000, "trained": 0}  # configurations drawn per seed


def stable_hash(*parts: object) -> int:
    """Return a number below 2**31 that depends on these words only, not on other runs or their order."""
    digest = blake2b("\0".join(map(str, parts)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1  # some tools accept no larger seed


@dataclass(frozen=True)
class ProblemSpec:
    """A problem before its configurations are drawn: its names and its file."""

    suite: str
    source: str
    table: str
    path: Path | None = None  # of the npz file
    has_costs: bool = True
    steps: int = 50  # curves are thinned to at most this many steps
    pool: int | None = None  # number of configurations drawn; None: the default of the suite

    @property
    def name(self) -> str:
        return f"{self.source}/{self.table}"

    def units(self, wanted: Sequence[Unit]) -> list[Unit]:
        """Return the units among `wanted` that apply: seconds need costs, and a real clock has only seconds."""
        if self.suite == "trained":
            return ["seconds"]
        return [unit for unit in wanted if unit == "curves" or self.has_costs]

    def draw(self, seed: int) -> Problem:
        """Return the problem with the configurations of this seed, the same for every method, budget and unit."""
        if self.suite == "trained":
            from benchmarks.race import trained

            return trained.problem(self.table)
        if self.path is None:
            from benchmarks.race import functions

            return functions.problem(self.table, stable_hash("pool", self.name, seed))
        table = _load(self.path, self.source, self.steps if self.suite == "tables" else None)
        pool = POOL[self.suite] if self.pool is None else self.pool
        return TableProblem(
            draw_table(
                table if self.suite == "tables" else last_values(table), stable_hash("pool", self.name, seed), pool
            )
        )


@dataclass(frozen=True)
class Problem:
    """A problem with drawn configurations; subclasses define its curves and its optimum."""

    @property
    def space(self) -> Space:
        raise NotImplementedError

    @property
    def max_steps(self) -> int:
        raise NotImplementedError

    @property
    def start(self) -> float:
        """The loss that has a regret of 1."""
        raise NotImplementedError

    @property
    def worst(self) -> float:
        """The loss of a run that found nothing."""
        raise NotImplementedError

    @property
    def fixed(self) -> frozenset[str] | None:
        """Hyperparameters that a copied training cannot change; None if this problem cannot copy trainings."""
        return None

    def runner(self) -> Runner:
        raise NotImplementedError

    def curve_s(self) -> float:
        """Return the seconds of a budget of 1."""
        raise NotImplementedError

    def optimum(self, curves: float, unit: Unit) -> float:
        """Return the lowest loss of any configuration within the budget."""
        raise NotImplementedError

    def oracle(self, curves: float, unit: Unit) -> tuple[Config, int] | None:
        """Return the configuration and the step of the optimum, or None if unknown."""
        return None

    def budget(self, curves: float, unit: Unit) -> str:
        """Return the budget as text for a study."""
        return f"{self.steps_within(curves)} epochs" if unit == "curves" else f"{curves * self.curve_s()!r}s"

    def best(self, ledger: Ledger) -> float | None:
        """Return the lowest loss of a study."""
        return None if ledger.best is None else ledger.best.best_loss

    def steps_within(self, curves: float) -> int:
        return max(1, round(curves * self.max_steps))

    def regret(self, best: float | None, curves: float, unit: Unit) -> float:
        least = self.optimum(curves, unit)
        span = self.start - least
        return ((self.worst if best is None else best) - least) / (span if span > 0 else 1.0)


@dataclass(frozen=True)
class TableProblem(Problem):
    """Recorded curves as losses to be minimised; see `draw_table`."""

    table: Table

    @property
    def space(self) -> Space:
        return self.table.space()

    @property
    def max_steps(self) -> int:
        return self.table.max_steps

    @cached_property
    def start(self) -> float:
        return float(np.median(self.table.values[:, 0]))

    @cached_property
    def worst(self) -> float:
        return float(np.max(self.table.values[:, 0]))

    def runner(self) -> Runner:
        return SimulatedRunner(self.table)

    @cached_property
    def _since_start_s(self) -> Any:
        """Return (n, T) seconds until the end of each step, validation included; infinite beyond the end of a curve."""
        table = self.table
        costs = table.costs_s + (table.eval_costs_s[:, None] if len(table.eval_costs_s) else 0.0)
        since = np.cumsum(costs, axis=1)
        return np.where(np.isnan(table.values), np.inf, since)

    def curve_s(self) -> float:
        since = self._since_start_s
        return float(np.median(np.max(np.where(np.isfinite(since), since, 0.0), axis=1)))

    def _reachable(self, curves: float, unit: Unit) -> Any:
        """Return (n, T) losses that are within the budget if one configuration gets all of it; nan elsewhere."""
        values = self.table.values
        if unit == "seconds":
            within = self._since_start_s <= curves * self.curve_s()
            return np.where(within, values, np.nan) if within.any() else values[:, :1]
        return values[:, : self.steps_within(curves)]

    def optimum(self, curves: float, unit: Unit) -> float:
        return float(np.nanmin(self._reachable(curves, unit)))

    def oracle(self, curves: float, unit: Unit) -> tuple[Config, int] | None:
        losses = self._reachable(curves, unit)
        row, column = np.unravel_index(int(np.nanargmin(losses)), losses.shape)
        return self.table.configs[int(row)], int(column) + 1


class SyntheticProblem(TableProblem):
    """A problem for timing only, without regrets: a copied trial simply gets the curve of its own configuration."""

    @property
    def fixed(self) -> frozenset[str] | None:
        return frozenset()


def synthetic_problem(arms: int) -> SyntheticProblem:
    """Return power-law curves whose final losses depend on four hyperparameters; used to time decisions, not to race."""
    rng = np.random.default_rng(arms)
    hp = rng.random((arms, 4))
    ends = 0.1 + 0.5 * ((hp - 0.4) ** 2).sum(axis=1)
    curves = (
        ends[:, None]
        + (0.3 + hp[:, :1]) / np.arange(1.0, SYNTHETIC_STEPS + 1) ** 0.7
        + 0.002 * rng.standard_normal((arms, SYNTHETIC_STEPS))
    )
    configs = [{f"x{j}": float(value) for j, value in enumerate(row)} for row in hp]
    return SyntheticProblem(Table(configs, curves, np.ones_like(curves), name=f"synthetic, {arms} configurations"))


def draw_table(table: Table, seed: int, pool: int) -> Table:
    """Return up to `pool` random configurations of a table as losses to be minimised, clipped at a quantile."""
    part = table.subset(np.random.default_rng(seed).permutation(len(table.configs))[:pool])
    losses = part.values if part.direction == "min" else -part.values
    first = losses[np.isfinite(losses[:, 0]), 0]
    highest = float(np.quantile(first, CLIP)) if len(first) else 0.0
    within = np.arange(part.max_steps) < part.lengths[:, None]
    losses = np.where(within, np.minimum(np.where(np.isfinite(losses), losses, highest), highest), np.nan)
    return replace(part, values=losses, direction="min")


def last_values(table: Table) -> Table:
    """Return a table of short curves reduced to their last values, each at the cost of the whole curve."""
    last = table.values[np.arange(len(table.values)), table.lengths - 1]
    evals = table.eval_costs_s if len(table.eval_costs_s) else 0.0
    seconds = table.costs_s.sum(axis=1) + evals
    return replace(table, values=last[:, None], costs_s=seconds[:, None], eval_costs_s=np.zeros(0))


@lru_cache(maxsize=8)
def _load(path: Path, source: str, steps: int | None) -> Table:
    table = Table.load(path, max_steps=steps, log=_scales(path, source))
    columns = list(dict.fromkeys(name for config in table.configs for name in config))
    return replace(table, name=f"{source}/{path.stem}", cost_marks=cost_marks(source, columns))


def _scales(path: Path, source: str) -> list[str] | None:
    """Return the log scales that the file or else scales.py names; warn if neither does."""
    with np.load(path, allow_pickle=False) as arrays:
        meta, names = json.loads(str(arrays["meta"])), [str(name) for name in arrays["hp_names"]]
        hp = arrays["hp"]
    if "log" in meta:
        return None
    known = log_scales(source, names)
    if known is None:
        print(f"{source}/{path.stem}: the log scales are unknown, so all scales are linear", file=sys.stderr)
        return []
    # A column that is never active has no scale.
    columns = {name: hp[np.isfinite(hp[:, j]), j] for j, name in enumerate(names)}
    return [name for name in known if len(columns[name])]


def find_problems(
    suite: str,
    data: Sequence[Path],
    *,
    per_source: int | None,
    skipped: int = 0,
    steps: int = 50,
    pool: int | None = None,
    only: Sequence[str] = (),
) -> list[ProblemSpec]:
    """Return the problems of a suite: of each source at most `per_source` tables, after the first `skipped` ones."""
    if suite == "trained":
        from benchmarks.race import trained

        return _matching([ProblemSpec("trained", source, table) for source, table in trained.NAMES], only)
    found = []
    sources: dict[str, Path] = {}
    for folder in data:
        for path in _sources(folder):
            sources.setdefault(path.name, path)  # a source that is in two folders counts once: the first one named
    for _, source in sorted(sources.items()):
        fitting = [spec for path in sorted(source.glob("*.npz")) if (spec := _read_spec(suite, path, steps, pool))]
        found += _matching(fitting, only)[skipped:][:per_source]
    if suite == "plain":
        from benchmarks.race import functions

        found += _matching([ProblemSpec("plain", "functions", name) for name in functions.NAMES], only)
    return found


def _matching(found: list[ProblemSpec], only: Sequence[str]) -> list[ProblemSpec]:
    """Return the problems whose source/table contains one of these texts; without texts, all."""
    return [spec for spec in found if not only or any(text in spec.name for text in only)]


def _sources(folder: Path) -> list[Path]:
    """Return the folder itself if it holds tables, else its folders."""
    if not folder.is_dir():
        raise SystemExit(f"--data {folder} is not a folder: name a folder of .npz tables, or a folder of such folders")
    return [folder] if any(folder.glob("*.npz")) else [path for path in folder.iterdir() if path.is_dir()]


def _read_spec(suite: str, path: Path, steps: int, pool: int | None) -> ProblemSpec | None:
    with np.load(path, allow_pickle=False) as arrays:
        if "hp" not in arrays or "meta" not in arrays or len(arrays["hp"]) < MIN_CONFIGS:
            return None
        meta = json.loads(str(arrays["meta"]))
        shape, has_costs = arrays[meta["objective"]].shape, "cost" in arrays
    length = shape[1] if len(shape) == 2 and meta.get("fidelity", "") is not None else 1
    if (min(length, steps) >= min(MIN_STEPS, steps)) != (suite == "tables"):
        return None
    return ProblemSpec(suite, path.parent.name, path.stem, path, has_costs, steps, pool)
