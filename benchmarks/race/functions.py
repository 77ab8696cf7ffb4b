"""Functions with costs, as plain objectives: a trial has one step, and costs differ by a factor of up to a hundred.

Values and spaces are those of `benchmarks/cost_aware/functions.py`. The costs are ours: 0.1 s to 10 s, evenly spaced in
the logarithm along the first coordinate, so that one of Branin's three equal minima is cheap and one is expensive. Where that
coordinate is a number, the space says that its cost increases; in the mixed table it is a category.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from benchmarks.cost_aware import functions
from benchmarks.race.problems import CLIP, Problem, Unit
from shoestring.core.ledger.entries import Cost
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Config, Space
from shoestring.runners.runner import Runner
from shoestring.runners.simulated.simulated_runner import SimulatedRunner, StepOutcome

NAMES = ("branin", "hartmann6", "mixed")
_SAMPLES = 200  # random configurations from which the median loss and the median cost are computed


@dataclass(frozen=True)
class FunctionProblem(Problem):
    name: str  # as in `cost_aware/functions.py`
    seed: int

    @cached_property
    def space(self) -> Space:
        parameters = functions.FUNCTIONS[self.name].space.parameters
        first = parameters["x0"]
        return Space({**parameters, "x0": replace(first, cost="increases") if isinstance(first, Float) else first})

    @property
    def max_steps(self) -> int:
        return 1

    def step(self, config: Config, step: int) -> StepOutcome:
        function = functions.FUNCTIONS[self.name]
        point = function.at(config)
        return StepOutcome(float(function.of(point)), Cost(train=float(10.0 ** (2.0 * point[0] - 1.0))))

    @cached_property
    def _samples(self) -> tuple[list[float], list[float]]:
        """Return losses and costs of random configurations."""
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
        return functions.optimum(self.name)

    def oracle(self, curves: float, unit: Unit) -> tuple[Config, int] | None:
        return _minimiser(self.name), 1

    def runner(self) -> Runner:
        return SimulatedRunner(self)


@cache
def _minimiser(name: str) -> Config:
    function = functions.FUNCTIONS[name]
    known = {
        "branin": ((np.pi + 5.0) / 15.0, 2.275 / 15.0),
        "hartmann6": (0.20168952, 0.15001069, 0.47687398, 0.27533243, 0.31165162, 0.65730053),
    }
    if name in known:
        return function.space.from_cube(np.array(known[name]))
    configs = function.space.grid(10_000)  # the whole table
    return min(configs, key=lambda config: float(function.of(function.at(config))))


def problem(name: str, seed: int) -> FunctionProblem:
    return FunctionProblem("mixed table" if name == "mixed" else name, seed)
