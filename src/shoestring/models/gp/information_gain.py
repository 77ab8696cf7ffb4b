"""The expected information of one more observation about which of several unknown numbers is the smallest.

Hennig and Schuler, "Entropy Search for Information-Efficient Global Optimization", JMLR 13, 2012, arXiv:1112.1217, in the
form that Swersky, Snoek, Adams, "Freeze-Thaw Bayesian Optimization", arXiv:1406.3896, section 4, and Klein et al., "Fast
Bayesian Optimization of Machine Learning Hyperparameters on Large Datasets" (Fabolas), arXiv:1605.07079, use it.

    paper     here       meaning                                                                 unit
    f         mean, cov  unknown numbers, jointly Gaussian                                       loss
    P_min     —          probability of each of them to be the smallest                          —
    H         —          entropy of P_min                                                        nats
    y         —          one observation, correlated with f by `cross`                           loss

Posterior draws of f are reused: each draw f has its own draw of the observation, y(f) = w'z + rest, and f + u (y - y(f)) is
a draw of f given that the observation is y. So no candidate needs its own Cholesky factor, and all candidates share the same
random numbers, which makes their gains comparable at a few hundred draws.

Differences from the papers: P_min is counted over draws, not by expectation propagation; y takes equally likely quantiles.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack
from scipy.special import ndtri

from shoestring.core.deciding.reproducible import find_best_of_rows
from shoestring.core.values.arrays import Floats

_JITTER = 1e-9


def information_gain(
    mean: Floats,
    cov: Floats,
    cross: Floats,
    variance: Floats,
    rng: np.random.Generator,
    n_fantasies: int = 5,
    n_draws: int = 256,
) -> Floats:
    """Return the expected decrease of the entropy of P_min, in nats, (m,), for each of m possible observations.

    mean (n,), cov (n, n) of the unknown numbers; cross (n, m) covariances with the observations, variance (m,) of the
    observations, noise included.
    """
    n, m = cross.shape
    if mean.shape != (n,) or cov.shape != (n, n) or variance.shape != (m,):
        raise ValueError(
            f"mean {mean.shape}, cov {cov.shape}, variance {variance.shape} do not fit cross {cross.shape}: "
            "n numbers, m observations."
        )
    factor, info = lapack.dpotrf(cov + np.eye(n) * (_JITTER * np.diagonal(cov).max() + 1e-300), lower=1, clean=1)
    if info != 0:
        raise ValueError(f"cov is not a covariance: it is not positive definite at row {info}.")
    u = cross / np.sqrt(variance)  # (n, m): how far f moves for one standard deviation of y
    w, _ = lapack.dtrtrs(factor, u, lower=1)  # (n, m)
    rest = np.sqrt(np.maximum(1.0 - (w**2).sum(axis=0), 0.0))  # (m,): the part of y that does not depend on f
    z, noise = rng.standard_normal((n_draws, n)), rng.standard_normal((n_draws, 1))
    f = mean + z @ factor.T  # (draws, n)
    own = z @ w + noise * rest  # (draws, m)
    y = ndtri((np.arange(n_fantasies) + 0.5) / n_fantasies)  # (q,)
    shift = y[:, None, None] - own  # (q, draws, m)
    smallest = find_best_of_rows(f[:, None, :] + u.T * shift[..., None], "lowest", exact=True)  # (q, draws, m)
    group = np.arange(n_fantasies)[:, None, None] * m + np.arange(m)
    counts = np.bincount((group * n + smallest).ravel(), minlength=n_fantasies * m * n).reshape(n_fantasies, m, n)
    before = np.bincount(find_best_of_rows(f, "lowest", exact=True), minlength=n)  # draws: no two are equal
    return np.asarray(_entropy(before / n_draws) - _entropy(counts / n_draws).mean(axis=0))


def _entropy(p: Floats) -> Floats:
    return np.asarray(-np.sum(p * np.log(np.where(p > 0.0, p, 1.0)), axis=-1))
