"""What is run, fixed before it is run: sources, tables, draws, budgets, trainings.

    sources     16: those that a training may leave out (training/sources.py), and those that none may see
    tables      of each the first three by name with 40 configs and 10 steps or more
    draws       the race's: 200 configs a seed, curves of at most 50 steps, wild losses cut at the 95 % quantile of first losses
    seeds       0 to 9 in steps, 0 to 2 in seconds (tables with costs, 5 and 10 curves)
    trainings   seeds 0, 1, 2: the whole policy is run with each, always with weights that have not seen the source
    budgets     1, 2, 5, 10, 20 full curves

A study is paired with that of `sequential_halving` on the same draw, with newcomers in the same order. An interval draws sources
anew, in each its tables, of each its runs (seeds and trainings).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.sources import FOLDS, JUDGED_ONLY, fold_of

from benchmarks.race.problems import SHIPPED, Entrant, Unit, entrants

BASE, METHOD = "sequential_halving", "thrift"
TABLES = 3
SEEDS = {"curves": 10, "seconds": 3}
BUDGETS = {"curves": (1.0, 2.0, 5.0, 10.0, 20.0), "seconds": (5.0, 10.0)}
TRAININGS = (0, 1, 2)
UNITS: tuple[Unit, ...] = ("curves", "seconds")


def judged_sources() -> set[str]:
    return {*JUDGED_ONLY, *(source for left_out in FOLDS.values() for source in left_out)}


def judged_tables(data: Sequence[Path]) -> list[Entrant]:
    found = entrants("tables", [SHIPPED, *data], per_source=TABLES)
    return [entrant for entrant in found if entrant.source in judged_sources()]


@dataclass(frozen=True)
class Study:
    """One run of the policy with weights of one training, or of the base rule (training None)."""

    entrant: Entrant
    unit: Unit
    budget: float
    seed: int
    training: int | None

    @property
    def method(self) -> str:
        return BASE if self.training is None else f"{METHOD}@{self.training}"

    def weights(self, folder: Path) -> Path:
        return folder / f"{fold_of(self.entrant.source)}-{self.training}.npz"


def plan(
    tables: Sequence[Entrant], trainings: Sequence[int], seeds: dict[str, int], units: Sequence[Unit] = UNITS
) -> list[Study]:
    """All studies, seed by seed, so that a cut leaves whole seeds."""
    return [
        Study(entrant, unit, budget, seed, training)
        for seed in range(max(seeds[unit] for unit in units))
        for training in (None, *trainings)
        for unit in units
        if seed < seeds[unit]
        for budget in BUDGETS[unit]
        for entrant in tables
        if unit in entrant.units([unit])
    ]
