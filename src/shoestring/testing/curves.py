"""Made-up training curves for the simulated runner: everything that real training does, and always the same.

A curve depends on the config and a seed only, never on when or how often it is asked for. Sources wrap one another:

    Noisy(Decaying(), 0.01)                     a decay with noise
    Failing(EndingEarly(Decaying(), 20), 0.1)   one trial in ten raises an error at some step, some end before step 20
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from shoestring.core.ledger.entries import Cost
from shoestring.core.space.space import Config
from shoestring.core.values.randomness import stream
from shoestring.core.values.strict_json import dumps
from shoestring.runners.simulated.simulated_runner import Source, StepOutcome


def draw(config: Config, seed: int, name: str, *numbers: int) -> np.random.Generator:
    """Random numbers that belong to this config."""
    return stream(seed, name, zlib.crc32(dumps(config).encode()), *numbers)


@dataclass(frozen=True)
class Decaying:
    """`end + (start - end) * step**-rate`, each config with numbers of its own; a step takes `cost_s` times 1/4 to 4."""

    seed: int = 0
    cost_s: float = 1.0
    validate_s: float = 0.0
    setup_s: float = 0.0  # paid with the first step
    spread: float = 4.0

    def step(self, config: Config, step: int) -> StepOutcome | None:
        rng = draw(config, self.seed, "decaying")
        end, start, rate = rng.uniform(0.0, 1.0), rng.uniform(1.0, 3.0), rng.uniform(0.3, 1.5)
        seconds = self.cost_s * self.spread ** rng.uniform(-1.0, 1.0)
        cost = Cost(setup=self.setup_s if step == 1 else 0.0, train=seconds, validate=self.validate_s)
        return StepOutcome(end + (start - end) * float(step) ** -rate, cost)


@dataclass(frozen=True)
class Noisy:
    source: Source
    deviation: float = 0.1
    seed: int = 0

    def step(self, config: Config, step: int) -> StepOutcome | None:
        outcome = self.source.step(config, step)
        if outcome is None or outcome.value is None:
            return outcome
        noise = self.deviation * float(draw(config, self.seed, "noisy", step).standard_normal())
        return replace(outcome, value=outcome.value + noise)


@dataclass(frozen=True)
class _Misfortune:
    """Something that happens to a share of the configs, at some step up to `before`."""

    source: Source
    share: float = 0.2
    before: int = 10
    seed: int = 0
    name: ClassVar[str]

    def happens_at(self, config: Config) -> float:
        """The step; infinite for configs that are spared."""
        rng = draw(config, self.seed, self.name)
        return float(rng.integers(1, self.before + 1)) if rng.uniform() < self.share else math.inf


@dataclass(frozen=True)
class Diverging(_Misfortune):
    """That share of the configs reports nan from some step on, `before` at the latest."""

    name: ClassVar[str] = "diverging"

    def step(self, config: Config, step: int) -> StepOutcome | None:
        outcome = self.source.step(config, step)
        return replace(outcome, value=math.nan) if outcome is not None and step >= self.happens_at(config) else outcome


@dataclass(frozen=True)
class Failing(_Misfortune):
    """That share of the configs raises an error at some step up to `before`."""

    name: ClassVar[str] = "failing"

    def step(self, config: Config, step: int) -> StepOutcome | None:
        outcome = self.source.step(config, step)
        if outcome is None or step < self.happens_at(config):
            return outcome
        return StepOutcome(None, outcome.cost, failure=f"RuntimeError: out of luck at step {step} of {dumps(config)}")


@dataclass(frozen=True)
class EndingEarly(_Misfortune):
    """That share of the configs comes to its own end at some step up to `before`, never before the first."""

    share: float = 0.3
    name: ClassVar[str] = "ending"

    def step(self, config: Config, step: int) -> StepOutcome | None:
        return None if step > self.happens_at(config) else self.source.step(config, step)


@dataclass(frozen=True)
class Negated:
    """The same curves for a study that maximises."""

    source: Source

    def step(self, config: Config, step: int) -> StepOutcome | None:
        outcome = self.source.step(config, step)
        if outcome is None or outcome.value is None:
            return outcome
        return replace(outcome, value=-outcome.value)


@dataclass(frozen=True)
class Parallel:
    """Every curve falls by the same little from its first value, so that none crosses another."""

    source: Source

    def step(self, config: Config, step: int) -> StepOutcome | None:
        outcome = self.source.step(config, 1)
        if outcome is None or outcome.value is None:
            return outcome
        return replace(outcome, value=outcome.value - 0.001 * step)


@dataclass(frozen=True)
class WrittenCurves:
    """Curves written down: `curves[config[by]]` is the list of values by step; a step takes `costs_s[config[by]]`."""

    curves: Mapping[str, list[float]]
    by: str = "name"
    costs_s: Mapping[str, float] | None = None

    def step(self, config: Config, step: int) -> StepOutcome | None:
        curve = self.curves[config[self.by]]
        if step > len(curve):
            return None
        return StepOutcome(curve[step - 1], Cost(train=1.0 if self.costs_s is None else self.costs_s[config[self.by]]))
