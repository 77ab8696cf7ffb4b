"""Choose the parameters of the curve process from the curves: the most probable parameters, or samples from their posterior.

Lu, Chiang, Sha, "Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532, Appendix E: on real tasks the
parameters are slice sampled with step 0.5, burn-in 10 and at most 10 attempts. The sampler is that of Neal, "Slice
Sampling", Annals of Statistics 31(3), 2003, arXiv:physics/0009028: stepping out (his Fig. 3) and shrinkage (Fig. 5), one
coordinate at a time.

    theta          here                 prior, independent normal                              unit
    log alpha      theta[0]             N(0, 1)                                                -
    log beta       theta[1]             N(0, 1)                                                log steps
    log s2         theta[2]             N(log var y, 1)                                        log loss^2
    log noise      theta[3]             N(log (1e-3 var y), 1)                                 log loss^2
    log sx2        theta[4]             N(log var y, 1)                                        log loss^2
    m              theta[5]             N(mean of the arms' last losses, var y)                loss
    log drop       theta[6], optional   N(log (2 sd y), 1)                                     log loss

    Neal           here                 meaning                                                unit
    w              widths               first width of the interval, for each coordinate       coordinate
    m              max_step_outs        limit on how often the interval grows, at both ends    -
    y              level                log density of the slice: log f(x) minus an exponential

With a drop, theta[5] is the level of the mean curve at the last observed steps of the arms; m is the level to which it
still falls. The losses determine this level, but they hardly determine m and the drop separately, so a sampler that moved
m and the drop one by one would mix slowly. "Packed" parameters are the same numbers with m itself in the sixth place; the
memo holds packed parameters.

Differences from the papers:
- Lu et al. have no drop. They name no priors and no number of samples; the priors above and 10 samples are our choice.
- We read "attempts" as the number of times that the slice grows.
- One sample is one sweep over all coordinates. The step is 0.5 of the prior's standard deviation (0.5 in log space).
- A chain continues from its last position, without a new burn-in.
- The sampler works with log densities and shrinks an interval at most 100 times; then the point stays where it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
from scipy.optimize import minimize

from shoestring.core.deciding.reproducible import polish, round_result
from shoestring.core.values.arrays import Floats
from shoestring.models.freeze_thaw.arm_curves import CurveParameters, Curves, whiten
from shoestring.models.freeze_thaw.curve_posterior import ArmSums, log_likelihood, sum_arms

N_PARAMETERS = 6
_SEARCH_BOUND = 5.0  # prior standard deviations from the centre: beyond, the prior is below 4e-6 of its peak
_DIFFERENCE = 1e-4  # prior standard deviations, for first derivatives: with smaller ones rounding errors dominate
_WIDE_DIFFERENCE = 1e-3  # prior standard deviations, for second derivatives
_NEWTON_STEPS = 3  # after L-BFGS-B
_DECIMALS = 3  # decimals of a fit, in prior standard deviations; 240 fits differed by at most 2e-9 between BLAS kernels
_STEP = 0.5  # Appendix E, in prior standard deviations
_MAX_STEP_OUTS = 10  # Appendix E
_MAX_SHRINKS = 100  # each halves the interval on average: past this it is one floating-point number wide


# prior and posterior of the parameters -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class CurvePrior:
    """Independent normal prior of theta; the arrays are (6,), or (7,) with a drop."""

    centre: Floats
    spread: Floats
    log_volume: float  # sum of the logs of the spreads
    last_steps: Floats  # (n_started,) the last observed step of each arm that has losses

    @classmethod
    def of(cls, curves: Curves, falling: bool = False) -> CurvePrior:
        """Return the prior of the module docstring, with a drop if `falling`. Losses that do not vary get the variance 1."""
        seen = curves.losses[~np.isnan(curves.losses)]
        variance = float(np.var(seen)) if len(seen) else 0.0
        if variance <= 0.0:
            variance = 1.0
        last = curves.last_step
        started = np.flatnonzero(last)
        level = float(curves.losses[started, last[started] - 1].mean()) if len(started) else 0.0
        scale = math.log(variance)
        centre = [0.0, 0.0, scale, scale + math.log(1e-3), scale, level]
        spread = np.array([1.0, 1.0, 1.0, 1.0, 1.0, math.sqrt(variance), *[1.0] * falling])
        return cls(
            centre=np.array([*centre, *[math.log(2.0) + 0.5 * scale] * falling]),
            spread=spread,
            log_volume=float(np.log(spread).sum()),
            last_steps=last[started].astype(np.float64),
        )

    def parameters(self, theta: Floats) -> CurveParameters:
        """Return the parameters that theta stands for."""
        p = unpack(theta)
        return replace(p, mean=p.mean - self._remaining_fall(p)) if p.drop else p

    def theta(self, packed: Sequence[float] | None) -> Floats:
        """Return theta from packed parameters, or the centre of the prior if they are None."""
        if packed is None:
            return self.centre.copy()
        if np.shape(packed) != self.centre.shape:
            raise ValueError(
                f"position has shape {np.shape(packed)}: it must be {len(self.centre)} floats, as `pack` returns them."
            )
        theta = np.array(packed, dtype=np.float64)
        if len(theta) > N_PARAMETERS:
            theta[5] += self._remaining_fall(unpack(theta))
        return theta

    def log_density(self, theta: Floats) -> float:
        z = (theta - self.centre) / self.spread
        return float(-0.5 * (z @ z) - self.log_volume - 0.5 * len(z) * math.log(2.0 * math.pi))

    def _remaining_fall(self, p: CurveParameters) -> float:
        """Return how far the mean curve falls after the last losses, on average over the arms with losses."""
        steps = self.last_steps if len(self.last_steps) else np.zeros(1)
        return float(p.fall(steps).mean())


@dataclass(slots=True, eq=False)
class LogPosterior:
    """log p(theta | losses), up to the constant log p(losses), as a function of theta."""

    curves: Curves
    prior: CurvePrior
    arm_kernel: Floats | None = None
    _last_sums: tuple[tuple[float, ...], ArmSums] | None = field(default=None, init=False)

    def __call__(self, theta: Floats) -> float:
        try:
            parameters = self.prior.parameters(theta)
            likelihood = log_likelihood(self._sums(parameters), parameters, self.arm_kernel)
        except (ValueError, OverflowError, np.linalg.LinAlgError):  # outside the range of floating point: density 0
            return -math.inf
        value = likelihood + self.prior.log_density(theta)
        return value if math.isfinite(value) else -math.inf

    def _sums(self, parameters: CurveParameters) -> ArmSums:
        """Return the sums for these parameters, from a cache of one entry.

        Two of the six coordinates, sx2 and mean, do not enter the sums, so their moves reuse the last sums. The sums are
        always about the centre of the prior, so a cached result does not depend on earlier calls.
        """
        key = (parameters.alpha, parameters.beta, parameters.s2, parameters.noise, parameters.drop)
        if self._last_sums is None or self._last_sums[0] != key:
            n_rows = max(self.curves.n_shared, 1)
            shared = whiten(self.curves, parameters, float(self.prior.centre[5]), n_rows)
            self._last_sums = key, sum_arms(self.curves, parameters, shared)
        return self._last_sums[1]


def unpack(packed: Sequence[float] | Floats) -> CurveParameters:
    """Return the parameters from six or seven packed numbers."""
    numbers = packed.tolist() if isinstance(packed, np.ndarray) else packed
    alpha, beta, s2, noise, sx2 = map(math.exp, numbers[:5])
    drop = math.exp(numbers[6]) if len(numbers) > N_PARAMETERS else 0.0
    return CurveParameters(alpha, beta, s2, noise, sx2, float(numbers[5]), drop)


def pack(parameters: CurveParameters) -> Floats:
    """Return the parameters as six packed numbers, or seven if they have a drop. The noise must be positive."""
    p = parameters
    if p.noise <= 0.0:
        raise ValueError(f"CurveParameters(noise={p.noise}) has no logarithm. Give a small positive variance.")
    drop = [math.log(p.drop)] if p.drop else []
    return np.array([*(math.log(x) for x in (p.alpha, p.beta, p.s2, p.noise, p.sx2)), p.mean, *drop])


# most probable parameters, and samples ---------------------------------------------------------------------------------


def find_most_probable(posterior: LogPosterior, position: Sequence[float] | None = None) -> CurveParameters:
    """Return the parameters of largest posterior density. The search starts from `position` (packed) or the prior's centre."""
    prior = posterior.prior
    centre, spread = prior.centre, prior.spread
    first = np.clip((prior.theta(position) - centre) / spread, -_SEARCH_BOUND, _SEARCH_BOUND)

    def loss(z: Floats) -> float:
        return -posterior(centre + spread * z)

    far = np.full(len(centre), _SEARCH_BOUND)
    nearly = minimize(loss, first, method="L-BFGS-B", jac="3-point", bounds=np.column_stack([-far, far])).x
    curvature = _second_differences(loss, nearly)  # computed once: it hardly changes over so short a distance
    found = polish(nearly, lambda z: _first_differences(loss, z), lambda _: curvature, -far, far, _NEWTON_STEPS)
    return prior.parameters(centre + spread * round_result(found, _DECIMALS))


def _first_differences(loss: Callable[[Floats], float], z: Floats) -> Floats:
    """Return the gradient (n,) at z, (n,)."""
    shifts = _DIFFERENCE * np.eye(len(z))
    return np.array([loss(z + shift) - loss(z - shift) for shift in shifts]) / (2.0 * _DIFFERENCE)


def _second_differences(loss: Callable[[Floats], float], z: Floats) -> Floats:
    """Return the second derivatives (n, n) at z, (n,)."""
    shifts = _WIDE_DIFFERENCE * np.eye(len(z))
    here, ahead = loss(z), np.array([loss(z + shift) for shift in shifts])
    behind = np.array([loss(z - shift) for shift in shifts])
    found = np.diag(ahead - 2.0 * here + behind)
    for i, j in combinations(range(len(z)), 2):
        found[i, j] = found[j, i] = loss(z + shifts[i] + shifts[j]) - ahead[i] - ahead[j] + here
    return np.asarray(found / _WIDE_DIFFERENCE**2)


def sample_parameters(
    posterior: LogPosterior,
    rng: np.random.Generator,
    n_samples: int = 10,
    position: Sequence[float] | None = None,
    burn_in: int = 10,
) -> list[CurveParameters]:
    """Return samples of a Markov chain.

    `position` is the last sample of an earlier call, packed: the chain continues there without a new burn-in.
    """
    if n_samples < 1:
        raise ValueError(f"n_samples={n_samples} must be >= 1: the model needs parameters. Try 10.")
    prior = posterior.prior
    theta = prior.theta(position)
    value = posterior(theta)
    is_new = position is None or not math.isfinite(value)
    if is_new:  # also where the density of an old position is 0 given the new losses
        theta = prior.centre.copy()
        value = posterior(theta)
    n_dropped = burn_in if is_new else 0
    samples = []
    for _ in range(n_dropped + n_samples):
        theta, value = sweep_slices(posterior, theta, value, _STEP * prior.spread, rng, _MAX_STEP_OUTS)
        samples.append(prior.parameters(theta))
    return samples[n_dropped:]


def sweep_slices(
    log_density: Callable[[Floats], float],
    position: Floats,
    log_value: float,
    widths: Floats,
    rng: np.random.Generator,
    max_step_outs: int,
) -> tuple[Floats, float]:
    """Move every coordinate once, in order; return the new position (d,) and its log density, which is finite."""
    if not np.isfinite(log_value):
        raise ValueError(
            f"log density {log_value} at the start: a chain must start where it is finite. Choose another start."
        )
    for axis in range(len(position)):
        position, log_value = _move_along(log_density, position, log_value, axis, widths[axis], rng, max_step_outs)
    return position, log_value


def _move_along(
    log_density: Callable[[Floats], float],
    position: Floats,
    log_value: float,
    axis: int,
    width: float,
    rng: np.random.Generator,
    max_step_outs: int,
) -> tuple[Floats, float]:
    """Return the position (d,) after one slice-sampling move along one axis, and its log density."""

    def put(x: float) -> Floats:
        point = position.copy()
        point[axis] = x
        return point

    here = float(position[axis])
    level = log_value - rng.exponential()
    left = here - width * rng.random()
    right = left + width
    # The allowed step-outs are divided between the two ends before the density is read. Otherwise the move would not be
    # reversible.
    to_left = int(rng.integers(max_step_outs + 1))
    for _ in range(to_left):
        if log_density(put(left)) <= level:
            break
        left -= width
    for _ in range(max_step_outs - to_left):
        if log_density(put(right)) <= level:
            break
        right += width
    for _ in range(_MAX_SHRINKS):
        point = put(left + (right - left) * rng.random())
        value = log_density(point)
        if value > level:
            return point, value
        if point[axis] < here:
            left = float(point[axis])
        else:
            right = float(point[axis])
    return position, log_value
