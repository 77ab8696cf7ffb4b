"""Artificial, reproducible training curves for the simulated runner. They can diverge, fail and end early, as real training can.

A curve depends only on the config and a seed, not on when or how often it is read. A source of curves can wrap another source:

    NoisyCurves(DecayingCurves(), 0.01)                                 decays with noise
    FailingCurves(EarlyEndingCurves(DecayingCurves(), before=20), 0.1)  one trial in ten raises an error at some step, and
                                                                        some trials end by themselves at step 20 or before
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
    """Return the random number generator of this config, seed, name and numbers."""
    return stream(seed, name, zlib.crc32(dumps(config).encode()), *numbers)


@dataclass(frozen=True)
class DecayingCurves:
    """Curves `end + (start - end) * step**-rate`; start, end, rate and the cost of a step are drawn for each config.

    Parameters
    ----------
    seed
        Seed of the draws.
    cost_s
        Typical seconds of a step. A step of one config takes `cost_s * spread**u` seconds, with u drawn from -1 to 1.
    validate_s
        Seconds of a validation pass.
    setup_s
        Seconds of setup, charged with the first step.
    spread
        How much the costs of configs differ, as a factor.
    """

    seed: int = 0
    cost_s: float = 1.0
    validate_s: float = 0.0
    setup_s: float = 0.0
    spread: float = 4.0

    def step(self, config: Config, step: int) -> StepOutcome | None:
        """Return the value and the cost of one step of a decaying curve.

        Parameters
        ----------
        config : mapping
            The configuration.
        step : int
            The step, from 1.

        Returns
        -------
        StepOutcome or None
            The value and the cost of the step; None after the end of the curve.
        """
        rng = draw(config, self.seed, "decaying")
        end, start, rate = rng.uniform(0.0, 1.0), rng.uniform(1.0, 3.0), rng.uniform(0.3, 1.5)
        seconds = self.cost_s * self.spread ** rng.uniform(-1.0, 1.0)
        cost = Cost(setup=self.setup_s if step == 1 else 0.0, train=seconds, validate=self.validate_s)
        return StepOutcome(end + (start - end) * float(step) ** -rate, cost)


@dataclass(frozen=True)
class NoisyCurves:
    """Curves of another source, with normally distributed noise added to each value.

    Parameters
    ----------
    source
        The curves without noise.
    deviation
        Standard deviation of the noise.
    seed
        Seed of the noise.
    """

    source: Source
    deviation: float = 0.1
    seed: int = 0

    def step(self, config: Config, step: int) -> StepOutcome | None:
        """Return the source's step with noise added to its value.

        Parameters
        ----------
        config : mapping
            The configuration.
        step : int
            The step, from 1.

        Returns
        -------
        StepOutcome or None
            The value and the cost of the step; None after the end of the curve.
        """
        outcome = self.source.step(config, step)
        if outcome is None or outcome.value is None:
            return outcome
        noise = self.deviation * float(draw(config, self.seed, "noisy", step).standard_normal())
        return replace(outcome, value=outcome.value + noise)


@dataclass(frozen=True)
class _RandomEvent:
    """An event that happens to a share of the configs, at a random step up to `before`."""

    source: Source
    share: float = 0.2
    before: int = 10
    seed: int = 0
    name: ClassVar[str]

    def _find_event_step(self, config: Config) -> float:
        """Return the step of the event; infinite for configs without one."""
        rng = draw(config, self.seed, self.name)
        return float(rng.integers(1, self.before + 1)) if rng.uniform() < self.share else math.inf


@dataclass(frozen=True)
class DivergingCurves(_RandomEvent):
    """Curves of another source; for a share of the configs, the values are NaN from some step on.

    Parameters
    ----------
    source
        The curves without divergence.
    share
        Share of the configs that diverge.
    before
        Last step at which they begin to diverge.
    seed
        Seed of the draws.
    """

    name: ClassVar[str] = "diverging"

    def step(self, config: Config, step: int) -> StepOutcome | None:
        """Return the source's step; from the step of the divergence on, its value is NaN.

        Parameters
        ----------
        config : mapping
            The configuration.
        step : int
            The step, from 1.

        Returns
        -------
        StepOutcome or None
            The value and the cost of the step; None after the end of the curve.
        """
        outcome = self.source.step(config, step)
        return (
            replace(outcome, value=math.nan)
            if outcome is not None and step >= self._find_event_step(config)
            else outcome
        )


@dataclass(frozen=True)
class FailingCurves(_RandomEvent):
    """Curves of another source; for a share of the configs, training fails at some step.

    Parameters
    ----------
    source
        The curves without errors.
    share
        Share of the configs that fail.
    before
        Last step at which they fail.
    seed
        Seed of the draws.
    """

    name: ClassVar[str] = "failing"

    def step(self, config: Config, step: int) -> StepOutcome | None:
        """Return the source's step; from the step of the failure on, it has an error and no value.

        Parameters
        ----------
        config : mapping
            The configuration.
        step : int
            The step, from 1.

        Returns
        -------
        StepOutcome or None
            The value and the cost of the step; None after the end of the curve.
        """
        outcome = self.source.step(config, step)
        if outcome is None or step < self._find_event_step(config):
            return outcome
        return StepOutcome(None, outcome.cost, failure=f"RuntimeError: out of luck at step {step} of {dumps(config)}")


@dataclass(frozen=True)
class EarlyEndingCurves(_RandomEvent):
    """Curves of another source; for a share of the configs, training ends by itself after some step, the first at the earliest.

    Parameters
    ----------
    source
        The curves that do not end.
    share
        Share of the configs that end early.
    before
        Last step after which they end.
    seed
        Seed of the draws.
    """

    share: float = 0.3
    name: ClassVar[str] = "ending"

    def step(self, config: Config, step: int) -> StepOutcome | None:
        """Return the source's step; None after the step at which the curve ends.

        Parameters
        ----------
        config : mapping
            The configuration.
        step : int
            The step, from 1.

        Returns
        -------
        StepOutcome or None
            The value and the cost of the step; None after the end of the curve.
        """
        return None if step > self._find_event_step(config) else self.source.step(config, step)


@dataclass(frozen=True)
class NegatedCurves:
    """Curves of another source with the sign of every value changed, for studies that maximise.

    Parameters
    ----------
    source
        The curves to negate.
    """

    source: Source

    def step(self, config: Config, step: int) -> StepOutcome | None:
        """Return the source's step with the sign of its value changed.

        Parameters
        ----------
        config : mapping
            The configuration.
        step : int
            The step, from 1.

        Returns
        -------
        StepOutcome or None
            The value and the cost of the step; None after the end of the curve.
        """
        outcome = self.source.step(config, step)
        if outcome is None or outcome.value is None:
            return outcome
        return replace(outcome, value=-outcome.value)


@dataclass(frozen=True)
class ParallelCurves:
    """Curves that begin at the first value of another source and fall by the same small amount per step, so they never cross.

    Parameters
    ----------
    source
        The source of the first values.
    """

    source: Source

    def step(self, config: Config, step: int) -> StepOutcome | None:
        """Return the source's first step, with a value that is lower by 0.001 times `step`.

        Parameters
        ----------
        config : mapping
            The configuration.
        step : int
            The step, from 1.

        Returns
        -------
        StepOutcome or None
            The value and the cost of the step; None after the end of the curve.
        """
        outcome = self.source.step(config, 1)
        if outcome is None or outcome.value is None:
            return outcome
        return replace(outcome, value=outcome.value - 0.001 * step)


@dataclass(frozen=True)
class ListedCurves:
    """Curves that are given as lists of values.

    Parameters
    ----------
    curves
        The values of all steps, for each name of a config.
    by
        The parameter whose value is the name of a config.
    costs_s
        Seconds of a step, for each name. Default: 1 for all.
    """

    curves: Mapping[str, list[float]]
    by: str = "name"
    costs_s: Mapping[str, float] | None = None

    def step(self, config: Config, step: int) -> StepOutcome | None:
        """Return the value and the cost of one step, from the list of the config.

        Parameters
        ----------
        config : mapping
            The configuration.
        step : int
            The step, from 1.

        Returns
        -------
        StepOutcome or None
            The value and the cost of the step; None after the end of the curve.
        """
        curve = self.curves[config[self.by]]
        if step > len(curve):
            return None
        return StepOutcome(curve[step - 1], Cost(train=1.0 if self.costs_s is None else self.costs_s[config[self.by]]))
