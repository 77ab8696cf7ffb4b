"""The configurations of a study as numbers: those tried so far, those still untried, and a pool of candidates.

The table is a view that the ledger updates: a configuration is encoded once, when its trial is started. A listed space, or one
small enough to list, also has a table of all its configurations that marks the tried ones. In any other space a pool is drawn for
each decision: quasi-random points, and perturbed copies of the best configurations so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shoestring.core.values.arrays import Flags, Floats, Indices
from shoestring.core.values.randomness import points as quasi_random
from shoestring.policy import (
    Config,
    Encoding,
    Entry,
    Ledger,
    Order,
    Points,
    Space,
    StudyDefinition,
    find_untried_config,
    sort_best_first,
)

_MAX_LISTED = 10_000  # configurations: a finite space up to this size is scored completely
_DIGITS = 9  # two points of the cube that agree to this many digits are one configuration
BEST = 5  # trials with candidates around them
_COPIES = 50  # perturbed copies of each of them
_COPY_STD = 0.05  # standard deviation of a perturbation, in the unit cube
_REDRAW_PROBABILITY = 0.2  # of drawing a new integer or choice in a perturbation: a small step rarely changes it


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Untried configurations; `rows` are their rows in the table of all configurations, empty without such a table."""

    points: Points
    rows: Indices

    def take(self, which: Flags) -> Pool:
        """Return the configurations that a mask selects."""
        return Pool(self.points.take(which), self.rows[which] if self.rows.size else self.rows)


class ConfigTable:
    """The encoded configurations of a study. Only its view changes it."""

    def __init__(self, space: Space) -> None:
        self.encoding = Encoding(space)
        self.rows: Sequence[Config] | None = space.rows
        if self.rows is None and space.size <= _MAX_LISTED:
            self.rows = list(space.grid(_MAX_LISTED + 1))
        self.row_points = self.encoding.points(self.rows) if self.rows is not None else None
        self._row_of = {space.key(row): number for number, row in enumerate(self.rows or ())}
        self.unused = np.ones(len(self.rows or ()), dtype=bool)
        self.trials: list[Points] = []
        self._tried: set[bytes] = set()  # points of all trials, rounded

    def is_tried(self, points: Points) -> Flags:
        """Return, (m,), whether a trial has this configuration, up to rounding."""
        return np.array([key in self._tried for key in _keys(points)], dtype=bool)

    def stack(self, numbers: Sequence[int]) -> Points:
        """Return the points of the trials with these numbers."""
        chosen = [self.trials[number] for number in numbers]
        return Points(np.vstack([p.cube for p in chosen]), np.vstack([p.active for p in chosen]))

    def config(self, pool: Pool, points: Points, at: int) -> Config:
        """Return the configuration of point `at`; if all configs are listed, `points` must begin with the pool's points."""
        return self.rows[pool.rows[at]] if self.rows is not None else self.encoding.config(points, at)

    def add(self, config: Config) -> None:
        """Add the configuration of the next trial."""
        points = self.encoding.points([config])
        self.trials.append(points)
        self._tried.update(_keys(points))
        number = self._row_of.get(self.encoding.space.key(config)) if self.rows is not None else None
        if number is not None:
            self.unused[number] = False

    def pool(self, ledger: Ledger, count: int, rng: np.random.Generator, *, near: Sequence[int] | None = None) -> Pool:
        """Return all untried rows, or `count` new points and perturbed copies of some trials; empty if nothing is untried.

        `near` has the numbers of these trials; without it, they are the trials with the smallest losses.
        """
        if self.row_points is not None:
            rows = np.flatnonzero(self.unused)
            return Pool(self.row_points.take(rows), rows)
        if near is None:
            near = _list_best_trials(ledger)
        around = self.stack(near).cube if near else np.empty((0, ledger.space.dims))
        points = draw_candidates(self.encoding, around, count, ledger.definition.seed, rng)
        points = points.take(~self.is_tried(points))
        if not len(points):  # possible in a large finite space with few candidates
            config = find_untried_config(ledger)
            points = self.encoding.points([config] if config is not None else [])
        return Pool(points, np.zeros(0, dtype=np.intp))


@dataclass(frozen=True, slots=True)
class ConfigsView:
    """The table of a ledger's configurations."""

    def start(self, definition: StudyDefinition) -> ConfigTable:
        return ConfigTable(definition.space)

    def absorb(self, table: ConfigTable, entry: Entry) -> ConfigTable:
        if isinstance(entry, Order) and entry.trial == len(table.trials):
            table.add(entry.config)
        return table


def _list_best_trials(ledger: Ledger) -> list[int]:
    """Return the numbers of the trials with the smallest losses; trials without a loss come last."""
    losses = np.array([trial.best_loss for trial in ledger.trials])
    return [int(number) for number in sort_best_first(losses, "lowest", BEST, exact=True)]


def draw_candidates(encoding: Encoding, around: Floats, count: int, seed: int, rng: np.random.Generator) -> Points:
    """Return `count` quasi-random points, shifted at random, and perturbed copies of each row of `around`, (k, dims)."""
    dims = encoding.space.dims
    spread = (_sequence(seed, dims, count) + rng.random(dims)) % 1.0
    near = np.repeat(around, _COPIES, axis=0)
    moved = np.clip(near + _COPY_STD * rng.standard_normal(near.shape), 0.0, 1.0)
    is_redrawn = (rng.random(near.shape) < _REDRAW_PROBABILITY) & ~encoding.is_continuous
    return encoding.snap(np.vstack([spread, np.where(is_redrawn, rng.random(near.shape), moved)]))


@lru_cache(maxsize=16)
def _sequence(seed: int, dims: int, count: int) -> Floats:
    return quasi_random(seed, "candidates", dims, np.arange(count))


def _keys(points: Points) -> list[bytes]:
    rounded = np.round(points.cube, _DIGITS) + 0.0  # + 0.0 turns -0.0 into 0.0
    rows = np.hstack([rounded, points.active]) if points.active.size else rounded
    return [row.tobytes() for row in rows]
