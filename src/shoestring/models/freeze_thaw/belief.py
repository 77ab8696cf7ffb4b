"""Freeze-thaw belief: where every paused curve is heading, for all arms and all future steps in one pass.

Lu, Chiang, Sha, "Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532, eq. 9, 18 and Appendix D, after
Swersky, Snoek, Adams, "Freeze-Thaw Bayesian Optimization", arXiv:1406.3896. The kernel and the losses are in
`freeze_thaw_curves`, the likelihood in `freeze_thaw_sums`.

    paper      here                        meaning                                                     unit
    mu         Belief.asymptote_mean       posterior mean of each arm's asymptote                      loss
    C          Belief.asymptote_cov        its covariance (diagonal alone for independent arms)        loss^2
    Omega      Belief.omega                weight of the asymptote in a value: 1 - k*' Kt_k^-1 1       —
    k*'Kt^-1   Belief.pull                 k*' Kt_k^-1 (y_k - its prior mean), owed to the curve       loss
    —          Belief.explained            k*' Kt_k^-1 k*, variance removed by the arm's own losses    loss^2

For a step after an arm's n losses, row j of the shared factor already holds L_n^-1 k* in its first n entries; so `pull`
is one product L V, and `omega` and `explained` are prefix sums along the rows of L. An arm without losses has
lambda = gamma = 0 and needs no formula of its own.

Departs from the paper: Omega is 1 - k*' Kt^-1 1 (printed with k* in place of 1), and the variance of an unseen arm's
asymptote uses (Kx + Lambda^-1)^-1 (printed with Kx^-1, which can make it negative). Variances are of the curve, without
observation noise, and are at least 1e-12.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shoestring.models.freeze_thaw.curves import Curves, Floats, Integers, Parameters
from shoestring.models.freeze_thaw.sums import (
    ArmSums,
    Whitened,
    arm_factor,
    over_root,
    own_factor,
    solve_lower,
    sum_arms,
    whiten,
)

LEAST_VARIANCE = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """Posterior over all curves for one set of parameters. Made by `Belief.given`; carried forward by `append`."""

    curves: Curves
    parameters: Parameters
    whitened: Whitened
    sums: ArmSums
    pull: Floats  # (n_rows, n_arms)
    omega: Floats  # (n_rows, n_arms)
    explained: Floats  # (n_rows, n_arms)
    asymptote_mean: Floats  # (n_arms,)
    asymptote_variance: Floats  # (n_arms,)
    asymptote_cov: Floats | None  # (n_arms, n_arms); None when arms are independent

    @classmethod
    def given(cls, curves: Curves, parameters: Parameters, arm_kernel: Floats | None = None) -> Belief:
        """Condition on the curves. The asymptotes' prior covariance is `sx2 * arm_kernel` (None: independent arms)."""
        n_arms = curves.n_arms
        if arm_kernel is not None and np.shape(arm_kernel) != (n_arms, n_arms):
            raise ValueError(
                f"arm_kernel has shape {np.shape(arm_kernel)}: it must be ({n_arms}, {n_arms}), one row an arm."
            )
        whitened = whiten(curves, parameters, parameters.mean, len(curves.order))
        sums = sum_arms(curves, parameters, parameters.mean, whitened)
        pull, omega, explained = _weights(curves, parameters, whitened)
        mean, variance, cov = _asymptotes(sums, parameters, arm_kernel)
        return cls(curves, parameters, whitened, sums, pull, omega, explained, mean, variance, cov)

    def predict(self) -> tuple[Floats, Floats]:
        """Mean and variance (n_arms, n_steps) of the curves at steps 1, 2, ...; nan up to an arm's last loss."""
        m = self.parameters.mean
        order = self.curves.order
        level = m + self.parameters.fall(self.curves.epochs[:, None])  # (n_rows, 1)
        mean = level + self.pull + self.omega * (self.asymptote_mean - m)  # (n_rows, n_arms)
        prior = self.whitened.table[2 * order, None]  # (n_rows, 1)
        variance = np.maximum(prior - self.explained + self.omega**2 * self.asymptote_variance, LEAST_VARIANCE)
        past = order[:, None] <= self.curves.last_step
        mean[past] = variance[past] = np.nan
        rows = np.argsort(order)[len(order) - self.curves.losses.shape[1] :]  # steps in time order, the start dropped
        return mean[rows].T, variance[rows].T

    def at(self, arms: Sequence[int], epochs: Sequence[float]) -> tuple[Floats, Floats]:
        """Mean (q,) and covariance (q, q) of the curves at any epochs, past, future or between steps, of any arms."""
        which, when = np.asarray(arms, dtype=np.intp), np.asarray(epochs, dtype=np.float64)
        if which.shape != when.shape or which.ndim != 1:
            raise ValueError(f"arms has shape {which.shape}, epochs {when.shape}: give one epoch for each arm.")
        if len(which) and not (which.min() >= 0 and which.max() < self.curves.n_arms and when.min() >= 0.0):
            raise ValueError(f"queries must name arms 0..{self.curves.n_arms - 1} at epochs >= 0.")
        m = self.parameters.mean
        pull, omega = np.zeros(len(when)), np.ones(len(when))
        cov = np.zeros((len(when), len(when)))
        for arm in np.unique(which):
            q = np.flatnonzero(which == arm)
            t = when[q]
            rows, factor = self._factor_of(arm)
            cross = self.parameters.decay(self.curves.unit * self.curves.order[rows, None] + t)  # (n_k, q_k)
            residual = self.curves.values[rows, arm] - m - self.parameters.fall(self.curves.epochs[rows])
            right = np.column_stack([np.ones(len(rows)), residual, cross])
            solved = solve_lower(factor, right)
            one, white, star = solved[:, 0], solved[:, 1], solved[:, 2:]
            pull[q] = star.T @ white
            omega[q] = 1.0 - star.T @ one
            cov[np.ix_(q, q)] = self.parameters.decay(t[:, None] + t) - star.T @ star
        if self.asymptote_cov is None:
            between = np.where(which[:, None] == which, self.asymptote_variance[which], 0.0)
        else:
            between = self.asymptote_cov[np.ix_(which, which)]
        cov += omega[:, None] * between * omega
        np.fill_diagonal(cov, np.maximum(np.diagonal(cov), LEAST_VARIANCE))
        return m + self.parameters.fall(when) + pull + omega * (self.asymptote_mean[which] - m), cov

    def append(self, arm: int, loss: float) -> Belief:
        """The belief after one more loss on `arm`, the step after its last: O(T) for the arm, O(K^2) for correlated arms.

        Only rows that the shared factor already has are used, so this equals `given` on the longer curves.
        """
        if not 0 <= arm < self.curves.n_arms:
            raise ValueError(f"append(arm={arm}): the curves have arms 0..{self.curves.n_arms - 1}.")
        if not np.isfinite(loss):
            raise ValueError(f"append(loss={loss}) has no likelihood. Pass it through loss_scaling.scaling first.")
        curves, n = self.curves, int(self.curves.counts[arm])
        step = int(curves.last_step[arm]) + 1
        if arm in curves.gappy or n >= len(curves.order) or curves.order[n] != step:
            raise ValueError(
                f"append(arm={arm}) cannot add step {step}: the curve is complete or has holes. "
                "Build the belief anew with Belief.given."
            )
        factor, u = self.whitened.factor, self.whitened.ones[n]
        column = factor[:, n]  # (n_rows,) what row n tells each later row
        fall = float(self.parameters.fall(np.array(curves.unit * step)))
        v = (loss - self.parameters.mean - fall - factor[n, :n] @ self.whitened.white[:n, arm]) / factor[n, n]
        white, pull, omega, explained = (a.copy() for a in (self.whitened.white, self.pull, self.omega, self.explained))
        white[n, arm] = v
        pull[:, arm] += column * v
        omega[:, arm] -= column * u
        explained[:, arm] += column**2
        sums = _with_row(self.sums, arm, float(u), float(v), float(factor[n, n]))
        if self.asymptote_cov is None:
            cov, variance = None, self.asymptote_variance.copy()
            variance[arm] /= 1.0 + u**2 * variance[arm]
            mean = self.parameters.mean + variance * sums.gamma
        else:
            own = self.asymptote_cov[:, arm]
            cov = self.asymptote_cov - np.outer(own, own) * (u**2 / (1.0 + u**2 * own[arm]))
            variance = np.diagonal(cov)
            mean = self.parameters.mean + cov @ sums.gamma
        return Belief(
            _with_loss(curves, arm, step, n, loss),
            self.parameters,
            replace(self.whitened, white=white),
            sums,
            pull,
            omega,
            explained,
            mean,
            variance,
            cov,
        )

    def _factor_of(self, arm: int) -> tuple[Integers, Floats]:
        if arm in self.curves.gappy:
            return own_factor(self.curves, self.parameters, self.whitened.table, arm)
        n = int(self.curves.counts[arm])
        return np.arange(n), self.whitened.factor[:n, :n]


def _weights(curves: Curves, parameters: Parameters, whitened: Whitened) -> tuple[Floats, Floats, Floats]:
    """pull, omega, explained (n_rows, n_arms); in a row at or before an arm's losses they mean nothing."""
    n, counts = curves.n_shared, curves.counts
    known = whitened.factor[:, :n]  # (n_rows, n)
    pull = known @ whitened.white[:n]
    sums = np.zeros((2, len(known), n + 1))
    np.cumsum(known * whitened.ones[:n], axis=1, out=sums[0, :, 1:])
    np.cumsum(known**2, axis=1, out=sums[1, :, 1:])
    told, explained = sums[:, :, np.minimum(counts, n)]
    omega = 1.0 - told
    for arm in curves.gappy:
        rows, factor = own_factor(curves, parameters, whitened.table, arm)
        residual = curves.values[rows, arm] - parameters.mean - parameters.fall(curves.epochs[rows])
        right = np.column_stack([np.ones(len(rows)), residual, whitened.table[curves.pairs[rows]]])
        solved = solve_lower(factor, right)
        star = solved[:, 2:]  # (n_k, n_rows)
        omega[:, arm] = 1.0 - solved[:, 0] @ star
        pull[:, arm] = solved[:, 1] @ star
        explained[:, arm] = np.einsum("ij,ij->j", star, star)
    return pull, omega, explained


def _asymptotes(
    sums: ArmSums, parameters: Parameters, arm_kernel: Floats | None
) -> tuple[Floats, Floats, Floats | None]:
    """mu = m + C gamma, diagonal of C, C = (Kx^-1 + Lambda)^-1 written without Kx^-1, which an unseen twin makes singular."""
    m, sx2 = parameters.mean, parameters.sx2
    if arm_kernel is None:
        variance = sx2 / (1.0 + sx2 * sums.lam)
        return m + variance * sums.gamma, variance, None
    w, kx, factor = arm_factor(sums.lam, sx2, arm_kernel)
    half = solve_lower(factor, w[:, None] * kx)  # (n_arms, n_arms)
    cov = kx - half.T @ half
    mean = m + half.T @ solve_lower(factor, over_root(sums.gamma, w))
    return mean, np.diagonal(cov), cov


def _with_row(sums: ArmSums, arm: int, u: float, v: float, pivot: float) -> ArmSums:
    lam, gamma, square, logdet = (a.copy() for a in (sums.lam, sums.gamma, sums.square, sums.logdet))
    lam[arm] += u * u
    gamma[arm] += u * v
    square[arm] += v * v
    logdet[arm] += 2.0 * np.log(pivot)
    return ArmSums(lam, gamma, square, logdet, sums.centre, sums.n_seen + 1)


def _with_loss(curves: Curves, arm: int, step: int, row: int, loss: float) -> Curves:
    losses, values, seen, counts = (
        curves.losses.copy(),
        curves.values.copy(order="F"),
        curves.seen.copy(),
        curves.counts.copy(),
    )
    losses[arm, step - 1] = values[row, arm] = loss
    seen[row, arm] = True
    counts[arm] += 1
    return replace(
        curves,
        losses=losses,
        values=values,
        seen=seen,
        counts=counts,
        n_seen=curves.n_seen + 1,
        n_shared=max(curves.n_shared, row + 1),
    )
