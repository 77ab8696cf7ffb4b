"""The configs of a study as numbers: those tried so far, those still untried, and a pool of them to choose from.

One view, carried along with the ledger: a config is encoded once, when its trial is opened. A space that is listed, or small
enough to list, also has the table of all its configs with a mark at those tried; of any other space a pool is drawn for each
decision: quasi-random points, and perturbed copies of the best configs so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shoestring.core.deciding.policy import fresh_config
from shoestring.core.deciding.reproducible import sort_best_first
from shoestring.core.ledger.entries import Entry, Opened, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.encoding import Encoding, Points
from shoestring.core.space.space import Config, Space
from shoestring.core.values.arrays import Flags, Floats, Indices
from shoestring.core.values.randomness import points as quasi_random

_ENUMERABLE = 10_000  # configs: a finite space up to this size is scored as a whole
_DIGITS = 9  # two places in the cube closer than this are one config
BEST = 5  # trials whose surroundings are searched
_NEAR = 50  # perturbed copies of each of them
_NEAR_STD = 0.05  # of a perturbation, in the unit cube
_REDRAWN = 0.2  # chance that a perturbation draws an integer or choice anew: a small step rarely leaves its cell


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Untried configs; `rows` are their rows in the table of all configs, empty where there is no such table."""

    points: Points
    rows: Indices

    def take(self, which: Flags) -> Pool:
        """The configs that a mask selects."""
        return Pool(self.points.take(which), self.rows[which] if self.rows.size else self.rows)


class ConfigTable:
    """The encoded configs of a study; read it, never write it."""

    def __init__(self, space: Space) -> None:
        self.encoding = Encoding(space)
        self.rows: Sequence[Config] | None = space.rows
        if self.rows is None and space.size <= _ENUMERABLE:
            self.rows = list(space.grid(_ENUMERABLE + 1))
        self.row_points = self.encoding.points(self.rows) if self.rows is not None else None
        self._row_of = {space.key(row): number for number, row in enumerate(self.rows or ())}
        self.unused = np.ones(len(self.rows or ()), dtype=bool)
        self.trials: list[Points] = []
        self._tried: set[bytes] = set()  # places of all trials, rounded

    @property
    def is_used_up(self) -> bool:
        return self.rows is not None and not self.unused.any()

    def is_tried(self, points: Points) -> Flags:
        """(m,): whether a trial has, up to rounding, this very config."""
        return np.array([key in self._tried for key in _keys(points)], dtype=bool)

    def untried(self, points: Points) -> Points:
        """Those that no trial has, each of them once."""
        keys = _keys(points)
        first = {key: at for at, key in reversed(list(enumerate(keys))) if key not in self._tried}
        return points.take(np.array(sorted(first.values()), dtype=np.intp))

    def stack(self, numbers: Sequence[int]) -> Points:
        """The trials of these numbers."""
        chosen = [self.trials[number] for number in numbers]
        return Points(np.vstack([p.cube for p in chosen]), np.vstack([p.active for p in chosen]))

    def config(self, pool: Pool, points: Points, at: int) -> Config:
        """The config of one of `points`, which begin with those of the pool or, in a table, are them."""
        return self.rows[pool.rows[at]] if self.rows is not None else self.encoding.config(points, at)

    def open(self, config: Config) -> None:
        points = self.encoding.points([config])
        self.trials.append(points)
        self._tried.update(_keys(points))
        number = self._row_of.get(self.encoding.space.key(config)) if self.rows is not None else None
        if number is not None:
            self.unused[number] = False

    def pool(self, ledger: Ledger, count: int, rng: np.random.Generator, *, near: Sequence[int] | None = None) -> Pool:
        """All untried rows, or `count` drawn points and the surroundings of some trials; empty if nothing is left.

        `near`: the numbers of these trials; without it those of the smallest losses.
        """
        if self.row_points is not None:
            rows = np.flatnonzero(self.unused)
            return Pool(self.row_points.take(rows), rows)
        if near is None:
            near = best_trials(ledger, BEST)
        around = self.stack(near).cube if near else np.empty((0, ledger.space.dims))
        points = draw_candidates(self.encoding, around, count, ledger.opened.seed, rng)
        points = points.take(~self.is_tried(points))
        if not len(points):  # a huge finite space searched with a handful of candidates
            config = fresh_config(ledger)
            points = self.encoding.points([config] if config is not None else [])
        return Pool(points, np.zeros(0, dtype=np.intp))


@dataclass(frozen=True, slots=True)
class ConfigsView:
    """The table of a ledger's configs."""

    def start(self, opened: Opened) -> ConfigTable:
        return ConfigTable(opened.space)

    def absorb(self, table: ConfigTable, entry: Entry) -> ConfigTable:
        if isinstance(entry, Order) and entry.trial == len(table.trials):
            table.open(entry.config)
        return table


def best_trials(ledger: Ledger, count: int) -> list[int]:
    """Numbers of the trials of the smallest losses; those without one come last."""
    losses = np.array([trial.best_loss for trial in ledger.trials])
    return [int(number) for number in sort_best_first(losses, "lowest", count, exact=True)]


def draw_candidates(encoding: Encoding, around: Floats, count: int, seed: int, rng: np.random.Generator) -> Points:
    """`count` quasi-random points, shifted anew each time, and perturbed copies of each row of around, (k, dims)."""
    dims = encoding.space.dims
    spread = (_sequence(seed, dims, count) + rng.random(dims)) % 1.0
    return encoding.snap(np.vstack([spread, perturb(encoding, np.repeat(around, _NEAR, axis=0), _NEAR_STD, rng)]))


def perturb(encoding: Encoding, cube: Floats, std: float | Floats, rng: np.random.Generator) -> Floats:
    """The same places of the cube, (m, dims), each a step away; not yet snapped to what a parameter can be."""
    moved = np.clip(cube + std * rng.standard_normal(cube.shape), 0.0, 1.0)
    redrawn = (rng.random(cube.shape) < _REDRAWN) & ~encoding.is_continuous
    return np.where(redrawn, rng.random(cube.shape), moved)


@lru_cache(maxsize=16)
def _sequence(seed: int, dims: int, count: int) -> Floats:
    return quasi_random(seed, "candidates", dims, np.arange(count))


def _keys(points: Points) -> list[bytes]:
    rounded = np.round(points.cube, _DIGITS) + 0.0  # + 0.0 turns -0.0 into 0.0
    rows = np.hstack([rounded, points.active]) if points.active.size else rounded
    return [row.tobytes() for row in rows]
