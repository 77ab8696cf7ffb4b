"""Curves of all arms: the kernel of one curve, the observed losses, and the Cholesky factor that all arms share.

Lu, Chiang, Sha, "Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532, Appendix D, after Swersky, Snoek,
Adams, "Freeze-Thaw Bayesian Optimization", arXiv:1406.3896.

    paper     here                      meaning                                                     unit
    K         n_arms                    number of configurations                                    -
    n_k       counts                    losses observed on arm k (a start value counts as one)      steps
    t         steps                     position on a curve                                         steps
    alpha     CurveParameters.alpha     how fast a curve settles                                    -
    beta      CurveParameters.beta      when a curve begins to settle                               steps
    -         CurveParameters.s2        variance of a curve about its asymptote at step 0           loss^2
    -         CurveParameters.noise     variance of one reported loss about its curve               loss^2
    K_x       sx2 * arm_kernel          prior covariance of the asymptotes (arm_kernel None: I)     loss^2
    m         CurveParameters.mean      prior mean of every asymptote                               loss
    -         CurveParameters.drop      how far the prior mean of a curve falls from step 0 on      loss
    l_0       Curves.start              value of every curve at step 0, if it is known              loss
    K_t       covariance                kernel of one curve about its asymptote, with noise         loss^2
    -         SharedFactor.factor       L of Kt = L L'                                              loss
    -         SharedFactor.ones, white  u = L^-1 1, V = L^-1 (y - centre)                           loss^-1, -

All arms are observed at the same steps, so every Kt_k is a leading block of one matrix. One factor and one triangular
solve against the zero-padded residuals of all arms give u and V for every arm at once (`whiten`).

Differences from the paper:
- The kernel has a magnitude s2 and noise. The printed formula lacks them, but the experiments need them.
- A common start value is optional.
- A drop is optional; it is 0 in the paper. With a drop the prior mean of a curve falls as its kernel does,
  m + drop beta^alpha / (t + beta)^alpha. In the paper the prior mean is m at every t, so a curve is as likely to rise as
  to fall. (The kernel is a mixture of exponentials over a Gamma density; this is their mean.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from shoestring.core.values.arrays import Flags, Floats, Indices, first_true, invert
from shoestring.models.gp.kernels import decay_kernel

# The decay kernel is smooth: its matrix for 50 steps has a condition number near 1e16. Noise below this share of s2 is
# raised to it.
RELATIVE_JITTER = 1e-8


@dataclass(frozen=True, slots=True)
class CurveParameters:
    """Parameters of the curve process: `alpha`, `beta`, `s2` and `sx2` are positive, `noise` and `drop` not negative."""

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
            raise ValueError(
                f"CurveParameters(drop={self.drop}) is how far curves fall: it must be >= 0 and finite. Try 1.0."
            )
        if not math.isfinite(self.mean):
            raise ValueError(f"CurveParameters(mean={self.mean}) must be finite. Try the mean of the observed losses.")

    def decay(self, step_sum: Floats) -> Floats:
        """Return `s2 beta^alpha / (t + t' + beta)^alpha` for `step_sum = t + t'` of any shape, without the noise."""
        return self.s2 * decay_kernel(step_sum, self.alpha, self.beta)

    def fall(self, steps: Floats) -> Floats:
        """Return how far the prior mean of a curve lies above the prior mean of its asymptote, at steps of any shape."""
        if self.drop == 0.0:
            return np.zeros(np.shape(steps))
        return self.drop / self.s2 * self.decay(steps)

    @property
    def diagonal(self) -> float:
        """Return the variance to add on the diagonal: the noise, or jitter if the noise is too small to factor the matrix."""
        return max(self.noise, RELATIVE_JITTER * self.s2)


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Observed losses, arranged for the shared factor. Build it with `Curves.of`, and never write to its arrays.

    The rows of the factor are, in this order: the start (if there is one), the steps at which any arm was observed, and
    the other steps. An arm whose losses fill the first `counts[k]` rows uses the shared factor, for example when only every
    fifth step is validated. An arm in `with_gaps` has gaps in those rows and gets its own factor.
    """

    losses: Floats  # (n_arms, n_steps), nan = not observed
    start: float | None
    order: Indices  # (n_rows,) step of each row, 0 = start
    pairs: Indices  # (n_rows, n_rows) order_i + order_j, an index into a table of the kernel
    seen: Flags  # (n_rows, n_arms)
    values: Floats  # (n_rows, n_arms) in column order, 0 where not observed
    counts: Indices  # (n_arms,)
    n_seen: int  # number of losses, without the start
    with_gaps: Indices  # (n_with_gaps,) arms with gaps
    n_shared: int  # rows that the arms without gaps use

    @classmethod
    def of(cls, losses: Floats, start: float | None = None) -> Curves:
        """Return the curves of losses (n_arms, n_steps), nan where nothing was observed.

        n_steps is the length of a whole curve.
        """
        losses = np.array(losses, dtype=np.float64)
        if losses.ndim != 2 or 0 in losses.shape:
            raise ValueError(
                f"losses has shape {losses.shape}: it must be (n_arms, n_steps), both >= 1; nan = not observed."
            )
        if np.isinf(losses).any():
            raise ValueError("losses holds inf, which has no likelihood. Scale it with loss_scaling.fit_scaling first.")
        if start is not None and not math.isfinite(start):
            raise ValueError(f"start={start} is the loss at step 0: it must be finite. Use None when it is unknown.")
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
        # an arm has no gap if its last observed row has the number `counts`
        last_row = np.where(counts > 0, len(order) - first_true(seen[:, ::-1]), 0)
        whole = last_row == counts
        return cls(
            losses=losses,
            start=start,
            order=order,
            pairs=order[:, None] + order[None, :],
            seen=seen.T,
            values=np.asfortranarray(values.T),
            counts=counts,
            n_seen=int(known.sum()),
            with_gaps=np.flatnonzero(~whole),
            n_shared=int(counts[whole].max(initial=0)),
        )

    @property
    def n_arms(self) -> int:
        return len(self.counts)

    @property
    def steps(self) -> Floats:
        """Return the step of each row of the factor as a float, for the kernel, (n_rows,)."""
        return self.order.astype(np.float64)

    @property
    def row_of_step(self) -> Indices:
        """Return the row of the factor for each step, (n_steps,), without the row of the start."""
        return invert(self.order - self.order.min())[len(self.order) - self.losses.shape[1] :]

    @property
    def shared(self) -> Flags:
        """Return which losses the shared factor covers, (n_rows, n_arms): all except those of arms with gaps."""
        if not len(self.with_gaps):
            return self.seen
        seen = self.seen.copy()
        seen[:, self.with_gaps] = False
        return seen

    @property
    def shared_counts(self) -> Indices:
        """Return how many rows of the shared factor belong to each arm, (n_arms,)."""
        return self.counts if not len(self.with_gaps) else self.shared.sum(axis=0)

    @property
    def last_step(self) -> Indices:
        """Return the last observed step of each arm, (n_arms,); 0 if there is none."""
        known = ~np.isnan(self.losses)
        n_steps = known.shape[1]
        return np.where(known.any(axis=1), n_steps - first_true(known[:, ::-1]), 0)


@dataclass(frozen=True, slots=True, eq=False)
class SharedFactor:
    """Cholesky factor of the first rows, and the whitened curves of all arms without gaps. `whiten` builds it."""

    centre: float  # the residuals are the losses minus this number and minus the fall of the prior mean
    table: Floats  # (2 * n_steps + 1,) kernel without noise, by the sum of two steps
    factor: Floats  # (r, r) L, lower; above the diagonal is 0
    ones: Floats  # (r,) u = L^-1 1
    white: Floats  # (r, n_arms) V = L^-1 (y - centre), 0 beyond an arm's losses and in the columns of arms with gaps


def whiten(curves: Curves, parameters: CurveParameters, centre: float, n_rows: int) -> SharedFactor:
    """Return the factor of the first `n_rows` rows and the whitened curves of all arms without gaps, from one solve."""
    n_steps = curves.losses.shape[1]
    table = parameters.decay(np.arange(2.0 * n_steps + 1.0))
    factor = cholesky(covariance(curves, parameters, table, slice(n_rows)))
    right = np.empty((n_rows, curves.n_arms + 1), order="F")
    right[:, 0] = 1.0
    np.subtract(curves.values[:n_rows], centre, out=right[:, 1:])
    if parameters.drop:
        right[:, 1:] -= parameters.fall(curves.steps[:n_rows, None])
    solution = solve_lower(factor, right)
    # Beyond an arm's losses its column holds the answer for the zero padding. Set it to 0, so that a sum over all rows is
    # the sum over the arm's rows.
    white = solution[:, 1:] * curves.shared[:n_rows]
    return SharedFactor(centre=centre, table=table, factor=factor, ones=solution[:, 0], white=white)


class ArmFactor(NamedTuple):
    """Factor of one arm, over the n_k rows at which it was observed, and the kernel between these rows and other steps."""

    pivots: Floats  # (n_k,) diagonal of L_k
    ones: Floats  # (n_k,) L_k^-1 1
    white: Floats  # (n_k,) L_k^-1 (y_k - centre)
    star: Floats  # (n_k, q) L_k^-1 k*


def whiten_arm(curves: Curves, parameters: CurveParameters, shared: SharedFactor, arm: int, steps: Floats) -> ArmFactor:
    """Return the factor of one arm, with or without gaps, and the whitened k* at the given steps (q,) of its curve."""
    rows = np.flatnonzero(curves.seen[:, arm])
    if arm in curves.with_gaps:
        factor = cholesky(covariance(curves, parameters, shared.table, rows))
    else:
        factor = shared.factor[: len(rows), : len(rows)]
    observed = curves.steps[rows]
    residual = curves.values[rows, arm] - shared.centre - parameters.fall(observed)
    right = np.column_stack([np.ones(len(rows)), residual, parameters.decay(observed[:, None] + steps)])
    solved = solve_lower(factor, right)
    return ArmFactor(factor.diagonal(), solved[:, 0], solved[:, 1], solved[:, 2:])


def covariance(curves: Curves, parameters: CurveParameters, table: Floats, rows: Indices | slice) -> Floats:
    """Return Kt with noise over the given rows. A start value is exact, so its row gets only jitter."""
    kt = table[curves.pairs[rows][:, rows]]  # (r, r)
    diagonal = kt.ravel(order="K")[:: len(kt) + 1]  # a view, whatever the memory order of the matrix
    if curves.start is None:
        diagonal += parameters.diagonal
    else:
        diagonal += np.where(curves.order[rows] == 0, RELATIVE_JITTER * parameters.s2, parameters.diagonal)
    return kt


def cholesky(matrix: Floats) -> Floats:
    """Return the lower Cholesky factor. It calls LAPACK directly: for 50 rows the checks of SciPy cost more than the work."""
    factor, info = lapack.dpotrf(matrix.T, lower=1, clean=1)  # the transpose of a C array needs no copy into columns
    if info != 0:
        raise np.linalg.LinAlgError(f"covariance of {len(matrix)} rows is not positive definite at row {info}.")
    return factor  # type: ignore[no-any-return]


def solve_lower(factor: Floats, right: Floats) -> Floats:
    """Return `factor^-1 right` for a lower factor. LAPACK refuses an empty system, whose answer is empty."""
    if factor.size == 0 or right.size == 0:
        return np.zeros_like(right)
    solution, _ = lapack.dtrtrs(factor, right, lower=1)
    return solution  # type: ignore[no-any-return]
