"""What an online policy believes about the coming round: a drifting Gaussian process folded from the ledger.

Numbers share one stationary kernel, options and activities a Hamming kernel (core/space/encoding.py says what the columns are).
One length-scale serves all of them: `lengthscale` times the root of the number of parameters, since distances in the cube
grow with that root.

A finite space is scored config by config; any other is searched from random starts. Either way the answer is a `Proposal`:
the config to act with, and the points it must be compared with before a validation pass is declared unnecessary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoestring.core.deciding.comparison import compare_scores
from shoestring.core.deciding.decision import Why
from shoestring.core.deciding.reproducible import sort_best_first
from shoestring.core.ledger.entries import Entry, Opened
from shoestring.core.space.encoding import Encoding, Points
from shoestring.core.space.space import Config, Space
from shoestring.core.values.arrays import Flags, Floats, Indices
from shoestring.models.gp.kernels import Family, Kernel, kernel_for
from shoestring.models.online.query_rules import (
    Competitors,
    choose,
    expected_improvement,
    probability_of_improvement,
    upper_confidence,
)
from shoestring.models.online.time_varying import TimeVaryingGP
from shoestring.models.online.time_varying_continuous import ContinuousTimeVaryingGP, merge_modes
from shoestring.policies.online.online_run import RunState, RunView

_ENUMERABLE = 2_000  # configs of a finite space up to this many are scored one by one; listed rows always are
_CANDIDATES = 1000  # random points that PI and EI are scored on where the space is not finite
_HUMPS = 50  # of which so many of the best are merged into separate humps


_NAMES = {
    "ucb": "reward that the round could bring (confidence bound)",
    "pi": "probability of improvement",
    "ei": "expected improvement",
}


@dataclass(slots=True)
class DriftState:
    run: RunState
    belief: FiniteBelief | CubeBelief
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
    n_starts: int = 50  # of a search where the space is not finite
    bandwidth: float = 0.2  # humps that it finds closer than this are one
    block: int | None = None

    def start(self, opened: Opened) -> DriftState:
        space = opened.space
        belief = FiniteBelief if space.rows is not None or space.size <= _ENUMERABLE else CubeBelief
        return DriftState(self.run.start(opened), belief(self, Encoding(space)))

    def absorb(self, state: DriftState, entry: Entry) -> DriftState:
        done = len(state.run.configs)
        state.run = self.run.absorb(state.run, entry)
        if len(state.run.configs) == done:
            return state
        config, reward = state.run.configs[-1], state.run.rewards[-1]
        if reward is not None:
            state.belief.observe(config, self._credit(state, config, reward - self.prior_mean))
        if state.run.value_round == done + 1:
            state.skipped_mean = state.skipped_variance = 0.0
        elif self.run.reward == "gain":
            mean, variance = state.belief.expect(config)
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
        expected, variance = state.belief.expect(config)
        own = state.run.span * reward - state.skipped_mean
        known = variance + self.noise_variance
        credit = expected + known / (known + state.skipped_variance) * (own - expected)
        clip = self.run.clip
        return credit if clip is None else min(max(credit, -clip), clip)

    def kernel_on(self, encoding: Encoding) -> tuple[Kernel, Floats]:
        """The kernel over the columns of `encoding.features`, and its parameters."""
        kernel = kernel_for(encoding, self.kernel, tied=True)
        log_scale = math.log(self.lengthscale * math.sqrt(max(encoding.space.dims, 1)))
        return kernel, np.array([math.log(self.variance)] + [log_scale] * len(kernel.blocks))

    def prior_covariance(self, space: Space, configs: Sequence[Config]) -> Floats:
        """Covariance (n, n) of one round's function between these configs, before anything is observed."""
        encoding = Encoding(space)
        kernel, theta = self.kernel_on(encoding)
        features = encoding.features(encoding.points(configs))
        return kernel.matrix(theta, features, features)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Posterior at the points that matter; `chosen` and `rivals` index into them."""

    config: Config
    mean: Floats
    variance: Floats
    chosen: int
    rivals: Indices
    covariance: Floats | None  # of the chosen point with each, if asked for
    compared: Why


def _score(acquisition: str, mean: Floats, variance: Floats, beta: float) -> Floats:
    if acquisition == "ucb":
        return upper_confidence(mean, variance, beta)
    return probability_of_improvement(mean, variance) if acquisition == "pi" else expected_improvement(mean, variance)


class FiniteBelief:
    """About every config of a finite space."""

    def __init__(self, view: DriftView, encoding: Encoding) -> None:
        self.space = encoding.space
        self.configs = self.space.rows or tuple(self.space.grid(_ENUMERABLE))
        self._keys = [self.space.key(config) for config in self.configs]
        self._index = {key: i for i, key in enumerate(self._keys)}
        points = encoding.points(self.configs)
        features = encoding.features(points)  # (N, n_columns)
        kernel, theta = view.kernel_on(encoding)
        self.model = TimeVaryingGP(
            lambda rows: kernel.matrix(theta, features[rows], features),
            kernel.diag(theta, len(features)),
            forgetting_rate=view.forgetting_rate,
            noise_variance=view.noise_variance,
        )
        self._competitors = Competitors(np.hstack([points.cube, points.active]), encoding.numbers)

    def observe(self, config: Config, reward: float) -> None:
        self.model.observe(self._index[self.space.key(config)], reward)

    def expect(self, config: Config) -> tuple[float, float]:
        """Posterior mean and variance of what the config is worth this round."""
        point = self._index[self.space.key(config)]
        return float(self.model.mean[point]), float(self.model.variance[point])

    def propose(
        self, acquisition: str, beta: float, rng: np.random.Generator, *, with_covariance: bool = False
    ) -> Proposal:
        mean, variance = self.model.mean, self.model.variance
        height = _score(acquisition, mean, variance, beta)
        chosen = choose(height)
        covariance = self.model.covariance(chosen) if with_covariance else None
        rivals = self._competitors.of(chosen, height)
        compared = compare_scores(_NAMES[acquisition], "highest", height, chosen, self._keys.__getitem__)
        return Proposal(self.configs[chosen], mean, variance, chosen, rivals, covariance, compared)


class CubeBelief:
    """About every point of the unit cube."""

    def __init__(self, view: DriftView, encoding: Encoding) -> None:
        self.space, self._view = encoding.space, view
        self.model = ContinuousTimeVaryingGP(
            CubeKernel(encoding, *view.kernel_on(encoding)),
            n_dims=self.space.dims,
            variance=view.variance,
            forgetting_rate=view.forgetting_rate,
            noise_variance=view.noise_variance,
        )

    def observe(self, config: Config, reward: float) -> None:
        self.model.observe(self.space.to_cube(config), reward)

    def expect(self, config: Config) -> tuple[float, float]:
        mean, variance = self.model.predict(self.space.to_cube(config)[None])
        return float(mean[0]), float(variance[0])

    def propose(
        self, acquisition: str, beta: float, rng: np.random.Generator, *, with_covariance: bool = False
    ) -> Proposal:
        if acquisition == "ucb":
            modes = self.model.modes(beta, rng, n_starts=self._view.n_starts, bandwidth=self._view.bandwidth)
            points, mean, variance = modes.points, modes.mean, modes.variance
        else:
            candidates = rng.random((_CANDIDATES, self.space.dims))
            height = _score(acquisition, *self.model.predict(candidates), beta)
            best = sort_best_first(height, "highest", _HUMPS)
            points = candidates[best[merge_modes(candidates[best], height[best], self._view.bandwidth)]]
            mean, variance = self.model.predict(points)
        covariance = self.model.covariance(points[:1], points)[0] if with_covariance else None
        configs = [self.space.from_cube(point) for point in points]
        others = np.array([config != configs[0] for config in configs])  # two humps may lie in the cell of one integer
        heights, name = _score(acquisition, mean, variance, beta), _NAMES[acquisition]
        compared = compare_scores(name, "highest", heights, 0, configs.__getitem__, rivals=others)
        return Proposal(configs[0], mean, variance, 0, np.arange(1, len(points)), covariance, compared)


class CubeKernel:
    """The kernel as a function of points of the cube, with its gradient: what the continuous model asks for.

    Activities and options are those of the config that a point stands for. An integer keeps its place in the cube instead
    of moving to the centre of its cell: a search needs a slope.
    """

    def __init__(self, encoding: Encoding, kernel: Kernel, theta: Floats) -> None:
        self._encoding, self._kernel, self._theta = encoding, kernel, theta
        names = encoding.space.cube_names
        self._is_number = np.isin(np.arange(len(names)), encoding.numbers)
        self._switched = [names.index(name) for name in encoding.optional]  # cube dimensions that may be inactive
        self._seen: tuple[Floats, Floats] = (np.empty(0), np.empty(0))  # the observations' points and features

    def __call__(self, x: Floats, z: Floats) -> tuple[Floats, Floats]:
        features, moves = self._look(x)
        if self._seen[0] is not z:  # a search calls thousands of times with the same observations
            self._seen = (z, self._look(z)[0])
        k, by_column = self._kernel.matrix_with_gradient(self._theta, features, self._seen[1])
        gradient = np.zeros((*k.shape, x.shape[1]))
        numbers = self._encoding.numbers
        gradient[:, :, numbers] = by_column[:, :, : numbers.size] * moves[:, None, numbers]
        return k, gradient

    def _look(self, cube: Floats) -> tuple[Floats, Flags]:
        """What the kernel sees at these places (m, dims), and which coordinates move it, (m, dims)."""
        moves = np.tile(self._is_number, (len(cube), 1))
        points = Points(cube, np.empty((len(cube), 0), dtype=np.bool_))
        if self._switched:  # by way of configs: a search asks for one point at a time, where arrays do not pay
            configs = self._encoding.points([self._encoding.space.from_cube(u) for u in cube])
            moves[:, self._switched] &= configs.active
            points = Points(np.where(moves, cube, configs.cube), configs.active)
        return self._encoding.features(points), moves
