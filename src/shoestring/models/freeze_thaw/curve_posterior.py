"""Freeze-thaw posterior: the likelihood of the observed losses, and the predicted curves of all arms in one pass.

Lu, Chiang, Sha, "Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532, eq. 9, 18 and Appendix D, after
Swersky, Snoek, Adams, "Freeze-Thaw Bayesian Optimization", arXiv:1406.3896. The kernel, the losses and the shared factor
are in `arm_curves`.

    paper      here             meaning                                                              unit
    Lambda     ArmSums.lam      1' Kt_k^-1 1, diagonal of O' Kt^-1 O                                 loss^-2
    gamma      ArmSums.gamma    1' Kt_k^-1 (y_k - centre); y minus the fall of the prior mean        loss^-1
    -          ArmSums.square   (y_k - centre)' Kt_k^-1 (y_k - centre)                               -
    mu         asymptote_mean   posterior mean of each arm's asymptote                               loss
    C          asymptote_cov    its covariance (only the diagonal if arms are independent)           loss^2
    Omega      omega            weight of the asymptote in a value: 1 - k*' Kt_k^-1 1                -
    k*'Kt^-1   pull             k*' Kt_k^-1 (y_k - its prior mean), the part that comes from the curve  loss
    -          explained        k*' Kt_k^-1 k*, the variance that the arm's own losses remove        loss^2

With u and V of the shared factor, every sum of arm k runs over its first n_k rows. The likelihood and the asymptotes need
only these sums. For a step after the n losses of an arm, row j of the factor already holds L_n^-1 k* in its first n
entries. So `pull` is one product L V, and `omega` and `explained` are prefix sums along the rows of L. An arm without
losses has lambda = gamma = 0 and needs no formula of its own.

Differences from the paper:
- The prior mean is O m, not 0.
- In the log likelihood of Appendix D all three log-determinants are inside the factor -1/2. (The printed version is not a
  density.)
- Omega is 1 - k*' Kt^-1 1 (printed with k* in place of 1).
- The variance of the asymptote of an arm without losses uses (Kx + Lambda^-1)^-1 (printed with Kx^-1, which can make it
  negative).
- A common start value is given, not observed. It says how a curve begins, but nothing about where the curve ends, so its
  row of the factor is left out of every sum. (If each arm had its start value as an observation, correlated arms would be
  predicted, with great confidence, to end near their start, which is wrong.)
- Variances are those of the curve without observation noise, and are at least 1e-12.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoestring.core.values.arrays import Floats, Indices
from shoestring.models.freeze_thaw.arm_curves import (
    CurveParameters,
    Curves,
    SharedFactor,
    cholesky,
    solve_lower,
    whiten,
    whiten_arm,
)

MIN_VARIANCE = 1e-12  # rounding may leave less than 0 for a curve without noise at a step just observed
_NO_STEPS = np.zeros(0)


# sums over the losses of each arm ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ArmSums:
    """Sums over the curves that the likelihood and the asymptotes need; each array is (n_arms,)."""

    lam: Floats  # 1' Kt^-1 1
    gamma: Floats  # 1' Kt^-1 r, r = y - centre
    square: Floats  # r' Kt^-1 r
    logdet: Floats  # log |Kt|
    centre: float
    n_seen: int  # number of losses in these sums


def sum_arms(curves: Curves, parameters: CurveParameters, shared: SharedFactor) -> ArmSums:
    """Return prefix sums over the rows of the shared factor; arms with gaps are summed one by one.

    The sums depend on alpha, beta, s2, noise and drop, but not on sx2 and mean.
    """
    since = int(curves.start is not None)  # the row of the start has no information about the asymptote
    u, white = shared.ones[since:], shared.white[since:]
    rows_of = np.maximum(curves.shared_counts - since, 0)
    lam = _sum_prefixes(u**2)[rows_of]
    logdet = _sum_prefixes(2.0 * np.log(shared.factor.diagonal()[since:]))[rows_of]
    gamma = u @ white
    square = np.einsum("ik,ik->k", white, white)
    for arm in curves.with_gaps:
        own = whiten_arm(curves, parameters, shared, arm, _NO_STEPS)
        one, residual = own.ones[since:], own.white[since:]
        lam[arm], gamma[arm], square[arm] = one @ one, one @ residual, residual @ residual
        logdet[arm] = 2.0 * np.log(own.pivots[since:]).sum()
    return ArmSums(lam, gamma, square, logdet, shared.centre, curves.n_seen)


def log_likelihood(sums: ArmSums, parameters: CurveParameters, arm_kernel: Floats | None) -> float:
    """Return log p(losses | parameters). The sums may be about any centre, so a new sx2 or mean needs no new factor.

    The formula is -1/2 (r'Kt^-1 r - gamma'C gamma + log|Kx^-1 + Lambda| + log|Kx| + log|Kt| + N log 2 pi), Appendix D corrected.
    """
    shift = parameters.mean - sums.centre
    gamma = sums.gamma - shift * sums.lam
    square = sums.square - shift * (sums.gamma + gamma)
    if arm_kernel is None:
        spread = 1.0 + parameters.sx2 * sums.lam
        explained = float((parameters.sx2 * gamma**2 / spread).sum())
        logdet = float(np.log(spread).sum())
    else:
        w, _, factor = _factor_arms(sums.lam, parameters.sx2, arm_kernel)
        z = _divide_by_root(gamma, w)
        rest = solve_lower(factor, z)  # C = W^-1 (I - (I + W Kx W)^-1) W^-1 on the observed arms
        explained = float(z @ z - rest @ rest)
        logdet = 2.0 * float(np.log(factor.diagonal()).sum())
    quadratic = float(square.sum()) - explained
    return -0.5 * (quadratic + logdet + float(sums.logdet.sum()) + sums.n_seen * math.log(2.0 * math.pi))


# posterior of all curves ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class FreezeThawPosterior:
    """Posterior over all curves for one set of parameters. Build it with `FreezeThawPosterior.from_curves`."""

    curves: Curves
    parameters: CurveParameters
    shared: SharedFactor
    pull: Floats  # (n_rows, n_arms)
    omega: Floats  # (n_rows, n_arms)
    explained: Floats  # (n_rows, n_arms)
    asymptote_mean: Floats  # (n_arms,)
    asymptote_variance: Floats  # (n_arms,)
    asymptote_cov: Floats | None  # (n_arms, n_arms); None when arms are independent

    @classmethod
    def from_curves(
        cls, curves: Curves, parameters: CurveParameters, arm_kernel: Floats | None = None
    ) -> FreezeThawPosterior:
        """Return the posterior given the curves.

        The prior covariance of the asymptotes is `sx2 * arm_kernel`; None means independent arms.
        """
        n_arms = curves.n_arms
        if arm_kernel is not None and np.shape(arm_kernel) != (n_arms, n_arms):
            raise ValueError(
                f"arm_kernel has shape {np.shape(arm_kernel)}: it must be ({n_arms}, {n_arms}), one row per arm."
            )
        shared = whiten(curves, parameters, parameters.mean, len(curves.order))
        pull, omega, explained = _compute_weights(curves, parameters, shared)
        asymptotes = _find_asymptotes(sum_arms(curves, parameters, shared), parameters, arm_kernel)
        return cls(curves, parameters, shared, pull, omega, explained, *asymptotes)

    def predict(self) -> tuple[Floats, Floats]:
        """Return mean and variance (n_arms, n_steps) of the curves at steps 1, 2, ...; nan up to the last loss of an arm."""
        m = self.parameters.mean
        order = self.curves.order
        level = m + self.parameters.fall(self.curves.steps[:, None])  # (n_rows, 1)
        mean = level + self.pull + self.omega * (self.asymptote_mean - m)  # (n_rows, n_arms)
        prior = self.shared.table[2 * order, None]  # (n_rows, 1)
        variance = np.maximum(prior - self.explained + self.omega**2 * self.asymptote_variance, MIN_VARIANCE)
        past = order[:, None] <= self.curves.last_step
        mean[past] = variance[past] = np.nan
        rows = self.curves.row_of_step
        return mean[rows].T, variance[rows].T

    def predict_joint(self, arms: Sequence[int], steps: Sequence[float]) -> tuple[Floats, Floats]:
        """Return mean (q,) and covariance (q, q) of the curves of any arms at any steps, past, future or in between."""
        which, at = np.asarray(arms, dtype=np.intp), np.asarray(steps, dtype=np.float64)
        if which.shape != at.shape or which.ndim != 1:
            raise ValueError(f"arms has shape {which.shape}, steps {at.shape}: give one step per arm.")
        if len(which) and not (which.min() >= 0 and which.max() < self.curves.n_arms and at.min() >= 0.0):
            raise ValueError(f"queries must name arms 0..{self.curves.n_arms - 1} at steps >= 0.")
        m = self.parameters.mean
        pull, omega = np.zeros(len(at)), np.ones(len(at))
        cov = np.zeros((len(at), len(at)))
        for arm in np.unique(which):
            q = np.flatnonzero(which == arm)
            t = at[q]
            own = whiten_arm(self.curves, self.parameters, self.shared, arm, t)
            pull[q] = own.star.T @ own.white
            omega[q] = 1.0 - own.star.T @ own.ones
            cov[np.ix_(q, q)] = self.parameters.decay(t[:, None] + t) - own.star.T @ own.star
        cov += omega[:, None] * self.asymptote_cov_of(which) * omega
        np.fill_diagonal(cov, np.maximum(np.diagonal(cov), MIN_VARIANCE))
        return m + self.parameters.fall(at) + pull + omega * (self.asymptote_mean[which] - m), cov

    def asymptote_cov_of(self, arms: Indices) -> Floats:
        """Return the covariance (q, q) of the asymptotes of these arms (q,), which may repeat."""
        if self.asymptote_cov is None:
            return np.where(arms[:, None] == arms, self.asymptote_variance[arms], 0.0)
        return self.asymptote_cov[np.ix_(arms, arms)]


def _compute_weights(
    curves: Curves, parameters: CurveParameters, shared: SharedFactor
) -> tuple[Floats, Floats, Floats]:
    """Return pull, omega, explained (n_rows, n_arms). Rows up to the last loss of an arm have no meaning for that arm."""
    n, counts = curves.n_shared, curves.counts
    known = shared.factor[:, :n]  # (n_rows, n)
    pull = known @ shared.white[:n]
    sums = np.zeros((2, len(known), n + 1))
    np.cumsum(known * shared.ones[:n], axis=1, out=sums[0, :, 1:])
    np.cumsum(known**2, axis=1, out=sums[1, :, 1:])
    on_curve, explained = sums[:, :, np.minimum(counts, n)]
    omega = 1.0 - on_curve
    for arm in curves.with_gaps:
        own = whiten_arm(curves, parameters, shared, arm, curves.steps)
        omega[:, arm] = 1.0 - own.ones @ own.star
        pull[:, arm] = own.white @ own.star
        explained[:, arm] = np.einsum("ij,ij->j", own.star, own.star)
    return pull, omega, explained


def _find_asymptotes(
    sums: ArmSums, parameters: CurveParameters, arm_kernel: Floats | None
) -> tuple[Floats, Floats, Floats | None]:
    """Return mu = m + C gamma, the diagonal of C, and C.

    C = (Kx^-1 + Lambda)^-1 is computed without Kx^-1: two equal configurations make Kx singular.
    """
    m, sx2 = parameters.mean, parameters.sx2
    if arm_kernel is None:
        variance = sx2 / (1.0 + sx2 * sums.lam)
        return m + variance * sums.gamma, variance, None
    w, kx, factor = _factor_arms(sums.lam, sx2, arm_kernel)
    half = solve_lower(factor, w[:, None] * kx)  # (n_arms, n_arms)
    cov = kx - half.T @ half
    mean = m + half.T @ solve_lower(factor, _divide_by_root(sums.gamma, w))
    return mean, np.diagonal(cov), cov


# factors over arms, prefix sums --------------------------------------------------------------------------------------


def _factor_arms(lam: Floats, sx2: float, arm_kernel: Floats) -> tuple[Floats, Floats, Floats]:
    """Return w = sqrt(lambda), Kx, and the factor of I + W Kx W, which exists also for lambda = 0 and for a singular Kx."""
    w = np.sqrt(lam)
    kx = sx2 * arm_kernel  # (n_arms, n_arms)
    inner = w[:, None] * kx * w
    inner.flat[:: len(w) + 1] += 1.0
    return w, kx, cholesky(inner)


def _divide_by_root(gamma: Floats, w: Floats) -> Floats:
    """Return gamma / sqrt(lambda), which is 0 for an arm without losses."""
    return np.divide(gamma, w, out=np.zeros_like(gamma), where=w > 0.0)


def _sum_prefixes(rows: Floats) -> Floats:
    """Return the sums of the first 0, 1, ..., r rows, (r + 1,)."""
    sums = np.zeros(len(rows) + 1)
    rows.cumsum(out=sums[1:])
    return sums
