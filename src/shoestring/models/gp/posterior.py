"""Exact Gaussian-process regression with fixed parameters, from one Cholesky factor.

Rasmussen and Williams, "Gaussian Processes for Machine Learning", MIT Press 2006, algorithm 2.1 and eqs. (2.23)-(2.24). This
is the surrogate of Guinet et al., arXiv:2011.11456, section 2. `fit.fit_gp` chooses the parameters.

    symbol   here                 meaning                                                    unit
    X, y     x, y                 observed inputs (n, d) and outputs (n,)                    unit cube, output
    s_n^2    exp(theta[-1])       noise variance of the standardised outputs                 —
    A        —                    K(X, X) + (s_n^2 + jitter) I                               —
    L        factor               lower Cholesky factor of A                                 —
    m        constant             constant mean of the standardised outputs                  —
    alpha    weights              A^-1 (y~ - m), y~ = (y - shift) / scale                    —
    theta    theta                (log s^2, log length-scales, log s_n^2), see `kernels`     log

"Latent" predictions are predictions of the noise-free function, "noisy" ones of a new observation. All are in the units of y.

Differences from the textbook:
- The constant mean is the most probable value under m ~ N(0, 1) on standardised outputs, m = 1'A^-1 y~ / (1 + 1'A^-1 1).
  Its own uncertainty is not added to the predictions.
- Outputs are standardised again whenever one is appended. So `append` and a new `condition` agree, and the result does not
  depend on the order of observations. The factor does not depend on y, so this costs O(n^2).
- A is factored without jitter first. If that fails, a jitter is added to its diagonal: 1e-10 of the mean diagonal at first and
  ten times more at each failure up to 1e-4. Where points coincide and the noise is 0, rounding makes A indefinite by about
  n * 1e-16 of its size, so the first jitter nearly always suffices; the last one limits the cost of a pathological kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import lapack

from shoestring.core.values.arrays import Floats
from shoestring.models.gp.kernels import Kernel

Mean = Literal["zero", "constant"]

GP_MEMO = ("log_signal_variance", "log_lengthscales", "log_noise_variance")  # the parts of theta in a memo, in order
JITTERS = (0.0, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4)  # relative to the mean diagonal
VARIANCE_FLOOR = 1e-13  # relative to s^2: s^2 - |L^-1 k|^2 carries no information below its own rounding
# Covariances that are computed at a time: 125 KiB, small enough for allocators to reuse memory instead of mapping new pages.
CHUNK_COVARIANCES = 16_000
# Points that are predicted at a time, at least: a solve reads the whole factor, so it should serve many points.
CHUNK_POINTS = 128


@dataclass(frozen=True, eq=False, slots=True)
class GP:
    """A posterior. `condition` and `fit_gp` make one; `append` and `extend` return a new one and leave this one unchanged."""

    kernel: Kernel
    theta: Floats  # (kernel.n_parameters + 1,)
    x: Floats  # (n, d)
    y: Floats  # (n,)
    mean: Mean
    standardise: bool
    factor: Floats  # (n, n), lower, Fortran order
    jitter: float
    shift: float
    scale: float
    constant: float
    weights: Floats  # (n,)

    @property
    def noise_variance(self) -> float:
        """Return the variance of an observation about the latent function, in squared units of y."""
        return float(np.exp(self.theta[-1])) * self.scale**2

    def memo(self) -> dict[str, list[float]]:
        """Return the parameters as named lists of floats, from which `fit_gp` can start again."""
        parts = (self.theta[:1], self.theta[1:-1], self.theta[-1:])
        return {name: [float(v) for v in part] for name, part in zip(GP_MEMO, parts, strict=True)}

    def predict_observed(self) -> Floats:
        """Return the latent posterior mean at the observed inputs, (n,).

        This costs O(n), since K alpha = A alpha - (s_n^2 + jitter) alpha.
        """
        nugget = float(np.exp(self.theta[-1])) + self.jitter
        return self.y - self.scale * nugget * self.weights

    def predict(self, x_new: Floats, *, noisy: bool = False) -> tuple[Floats, Floats]:
        """Return the mean (m,) and variance (m,) at the points x_new, (m, d)."""
        mean, explained = np.empty(x_new.shape[0]), np.empty(x_new.shape[0])
        step = max(CHUNK_POINTS, CHUNK_COVARIANCES // self.y.size)
        for start in range(0, x_new.shape[0], step):
            part = slice(start, start + step)
            k = self.kernel.matrix(self.theta[:-1], x_new[part], self.x)  # (step, n)
            mean[part] = self._mean(k)
            v = _solve_lower(self.factor, k.T).T  # (step, n)
            explained[part] = np.einsum("mn,mn->m", v, v)
        variance = self._variance(explained)
        return mean, variance + self.noise_variance if noisy else variance

    def predict_mean(self, x_new: Floats) -> Floats:
        """Return the latent mean (m,) at the points x_new, (m, d). This costs O(n) a point; a variance costs O(n^2)."""
        return self._mean(self.kernel.matrix(self.theta[:-1], x_new, self.x))

    def predict_joint(self, x_new: Floats) -> tuple[Floats, Floats]:
        """Return the latent mean (m,) and covariance (m, m) at the points x_new, (m, d)."""
        k = self.kernel.matrix(self.theta[:-1], x_new, self.x)  # (m, n)
        v = _solve_lower(self.factor, k.T)  # (n, m)
        covariance = self.scale**2 * (self.kernel.matrix(self.theta[:-1], x_new, x_new) - v.T @ v)
        np.fill_diagonal(covariance, self._variance(np.einsum("nm,nm->m", v, v)))
        return self._mean(k), covariance

    def predict_with_gradient(self, x_new: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the latent mean (m,), variance (m,), and their derivatives with respect to x_new, (m, d) each."""
        k, dk = self.kernel.matrix_with_gradient(self.theta[:-1], x_new, self.x)  # (m, n), (m, n, d)
        d_mean = self.scale * np.einsum("mnd,n->md", dk, self.weights)
        v = _solve_lower(self.factor, k.T)  # (n, m)
        explained = np.einsum("nm,nm->m", v, v)
        variance = self._variance(explained)
        d_variance = -2.0 * self.scale**2 * np.einsum("mnd,nm->md", dk, _solve_lower(self.factor, v, transposed=True))
        d_variance[explained >= (1.0 - VARIANCE_FLOOR) * np.exp(self.theta[0])] = 0.0  # flat at the floor
        return self._mean(k), variance, d_mean, d_variance

    def append(self, x_new: Floats, y_new: float) -> GP:
        """Return the posterior after one more observation at x_new, (d,), with the same parameters, in O(n^2)."""
        return self.extend(np.atleast_2d(x_new), np.array([y_new], dtype=np.float64))

    def append_predicted(self, x_new: Floats) -> GP:
        """Return the posterior as if each of the points x_new, (m, d), had the value predicted for it, one after the other."""
        gp = self
        for point in x_new:
            gp = gp.append(point, float(gp.predict(point[None])[0][0]))
        return gp

    def extend(self, x_new: Floats, y_new: Floats) -> GP:
        """Return the posterior after m more observations at x_new, (m, d), with the same parameters, in O(m n^2)."""
        x_new, y_new = check_observations(x_new, y_new, self.kernel)
        n, total = self.y.size, self.y.size + y_new.size
        x, y = np.vstack([self.x, x_new]), np.append(self.y, y_new)
        rows = _solve_lower(self.factor, self.kernel.matrix(self.theta[:-1], self.x, x_new))  # (n, m)
        diagonal = float(np.exp(self.theta[0]) + np.exp(self.theta[-1])) + self.jitter
        rest = self.kernel.matrix(self.theta[:-1], x_new, x_new)
        rest[np.diag_indices_from(rest)] = diagonal
        corner, failed = lapack.dpotrf(rest - rows.T @ rows, lower=1, clean=1)  # the covariance given the first n
        if failed or np.min(corner.diagonal()) ** 2 <= 1e-14 * n * diagonal:
            # A new point is determined by the others up to rounding, so factor everything again with the jitter rule.
            return condition(self.kernel, self.theta, x, y, mean=self.mean, standardise=self.standardise)
        factor = np.zeros((total, total), order="F")
        factor[:n, :n] = self.factor
        factor[n:, :n] = rows.T
        factor[n:, n:] = corner
        return _make_posterior(self.kernel, self.theta, x, y, self.mean, self.standardise, factor, self.jitter)

    def _mean(self, k: Floats) -> Floats:
        """Return the mean (m,) from the covariances (m, n) with the observations."""
        return np.asarray(self.shift + self.scale * (self.constant + k @ self.weights))

    def _variance(self, explained: Floats) -> Floats:
        signal = float(np.exp(self.theta[0]))
        return self.scale**2 * np.maximum(signal - explained, VARIANCE_FLOOR * signal)


def condition(
    kernel: Kernel, theta: Floats, x: Floats, y: Floats, *, mean: Mean = "constant", standardise: bool = True
) -> GP:
    """Return the posterior given x, (n, d), and y, (n,), at the parameters theta; n >= 1.

    `standardise=False` uses y unchanged, for outputs whose mean is about 0 and whose variance is about 1.
    """
    x, y = check_observations(x, y, kernel)
    theta = check_theta(theta, kernel)
    a = kernel.matrix(theta[:-1], x, x)
    a[np.diag_indices_from(a)] = float(np.exp(theta[0]) + np.exp(theta[-1]))
    factor, jitter = factorise(a, typical=float(a[0, 0]))
    return _make_posterior(kernel, theta, x, y, mean, standardise, factor, jitter)


def _make_posterior(
    kernel: Kernel, theta: Floats, x: Floats, y: Floats, mean: Mean, standardise: bool, factor: Floats, jitter: float
) -> GP:
    shift, scale = standardisation(y) if standardise else (0.0, 1.0)
    constant, weights = mean_and_weights(factor, (y - shift) / scale, mean)
    return GP(kernel, theta, x, y, mean, standardise, factor, jitter, shift, scale, constant, weights)


def standardisation(y: Floats) -> tuple[float, float]:
    """Return the mean and population standard deviation of y; constant outputs have their size as scale, or 1 if they are 0."""
    size = float(np.max(np.abs(y)))
    if size == 0.0:
        return 0.0, 1.0
    relative = y / size  # so that squares neither overflow nor underflow, whatever the unit
    spread = float(np.std(relative))
    return float(np.mean(relative)) * size, (spread if spread > 1e-12 else 1.0) * size


def mean_and_weights(factor: Floats, y: Floats, mean: Mean) -> tuple[float, Floats]:
    """Return the constant m and alpha = A^-1 (y - m) for standardised y, (n,)."""
    if mean == "zero":
        return 0.0, _solve_both(factor, y)
    both = _solve_both(factor, np.column_stack([y, np.ones_like(y)]))  # (n, 2): A^-1 y, A^-1 1
    m = float(both[:, 0].sum() / (1.0 + both[:, 1].sum()))
    return m, both[:, 0] - m * both[:, 1]


def factorise(a: Floats, *, typical: float) -> tuple[Floats, float]:
    """Return the lower Cholesky factor of a, (n, n), and the jitter added to its diagonal, whose usual size is `typical`."""
    for jitter in (relative * typical for relative in JITTERS):
        attempt = np.array(a, order="F")
        attempt.T.ravel()[:: len(a) + 1] += jitter  # the diagonal, as a view: a fit comes here hundreds of times
        factor, info = lapack.dpotrf(attempt, lower=1, clean=1, overwrite_a=1)
        if info == 0:
            return factor, jitter
    raise ValueError(
        f"a covariance matrix of {a.shape[0]} points is not positive definite even with {JITTERS[-1]:g} of its diagonal "
        "added: it holds non-finite numbers, or its kernel is not a covariance function."
    )


def check_theta(theta: ArrayLike, kernel: Kernel) -> Floats:
    """Return theta as a float array; raise ValueError if it does not fit the kernel or is not finite."""
    theta = np.asarray(theta, dtype=np.float64)
    if theta.shape != (kernel.n_parameters + 1,) or not np.all(np.isfinite(theta)):
        raise ValueError(
            f"theta={theta} must be {kernel.n_parameters + 1} finite numbers: log signal variance, {kernel.n_parameters - 1} "
            "log length-scales, log noise variance. Drop the memo when the space changes."
        )
    return theta


def check_observations(x: Floats, y: Floats, kernel: Kernel) -> tuple[Floats, Floats]:
    """Return both as contiguous float arrays, (n, d) and (n,); raise ValueError if they do not fit or are not usable."""
    x, y = np.ascontiguousarray(x, dtype=np.float64), np.ascontiguousarray(y, dtype=np.float64)
    if x.ndim != 2 or x.shape[1] != kernel.n_dims or y.shape != (x.shape[0],) or y.size == 0:
        raise ValueError(
            f"x of shape {x.shape} and y of shape {y.shape} must be (n, {kernel.n_dims}) and (n,) with n >= 1: "
            "one row and one output for each observation."
        )
    if not np.all(np.isfinite(x)) or not np.all(np.abs(y) <= 1e150):  # the square of a larger one overflows
        raise ValueError(
            "x or y holds NaN, infinity or outputs beyond 1e150: leave diverged observations out, or give them a value."
        )
    return x, y


def _solve_lower(factor: Floats, b: Floats, *, transposed: bool = False) -> Floats:
    """Return L^-1 b, or L^-T b, for b (n, m), by LAPACK directly: a wrapper's checks cost more than the solve at n = 100."""
    solution, _ = lapack.dtrtrs(factor, b, lower=1, trans=int(transposed))
    return np.asarray(solution)


def _solve_both(factor: Floats, b: Floats) -> Floats:
    """Return A^-1 b, from the factor of A."""
    solution, _ = lapack.dpotrs(factor, b, lower=1)
    return np.asarray(solution)
