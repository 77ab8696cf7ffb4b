"""What an online policy believes about the coming round: a drifting Gaussian process folded from the ledger.

A finite space is scored point by point; any other is searched from random starts. Either way the answer is a `Proposal`:
the config to act with, and the points it must be compared with before a validation pass is declared unnecessary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoestring.core.entries import Entry, Opened
from shoestring.core.space import Config, Space
from shoestring.models.gp.kernels import Family
from shoestring.models.online.query_rules import (
    choose,
    expected_improvement,
    probability_of_improvement,
    upper_confidence,
)
from shoestring.models.online.time_varying import TimeVaryingGP
from shoestring.models.online.time_varying_continuous import ContinuousTimeVaryingGP, merge_modes
from shoestring.policies.online.domain import CubeKernel, Encoding, Points, is_finite, points_of
from shoestring.policies.online.rounds import RunState, RunView

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

_CANDIDATES = 1000  # random points that PI and EI are scored on where the space is not finite
_HUMPS = 50  # of which so many of the best are merged into separate humps


@dataclass(frozen=True, slots=True)
class Proposal:
    """Posterior at the points that matter; `chosen` and `rivals` index into them."""

    config: Config
    mean: Floats
    variance: Floats
    chosen: int
    rivals: Indices
    covariance: Floats | None  # of the chosen point with each, if asked for


class FiniteBelief:
    def __init__(self, view: DriftView, encoding: Encoding) -> None:
        self.points: Points = points_of(encoding)
        kernel, theta = encoding.kernel(view.kernel, view.lengthscale, view.variance)
        columns = self.points.columns
        self.model = TimeVaryingGP(
            lambda rows: kernel.matrix(theta, columns[rows], columns),
            kernel.diag(theta, len(columns)),
            forgetting_rate=view.forgetting_rate,
            noise_variance=view.noise_variance,
        )

    def observe(self, config: Config, reward: float, space: Space) -> None:
        self.model.observe(self.points.index[space.key(config)], reward)

    def expect(self, config: Config, space: Space) -> tuple[float, float]:
        """Posterior mean and variance of what the config is worth this round."""
        point = self.points.index[space.key(config)]
        return float(self.model.mean[point]), float(self.model.variance[point])

    def propose(
        self, acquisition: str, beta: float, rng: np.random.Generator, *, with_covariance: bool = False
    ) -> Proposal:
        mean, variance = self.model.mean, self.model.variance
        height = _height(acquisition, mean, variance, beta)
        chosen = choose(height)
        covariance = self.model.covariance(chosen) if with_covariance else None
        rivals = self.points.rivals(height, chosen)
        return Proposal(self.points.configs[chosen], mean, variance, chosen, rivals, covariance)


class CubeBelief:
    def __init__(self, view: DriftView, encoding: Encoding) -> None:
        self.view, self.space = view, encoding.space
        kernel, theta = encoding.kernel(view.kernel, view.lengthscale, view.variance)
        self.model = ContinuousTimeVaryingGP(
            CubeKernel(encoding, kernel, theta),
            n_dims=self.space.dims,
            variance=view.variance,
            forgetting_rate=view.forgetting_rate,
            noise_variance=view.noise_variance,
        )

    def observe(self, config: Config, reward: float, space: Space) -> None:
        self.model.observe(space.to_cube(config), reward)

    def expect(self, config: Config, space: Space) -> tuple[float, float]:
        mean, variance = self.model.predict(space.to_cube(config)[None])
        return float(mean[0]), float(variance[0])

    def propose(
        self, acquisition: str, beta: float, rng: np.random.Generator, *, with_covariance: bool = False
    ) -> Proposal:
        if acquisition == "ucb":
            modes = self.model.modes(beta, rng, n_starts=self.view.n_starts, bandwidth=self.view.bandwidth)
            points, mean, variance = modes.points, modes.mean, modes.variance
        else:
            candidates = rng.random((_CANDIDATES, self.space.dims))
            height = _height(acquisition, *self.model.predict(candidates), beta)
            best = np.argsort(-height, kind="stable")[:_HUMPS]
            points = candidates[best[merge_modes(candidates[best], height[best], self.view.bandwidth)]]
            mean, variance = self.model.predict(points)
        covariance = self.model.covariance(points[:1], points)[0] if with_covariance else None
        return Proposal(self.space.from_cube(points[0]), mean, variance, 0, np.arange(1, len(points)), covariance)


def _height(acquisition: str, mean: Floats, variance: Floats, beta: float) -> Floats:
    if acquisition == "ucb":
        return upper_confidence(mean, variance, beta)
    return probability_of_improvement(mean, variance) if acquisition == "pi" else expected_improvement(mean, variance)


@dataclass(slots=True)
class DriftState:
    run: RunState
    belief: FiniteBelief | CubeBelief
    space: Space
    skipped_mean: float = 0.0  # of the rounds since the last validation: what they were expected to be worth together,
    skipped_variance: float = 0.0  # and how far off that may be


@dataclass(frozen=True, slots=True)
class DriftView:
    """View: the drifting GP after every round so far, about the coming one. `block`: rounds after which all is dropped."""

    run: RunView
    kernel: Family
    lengthscale: float
    variance: float
    noise_variance: float
    forgetting_rate: float
    prior_mean: float = 0.0
    n_starts: int = 50
    bandwidth: float = 0.2
    block: int | None = None

    def start(self, opened: Opened) -> DriftState:
        encoding = Encoding(opened.space)
        belief = FiniteBelief(self, encoding) if is_finite(opened.space) else CubeBelief(self, encoding)
        return DriftState(self.run.start(opened), belief, opened.space)

    def absorb(self, state: DriftState, entry: Entry) -> DriftState:
        done = len(state.run.configs)
        state.run = self.run.absorb(state.run, entry)
        if len(state.run.configs) == done:
            return state
        config, reward = state.run.configs[-1], state.run.rewards[-1]
        if reward is not None:
            state.belief.observe(config, self._credit(state, config, reward - self.prior_mean), state.space)
        if state.run.value_round == done + 1:
            state.skipped_mean = state.skipped_variance = 0.0
        elif self.run.reward == "gain":
            mean, variance = state.belief.expect(config, state.space)
            state.skipped_mean += mean
            state.skipped_variance += variance
        state.belief.model.advance()
        if self.block is not None and (done + 1) % self.block == 0:
            state.belief.model.reset()
        return state

    def _credit(self, state: DriftState, config: Config, reward: float) -> float:
        """What to observe of a validated round whose reward is the mean gain of several rounds.

        The gain of all is this round's share plus the others', which the model expects with some variance S. Taking the
        expectation off leaves this round's share with a noise of sigma^2 + S; drawing it towards its own expectation by
        (var + sigma^2) / (var + sigma^2 + S) moves the mean exactly as an observation with that noise would. (The
        variance shrinks as for an exact one: the model has one noise for all.)
        """
        if state.run.span == 1:
            return reward
        expected, variance = state.belief.expect(config, state.space)
        own = state.run.span * reward - state.skipped_mean
        known = variance + self.noise_variance
        credited = expected + known / (known + state.skipped_variance) * (own - expected)
        clip = self.run.clip
        return credited if clip is None else min(max(credited, -clip), clip)

    def prior_covariance(self, space: Space, configs: Sequence[Config]) -> Floats:
        """Covariance (n, n) of one round's function between these configs, before anything is observed."""
        encoding = Encoding(space)
        kernel, theta = encoding.kernel(self.kernel, self.lengthscale, self.variance)
        columns = np.array([encoding.columns(config) for config in configs])
        return kernel.matrix(theta, columns, columns)
