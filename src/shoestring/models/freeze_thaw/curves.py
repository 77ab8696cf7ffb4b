"""The curves of all arms: the kernel of one curve, the losses seen, and the one factor that every arm shares.

Lu, Chiang, Sha, "Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532, Appendix D, after Swersky, Snoek,
Adams, "Freeze-Thaw Bayesian Optimization", arXiv:1406.3896.

    paper     here                      meaning                                                     unit
    K         n_arms                    configurations                                              —
    n_k       counts                    losses seen on arm k (a start value counts as one)          steps
    t         unit * step               position on a curve; the kernel sees epochs                 epochs
    alpha     CurveParameters.alpha     how fast a curve settles                                    —
    beta      CurveParameters.beta      when it begins to settle                                    epochs
    —         CurveParameters.s2        variance of a curve about its asymptote at epoch 0          loss^2
    —         CurveParameters.noise     variance of one reported loss about its curve               loss^2
    K_x       sx2 * arm_kernel          prior covariance of the asymptotes (arm_kernel None: I)     loss^2
    m         CurveParameters.mean      prior mean of every asymptote                               loss
    —         CurveParameters.drop      how far a curve is expected to fall from epoch 0 on         loss
    l_0       Curves.start              value that every curve has at epoch 0, if there is one      loss
    K_t       covariance                kernel of one curve about its asymptote, noise included     loss^2
    —         SharedFactor.factor       L of Kt = L L'                                              loss
    —         SharedFactor.ones, white  u = L^-1 1, V = L^-1 (y - centre)                           loss^-1, —

All arms are seen at the same epochs, so every Kt_k is a leading block of one matrix: one factor and one triangular solve
against the zero-padded residuals of all arms give u and V for every arm at once (`whiten`).

Departs from the paper: the kernel has a magnitude s2 and noise, which the printed formula lacks though the experiments
need them; a step may be several epochs, seen at its end; a common start value is optional. So is a drop, 0 in the paper:
with it the prior mean of a curve falls as its kernel does, m + drop beta^alpha / (t + beta)^alpha, where the paper's is m
at every t and a curve is as likely to rise as to fall. (The kernel is a mixture of exponentials over a Gamma density; this
is their mean.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from shoestring.core.values.arrays import Flags, Floats, Indices, first_true, invert

# The decay kernel is smooth: 50 epochs have a condition number near 1e16. Noise below this share of s2 is raised to it.
RELATIVE_JITTER = 1e-8


@dataclass(frozen=True, slots=True)
class CurveParameters:
    """Parameters of the belief; `alpha`, `beta` (epochs), `s2`, `sx2` are positive, `noise` and `drop` not negative."""

    alpha: float
    beta: float
    s2: float
    noise: float
    sx2: float
    mean: float
    drop: float = 0.0

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "s2", "sx2"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ValueError(f"CurveParameters({name}={getattr(self, name)}) must be positive and finite. Try 1.0.")
        if not 0.0 <= self.noise < math.inf:
            raise ValueError(
                f"CurveParameters(noise={self.noise}) is a variance: it must be >= 0 and finite. Try 1e-4."
            )
        if not 0.0 <= self.drop < math.inf:
            raise ValueError(f"CurveParameters(drop={self.drop}) must be >= 0 and finite: curves fall. Try 1.0.")
        if not math.isfinite(self.mean):
            raise ValueError(f"CurveParameters(mean={self.mean}) must be finite. Try the mean of the losses seen.")

    def decay(self, epoch_sum: Floats) -> Floats:
        """`s2 beta^alpha / (t + t' + beta)^alpha` for `epoch_sum = t + t'`, any shape, without the noise."""
        with np.errstate(under="ignore"):  # far along a steep curve the covariance is 0, which is right
            return self.s2 * np.exp(-self.alpha * np.log1p(epoch_sum / self.beta))

    def fall(self, epochs: Floats) -> Floats:
        """How far the prior mean of a curve lies above that of its asymptote, at epochs of any shape."""
        if self.drop == 0.0:
            return np.zeros(np.shape(epochs))
        return self.drop / self.s2 * self.decay(epochs)

    @property
    def diagonal(self) -> float:
        """Variance added on the diagonal: the noise, or the jitter where noise is too small to factor the matrix."""
        return max(self.noise, RELATIVE_JITTER * self.s2)


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Losses seen so far, arranged for the shared factor. Made by `Curves.of`; arrays are not to be written to.

    Rows of the factor are, in this order: the start (if any), the steps at which any arm was seen, the other steps.
    An arm whose losses fill the first `counts[k]` rows shares the factor (also when, say, only every fifth step is
    validated); an arm listed in `gappy` has holes in those rows and gets a factor of its own.
    """

    losses: Floats  # (n_arms, n_steps), nan = not seen
    unit: float  # epochs a step
    start: float | None
    order: Indices  # (n_rows,) step of each row, 0 = start
    pairs: Indices  # (n_rows, n_rows) order_i + order_j, an index into a table of the kernel
    seen: Flags  # (n_rows, n_arms)
    values: Floats  # (n_rows, n_arms) in column order, 0 where not seen
    counts: Indices  # (n_arms,)
    n_seen: int  # losses in all, without the start
    gappy: Indices  # (n_gappy,) arms with holes
    n_shared: int  # rows that the arms without holes use

    @classmethod
    def of(cls, losses: Floats, unit: float = 1.0, start: float | None = None) -> Curves:
        """Take losses (n_arms, n_steps), nan where nothing was seen; n_steps is the length of a whole curve."""
        losses = np.array(losses, dtype=np.float64)
        if losses.ndim != 2 or 0 in losses.shape:
            raise ValueError(
                f"losses has shape {losses.shape}: it must be (n_arms, n_steps), both >= 1; nan = not seen."
            )
        if np.isinf(losses).any():
            raise ValueError("losses holds inf, which has no likelihood. Pass it through loss_scaling.scaling first.")
        if not 0.0 < unit < math.inf:
            raise ValueError(f"unit={unit} is the number of epochs a step: it must be positive. Try 1.")
        if start is not None and not math.isfinite(start):
            raise ValueError(f"start={start} is the loss at epoch 0: it must be finite. Use None when it is unknown.")
        known = ~np.isnan(losses)
        anywhere = known.any(axis=0)
        order = np.concatenate([np.flatnonzero(anywhere), np.flatnonzero(~anywhere)])  # (n_steps,)
        seen, values = known[:, order], np.where(known, losses, 0.0)[:, order]
        order += 1
        if start is not None:
            n_arms = len(losses)
            order = np.concatenate([[0], order])
            seen = np.concatenate([np.ones((n_arms, 1), dtype=bool), seen], axis=1)
            values = np.concatenate([np.full((n_arms, 1), start), values], axis=1)
        counts = seen.sum(axis=1)
        # an arm has no hole when its last seen row is number `counts`
        last_row = np.where(counts > 0, len(order) - first_true(seen[:, ::-1]), 0)
        whole = last_row == counts
        return cls(
            losses=losses,
            unit=unit,
            start=start,
            order=order,
            pairs=order[:, None] + order[None, :],
            seen=seen.T,
            values=np.asfortranarray(values.T),
            counts=counts,
            n_seen=int(known.sum()),
            gappy=np.flatnonzero(~whole),
            n_shared=int(counts[whole].max(initial=0)),
        )

    @property
    def n_arms(self) -> int:
        return len(self.counts)

    @property
    def epochs(self) -> Floats:
        """(n_rows,) where on a curve each row of the factor is."""
        return self.unit * self.order.astype(np.float64)

    @property
    def row_of_step(self) -> Indices:
        """(n_steps,) the row of the factor that belongs to each step; the start's row is left out."""
        return invert(self.order - self.order.min())[len(self.order) - self.losses.shape[1] :]

    @property
    def shared(self) -> Flags:
        """(n_rows, n_arms) losses that the shared factor accounts for: all but those of arms with holes."""
        if not len(self.gappy):
            return self.seen
        seen = self.seen.copy()
        seen[:, self.gappy] = False
        return seen

    @property
    def shared_counts(self) -> Indices:
        """(n_arms,) rows of the shared factor that belong to each arm."""
        return self.counts if not len(self.gappy) else self.shared.sum(axis=0)

    @property
    def last_step(self) -> Indices:
        """(n_arms,) the last step seen of each arm, 0 for none."""
        known = ~np.isnan(self.losses)
        n_steps = known.shape[1]
        return np.where(known.any(axis=1), n_steps - first_true(known[:, ::-1]), 0)


@dataclass(frozen=True, slots=True, eq=False)
class SharedFactor:
    """The factor of the first rows, and what it makes of the curves of all arms without holes. Made by `whiten`."""

    centre: float  # subtracted from every loss, with the fall of the prior mean, to give the residuals
    table: Floats  # (2 * n_steps + 1,) kernel without noise, by the sum of two steps
    factor: Floats  # (r, r) L, lower; above the diagonal is 0
    ones: Floats  # (r,) u = L^-1 1
    white: Floats  # (r, n_arms) V = L^-1 (y - centre), 0 beyond an arm's losses and in the columns of gappy arms


def whiten(curves: Curves, parameters: CurveParameters, centre: float, n_rows: int) -> SharedFactor:
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
    return SharedFactor(centre=centre, table=table, factor=factor, ones=solution[:, 0], white=white)


class ArmFactor(NamedTuple):
    """The same of one arm alone, over the n_k rows that it was seen in, and the kernel between these and other epochs."""

    pivots: Floats  # (n_k,) diagonal of L_k
    ones: Floats  # (n_k,) L_k^-1 1
    white: Floats  # (n_k,) L_k^-1 (y_k - centre)
    star: Floats  # (n_k, q) L_k^-1 k*


def whiten_arm(
    curves: Curves, parameters: CurveParameters, shared: SharedFactor, arm: int, epochs: Floats
) -> ArmFactor:
    """Of an arm with holes or without, with k* at some epochs (q,) of its curve."""
    rows = np.flatnonzero(curves.seen[:, arm])
    if arm in curves.gappy:
        factor = cholesky(covariance(curves, parameters, shared.table, rows))
    else:
        factor = shared.factor[: len(rows), : len(rows)]
    when = curves.epochs[rows]
    residual = curves.values[rows, arm] - shared.centre - parameters.fall(when)
    right = np.column_stack([np.ones(len(rows)), residual, parameters.decay(when[:, None] + epochs)])
    solved = solve_lower(factor, right)
    return ArmFactor(factor.diagonal(), solved[:, 0], solved[:, 1], solved[:, 2:])


def covariance(curves: Curves, parameters: CurveParameters, table: Floats, rows: Indices | slice) -> Floats:
    """Kt, noise included, over some rows; a start value is exact, so that row gets jitter alone."""
    kt = table[curves.pairs[rows][:, rows]]  # (r, r)
    diagonal = kt.ravel(order="K")[:: len(kt) + 1]  # a view, in whichever order the matrix lies
    if curves.start is None:
        diagonal += parameters.diagonal
    else:
        diagonal += np.where(curves.order[rows] == 0, RELATIVE_JITTER * parameters.s2, parameters.diagonal)
    return kt


def cholesky(matrix: Floats) -> Floats:
    """Lower factor of a symmetric positive matrix; LAPACK directly: for 50 rows the checks of scipy cost more."""
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
