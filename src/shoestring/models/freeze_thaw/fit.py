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
    log drop       theta[6], if asked   N(log (2 sd y), 1)                                     log loss

With a drop, theta[5] is the level of the mean curve where the arms were seen last (m is what it still falls to): that is what
losses tell of, and m and the drop apart hardly at all, so a sampler that moved them one by one would not get far.

Departs from the paper: it has no drop; it names no priors and no number of samples; those above and 10 samples are ours.
"Attempts" is read as the number of times the slice grows. One sample is one sweep over all coordinates, a step being 0.5 of
the prior's standard deviation (0.5 in log space). A chain goes on from its last position instead of burning in anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import minimize

from shoestring.models.freeze_thaw.curves import Curves, Floats, Parameters
from shoestring.models.freeze_thaw.slice_sampling import slice_sweep
from shoestring.models.freeze_thaw.sums import ArmSums, curve_sums, evidence

N_PARAMETERS = 6
_FARTHEST = 5.0  # the most probable parameters are sought within this many prior standard deviations


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """Independent normal prior of theta; both arrays are (6,), or (7,) with a drop."""

    centre: Floats
    spread: Floats
    log_volume: float  # sum of the logs of the spreads
    last_epochs: Floats  # (n_begun,) when each arm was seen last

    @classmethod
    def of(cls, curves: Curves, falling: bool = False) -> Prior:
        """The table above, with a drop if `falling`. Losses that do not vary say nothing of a scale: it counts as 1."""
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
            last_epochs=curves.unit * last[started].astype(np.float64),
        )

    def parameters(self, theta: Floats) -> Parameters:
        """theta to parameters."""
        p = unpack(theta)
        return replace(p, mean=p.mean - self._to_fall(p)) if p.drop else p

    def theta(self, packed: Sequence[float]) -> Floats:
        """Packed parameters, in which the mean is m, to theta."""
        theta = np.array(packed, dtype=np.float64)
        return self._moved(theta, 1.0)

    def packed(self, theta: Floats) -> list[float]:
        """theta to packed parameters."""
        return [float(x) for x in self._moved(theta.copy(), -1.0)]

    def _moved(self, theta: Floats, side: float) -> Floats:
        if len(theta) > N_PARAMETERS:
            theta[5] += side * self._to_fall(unpack(theta))
        return theta

    def _to_fall(self, p: Parameters) -> float:
        """How far the mean curve falls after the arms' last losses, on average over the arms begun."""
        epochs = self.last_epochs if len(self.last_epochs) else np.zeros(1)
        return float(p.fall(epochs).mean())

    def log_density(self, theta: Floats) -> float:
        z = (theta - self.centre) / self.spread
        return float(-0.5 * (z @ z) - self.log_volume - 0.5 * len(z) * math.log(2.0 * math.pi))


@dataclass(slots=True, eq=False)
class LogPosterior:
    """log p(theta | losses) up to log p(losses), as a function of theta."""

    curves: Curves
    prior: Prior
    arm_kernel: Floats | None = None
    _kept: tuple[tuple[float, ...], ArmSums] | None = field(default=None, init=False)

    def __call__(self, theta: Floats) -> float:
        try:
            parameters = self.prior.parameters(theta)
            likelihood = evidence(self._sums(parameters), parameters, self.arm_kernel)
        except (ValueError, OverflowError, np.linalg.LinAlgError):  # beyond floating point: no density there
            return -math.inf
        value = likelihood + self.prior.log_density(theta)
        return value if math.isfinite(value) else -math.inf

    def _sums(self, parameters: Parameters) -> ArmSums:
        """Two of the six coordinates, sx2 and mean, do not enter the sums, so the last ones are kept for their moves.

        The sums are always made about the prior's centre: what is kept is the same whatever was asked before.
        """
        key = (parameters.alpha, parameters.beta, parameters.s2, parameters.noise, parameters.drop)
        if self._kept is None or self._kept[0] != key:
            self._kept = key, curve_sums(self.curves, parameters, float(self.prior.centre[5]))
        return self._kept[1]


def unpack(theta: Sequence[float] | Floats) -> Parameters:
    """Six or seven packed numbers to parameters."""
    alpha, beta, s2, noise, sx2, mean, *drop = theta.tolist() if isinstance(theta, np.ndarray) else theta
    return Parameters(
        math.exp(alpha),
        math.exp(beta),
        math.exp(s2),
        math.exp(noise),
        math.exp(sx2),
        float(mean),
        math.exp(drop[0]) if drop else 0.0,
    )


def pack(parameters: Parameters) -> Floats:
    """Parameters as six numbers, or seven if they have a drop; a noise of 0 has no place in log space."""
    p = parameters
    if p.noise <= 0.0:
        raise ValueError(f"Parameters(noise={p.noise}) has no logarithm. Give a small positive variance.")
    drop = [math.log(p.drop)] if p.drop else []
    return np.array([*(math.log(x) for x in (p.alpha, p.beta, p.s2, p.noise, p.sx2)), p.mean, *drop])


def most_probable(posterior: LogPosterior, position: Sequence[float] | None = None) -> Parameters:
    """Parameters of largest posterior density, climbing from `position` (packed) or from the prior's centre."""
    centre, spread = posterior.prior.centre, posterior.prior.spread
    first = np.clip((_theta(position, posterior.prior) - centre) / spread, -_FARTHEST, _FARTHEST)
    fit = minimize(
        lambda z: -posterior(centre + spread * z),
        first,
        method="L-BFGS-B",
        jac="3-point",
        bounds=[(-_FARTHEST, _FARTHEST)] * len(centre),
    )
    return posterior.prior.parameters(centre + spread * fit.x)


def sample_parameters(
    posterior: LogPosterior,
    rng: np.random.Generator,
    n_samples: int = 10,
    position: Sequence[float] | None = None,
    burn_in: int = 10,
    step: float = 0.5,
    max_step_outs: int = 10,
) -> tuple[list[Parameters], list[float]]:
    """Samples, and the chain's last position (packed) to start the next call from (it then needs no burn-in and does none)."""
    if n_samples < 1:
        raise ValueError(f"n_samples={n_samples} must be >= 1: the belief needs parameters. Try 10.")
    theta = _theta(position, posterior.prior)
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
            samples.append(posterior.prior.parameters(theta))
    return samples, posterior.prior.packed(theta)


def _theta(position: Sequence[float] | None, prior: Prior) -> Floats:
    if position is None:
        return prior.centre.copy()
    if np.shape(position) != prior.centre.shape:
        raise ValueError(
            f"position has shape {np.shape(position)}: it must be {len(prior.centre)} floats, as a call returned them."
        )
    return prior.theta(position)
