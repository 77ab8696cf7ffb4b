"""What is raced on: a space, curves with prices, and what counts as the best that could have been had.

    suite      source                 what it is
    tables     a folder of --data     recorded curves of 10 steps or more, thinned to 50; 200 configs are drawn for each seed
    plain      a folder of --data     tables of one value a config (of curves shorter than 10 steps: the last); 1000 configs
               functions              Branin, Hartmann's in six dimensions, a mixed table, with prices (functions.py)
    trained    a kind of model        really trained, on a real clock (trained.py)

A budget is counted in full curves. In the unit `curves` one buys as many steps as the longest curve has; in `seconds` as
long as the median curve takes (of a trained task: a time that the task names).

    regret = (best found - l*) / (start - l*)        l*: the lowest loss of any drawn config within the budget
                                                     start: the median first loss of the drawn configs

Losses above the 95 % quantile of first losses count as that quantile, and so does a step that diverged. A run that found
nothing at all is given that quantile too.
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

from benchmarks.race.scales import log_scales
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config, Space
from shoestring.runners.runner import Runner
from shoestring.runners.simulated.recorded_table import Table
from shoestring.runners.simulated.simulated_runner import Simulated

Unit = Literal["curves", "seconds"]
SUITES = ("tables", "plain", "trained")
SHIPPED = Path(__file__).parents[1] / "data"
FEWEST_CONFIGS, FEWEST_STEPS, CLIP = 40, 10, 0.95
MADE_UP_STEPS = 50
POOL = {"tables": 200, "plain": 1000, "trained": 0}  # configs drawn for each seed


def hashed(*parts: object) -> int:
    """A number below 2**31 that belongs to these words, whatever else is raced and in whatever order."""
    digest = blake2b("\0".join(map(str, parts)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1  # not every tool takes a larger seed


@dataclass(frozen=True)
class Entrant:
    """A problem before its configs are drawn: its names, and where it is read from."""

    suite: str
    source: str
    table: str
    path: Path | None = None  # of an npz file
    has_costs: bool = True
    steps: int = 50  # curves are thinned to at most so many
    pool: int | None = None  # configs drawn; None: as many as the suite has

    @property
    def name(self) -> str:
        return f"{self.source}/{self.table}"

    def units(self, wanted: Sequence[Unit]) -> list[Unit]:
        """Those of the wanted units that this problem has: seconds need prices, and a real clock has nothing but seconds."""
        if self.suite == "trained":
            return ["seconds"]
        return [unit for unit in wanted if unit == "curves" or self.has_costs]

    def draw(self, seed: int) -> Problem:
        """The problem with the configs of this seed number: the same for every method, budget and unit."""
        if self.suite == "trained":
            from benchmarks.race import trained

            return trained.problem(self.table)
        if self.path is None:
            from benchmarks.race import functions

            return functions.problem(self.table, hashed("pool", self.name, seed))
        table = _load(self.path, self.source, self.steps if self.suite == "tables" else None)
        pool = POOL[self.suite] if self.pool is None else self.pool
        return TableProblem(
            draw_table(table if self.suite == "tables" else ends_of(table), hashed("pool", self.name, seed), pool)
        )


@dataclass(frozen=True)
class Problem:
    """One problem with its configs drawn; subclasses say where curves come from and what was within reach."""

    @property
    def space(self) -> Space:
        raise NotImplementedError

    @property
    def max_steps(self) -> int:
        raise NotImplementedError

    @property
    def start(self) -> float:
        """What counts as a regret of 1."""
        raise NotImplementedError

    @property
    def worst(self) -> float:
        """What a run that found nothing is given."""
        raise NotImplementedError

    @property
    def fixed(self) -> frozenset[str] | None:
        """Hyperparameters that a copied training cannot change; None: trainings cannot be copied here."""
        return None

    def runner(self) -> Runner:
        raise NotImplementedError

    def curve_s(self) -> float:
        """Seconds that a budget of 1 buys."""
        raise NotImplementedError

    def optimum(self, curves: float, unit: Unit) -> float:
        """The lowest loss of any config within the budget."""
        raise NotImplementedError

    def oracle(self, curves: float, unit: Unit) -> tuple[Config, int] | None:
        """The config and the step that have it; None where nobody knows."""
        return None

    def budget(self, curves: float, unit: Unit) -> str:
        """As a study is told it."""
        return f"{self.steps_within(curves)} epochs" if unit == "curves" else f"{curves * self.curve_s()!r}s"

    def best(self, ledger: Ledger) -> float | None:
        """The lowest loss that a study bought with its money."""
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
        return Simulated(self.table)

    @cached_property
    def _since_start_s(self) -> Any:
        """(n, T): seconds until the end of each step, validation included; infinite beyond the end of a curve."""
        table = self.table
        costs = table.costs_s + (table.eval_costs_s[:, None] if len(table.eval_costs_s) else 0.0)
        since = np.cumsum(costs, axis=1)
        return np.where(np.isnan(table.values), np.inf, since)

    def curve_s(self) -> float:
        since = self._since_start_s
        return float(np.median(np.max(np.where(np.isfinite(since), since, 0.0), axis=1)))

    def _reachable(self, curves: float, unit: Unit) -> Any:
        """(n, T): the losses that a clairvoyant could buy, who puts everything on one config; nan elsewhere."""
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


class MadeUp(TableProblem):
    """No regret is counted here: what begins as a copy of another training just gets the curve of its own config."""

    @property
    def fixed(self) -> frozenset[str] | None:
        return frozenset()


def made_up(arms: int) -> MadeUp:
    """Curves of power laws, whose ends depend on four hyperparameters: not raced on, but what thinking is timed with."""
    rng = np.random.default_rng(arms)
    hp = rng.random((arms, 4))
    ends = 0.1 + 0.5 * ((hp - 0.4) ** 2).sum(axis=1)
    curves = (
        ends[:, None]
        + (0.3 + hp[:, :1]) / np.arange(1.0, MADE_UP_STEPS + 1) ** 0.7
        + 0.002 * rng.standard_normal((arms, MADE_UP_STEPS))
    )
    configs = [{f"x{j}": float(value) for j, value in enumerate(row)} for row in hp]
    return MadeUp(Table(configs, curves, np.ones_like(curves), name=f"made up, {arms} arms"))


def draw_table(table: Table, seed: int, pool: int) -> Table:
    """Up to `pool` of its configs as losses to be minimised, none of them wild."""
    part = table.subset(np.random.default_rng(seed).permutation(len(table.configs))[:pool])
    losses = part.values if part.direction == "min" else -part.values
    first = losses[np.isfinite(losses[:, 0]), 0]
    wild = float(np.quantile(first, CLIP)) if len(first) else 0.0
    within = np.arange(part.max_steps) < part.lengths[:, None]
    losses = np.where(within, np.minimum(np.where(np.isfinite(losses), losses, wild), wild), np.nan)
    return replace(part, values=losses, direction="min")


def ends_of(table: Table) -> Table:
    """A table of short curves as one of single values: the last of each, at the price of the whole."""
    last = table.values[np.arange(len(table.values)), table.lengths - 1]
    evals = table.eval_costs_s if len(table.eval_costs_s) else 0.0
    seconds = table.costs_s.sum(axis=1) + evals
    return replace(table, values=last[:, None], costs_s=seconds[:, None], eval_costs_s=np.zeros(0))


@lru_cache(maxsize=8)
def _load(path: Path, source: str, steps: int | None) -> Table:
    return replace(Table.load(path, max_steps=steps, log=_scales(path, source)), name=f"{source}/{path.stem}")


def _scales(path: Path, source: str) -> list[str] | None:
    """The file's own scales, else those of scales.py, else none, and it is said."""
    with np.load(path, allow_pickle=False) as arrays:
        meta, names = json.loads(str(arrays["meta"])), [str(name) for name in arrays["hp_names"]]
        hp = arrays["hp"]
    if "log" in meta:
        return None
    told = log_scales(source, names)
    if told is None:
        print(
            f"{source}/{path.stem}: nobody says which scales are logarithmic, all are taken as linear", file=sys.stderr
        )
        return []
    # A column that does not vary, or is nowhere active, has no scale.
    columns = {name: hp[np.isfinite(hp[:, j]), j] for j, name in enumerate(names)}
    return [name for name in told if len(columns[name])]


def entrants(
    suite: str,
    data: Sequence[Path],
    *,
    per_source: int | None,
    steps: int = 50,
    pool: int | None = None,
    only: Sequence[str] = (),
) -> list[Entrant]:
    """The problems of a suite: of each folder in `data` the first few tables that fit, so that none outvotes others."""
    if suite == "trained":
        from benchmarks.race import trained

        return _named([Entrant("trained", source, table) for source, table in trained.NAMES], only)
    found = []
    sources: dict[str, Path] = {}
    for folder in data:
        for path in _sources(folder):
            sources.setdefault(path.name, path)  # one source in two folders is raced once: the first one named
    for _, source in sorted(sources.items()):
        fitting = [entrant for path in sorted(source.glob("*.npz")) if (entrant := _entrant(suite, path, steps, pool))]
        found += _named(fitting, only)[:per_source]
    if suite == "plain":
        from benchmarks.race import functions

        found += _named([Entrant("plain", "functions", name) for name in functions.NAMES], only)
    return found


def _named(found: list[Entrant], only: Sequence[str]) -> list[Entrant]:
    """Those whose source/table has one of these texts; all without any."""
    return [entrant for entrant in found if not only or any(text in entrant.name for text in only)]


def _sources(folder: Path) -> list[Path]:
    """A folder of tables, or of folders of tables."""
    if not folder.is_dir():
        raise SystemExit(f"--data {folder} is not a folder: name one that holds .npz tables, or folders of them")
    return [folder] if any(folder.glob("*.npz")) else [path for path in folder.iterdir() if path.is_dir()]


def _entrant(suite: str, path: Path, steps: int, pool: int | None) -> Entrant | None:
    with np.load(path, allow_pickle=False) as arrays:
        if "hp" not in arrays or "meta" not in arrays or len(arrays["hp"]) < FEWEST_CONFIGS:
            return None
        meta = json.loads(str(arrays["meta"]))
        shape, has_costs = arrays[meta["objective"]].shape, "cost" in arrays
    length = shape[1] if len(shape) == 2 and meta.get("fidelity", "") is not None else 1
    if (min(length, steps) >= min(FEWEST_STEPS, steps)) != (suite == "tables"):
        return None
    return Entrant(suite, path.parent.name, path.stem, path, has_costs, steps, pool)
