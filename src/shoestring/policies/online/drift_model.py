"""The surrogate of an online policy: a drifting Gaussian process of the rewards, computed from the ledger.

Numbers share one stationary kernel; options and activities have a Hamming kernel (core/space/encoding.py describes the columns).
All have the same length-scale: `lengthscale` times the root of the number of parameters, since distances in the cube grow with
that root.

A finite space is scored config by config; any other is searched from random starts. Both give a `Proposal`: the config to train
with, and the competitors that it must be compared with before a round may stay without validation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoestring.core.values.arrays import Flags, Floats, Indices
from shoestring.models.gp.kernels import Family, Kernel, kernel_for
from shoestring.models.online.parameter_fit import DriftParameters
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
from shoestring.policy import (
    Config,
    Encoding,
    Entry,
    Points,
    Space,
    StudyDefinition,
    Why,
    compare_scores,
    sort_best_first,
)

_MAX_SCORED_CONFIGS = 2_000  # finite spaces of up to this size are scored config by config; listed rows always are
_CANDIDATES = 1000  # random points for PI and EI if the space is not finite
_MERGED_CANDIDATES = 50  # the best of these, which are merged into separate modes
_SCORE_NAMES = {
    "ucb": "upper confidence bound of the reward",
    "pi": "probability of improvement",
    "ei": "expected improvement",
}


@dataclass(slots=True)
class DriftState:
    """The run so far and the surrogate after it."""

    run: RunState
    surrogate: FiniteSurrogate | CubeSurrogate


@dataclass(frozen=True, slots=True)
class DriftView:
    """View of the drifting GP after all rounds so far. With `block`, all observations are dropped after every `block` rounds."""

    run: RunView
    kernel: Family
    lengthscale: float
    parameters: DriftParameters
    prior_mean: float = 0.0
    n_starts: int = 50  # random starts of the search if the space is not finite
    bandwidth: float = 0.2  # modes closer than this are merged
    block: int | None = None

    def start(self, definition: StudyDefinition) -> DriftState:
        space = definition.space
        is_finite = space.rows is not None or space.size <= _MAX_SCORED_CONFIGS
        surrogate = FiniteSurrogate if is_finite else CubeSurrogate
        return DriftState(self.run.start(definition), surrogate(self, Encoding(space)))

    def absorb(self, state: DriftState, entry: Entry) -> DriftState:
        done = len(state.run.configs)
        state.run = self.run.absorb(state.run, entry)
        if len(state.run.configs) == done:
            return state
        config, reward = state.run.configs[-1], state.run.rewards[-1]
        if reward is not None:
            # A gain is the sum of the gains of all rounds since the last validation, one noisy observation of that sum.
            state.surrogate.observe(config, state.run.span * (reward - self.prior_mean))
        elif state.run.value_round == done + 1:
            state.surrogate.gp.drop_skipped()  # the baseline of the next gain
        elif self.run.reward == "gain":
            state.surrogate.skip(config)
        state.surrogate.gp.advance()
        if self.block is not None and (done + 1) % self.block == 0:
            state.surrogate.gp.reset()
        return state

    def kernel_on(self, encoding: Encoding) -> tuple[Kernel, Floats]:
        """Return the kernel over the columns of `encoding.features`, and its parameters."""
        kernel = kernel_for(encoding, self.kernel, tied=True)
        log_scale = math.log(self.lengthscale * math.sqrt(max(encoding.space.dims, 1)))
        return kernel, np.array([math.log(self.parameters.variance)] + [log_scale] * len(kernel.blocks))

    def prior_correlation(self, space: Space, configs: Sequence[Config]) -> Floats:
        """Return the prior correlation (n, n) of one round's function between these configs."""
        encoding = Encoding(space)
        kernel, theta = self.kernel_on(encoding)
        theta[0] = 0.0
        features = encoding.features(encoding.points(configs))
        return kernel.matrix(theta, features, features)


@dataclass(frozen=True, slots=True)
class Proposal:
    """The posterior at the points that are compared; `chosen` and `competitors` are indices of these points."""

    config: Config
    mean: Floats
    variance: Floats
    chosen: int
    competitors: Indices
    covariance: Floats | None  # covariance of the chosen point with each point, if requested
    comparison: Why


def _score(acquisition: str, mean: Floats, variance: Floats, beta: float) -> Floats:
    if acquisition == "ucb":
        return upper_confidence(mean, variance, beta)
    return probability_of_improvement(mean, variance) if acquisition == "pi" else expected_improvement(mean, variance)


class FiniteSurrogate:
    """The surrogate of a finite space, which knows the posterior of every config."""

    def __init__(self, view: DriftView, encoding: Encoding) -> None:
        self.space = encoding.space
        self.configs = self.space.rows or tuple(self.space.grid(_MAX_SCORED_CONFIGS))
        self._keys = [self.space.key(config) for config in self.configs]
        self._index = {key: i for i, key in enumerate(self._keys)}
        points = encoding.points(self.configs)
        self.gp: TimeVaryingGP | ListedGP
        if math.isfinite(view.parameters.lengthscale):
            self.gp = ListedGP(_on_the_cube(view, encoding), np.array([self.space.to_cube(c) for c in self.configs]))
        else:
            features = encoding.features(points)  # (N, n_columns)
            kernel, theta = view.kernel_on(encoding)
            self.gp = TimeVaryingGP(
                lambda rows: kernel.matrix(theta, features[rows], features),
                kernel.diag(theta, len(features)),
                forgetting_rate=view.parameters.forgetting_rate,
                noise_variance=view.parameters.noise_variance,
            )
        self._competitors = Competitors(np.hstack([points.cube, points.active]), encoding.numbers)

    def observe(self, config: Config, total: float) -> None:
        """Add the noisy sum of the rewards of this round, trained with `config`, and of the skipped ones."""
        self.gp.observe(self._index[self.space.key(config)], total)

    def skip(self, config: Config) -> None:
        """Add this round, trained with `config` and not validated, to the sum that is observed next."""
        self.gp.skip(self._index[self.space.key(config)])

    def predict(self, config: Config) -> tuple[float, float]:
        """Return the posterior mean and variance of the config's reward in this round."""
        point = self._index[self.space.key(config)]
        return float(self.gp.mean[point]), float(self.gp.variance[point])

    def propose_best_mean(self) -> Proposal:
        """Return the config of the largest mean."""
        return self.propose("ucb", 0.0)

    def propose(
        self, acquisition: str, beta: float, rng: np.random.Generator | None = None, *, with_covariance: bool = False
    ) -> Proposal:
        mean, variance = self.gp.mean, self.gp.variance
        height = _score(acquisition, mean, variance, beta)
        chosen = choose(height)
        covariance = self.gp.covariance(chosen) if with_covariance else None
        competitors = self._competitors.of(chosen, height)
        comparison = compare_scores(_SCORE_NAMES[acquisition], "highest", height, chosen, self._keys.__getitem__)
        return Proposal(self.configs[chosen], mean, variance, chosen, competitors, covariance, comparison)


class ListedGP:
    """The process on the cube, known at a list of points: what `TimeVaryingGP` is for time kernels without a recursion.

    Mean and variance are computed anew in every round: O(n^2 N) for n observations and N points.
    """

    def __init__(self, gp: ContinuousTimeVaryingGP, points: Floats) -> None:
        self._gp, self._points = gp, points
        self._predicted: tuple[Floats, Floats] | None = None  # mean and variance at every point

    @property
    def n_observations(self) -> int:
        return self._gp.n_observations

    @property
    def mean(self) -> Floats:
        return self._predict()[0]

    @property
    def variance(self) -> Floats:
        return self._predict()[1]

    def covariance(self, point: int) -> Floats:
        return np.asarray(self._gp.covariance(self._points[[point]], self._points)[0])

    def observe(self, point: int, value: float) -> None:
        self._gp.observe(self._points[point], value)
        self._predicted = None

    def skip(self, point: int) -> None:
        self._gp.skip(self._points[point])

    def drop_skipped(self) -> None:
        self._gp.drop_skipped()

    def advance(self) -> None:
        self._gp.advance()
        self._predicted = None

    def reset(self) -> None:
        self._gp.reset()
        self._predicted = None

    def _predict(self) -> tuple[Floats, Floats]:
        if self._predicted is None:
            self._predicted = self._gp.predict(self._points)
        return self._predicted


def _on_the_cube(view: DriftView, encoding: Encoding) -> ContinuousTimeVaryingGP:
    return ContinuousTimeVaryingGP(
        CubeKernel(encoding, *view.kernel_on(encoding)),
        n_dims=encoding.space.dims,
        variance=view.parameters.variance,
        time=view.parameters.time,
        noise_variance=view.parameters.noise_variance,
    )


class CubeSurrogate:
    """The surrogate of any other space, which knows the posterior at every point of the unit cube."""

    def __init__(self, view: DriftView, encoding: Encoding) -> None:
        self.space, self._view = encoding.space, view
        self.gp = _on_the_cube(view, encoding)

    def observe(self, config: Config, total: float) -> None:
        self.gp.observe(self.space.to_cube(config), total)

    def skip(self, config: Config) -> None:
        self.gp.skip(self.space.to_cube(config))

    def predict(self, config: Config) -> tuple[float, float]:
        mean, variance = self.gp.predict(self.space.to_cube(config)[None])
        return float(mean[0]), float(variance[0])

    def propose_best_mean(self) -> Proposal:
        modes = self.gp.highest_means(bandwidth=self._view.bandwidth)
        return self._compare("ucb", 0.0, modes.points, modes.mean, modes.variance)

    def propose(
        self, acquisition: str, beta: float, rng: np.random.Generator, *, with_covariance: bool = False
    ) -> Proposal:
        if acquisition == "ucb":
            modes = self.gp.modes(beta, rng, n_starts=self._view.n_starts, bandwidth=self._view.bandwidth)
            points, mean, variance = modes.points, modes.mean, modes.variance
        else:
            candidates = rng.random((_CANDIDATES, self.space.dims))
            height = _score(acquisition, *self.gp.predict(candidates), beta)
            best = sort_best_first(height, "highest", _MERGED_CANDIDATES)
            points = candidates[best[merge_modes(candidates[best], height[best], self._view.bandwidth)]]
            mean, variance = self.gp.predict(points)
        covariance = self.gp.covariance(points[:1], points)[0] if with_covariance else None
        return self._compare(acquisition, beta, points, mean, variance, covariance)

    def _compare(
        self,
        acquisition: str,
        beta: float,
        points: Floats,
        mean: Floats,
        variance: Floats,
        covariance: Floats | None = None,
    ) -> Proposal:
        """Return the first of these points (m, d) as the one to choose, and the others as its competitors."""
        configs = [self.space.from_cube(point) for point in points]
        others = np.array([config != configs[0] for config in configs])  # two modes may lie in the cell of one integer
        heights, name = _score(acquisition, mean, variance, beta), _SCORE_NAMES[acquisition]
        comparison = compare_scores(name, "highest", heights, 0, configs.__getitem__, competitors=others)
        return Proposal(configs[0], mean, variance, 0, np.arange(1, len(points)), covariance, comparison)


class CubeKernel:
    """The kernel as a function of points of the cube, with its gradient, as the continuous model needs it.

    Activities and options are those of the config of a point. An integer keeps its place in the cube instead of moving to
    the centre of its cell, because a search needs a slope.
    """

    def __init__(self, encoding: Encoding, kernel: Kernel, theta: Floats) -> None:
        self._encoding, self._kernel, self._theta = encoding, kernel, theta
        names = encoding.space.cube_names
        self._is_number = np.isin(np.arange(len(names)), encoding.numbers)
        self._optional_dims = [names.index(name) for name in encoding.optional]  # cube dimensions that may be inactive
        self._observed: tuple[Floats, Floats] = (np.empty(0), np.empty(0))  # points and features of the observations

    def __call__(self, x: Floats, z: Floats) -> tuple[Floats, Floats]:
        features, moves = self._encode(x)
        if self._observed[0] is not z:  # a search calls this thousands of times with the same observations
            self._observed = (z, self._encode(z)[0])
        k, by_column = self._kernel.matrix_with_gradient(self._theta, features, self._observed[1])
        gradient = np.zeros((*k.shape, x.shape[1]))
        numbers = self._encoding.numbers
        gradient[:, :, numbers] = by_column[:, :, : numbers.size] * moves[:, None, numbers]
        return k, gradient

    def _encode(self, cube: Floats) -> tuple[Floats, Flags]:
        """Return the kernel's features of these points (m, dims), and which coordinates change them, (m, dims)."""
        moves = np.tile(self._is_number, (len(cube), 1))
        points = Points(cube, np.empty((len(cube), 0), dtype=np.bool_))
        if self._optional_dims:
            # Through configs: a search evaluates one point at a time, for which arrays are not faster.
            configs = self._encoding.points([self._encoding.space.from_cube(u) for u in cube])
            moves[:, self._optional_dims] &= configs.active
            points = Points(np.where(moves, cube, configs.cube), configs.active)
        return self._encoding.features(points), moves
