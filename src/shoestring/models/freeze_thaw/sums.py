"""What a set of partial curves says, as four sums an arm through one shared factor, and the likelihood made of them.

Lu, Chiang, Sha, "Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532, eq. 9, 18 and Appendix D, after
Swersky, Snoek, Adams, "Freeze-Thaw Bayesian Optimization", arXiv:1406.3896.

    paper     here                   meaning                                                     unit
    K_t       covariance             kernel of one curve about its asymptote, noise included     loss^2
    Lambda    ArmSums.lam            1' Kt_k^-1 1, diagonal of O' Kt^-1 O                        loss^-2
    gamma     ArmSums.gamma          1' Kt_k^-1 (y_k - centre); y less the prior's fall, if any  loss^-1
    —         ArmSums.square         (y_k - centre)' Kt_k^-1 (y_k - centre)                      —
    —         Whitened.factor        L of Kt = L L'                                              loss
    —         Whitened.ones, white   u = L^-1 1, V = L^-1 (y - centre)                           loss^-1, —

All arms are seen at the same epochs, so every Kt_k is a leading block of one matrix: one factor and one triangular solve
against the zero-padded residuals of all arms give u and V, and each sum of arm k is over the first n_k rows of them.

Departs from the paper: the prior mean is O m, not 0; in the log likelihood of Appendix D all three log-determinants stand
inside the factor -1/2 (the printed version is not a density). A common start value is given, not observed: it says how a
curve begins and nothing of where it ends, so its row of the factor is left out of every sum. (As many observations as there
are arms it would tell correlated arms, wrongly and with great confidence, that they all end near their start.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from shoestring.models.freeze_thaw.curves import RELATIVE_JITTER, Curves, Floats, Integers, Parameters


@dataclass(frozen=True, slots=True, eq=False)
class ArmSums:
    """All that the likelihood and the asymptotes need to know of the curves; each array is (n_arms,)."""

    lam: Floats  # 1' Kt^-1 1
    gamma: Floats  # 1' Kt^-1 r, r = y - centre
    square: Floats  # r' Kt^-1 r
    logdet: Floats  # log |Kt|
    centre: float
    n_seen: int  # losses in these sums


@dataclass(frozen=True, slots=True, eq=False)
class Whitened:
    """The shared factor over the first rows, and what it makes of the curves."""

    table: Floats  # (2 * n_steps + 1,) kernel without noise, by the sum of two steps
    factor: Floats  # (r, r) L, lower; above the diagonal is 0
    ones: Floats  # (r,) u = L^-1 1
    white: Floats  # (r, n_arms) V = L^-1 (y - centre), 0 beyond an arm's losses and in the columns of gappy arms


def cholesky(matrix: Floats) -> Floats:
    """Lower factor of a symmetric positive matrix; LAPACK directly, as the checks of scipy cost more than T = 50 does."""
    factor, info = lapack.dpotrf(matrix.T, lower=1, clean=1)  # the transpose of a C array needs no copy into columns
    if info != 0:
        raise np.linalg.LinAlgError(f"covariance of {len(matrix)} rows is not positive definite at row {info}.")
    return factor  # type: ignore[no-any-return]


def solve_lower(factor: Floats, right: Floats) -> Floats:
    """`factor^-1 right` for a lower factor; an empty system has an empty answer, which LAPACK refuses."""
    if factor.size == 0 or right.size == 0:
        return np.zeros_like(right)
    solution, _ = lapack.dtrtrs(factor, right, lower=1)
    return solution  # type: ignore[no-any-return]


def covariance(curves: Curves, parameters: Parameters, table: Floats, rows: Integers | slice) -> Floats:
    """Kt, noise included, over some rows; a start value is exact, so that row gets jitter alone."""
    kt = table[curves.pairs[rows][:, rows]]  # (r, r)
    diagonal = kt.ravel(order="K")[:: len(kt) + 1]  # a view, in whichever order the matrix lies
    if curves.start is None:
        diagonal += parameters.diagonal
    else:
        diagonal += np.where(curves.order[rows] == 0, RELATIVE_JITTER * parameters.s2, parameters.diagonal)
    return kt


def whiten(curves: Curves, parameters: Parameters, centre: float, n_rows: int) -> Whitened:
    """One factor and one triangular solve for all arms without holes, over the first `n_rows` rows."""
    n_steps = curves.losses.shape[1]
    table = parameters.decay(curves.unit * np.arange(2 * n_steps + 1))
    factor = cholesky(covariance(curves, parameters, table, slice(n_rows)))
    right = np.empty((n_rows, curves.n_arms + 1), order="F")
    right[:, 0] = 1.0
    np.subtract(curves.values[:n_rows], centre, out=right[:, 1:])
    if parameters.drop:
        right[:, 1:] -= parameters.fall(curves.epochs[:n_rows, None])
    solution = solve_lower(factor, right)
    # beyond its losses an arm's column is filled with guesses of the zero padding: cut, then sums over rows are prefix sums
    white = solution[:, 1:] * curves.shared[:n_rows]
    return Whitened(table=table, factor=factor, ones=solution[:, 0], white=white)


def own_factor(curves: Curves, parameters: Parameters, table: Floats, arm: int) -> tuple[Integers, Floats]:
    """Rows and factor of one arm with holes."""
    rows = np.flatnonzero(curves.seen[:, arm])
    return rows, cholesky(covariance(curves, parameters, table, rows))


def sum_arms(curves: Curves, parameters: Parameters, centre: float, whitened: Whitened) -> ArmSums:
    """Prefix sums over the rows of the shared factor; arms with holes one by one."""
    since = int(curves.start is not None)  # the start's row says nothing of the asymptote
    u, white = whitened.ones[since:], whitened.white[since:]
    rows_of = np.maximum(curves.shared_counts - since, 0)
    lam = _prefix(u**2)[rows_of]
    logdet = _prefix(2.0 * np.log(whitened.factor.diagonal()[since:]))[rows_of]
    gamma = u @ white
    square = np.einsum("ik,ik->k", white, white)
    for arm in curves.gappy:
        rows, factor = own_factor(curves, parameters, whitened.table, arm)
        fall = parameters.fall(curves.epochs[rows])
        right = np.column_stack([np.ones(len(rows)), curves.values[rows, arm] - centre - fall])
        one, residual = solve_lower(factor, right)[since:].T
        lam[arm], gamma[arm], square[arm] = one @ one, one @ residual, residual @ residual
        logdet[arm] = 2.0 * np.log(np.diagonal(factor)[since:]).sum()
    return ArmSums(lam, gamma, square, logdet, centre, curves.n_seen)


def curve_sums(curves: Curves, parameters: Parameters, centre: float) -> ArmSums:
    """The sums alone, O(T^3 + T^2 K); they depend on alpha, beta, s2 and noise, not on sx2 and mean."""
    return sum_arms(curves, parameters, centre, whiten(curves, parameters, centre, max(curves.n_shared, 1)))


def log_marginal_likelihood(curves: Curves, parameters: Parameters, arm_kernel: Floats | None = None) -> float:
    """log p(losses | parameters), given the start values where there are any."""
    return evidence(curve_sums(curves, parameters, parameters.mean), parameters, arm_kernel)


def arm_factor(lam: Floats, sx2: float, arm_kernel: Floats) -> tuple[Floats, Floats, Floats]:
    """w = sqrt(lambda), Kx, and the factor of I + W Kx W, which exists for unseen arms (lambda = 0) and singular Kx."""
    w = np.sqrt(lam)
    kx = sx2 * arm_kernel  # (n_arms, n_arms)
    inner = w[:, None] * kx * w
    inner.flat[:: len(w) + 1] += 1.0
    return w, kx, cholesky(inner)


def over_root(gamma: Floats, w: Floats) -> Floats:
    """gamma / sqrt(lambda), which is 0 for an unseen arm."""
    return np.divide(gamma, w, out=np.zeros_like(gamma), where=w > 0.0)


def evidence(sums: ArmSums, parameters: Parameters, arm_kernel: Floats | None) -> float:
    """The likelihood from sums made about any centre, so that a new sx2 or mean needs no new factor.

    -1/2 (r'Kt^-1 r - gamma'C gamma + log|Kx^-1 + Lambda| + log|Kx| + log|Kt| + N log 2 pi), Appendix D corrected.
    """
    shift = parameters.mean - sums.centre
    gamma = sums.gamma - shift * sums.lam
    square = sums.square - shift * (sums.gamma + gamma)
    if arm_kernel is None:
        spread = 1.0 + parameters.sx2 * sums.lam
        explained = float((parameters.sx2 * gamma**2 / spread).sum())
        logdet = float(np.log(spread).sum())
    else:
        w, _, factor = arm_factor(sums.lam, parameters.sx2, arm_kernel)
        z = over_root(gamma, w)
        rest = solve_lower(factor, z)  # C = W^-1 (I - (I + W Kx W)^-1) W^-1 on the arms seen
        explained = float(z @ z - rest @ rest)
        logdet = 2.0 * float(np.log(factor.diagonal()).sum())
    quadratic = float(square.sum()) - explained
    return -0.5 * (quadratic + logdet + float(sums.logdet.sum()) + sums.n_seen * math.log(2.0 * math.pi))


def _prefix(rows: Floats) -> Floats:
    """(r,) -> (r + 1,) sums of the first 0, 1, ..., r rows."""
    sums = np.zeros(len(rows) + 1)
    rows.cumsum(out=sums[1:])
    return sums
