"""Parameters of the freeze-thaw belief from the curves themselves: the most probable ones, or samples of them.

Lu, Chiang, Sha, "Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532, Appendix E: on real tasks the
parameters are slice sampled with step 0.5, burn-in 10 and at most 10 attempts.

    theta          here                 prior, independent normal                              unit
    log alpha      theta[0]             N(0, 1)                                                —
    log beta       theta[1]             N(0, 1)                                                log epochs
    log s2         theta[2]             N(log var y, 1)                                        log loss^2
    log noise      theta[3]             N(log (1e-3 var y), 1)                                 log loss^2
    log sx2        theta[4]             N(log var y, 1)                                        log loss^2
    m              theta[5]             N(mean of the arms' last losses, var y)                loss

Departs from the paper: it names no priors and no number of samples; those above and 10 samples are ours. "Attempts" is
read as the number of times the slice grows. One sample is one sweep over all six coordinates, a step being 0.5 of the
prior's standard deviation (0.5 in log space). A chain goes on from its last position instead of burning in anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize

from shoestring.models.freeze_thaw_curves import Curves, Floats, Parameters
from shoestring.models.freeze_thaw_sums import ArmSums, curve_sums, evidence
from shoestring.models.slice_sampling import slice_sweep

N_PARAMETERS = 6
_FARTHEST = 5.0  # the most probable parameters are sought within this many prior standard deviations


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """Independent normal prior of theta; both arrays are (6,)."""

    centre: Floats
    spread: Floats

    @classmethod
    def of(cls, curves: Curves) -> Prior:
        """The table above. Losses that do not vary say nothing of a scale: their variance counts as 1."""
        seen = curves.losses[~np.isnan(curves.losses)]
        variance = float(np.var(seen)) if len(seen) else 0.0
        if variance <= 0.0:
            variance = 1.0
        last = curves.last_step
        started = np.flatnonzero(last)
        level = float(curves.losses[started, last[started] - 1].mean()) if len(started) else 0.0
        scale = math.log(variance)
        return cls(
            centre=np.array([0.0, 0.0, scale, scale + math.log(1e-3), scale, level]),
            spread=np.array([1.0, 1.0, 1.0, 1.0, 1.0, math.sqrt(variance)]),
        )

    def log_density(self, theta: Floats) -> float:
        z = (theta - self.centre) / self.spread
        return float(-0.5 * (z @ z) - np.log(self.spread).sum() - 0.5 * len(z) * math.log(2.0 * math.pi))


@dataclass(slots=True, eq=False)
class LogPosterior:
    """log p(theta | losses) up to log p(losses), as a function of theta (6,)."""

    curves: Curves
    prior: Prior
    arm_kernel: Floats | None = None
    _kept: tuple[tuple[float, ...], ArmSums] | None = field(default=None, init=False)

    def __call__(self, theta: Floats) -> float:
        try:
            parameters = unpack(theta)
            likelihood = evidence(self._sums(parameters), parameters, self.arm_kernel)
        except (ValueError, OverflowError, np.linalg.LinAlgError):  # beyond floating point: no density there
            return -math.inf
        value = likelihood + self.prior.log_density(theta)
        return value if math.isfinite(value) else -math.inf

    def _sums(self, parameters: Parameters) -> ArmSums:
        """Two of the six coordinates, sx2 and mean, do not enter the sums, so the last ones are kept for their moves.

        The sums are always made about the prior's centre: what is kept is the same whatever was asked before.
        """
        key = (parameters.alpha, parameters.beta, parameters.s2, parameters.noise)
        if self._kept is None or self._kept[0] != key:
            self._kept = key, curve_sums(self.curves, parameters, float(self.prior.centre[-1]))
        return self._kept[1]


def unpack(theta: Sequence[float] | Floats) -> Parameters:
    """theta (6,) to parameters."""
    *logs, mean = (float(x) for x in theta)
    alpha, beta, s2, noise, sx2 = (math.exp(x) for x in logs)
    return Parameters(alpha=alpha, beta=beta, s2=s2, noise=noise, sx2=sx2, mean=mean)


def pack(parameters: Parameters) -> Floats:
    """Parameters to theta (6,); a noise of 0 has no place in log space."""
    p = parameters
    if p.noise <= 0.0:
        raise ValueError(f"Parameters(noise={p.noise}) has no logarithm. Give a small positive variance.")
    return np.array([*(math.log(x) for x in (p.alpha, p.beta, p.s2, p.noise, p.sx2)), p.mean])


def most_probable(posterior: LogPosterior, position: Sequence[float] | None = None) -> Parameters:
    """Parameters of largest posterior density, climbing from `position` (theta, 6 floats) or from the prior's centre."""
    centre, spread = posterior.prior.centre, posterior.prior.spread
    first = np.clip((_theta(position, centre) - centre) / spread, -_FARTHEST, _FARTHEST)
    fit = minimize(
        lambda z: -posterior(centre + spread * z),
        first,
        method="L-BFGS-B",
        jac="3-point",
        bounds=[(-_FARTHEST, _FARTHEST)] * N_PARAMETERS,
    )
    return unpack(centre + spread * fit.x)


def sample_parameters(
    posterior: LogPosterior,
    rng: np.random.Generator,
    n_samples: int = 10,
    position: Sequence[float] | None = None,
    burn_in: int = 10,
    step: float = 0.5,
    max_step_outs: int = 10,
) -> tuple[list[Parameters], list[float]]:
    """Samples, and the chain's last position to start the next call from (it then needs no burn-in and does none)."""
    if n_samples < 1:
        raise ValueError(f"n_samples={n_samples} must be >= 1: the belief needs parameters. Try 10.")
    theta = _theta(position, posterior.prior.centre)
    value = posterior(theta)
    goes_on = position is not None and math.isfinite(value)
    if not goes_on:  # a new chain, or one that new losses have left without density
        theta = posterior.prior.centre.copy()
        value = posterior(theta)
    widths = step * posterior.prior.spread
    samples = []
    n_unkept = 0 if goes_on else burn_in
    for sweep in range(n_unkept + n_samples):
        theta, value = slice_sweep(posterior, theta, value, widths, rng, max_step_outs)
        if sweep >= n_unkept:
            samples.append(unpack(theta))
    return samples, [float(x) for x in theta]


def _theta(position: Sequence[float] | None, otherwise: Floats) -> Floats:
    if position is None:
        return otherwise.copy()
    theta = np.array(position, dtype=np.float64)
    if theta.shape != (N_PARAMETERS,):
        raise ValueError(
            f"position has shape {theta.shape}: it must be {N_PARAMETERS} floats, as a call returned them."
        )
    return theta
