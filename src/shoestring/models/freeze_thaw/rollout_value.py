"""Rollout of expected improvement: the improvement that a few greedy steps would bring after each possible first step.

Lu, Chiang, Sha, "Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532, Appendix C, eq. 15-17, after Lam,
Willcox, Wolpert, "Bayesian Optimization with a Finite Budget", NeurIPS 2016.

    paper     here          meaning                                                                unit
    n         -             the step being decided                                                 -
    h         n_stages - 1  stages after that step, n + 1 ... min(n + h, B)                        steps
    z^a       mean, cov     next losses of each arm, jointly Gaussian                              loss
    zeta      best_loss     smallest loss so far                                                   loss
    H_k       _tail         expected improvement of the arm with the largest one-step EI           loss
    alpha_q   weights       Gauss-Hermite weights over sqrt(pi)                                    -

A stage conditions on one simulated loss: the means move along one vector, and the square of this vector is subtracted from
the variances. All simulated histories of a stage are computed together, so the tree costs a few array operations per stage.

Differences from the paper: the improvement of each stage is exact, and quadrature is used only for what follows it. Losses
are simulated as they would be reported, with noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoestring.core.deciding.reproducible import find_best_of_rows
from shoestring.core.values.arrays import Flags, Floats, Indices
from shoestring.models.gp.acquisition import standard_expected_improvement


@dataclass(frozen=True, slots=True, eq=False)
class _Histories:
    """Simulated histories: s is their number, N = n_arms * n_stages the number of losses."""

    mean: Floats  # (s, N)
    variance: Floats  # (s, N), without noise
    moves: list[Floats]  # each (s, N): change of the means when one simulated loss is a standard deviation higher
    upcoming: Indices  # (s, n_arms): index of each arm's next loss
    best: Floats  # (s,)


def roll_out(mean: Floats, cov: Floats, can_train: Flags, noise: float, best_loss: float, n_nodes: int = 3) -> Floats:
    """Return the expected improvement over all stages for each first arm, (n_arms,); -inf for an arm that cannot be trained.

    `mean` and `can_train` are (n_arms, n_stages): the next losses of each arm in order, and whether each exists. `cov` is
    (n_arms * n_stages, n_arms * n_stages) in the same order, without the observation noise.
    """
    n_arms, n_stages = mean.shape
    if cov.shape != (mean.size, mean.size) or can_train.shape != mean.shape:
        raise ValueError(
            f"mean is {mean.shape}, can_train {can_train.shape}, cov {cov.shape}: these shapes do not match."
        )
    nodes, weights = np.polynomial.hermite.hermgauss(n_nodes)
    tree = _Tree(cov, can_train.ravel(), noise, math.sqrt(2.0) * nodes, weights / math.sqrt(math.pi))
    first = _Histories(
        mean=np.repeat(mean.reshape(1, -1), n_arms, axis=0),
        variance=np.repeat(np.diagonal(cov)[None], n_arms, axis=0),
        moves=[],
        upcoming=np.repeat(np.arange(n_arms)[None] * n_stages, n_arms, axis=0),
        best=np.full(n_arms, best_loss),
    )
    values = tree.value(first, np.arange(n_arms), n_stages - 1)
    return np.where(can_train[:, 0], values, -np.inf)


@dataclass(frozen=True, slots=True, eq=False)
class _Tree:
    """The tree of simulated losses: what all its stages share."""

    cov: Floats
    can_train: Flags  # (N,)
    noise: float
    nodes: Floats  # standard normal
    weights: Floats

    def value(self, histories: _Histories, arms: Indices, stages_left: int) -> Floats:
        """Return the improvement (s,) of training arms (s,) now and of the stages after that."""
        gain = np.take_along_axis(self._gains(histories), arms[:, None], axis=1)[:, 0]
        if stages_left == 0:
            return gain
        rows = np.arange(len(arms))
        at = histories.upcoming[rows, arms]  # (s,)
        move = self.cov[at]  # (s, N)
        for earlier in histories.moves:
            move = move - earlier * earlier[rows, at][:, None]
        std = np.sqrt(np.maximum(histories.variance[rows, at], 0.0) + self.noise)
        move = move / std[:, None]
        upcoming = histories.upcoming.copy()
        upcoming[rows, arms] += 1
        loss = histories.mean[rows, at][:, None] + std[:, None] * self.nodes  # (s, q)
        q = len(self.nodes)
        after = _Histories(
            mean=(histories.mean[:, None] + move[:, None] * self.nodes[:, None]).reshape(-1, move.shape[1]),
            variance=np.repeat(histories.variance - move**2, q, axis=0),
            moves=[np.repeat(m, q, axis=0) for m in (*histories.moves, move)],
            upcoming=np.repeat(upcoming, q, axis=0),
            best=np.minimum(histories.best[:, None], loss).ravel(),
        )
        return gain + self._tail(after, stages_left - 1).reshape(-1, q) @ self.weights

    def _tail(self, histories: _Histories, stages_left: int) -> Floats:
        """Return H: the improvement if each next step goes to the arm with the largest one-step improvement."""
        gains = self._gains(histories)
        if stages_left == 0:
            return np.asarray(gains.max(axis=1))
        return self.value(histories, find_best_of_rows(gains, "highest"), stages_left)

    def _gains(self, histories: _Histories) -> Floats:
        """Return the expected improvement (s, n_arms) of one step of each arm; 0 where an arm has no step left."""
        at = histories.upcoming
        mean = np.take_along_axis(histories.mean, at, axis=1)
        std = np.sqrt(np.maximum(np.take_along_axis(histories.variance, at, axis=1), 0.0) + self.noise)
        z = (histories.best[:, None] - mean) / std
        return np.where(self.can_train[at], std * standard_expected_improvement(z), 0.0)
