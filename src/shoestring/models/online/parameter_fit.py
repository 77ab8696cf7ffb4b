"""The parameters of the drifting Gaussian process with the largest marginal likelihood, within bounds.

Wang, Ren, Bogunovic, Xiong, Urtasun, "Cost-Efficient Online Hyperparameter Optimization", arXiv:2101.06590: the experiment
of Table A1 has a squared-exponential kernel in time whose parameters are "optimized using maximum likelihood"; the drift of
the others is known.

    parameter        meaning                                             unit      bounds
    forgetting_rate  share of the function replaced in one round         —         forgetting_bounds(T)
    lengthscale      of the squared-exponential time kernel              rounds    T / 200 to T / 8
    variance         prior variance of a reward                          value^2   0.1 to 10
    noise_variance   variance of the noise of an observation             value^2   0.001 to 1

Differences from the paper: the bounds. A query rule that saves validations leaves few observations, and with these the
likelihood prefers a function that hardly changes and varies little; a model with that function is certain of everything and
stops validating. So correlation must fall to exp(-1/2) within an eighth of the horizon, and the variance has a lower bound.
Bounds of variance and noise are those of rewards in units of recent gains, or of values between 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from shoestring.core.deciding.reproducible import LOG_SPREAD, find_best, reaches, round_result
from shoestring.core.values.arrays import Floats, Indices
from shoestring.models.online.time_varying import TimeKernel, factorise

Bounds = tuple[float, float]
VARIANCE_BOUNDS: Bounds = (0.1, 10.0)
NOISE_BOUNDS: Bounds = (1e-3, 1.0)
_DECIMALS = 3  # decimals of the log of a fitted parameter
_TIME_GRID = 13  # values of a first scan: the likelihood can have two maxima, and this grid seldom misses one
_OTHER_GRID = 4


@dataclass(frozen=True, slots=True)
class DriftParameters:
    """The parameters of the process; the symbol table above describes them."""

    forgetting_rate: float
    lengthscale: float
    variance: float
    noise_variance: float

    @property
    def time(self) -> TimeKernel:
        return TimeKernel(self.forgetting_rate, self.lengthscale)


@dataclass(frozen=True, slots=True)
class Observations:
    """What the parameters are fitted to: noisy sums of the function over a few rounds each.

    `correlation` (m, m) is the kernel of variance 1 between the points of all terms, without time; `rounds` (m,) are their
    rounds; the terms of observation i begin at `starts[i]`, and its sum was `values[i]`.
    """

    correlation: Floats
    rounds: Indices
    values: Floats
    starts: Indices

    def __post_init__(self) -> None:
        m, n = self.rounds.size, self.values.size
        if self.correlation.shape != (m, m) or self.starts.shape != (n,) or not np.isfinite(self.values).all():
            raise ValueError(
                f"values {self.values.shape}, rounds {self.rounds.shape} and correlation {self.correlation.shape} must be n "
                "finite numbers, the rounds of their m terms and the m x m kernel between these."
            )

    @classmethod
    def single(cls, correlation: Floats, rounds: ArrayLike, values: ArrayLike) -> Observations:
        """Return observations of one round each."""
        y = np.asarray(values, dtype=np.float64)
        return cls(correlation, np.asarray(rounds), y, np.arange(y.size))


def log_likelihood(observations: Observations, p: DriftParameters) -> float:
    """Return the log density of the observed values."""
    o = observations
    factor = factorise(p.variance * o.correlation, o.rounds, p.time, p.noise_variance, o.starts)
    white = solve_triangular(factor, o.values, lower=True, check_finite=False)
    return float(-0.5 * (white @ white) - np.log(np.diag(factor)).sum() - 0.5 * white.size * math.log(2.0 * math.pi))


def forgetting_bounds(horizon_rounds: int) -> Bounds:
    """Return the bounds of the forgetting rate in a study of `horizon_rounds` rounds.

    At the lower one, correlation falls to exp(-1/2) within an eighth of the horizon.
    """
    _require_horizon(horizon_rounds)
    upper = 0.5  # half of the function is new in every round: above this there is little to learn from
    return min(-math.expm1(-8.0 / horizon_rounds), upper), upper


def lengthscale_bounds(horizon_rounds: int) -> Bounds:
    """Return the bounds of the length-scale in time, in rounds, in a study of `horizon_rounds` rounds."""
    _require_horizon(horizon_rounds)
    upper = max(horizon_rounds / 8.0, 1.0)
    return max(horizon_rounds / 200.0, 0.5), upper


def _require_horizon(horizon_rounds: int) -> None:
    if horizon_rounds < 1:
        raise ValueError(f"horizon_rounds={horizon_rounds} must be at least 1.")


def fit_parameters(observations: Observations, given: DriftParameters, bounds: Mapping[str, Bounds]) -> DriftParameters:
    """Return the parameters with the largest likelihood; those named in `bounds` are learned, the others stay as given."""
    for name, (low, high) in bounds.items():
        if not 0.0 < low <= high < math.inf:
            raise ValueError(f"{name}: bounds={(low, high)} must satisfy 0 < low <= high.")
    if np.unique(observations.rounds).size < 2:
        raise ValueError("a drift needs observations of at least two rounds: use given parameters until then.")
    names = list(bounds)

    def make(logs: ArrayLike) -> DriftParameters:
        values = np.exp(np.asarray(logs, dtype=np.float64))
        return replace(given, **{n: float(np.clip(v, *bounds[n])) for n, v in zip(names, values, strict=True)})

    def loss(logs: ArrayLike) -> float:
        return -log_likelihood(observations, make(logs))

    limits = [(math.log(low), math.log(high)) for low, high in bounds.values()]
    sizes = [_TIME_GRID if name in ("forgetting_rate", "lengthscale") else _OTHER_GRID for name in names]
    axes = [np.unique(np.linspace(*limit, size)) for limit, size in zip(limits, sizes, strict=True)]
    places = np.array(list(product(*axes)))
    losses = np.array([loss(place) for place in places])
    best = find_best(losses, "lowest", spread=LOG_SPREAD)
    found = minimize(loss, places[best], method="L-BFGS-B", bounds=limits)
    return make(places[best] if reaches(found.fun, losses[best]) else round_result(found.x, _DECIMALS))
