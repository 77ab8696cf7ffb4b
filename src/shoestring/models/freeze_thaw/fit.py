"""Choosing the parameters of the freeze-thaw belief from the curves themselves: the most probable ones, or samples of them.

Lu, Chiang, Sha, "Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532, Appendix E: on real tasks the
parameters are slice sampled with step 0.5, burn-in 10 and at most 10 attempts. The sampler is that of Neal, "Slice
Sampling", Annals of Statistics 31(3), 2003, arXiv:physics/0009028: stepping out (his Fig. 3) and shrinkage (Fig. 5), one
coordinate at a time.

    theta          here                 prior, independent normal                              unit
    log alpha      theta[0]             N(0, 1)                                                —
    log beta       theta[1]             N(0, 1)                                                log epochs
    log s2         theta[2]             N(log var y, 1)                                        log loss^2
    log noise      theta[3]             N(log (1e-3 var y), 1)                                 log loss^2
    log sx2        theta[4]             N(log var y, 1)                                        log loss^2
    m              theta[5]             N(mean of the arms' last losses, var y)                loss
    log drop       theta[6], if asked   N(log (2 sd y), 1)                                     log loss

    Neal           here                 meaning                                                unit
    w              widths               first width of the interval, by coordinate             that coordinate's
    m              max_step_outs        most times the interval grows, both ends together      —
    y              level                log density of the slice: log f(x) minus an exponential

With a drop, theta[5] is the level of the mean curve where the arms were seen last (m is what it still falls to): that is
what losses tell of, and m and the drop apart hardly at all, so a sampler that moved them one by one would not get far.
"Packed" parameters are the same numbers with m itself in the sixth place; they are what a memo carries.

Departs from the papers: Lu et al. have no drop; they name no priors and no number of samples; those above and 10 samples
are ours. "Attempts" is read as the number of times the slice grows. One sample is one sweep over all coordinates, a step
being 0.5 of the prior's standard deviation (0.5 in log space). A chain goes on from its last position instead of burning in
anew. The sampler works with log densities and shrinks an interval at most 100 times, then the point stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
from scipy.optimize import minimize

from shoestring.core.deciding.reproducible import polish, settle
from shoestring.core.values.arrays import Floats
from shoestring.models.freeze_thaw.curve_posterior import ArmSums, log_likelihood, sum_arms
from shoestring.models.freeze_thaw.curves import CurveParameters, Curves, whiten

N_PARAMETERS = 6
_FARTHEST = 5.0  # prior standard deviations from the centre: beyond, the prior is below 4e-6 of its peak
_DIFFERENCE = 1e-4  # prior standard deviations, for derivatives: with smaller ones rounding decides
_WIDE_DIFFERENCE = 1e-3  # the same, for second derivatives
_NEWTON_STEPS = 3  # after a search
_DECIMALS = 3  # of a fit, in prior standard deviations; 240 fits differed by at most 2e-9 between BLAS kernels
_STEP = 0.5  # Appendix E, in prior standard deviations
_MOST_STEP_OUTS = 10  # Appendix E
_MOST_SHRINKS = 100  # each halves the interval on average: past this it is one floating-point number wide


# what is known of the parameters -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class CurvePrior:
    """Independent normal prior of theta; both arrays are (6,), or (7,) with a drop."""

    centre: Floats
    spread: Floats
    log_volume: float  # sum of the logs of the spreads
    last_epochs: Floats  # (n_begun,) when each arm was seen last

    @classmethod
    def of(cls, curves: Curves, falling: bool = False) -> CurvePrior:
        """The table above, with a drop if `falling`. Losses that do not vary say nothing of a scale: it counts as 1."""
        seen = curves.losses[~np.isnan(curves.losses)]
        variance = float(np.var(seen)) if len(seen) else 0.0
        if variance <= 0.0:
            variance = 1.0
        last = curves.last_step
        begun = np.flatnonzero(last)
        level = float(curves.losses[begun, last[begun] - 1].mean()) if len(begun) else 0.0
        scale = math.log(variance)
        centre = [0.0, 0.0, scale, scale + math.log(1e-3), scale, level]
        spread = np.array([1.0, 1.0, 1.0, 1.0, 1.0, math.sqrt(variance), *[1.0] * falling])
        return cls(
            centre=np.array([*centre, *[math.log(2.0) + 0.5 * scale] * falling]),
            spread=spread,
            log_volume=float(np.log(spread).sum()),
            last_epochs=curves.unit * last[begun].astype(np.float64),
        )

    def parameters(self, theta: Floats) -> CurveParameters:
        """theta to parameters."""
        p = unpack(theta)
        return replace(p, mean=p.mean - self._still_to_fall(p)) if p.drop else p

    def theta(self, packed: Sequence[float] | None) -> Floats:
        """Packed parameters to theta; None: the prior's centre."""
        if packed is None:
            return self.centre.copy()
        if np.shape(packed) != self.centre.shape:
            raise ValueError(
                f"position has shape {np.shape(packed)}: it must be {len(self.centre)} floats, as `pack` returns them."
            )
        theta = np.array(packed, dtype=np.float64)
        if len(theta) > N_PARAMETERS:
            theta[5] += self._still_to_fall(unpack(theta))
        return theta

    def log_density(self, theta: Floats) -> float:
        z = (theta - self.centre) / self.spread
        return float(-0.5 * (z @ z) - self.log_volume - 0.5 * len(z) * math.log(2.0 * math.pi))

    def _still_to_fall(self, p: CurveParameters) -> float:
        """How far the mean curve falls after the arms' last losses, on average over the arms begun."""
        epochs = self.last_epochs if len(self.last_epochs) else np.zeros(1)
        return float(p.fall(epochs).mean())


@dataclass(slots=True, eq=False)
class LogPosterior:
    """log p(theta | losses) up to log p(losses), as a function of theta."""

    curves: Curves
    prior: CurvePrior
    arm_kernel: Floats | None = None
    _last_sums: tuple[tuple[float, ...], ArmSums] | None = field(default=None, init=False)

    def __call__(self, theta: Floats) -> float:
        try:
            parameters = self.prior.parameters(theta)
            likelihood = log_likelihood(self._sums(parameters), parameters, self.arm_kernel)
        except (ValueError, OverflowError, np.linalg.LinAlgError):  # beyond floating point: no density there
            return -math.inf
        value = likelihood + self.prior.log_density(theta)
        return value if math.isfinite(value) else -math.inf

    def _sums(self, parameters: CurveParameters) -> ArmSums:
        """Two of the six coordinates, sx2 and mean, do not enter the sums, so the last ones are kept for their moves.

        The sums are always made about the prior's centre: what is kept is the same whatever was asked before.
        """
        key = (parameters.alpha, parameters.beta, parameters.s2, parameters.noise, parameters.drop)
        if self._last_sums is None or self._last_sums[0] != key:
            n_rows = max(self.curves.n_shared, 1)
            shared = whiten(self.curves, parameters, float(self.prior.centre[5]), n_rows)
            self._last_sums = key, sum_arms(self.curves, parameters, shared)
        return self._last_sums[1]


def unpack(packed: Sequence[float] | Floats) -> CurveParameters:
    """Six or seven packed numbers to parameters."""
    numbers = packed.tolist() if isinstance(packed, np.ndarray) else packed
    alpha, beta, s2, noise, sx2 = map(math.exp, numbers[:5])
    drop = math.exp(numbers[6]) if len(numbers) > N_PARAMETERS else 0.0
    return CurveParameters(alpha, beta, s2, noise, sx2, float(numbers[5]), drop)


def pack(parameters: CurveParameters) -> Floats:
    """Parameters as six numbers, or seven if they have a drop; a noise of 0 has no place in log space."""
    p = parameters
    if p.noise <= 0.0:
        raise ValueError(f"CurveParameters(noise={p.noise}) has no logarithm. Give a small positive variance.")
    drop = [math.log(p.drop)] if p.drop else []
    return np.array([*(math.log(x) for x in (p.alpha, p.beta, p.s2, p.noise, p.sx2)), p.mean, *drop])


# choosing them -------------------------------------------------------------------------------------------------------


def find_most_probable(posterior: LogPosterior, position: Sequence[float] | None = None) -> CurveParameters:
    """Parameters of largest posterior density, climbing from `position` (packed) or from the prior's centre."""
    prior = posterior.prior
    centre, spread = prior.centre, prior.spread
    first = np.clip((prior.theta(position) - centre) / spread, -_FARTHEST, _FARTHEST)

    def loss(z: Floats) -> float:
        return -posterior(centre + spread * z)

    far = np.full(len(centre), _FARTHEST)
    nearly = minimize(loss, first, method="L-BFGS-B", jac="3-point", bounds=np.column_stack([-far, far])).x
    curvature = _second_differences(loss, nearly)  # one for all steps: it hardly changes on so short a way
    found = polish(nearly, lambda z: _first_differences(loss, z), lambda _: curvature, -far, far, _NEWTON_STEPS)
    return prior.parameters(centre + spread * settle(found, _DECIMALS))


def _first_differences(loss: Callable[[Floats], float], z: Floats) -> Floats:
    """The gradient (n,) at z, (n,)."""
    shifts = _DIFFERENCE * np.eye(len(z))
    return np.array([loss(z + shift) - loss(z - shift) for shift in shifts]) / (2.0 * _DIFFERENCE)


def _second_differences(loss: Callable[[Floats], float], z: Floats) -> Floats:
    """The second derivatives (n, n) at z, (n,)."""
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
    """Samples of a chain that starts from `position`, the last sample of an earlier call, packed, without burning in anew."""
    if n_samples < 1:
        raise ValueError(f"n_samples={n_samples} must be >= 1: the belief needs parameters. Try 10.")
    prior = posterior.prior
    theta = prior.theta(position)
    value = posterior(theta)
    is_new = position is None or not math.isfinite(value)
    if is_new:  # also a chain that new losses have left without density
        theta = prior.centre.copy()
        value = posterior(theta)
    n_dropped = burn_in if is_new else 0
    samples = []
    for _ in range(n_dropped + n_samples):
        theta, value = sweep_slices(posterior, theta, value, _STEP * prior.spread, rng, _MOST_STEP_OUTS)
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
    """Move every coordinate once, in order. Takes and returns a position (d,) with its finite log density."""
    if not np.isfinite(log_value):
        raise ValueError(
            f"log density {log_value} at the start: a chain must start where it is finite. Start elsewhere."
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
    def put(x: float) -> Floats:
        point = position.copy()
        point[axis] = x
        return point

    here = float(position[axis])
    level = log_value - rng.exponential()
    left = here - width * rng.random()
    right = left + width
    # the allowance is split between the ends before looking at either: else the move would not be reversible
    to_left = int(rng.integers(max_step_outs + 1))
    for _ in range(to_left):
        if log_density(put(left)) <= level:
            break
        left -= width
    for _ in range(max_step_outs - to_left):
        if log_density(put(right)) <= level:
            break
        right += width
    for _ in range(_MOST_SHRINKS):
        point = put(left + (right - left) * rng.random())
        value = log_density(point)
        if value > level:
            return point, value
        if point[axis] < here:
            left = float(point[axis])
        else:
            right = float(point[axis])
    return position, log_value
