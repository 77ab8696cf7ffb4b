"""What a few steps of greedy buying would gain after each possible first step: rollout of expected improvement.

Lu, Chiang, Sha, "Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532, Appendix C, eq. 15-17, after Lam,
Willcox, Wolpert, "Bayesian Optimization with a Finite Budget", NeurIPS 2016.

    paper     here          meaning                                                                unit
    n         —             the step being decided                                                 —
    h         n_stages - 1  stages looked at after it, n + 1 … min(n + h, B)                        steps
    z^a       mean, cov     next losses of each arm, jointly Gaussian                              loss
    zeta      best_loss     smallest loss so far                                                   loss
    H_k       _tail         improvement that the arm of largest one-step EI is expected to bring   loss
    alpha_q   weights       Gauss-Hermite weights over sqrt(pi)                                    —

A stage conditions on one imagined loss: means move along one vector, and that vector squared leaves the variances. All
imagined pasts of a stage are handled together, so the tree costs a few array operations a stage.

Departs from the paper: the improvement of each stage is exact, and quadrature is used only for what follows it; losses
are as they would be reported, noise included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from shoestring.core.deciding.reproducible import find_best_of_rows
from shoestring.core.values.arrays import Flags, Floats, Indices


@dataclass(frozen=True, slots=True, eq=False)
class _Pasts:
    """Imagined pasts; s counts them, N = n_arms * n_stages losses in all."""

    mean: Floats  # (s, N)
    variance: Floats  # (s, N), without noise
    moves: list[Floats]  # each (s, N): what one imagined loss, a standard deviation high, added to the means
    upcoming: Indices  # (s, n_arms): index of each arm's next loss
    best: Floats  # (s,)


def roll_out(mean: Floats, cov: Floats, can_run: Flags, noise: float, best_loss: float, n_nodes: int = 3) -> Floats:
    """Expected improvement (n_arms,) of all stages together, by the first arm; -inf for an arm that cannot run.

    mean and can_run are (n_arms, n_stages): the next, second next, … loss of each arm, and whether it exists; cov is
    (n_arms * n_stages, n_arms * n_stages) in that order, without the observation noise.
    """
    n_arms, n_stages = mean.shape
    if cov.shape != (mean.size, mean.size) or can_run.shape != mean.shape:
        raise ValueError(f"mean is {mean.shape}, can_run {can_run.shape}, cov {cov.shape}: they do not fit together.")
    nodes, weights = np.polynomial.hermite.hermgauss(n_nodes)
    tree = _Tree(cov, can_run.ravel(), noise, math.sqrt(2.0) * nodes, weights / math.sqrt(math.pi))
    first = _Pasts(
        mean=np.repeat(mean.reshape(1, -1), n_arms, axis=0),
        variance=np.repeat(np.diagonal(cov)[None], n_arms, axis=0),
        moves=[],
        upcoming=np.repeat(np.arange(n_arms)[None] * n_stages, n_arms, axis=0),
        best=np.full(n_arms, best_loss),
    )
    values = tree.value(first, np.arange(n_arms), n_stages - 1)
    return np.where(can_run[:, 0], values, -np.inf)


@dataclass(frozen=True, slots=True, eq=False)
class _Tree:
    cov: Floats
    can_run: Flags  # (N,)
    noise: float
    nodes: Floats  # standard normal
    weights: Floats

    def value(self, pasts: _Pasts, arms: Indices, stages_left: int) -> Floats:
        """(s,): improvement of running arms (s,) now, and of what follows."""
        gain = np.take_along_axis(self._gains(pasts), arms[:, None], axis=1)[:, 0]
        if stages_left == 0:
            return gain
        rows = np.arange(len(arms))
        at = pasts.upcoming[rows, arms]  # (s,)
        move = self.cov[at]  # (s, N)
        for earlier in pasts.moves:
            move = move - earlier * earlier[rows, at][:, None]
        std = np.sqrt(np.maximum(pasts.variance[rows, at], 0.0) + self.noise)
        move = move / std[:, None]
        upcoming = pasts.upcoming.copy()
        upcoming[rows, arms] += 1
        loss = pasts.mean[rows, at][:, None] + std[:, None] * self.nodes  # (s, q)
        q = len(self.nodes)
        after = _Pasts(
            mean=(pasts.mean[:, None] + move[:, None] * self.nodes[:, None]).reshape(-1, move.shape[1]),
            variance=np.repeat(pasts.variance - move**2, q, axis=0),
            moves=[np.repeat(m, q, axis=0) for m in (*pasts.moves, move)],
            upcoming=np.repeat(upcoming, q, axis=0),
            best=np.minimum(pasts.best[:, None], loss).ravel(),
        )
        return gain + self._tail(after, stages_left - 1).reshape(-1, q) @ self.weights

    def _tail(self, pasts: _Pasts, stages_left: int) -> Floats:
        """H: go on with the arm of largest one-step improvement."""
        gains = self._gains(pasts)
        if stages_left == 0:
            return np.asarray(gains.max(axis=1))
        return self.value(pasts, find_best_of_rows(gains, "highest"), stages_left)

    def _gains(self, pasts: _Pasts) -> Floats:
        """Expected improvement (s, n_arms) of one step of each arm; 0 where there is none to run."""
        at = pasts.upcoming
        mean = np.take_along_axis(pasts.mean, at, axis=1)
        std = np.sqrt(np.maximum(np.take_along_axis(pasts.variance, at, axis=1), 0.0) + self.noise)
        z = (pasts.best[:, None] - mean) / std
        gain = std * (z * ndtr(z) + np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi))
        return np.where(self.can_run[at], np.maximum(gain, 0.0), 0.0)
