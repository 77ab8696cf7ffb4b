"""A Gaussian process over (hyperparameters, training time) whose scores are curves, compressed as the likelihood likes best.

Nguyen, Schulze, Osborne, "Bayesian Optimization for Iterative Learning", NeurIPS 2020, arXiv:1909.09593v5, eqs. 1, 2, 5.
What to train next is in `iterative_choice`.

    paper      here               meaning                                                          unit
    z = [x,t]  z                  hyperparameters in [0,1]^d, then time in [0,1]: t~ below          —
    t~         time               (t - Tmin) / (Tmax - Tmin)                                       —
    sx, st     lengthscale_x, _t  k = exp(-|x-x'|^2 / (2 sx^2) - (t~-t~')^2 / (2 st^2))              —
    sy^2       noise_variance     of a standardised score; A = K + sy^2 I                          —
    m0, g0     midpoint, growth   of the logistic that makes scores out of curves                  —
    L          likelihood         log p(y~), y~ standardised for the current m0, g0                nats

The time kernel of freeze-thaw, an ablation of the paper, is in `decaying_time`.

Departs from the paper: eq. 5 has its first sign turned (-1/2 y' A^-1 y), and so has dL/dy. Noise is 5e-4 unless it is
learned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.optimize import minimize

from shoestring.models.boil.compression import LEARNABLE, CurveMatrix, Preference, compress, standardise
from shoestring.models.boil.decaying_time import DecayingTime
from shoestring.models.gp.kernels import Kernel
from shoestring.models.gp.posterior import GP, condition

Array = NDArray[np.float64]
TimeKernel = Literal["se", "freeze_thaw"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Everything the likelihood decides. The defaults are where the authors' programs start, in the paper's form."""

    lengthscale_x: float = 0.25
    lengthscale_t: float = 0.45
    noise_variance: float = 5e-4
    midpoint: float = 0.0
    growth: float = 1.0

    def to_memo(self) -> dict[str, list[float]]:
        return {name: [value] for name, value in asdict(self).items()}

    @classmethod
    def from_memo(cls, memo: Mapping[str, Sequence[float]]) -> Self:
        missing = [name for name in cls.__dataclass_fields__ if len(memo.get(name, ())) != 1]
        if missing:
            raise ValueError(f"memo {dict(memo)} needs one number for {', '.join(missing)}: start from Parameters().")
        return cls(**{name: float(memo[name][0]) for name in cls.__dataclass_fields__})

    def theta(self, dims: int) -> Array:
        """Logs of signal variance (1), one length-scale a dimension of x, that of time, noise variance."""
        return np.log([1.0, *[self.lengthscale_x] * dims, self.lengthscale_t, self.noise_variance])  # (d + 3,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Where the fit may look. A noise below 1e-6 would leave the factorisation to rounding."""

    lengthscale_x: tuple[float, float] = (0.05, 1.0)
    lengthscale_t: tuple[float, float] = (0.05, 1.0)
    noise_variance: tuple[float, float] = (1e-6, 1e-2)
    midpoint: tuple[float, float] = (-4.0, 4.0)
    growth: tuple[float, float] = (0.1, 3.0)


FITTED = ("lengthscale_x", "lengthscale_t", "midpoint", "growth", "noise_variance")  # order of the gradient
ON_LOG_SCALE = ("lengthscale_x", "lengthscale_t", "noise_variance")


def product_kernel(dims: int, time: TimeKernel = "se") -> Kernel:
    """k(x, x') k(t~, t~'): two SE factors are one SE kernel with a length-scale a column, at half the work."""
    return Kernel.ard("se", dims + 1) if time == "se" else DecayingTime.of(dims + 1)


class JointLikelihood:
    """Log likelihood of kernel, noise and compression together (eq. 5); distances are computed once for a whole fit."""

    def __init__(
        self,
        z: Array,
        curves: CurveMatrix,
        *,
        shift: float = 0.0,
        preference: Preference = "logistic",
        time: TimeKernel = "se",
    ) -> None:
        if len(z) != len(curves):
            raise ValueError(f"{len(z)} points and {len(curves)} curves: each point needs its own curve.")
        self.dims = z.shape[1] - 1
        self.curves, self.shift, self.preference = curves, shift, preference
        self._kernel = product_kernel(self.dims, time)
        self._pairs = self._kernel.pairs(z)

    def value(self, p: Parameters) -> float:
        return self._solve(p)[0]

    def value_and_gradient(self, p: Parameters) -> tuple[float, Array]:
        """L and its derivatives with respect to `FITTED`, that is (log sx, log st, m0, g0, log sy^2)."""
        value, factor, alpha, slopes, pullback = self._solve(p)
        inverse = lapack.dpotri(factor, lower=1, overwrite_c=1)[0].T  # A^-1: one triangle, in C order
        rows, cols = self._pairs.rows, self._pairs.cols
        # dL = 1/2 tr((alpha alpha' - A^-1) dA): every pair counts twice, and the diagonal moves with the noise alone.
        by_scales = pullback(alpha[rows] * alpha[cols] - inverse[cols, rows])[1:]  # (d + 1,)
        by_noise = 0.5 * p.noise_variance * (alpha @ alpha - np.trace(inverse))
        by_m0, by_g0 = -alpha @ slopes
        return value, np.array([by_scales[:-1].sum(), by_scales[-1], by_m0, by_g0, by_noise])

    def _solve(self, p: Parameters) -> tuple[float, Array, Array, Array, Callable[[Array], Array]]:
        n = len(self.curves)
        y, dy = compress(
            self.curves, midpoint=p.midpoint, growth=p.growth, shift=self.shift, preference=self.preference
        )
        scores = standardise(y, dy)
        k, pullback = self._kernel.pair_values(p.theta(self.dims)[:-1], self._pairs)
        a = np.zeros((n, n))
        a[self._pairs.cols, self._pairs.rows] = k  # the upper triangle here is the lower one of the transpose below
        np.fill_diagonal(a, 1.0 + p.noise_variance)
        factor, failed = lapack.dpotrf(a.T, lower=1, clean=0, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError(f"the covariance of {n} points is not positive definite at {p}.")
        alpha = lapack.dpotrs(factor, scores.values, lower=1)[0]
        value = -0.5 * float(scores.values @ alpha) - float(np.log(factor.diagonal()).sum())
        return value - 0.5 * n * float(np.log(2.0 * np.pi)), factor, alpha, scores.gradient, pullback


def fit(
    likelihood: JointLikelihood,
    previous: Parameters,
    rng: Generator,
    *,
    bounds: Bounds | None = None,
    learn_noise: bool = False,
    random_starts: int = 20,
) -> Parameters:
    """Maximise the likelihood from the best of some random starts and from `previous`; keep `previous` on failure.

    The gradient climbs at most 30 (d + 1) iterations from each of the two. Fewer than two curves say nothing.
    """
    if len(likelihood.curves) < 2:
        return previous
    bounds = bounds or Bounds()
    names = [
        name
        for name in FITTED
        if (learn_noise or name != "noise_variance")
        and (likelihood.preference in LEARNABLE or name not in ("midpoint", "growth"))
    ]
    logs = np.array([name in ON_LOG_SCALE for name in names])
    plain_box = np.array([getattr(bounds, name) for name in names])  # (p, 2)
    box = plain_box.copy()
    box[logs] = np.log(box[logs])
    wanted = [FITTED.index(name) for name in names]

    def parameters(theta: Array) -> Parameters:
        plain = np.where(logs, np.exp(np.where(logs, theta, 0.0)), theta)
        plain = np.clip(plain, plain_box[:, 0], plain_box[:, 1])  # exp(log(bound)) may be past it by one rounding
        return replace(previous, **dict(zip(names, plain.tolist(), strict=True)))

    def descent(theta: Array) -> tuple[float, Array]:
        value, gradient = likelihood.value_and_gradient(parameters(theta))
        return -value, -gradient[wanted]

    old = np.array([getattr(previous, name) for name in names])
    old[logs] = np.log(old[logs])
    draws = rng.uniform(box[:, 0], box[:, 1], (random_starts, len(names)))
    try:
        best_value = likelihood.value(previous)
        starts = [np.clip(old, box[:, 0], box[:, 1])]
        if random_starts > 0:
            starts.append(max(draws, key=lambda theta: likelihood.value(parameters(theta))))
        best = previous
        for start in starts:
            found = minimize(
                descent,
                start,
                jac=True,
                method="L-BFGS-B",
                bounds=box,
                options={"maxiter": 30 * (likelihood.dims + 1), "ftol": 1e-8},
            )
            if -found.fun > best_value:  # false for nan
                best, best_value = parameters(found.x), -found.fun
    except np.linalg.LinAlgError:
        return previous
    return best


def posterior(
    parameters: Parameters,
    z: Array,
    curves: CurveMatrix,
    *,
    shift: float = 0.0,
    preference: Preference = "logistic",
    time: TimeKernel = "se",
) -> GP:
    """Eqs. 1 and 2: zero mean on standardised scores, predictions in units of a score. `GP.append` adds one more."""
    y, _ = compress(curves, midpoint=parameters.midpoint, growth=parameters.growth, shift=shift, preference=preference)
    dims = z.shape[1] - 1
    return condition(product_kernel(dims, time), parameters.theta(dims), z, y, mean="zero")
