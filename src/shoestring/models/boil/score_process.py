"""A Gaussian process over (hyperparameters, training time), fitted together with the compression of curves into scores.

Nguyen, Schulze, Osborne, "Bayesian Optimization for Iterative Learning", NeurIPS 2020, arXiv:1909.09593v5, eqs. 1, 2, 5.

    paper       here               meaning                                                          unit
    Tmin, Tmax  TrainingLengths    shortest and full training                                       steps
    t~          time               (t - Tmin) / (Tmax - Tmin)                                       —
    z = [x,t~]  z                  hyperparameters in [0,1]^d, then time in [0,1]                   —
    sx, st      lengthscale_x, _t  k = exp(-|x-x'|^2 / (2 sx^2) - (t~-t~')^2 / (2 st^2))            —
    sy^2        noise_variance     noise of a standardised score; A = K + sy^2 I                    —
    m0, g0      midpoint, growth   parameters of the logistic that compresses curves into scores    —
    L           log_likelihood     log p(y~), y~ standardised for the current m0, g0                nats

The time kernel of freeze-thaw, an ablation of the paper, is in `decaying_time`.

Differences from the paper: the first sign of eq. 5 is corrected (-1/2 y' A^-1 y), and so is that of dL/dy. Noise is 5e-4 unless
it is learned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Literal, Self

import numpy as np
from numpy.random import Generator
from scipy.linalg import lapack
from scipy.optimize import minimize

from shoestring.core.deciding.decision import Memo
from shoestring.core.deciding.memo import Lists
from shoestring.core.deciding.reproducible import LOG_SPREAD, find_best, reaches, round_result
from shoestring.core.values.arrays import Floats
from shoestring.models.boil.compression import LEARNABLE, CurveMatrix, Preference, compress, standardise
from shoestring.models.boil.decaying_time import DecayingTime
from shoestring.models.gp.kernels import Kernel, Pairs
from shoestring.models.gp.posterior import GP, condition

TimeKernel = Literal["se", "freeze_thaw"]
# The ranges of a fit, in the order of the gradient. With a noise below 1e-6, rounding would decide the factorisation.
BOUNDS = {
    "lengthscale_x": (0.05, 1.0),
    "lengthscale_t": (0.05, 1.0),
    "midpoint": (-4.0, 4.0),
    "growth": (0.1, 3.0),
    "noise_variance": (1e-6, 1e-2),
}
ON_LOG_SCALE = ("lengthscale_x", "lengthscale_t", "noise_variance")
_DECIMALS = 4  # decimals of fitted parameters, or of their logs; fits differed by at most 5e-8 between BLAS kernels
RANDOM_STARTS = 20  # random starts of a fit; the likelihood is maximised from the best of them only


@dataclass(frozen=True, slots=True)
class TrainingLengths:
    """How long a configuration may be trained, and the time of each length on the axis of the process."""

    min_steps: int
    max_steps: int

    @property
    def vary(self) -> bool:
        return self.min_steps < self.max_steps

    def time_of(self, steps: int) -> float:
        """Return t~ of a number of steps; 1 if every training is full."""
        if not 1 <= self.min_steps <= steps <= self.max_steps:
            raise ValueError(
                f"steps={steps} must be from min_steps={self.min_steps} (at least 1) to max_steps={self.max_steps}."
            )
        return (steps - self.min_steps) / (self.max_steps - self.min_steps) if self.vary else 1.0

    def steps_at(self, time: float) -> int:
        """Return the whole number of steps nearest to a time."""
        return int(np.rint(self.min_steps + time * (self.max_steps - self.min_steps)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessParameters:
    """The parameters that are fitted. The defaults are the starting values of the authors' programs, in the paper's form."""

    lengthscale_x: float = 0.25
    lengthscale_t: float = 0.45
    noise_variance: float = 5e-4
    midpoint: float = 0.0
    growth: float = 1.0

    def to_memo(self) -> Lists:
        return {name: [value] for name, value in asdict(self).items()}

    @classmethod
    def from_memo(cls, memo: Memo) -> Self:
        missing = [name for name in cls.__dataclass_fields__ if len(memo.get(name, ())) != 1]
        if missing:
            raise ValueError(
                f"memo {dict(memo)} needs one number for {', '.join(missing)}: start from ProcessParameters()."
            )
        return cls(**{name: float(memo[name][0]) for name in cls.__dataclass_fields__})

    def theta(self, dims: int) -> Floats:
        """Return the logs, (d + 3,), of signal variance (1), length-scale per dimension of x, that of time, noise variance."""
        return np.log([1.0, *[self.lengthscale_x] * dims, self.lengthscale_t, self.noise_variance])


def product_kernel(dims: int, time_kernel: TimeKernel = "se") -> Kernel:
    """Return k(x, x') k(t~, t~'): two SE factors are one SE kernel with a length-scale per column, at half the work."""
    return Kernel.ard("se", dims + 1) if time_kernel == "se" else DecayingTime.of(dims + 1)


class CurveProcess:
    """Points z and their curves. It gives the likelihood of parameters, and the posterior with them."""

    def __init__(
        self,
        z: Floats,  # (n, d + 1)
        curves: CurveMatrix,
        *,
        shift: float = 0.0,
        preference: Preference = "logistic",
        time_kernel: TimeKernel = "se",
    ) -> None:
        if len(z) != len(curves):
            raise ValueError(f"{len(z)} points and {len(curves)} curves: each point needs its own curve.")
        self.z, self.curves, self.shift, self.preference = z, curves, shift, preference
        self.dims = z.shape[1] - 1
        self.kernel = product_kernel(self.dims, time_kernel)

    @cached_property
    def _pairs(self) -> Pairs:
        """Differences between all points: computed once for a whole fit, and not at all for a posterior."""
        return self.kernel.pairs(self.z)

    def _scores(self, p: ProcessParameters) -> tuple[Floats, Floats]:
        return compress(self.curves, midpoint=p.midpoint, growth=p.growth, shift=self.shift, preference=self.preference)

    def posterior(self, p: ProcessParameters) -> GP:
        """Return the posterior, eqs. 1 and 2: zero mean on standardised scores, predictions in units of a score."""
        return condition(self.kernel, p.theta(self.dims), self.z, self._scores(p)[0], mean="zero")

    def log_likelihood(self, p: ProcessParameters) -> float:
        """Return L for kernel, noise and compression together (eq. 5)."""
        return self._solve(p)[0]

    def log_likelihood_and_gradient(self, p: ProcessParameters) -> tuple[float, Floats]:
        """Return L and its derivatives in the order of `BOUNDS`: log sx, log st, m0, g0, log sy^2."""
        value, factor, alpha, slopes, pullback = self._solve(p)
        inverse = lapack.dpotri(factor, lower=1, overwrite_c=1)[0].T  # A^-1: one triangle, in C order
        rows, cols = self._pairs.rows, self._pairs.cols
        # dL = 1/2 tr((alpha alpha' - A^-1) dA): every pair counts twice, and the diagonal depends on the noise alone.
        by_scales = pullback(alpha[rows] * alpha[cols] - inverse[cols, rows])[1:]  # (d + 1,)
        by_noise = 0.5 * p.noise_variance * (alpha @ alpha - np.trace(inverse))
        by_m0, by_g0 = -alpha @ slopes
        return value, np.array([by_scales[:-1].sum(), by_scales[-1], by_m0, by_g0, by_noise])

    def _solve(self, p: ProcessParameters) -> tuple[float, Floats, Floats, Floats, Callable[[Floats], Floats]]:
        """Return L, the factor of A, alpha = A^-1 y~, the derivatives of y~, and a function from pair weights to those of K."""
        n = len(self.curves)
        y, slopes = standardise(*self._scores(p))
        k, pullback = self.kernel.pair_values(p.theta(self.dims)[:-1], self._pairs)
        a = np.zeros((n, n))
        a[self._pairs.cols, self._pairs.rows] = k  # the upper triangle here is the lower one of the transpose below
        np.fill_diagonal(a, 1.0 + p.noise_variance)
        factor, failed = lapack.dpotrf(a.T, lower=1, clean=0, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError(f"the covariance of {n} points is not positive definite at {p}.")
        alpha = lapack.dpotrs(factor, y, lower=1)[0]
        value = -0.5 * float(y @ alpha) - float(np.log(factor.diagonal()).sum())
        return value - 0.5 * n * float(np.log(2.0 * np.pi)), factor, alpha, slopes, pullback


def fit(
    process: CurveProcess,
    previous: ProcessParameters,
    rng: Generator,
    *,
    learn_noise: bool = False,
    random_starts: int = RANDOM_STARTS,
) -> ProcessParameters:
    """Return the most likely parameters, searched from the best of some random starts and from `previous`.

    `previous` is returned if there are fewer than two curves, or if a covariance cannot be factored. Each of the two searches
    takes at most 30 (d + 1) iterations.
    """
    if len(process.curves) < 2:
        return previous
    names = _names_to_fit(process.preference, learn_noise)
    logs = np.array([name in ON_LOG_SCALE for name in names])
    plain_box = np.array([BOUNDS[name] for name in names])  # (p, 2)
    box = plain_box.copy()
    box[logs] = np.log(box[logs])
    in_gradient = [list(BOUNDS).index(name) for name in names]

    def parameters(place: Floats) -> ProcessParameters:
        plain = np.where(logs, np.exp(np.where(logs, place, 0.0)), place)
        plain = np.clip(plain, plain_box[:, 0], plain_box[:, 1])  # rounding may move exp(log(bound)) outside
        return replace(previous, **dict(zip(names, plain.tolist(), strict=True)))

    def descent(place: Floats) -> tuple[float, Floats]:
        value, gradient = process.log_likelihood_and_gradient(parameters(place))
        return -value, -gradient[in_gradient]

    old = np.array([getattr(previous, name) for name in names])
    old[logs] = np.log(old[logs])
    draws = rng.uniform(box[:, 0], box[:, 1], (random_starts, len(names)))
    try:
        best, best_value = previous, process.log_likelihood(previous)
        starts = [np.clip(old, box[:, 0], box[:, 1])]
        if random_starts > 0:
            values = np.array([process.log_likelihood(parameters(place)) for place in draws])
            starts.append(draws[find_best(values, "highest", spread=LOG_SPREAD)])
        for start in starts:
            found = minimize(
                descent,
                start,
                jac=True,
                method="L-BFGS-B",
                bounds=box,
                options={"maxiter": 30 * (process.dims + 1), "ftol": 1e-8},
            )
            if not math.isnan(found.fun) and not reaches(best_value, -found.fun):
                best, best_value = parameters(round_result(found.x, _DECIMALS)), -found.fun
    except np.linalg.LinAlgError:
        return previous
    return best


def _names_to_fit(preference: Preference, learn_noise: bool) -> list[str]:
    fixed = set() if learn_noise else {"noise_variance"}
    if preference not in LEARNABLE:
        fixed |= {"midpoint", "growth"}
    return [name for name in BOUNDS if name not in fixed]
