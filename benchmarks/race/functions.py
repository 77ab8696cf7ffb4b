"""Functions with prices, as plain objectives: trials of one step whose prices differ by up to a hundred times.

Values and spaces are those of `benchmarks/cost_aware/functions.py`. The prices are made up: 0.1 s to 10 s, even in the logarithm
along the first coordinate, so that of Branin's three equal minima one is cheap and one is dear.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType

import numpy as np

from benchmarks.race.problems import CLIP, Problem, Unit
from shoestring.core.ledger.entries import Cost
from shoestring.core.space.space import Config, Space
from shoestring.runners.runner import Runner
from shoestring.runners.simulated.simulated_runner import Simulated, StepOutcome

NAMES = ("branin", "hartmann6", "mixed")
_SAMPLES = 200  # random configs that say what is a usual loss and a usual price


@cache
def _functions() -> ModuleType:
    """The scripts beside this package are no package themselves: loaded by their path."""
    path = Path(__file__).parents[1] / "cost_aware" / "functions.py"
    spec = importlib.util.spec_from_file_location("cost_aware_functions", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)

    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class FunctionProblem(Problem):
    name: str  # as in `cost_aware/functions.py`
    seed: int

    @property
    def space(self) -> Space:
        space: Space = _functions().FUNCTIONS[self.name].space
        return space

    @property
    def max_steps(self) -> int:
        return 1

    def step(self, config: Config, step: int) -> StepOutcome:
        function = _functions().FUNCTIONS[self.name]
        point = function.at(config)
        return StepOutcome(float(function.of(point)), Cost(train=float(10.0 ** (2.0 * point[0] - 1.0))))

    @cached_property
    def _samples(self) -> tuple[list[float], list[float]]:
        """Losses and prices of random configs."""
        cube = np.random.default_rng(self.seed).random((_SAMPLES, self.space.dims))
        outcomes = [self.step(self.space.from_cube(point), 1) for point in cube]
        return [float(outcome.value or 0.0) for outcome in outcomes], [outcome.cost.total for outcome in outcomes]

    @property
    def start(self) -> float:
        return float(np.median(self._samples[0]))

    @property
    def worst(self) -> float:
        return float(np.quantile(self._samples[0], CLIP))

    def curve_s(self) -> float:
        return float(np.median(self._samples[1]))

    def optimum(self, curves: float, unit: Unit) -> float:
        least: float = _functions().optimum(self.name)
        return least

    def oracle(self, curves: float, unit: Unit) -> tuple[Config, int] | None:
        return _minimiser(self.name), 1

    def runner(self) -> Runner:
        return Simulated(self)


@cache
def _minimiser(name: str) -> Config:
    function = _functions().FUNCTIONS[name]
    known = {
        "branin": ((np.pi + 5.0) / 15.0, 2.275 / 15.0),
        "hartmann6": (0.20168952, 0.15001069, 0.47687398, 0.27533243, 0.31165162, 0.65730053),
    }
    if name in known:
        config: Config = function.space.from_cube(np.array(known[name]))
        return config
    configs = function.space.grid(10_000)  # a table: all of it
    return min(configs, key=lambda config: float(function.of(function.at(config))))


def problem(name: str, seed: int) -> FunctionProblem:
    return FunctionProblem("mixed table" if name == "mixed" else name, seed)
