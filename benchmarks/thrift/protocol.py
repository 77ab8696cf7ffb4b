"""The protocol, fixed before the runs: sources, tables, draws, budgets, trainings.

    sources     16: those that a fold leaves out (training/sources.py), and those for judging only
    tables      of each the first three by name with 40 configs and 10 steps or more
    draws       the race's: 200 configurations a seed, curves of at most 50 steps, losses cut at the 95 % quantile of first losses
    seeds       0 to 9 in steps, 0 to 2 in seconds (tables with costs, 5 and 10 curves)
    trainings   seeds 0, 1, 2: the policy is run with each, always with weights that have not seen the source
    budgets     1, 2, 5, 10, 20 full curves

A study is paired with that of `sequential_halving` on the same draw, with new trials in the same order. An interval resamples
sources, in each its tables, and of each its runs (seeds and trainings).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.sources import FOLDS, JUDGED_ONLY, fold_of

from benchmarks.race.problems import SHIPPED, ProblemSpec, Unit, find_problems

BASE, METHOD = "sequential_halving", "thrift"
TABLES = 3
SEEDS = {"curves": 10, "seconds": 3}
BUDGETS = {"curves": (1.0, 2.0, 5.0, 10.0, 20.0), "seconds": (5.0, 10.0)}
TRAININGS = (0, 1, 2)
UNITS: tuple[Unit, ...] = ("curves", "seconds")


def judged_sources() -> set[str]:
    return {*JUDGED_ONLY, *(source for left_out in FOLDS.values() for source in left_out)}


def judged_tables(data: Sequence[Path]) -> list[ProblemSpec]:
    found = find_problems("tables", [SHIPPED, *data], per_source=TABLES)
    return [spec for spec in found if spec.source in judged_sources()]


@dataclass(frozen=True)
class Study:
    """One run of the policy with the weights of one training, or of the base rule (training None)."""

    spec: ProblemSpec
    unit: Unit
    budget: float
    seed: int
    training: int | None

    @property
    def method(self) -> str:
        return BASE if self.training is None else f"{METHOD}@{self.training}"

    def weights(self, folder: Path) -> Path:
        return folder / f"{fold_of(self.spec.source)}-{self.training}.npz"


def plan(
    tables: Sequence[ProblemSpec], trainings: Sequence[int], seeds: dict[str, int], units: Sequence[Unit] = UNITS
) -> list[Study]:
    """Return all studies, seed by seed, so that an interrupted run has whole seeds."""
    return [
        Study(spec, unit, budget, seed, training)
        for seed in range(max(seeds[unit] for unit in units))
        for training in (None, *trainings)
        for unit in units
        if seed < seeds[unit]
        for budget in BUDGETS[unit]
        for spec in tables
        if unit in spec.units([unit])
    ]
