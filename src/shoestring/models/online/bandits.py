"""UCB1, epsilon-greedy, softmax and EXP3.S as pure functions: choose among a few arms without a model of their drift.

The baselines of Table A1 in Wang, Ren, Bogunovic, Xiong, Urtasun, "Cost-Efficient Online Hyperparameter Optimization",
arXiv:2101.06590. UCB1: Auer, Cesa-Bianchi, Fischer, "Finite-time Analysis of the Multiarmed Bandit Problem", Machine
Learning 47, 2002, Fig. 1. EXP3.S: Auer, Cesa-Bianchi, Freund, Schapire, "The Nonstochastic Multiarmed Bandit Problem",
SIAM J. Comput. 32, 2002, Sect. 8. Epsilon-greedy and softmax: Kuleshov, Precup, "Algorithms for Multi-Armed Bandit
Problems", arXiv:1402.6028.

    paper    here            meaning                                                       unit
    K        n_arms          number of arms                                                —
    t        round           number of the round, from 1                                   rounds
    n_k      counts          observed rewards of arm k                                     —
             sums            their sum                                                     reward
    eps      exploration     share of rounds with a random arm                             —
    tau      temperature     softmax of mean / temperature                                 reward
    w        weights         EXP3.S weights; only their ratios matter                      —
    gamma    mixing          share of uniform play in EXP3.S                               —
    alpha    sharing         share of all weight that goes to each arm, about 1 / T        —
    x^       —               reward / p for the observed arm, 0 for the others             reward

The state is (counts, sums) or weights. It changes only with an observed reward, so rounds without validation change nothing.

Differences from the papers: an arm that was never observed comes first under UCB1, epsilon-greedy and softmax. (The papers leave
it open for the latter two; an assumed mean of 0 would depend on the origin of the rewards.) Among several such arms UCB1 and
epsilon-greedy take the lowest, and softmax gives all the same probability. EXP3.S weights are scaled to sum 1: the update is
homogeneous, and unscaled weights overflow.
"""

from __future__ import annotations

import math

import numpy as np

from shoestring.core.deciding.reproducible import find_best
from shoestring.core.values.arrays import Floats


def ucb1_bounds(counts: Floats, sums: Floats, round: int) -> Floats:
    """Return mean + sqrt(2 ln t / n_k) of each arm, (n_arms,); infinite for unobserved arms."""
    if round < 1:
        raise ValueError(f"round={round} must be at least 1: rounds are counted from 1.")
    return _means(counts, sums) + np.sqrt(2.0 * math.log(round) / np.maximum(counts, 1.0))


def epsilon_greedy(counts: Floats, sums: Floats, exploration: float = 0.1) -> Floats:
    """Return probabilities, (n_arms,): `exploration` is shared by all arms, the rest goes to the best mean (first of a tie)."""
    _check_share("exploration", exploration)
    probabilities = np.full(counts.size, exploration / counts.size)
    probabilities[find_best(_means(counts, sums), "highest")] += 1.0 - exploration
    return probabilities


def softmax(counts: Floats, sums: Floats, temperature: float = 0.1) -> Floats:
    """Return probabilities, (n_arms,), proportional to exp(mean / temperature)."""
    if not temperature > 0.0:
        raise ValueError(f"temperature={temperature} must be positive: try 0.1 for rewards in [0, 1].")
    means = _means(counts, sums)
    best = means.max()
    if math.isinf(best):  # unobserved arms have equal probabilities
        weights = np.isinf(means).astype(np.float64)
    else:
        weights = np.exp((means - best) / temperature)  # at most 1, so no temperature overflows
    return np.asarray(weights / weights.sum())


def exp3s(weights: Floats, mixing: float = 0.1) -> Floats:
    """Return probabilities, (n_arms,): p = (1 - gamma) w / sum w + gamma / K."""
    _check_share("mixing", mixing)
    return np.asarray((1.0 - mixing) * weights / weights.sum() + mixing / weights.size)


def exp3s_update(weights: Floats, arm: int, reward: float, *, mixing: float = 0.1, sharing: float) -> Floats:
    """Return the weights, (n_arms,) with sum 1, after `arm` was drawn from `exp3s(weights, mixing)` and its reward observed.

    w_k <- w_k exp(gamma x^_k / K) + (e alpha / K) sum w. The rule is made for rewards in [0, 1]; others are not changed.
    """
    _check_share("sharing", sharing)
    if not 0 <= arm < weights.size:
        raise ValueError(f"arm={arm} must be one of 0..{weights.size - 1}.")
    if not math.isfinite(reward):
        raise ValueError(f"reward={reward} must be finite: clip or skip a diverged one.")
    exponent = mixing * reward / (exp3s(weights, mixing)[arm] * weights.size)
    shift = max(exponent, 0.0)  # everything is divided by exp(shift), so that no reward overflows
    growth = np.full(weights.size, math.exp(-shift))
    growth[arm] = math.exp(exponent - shift)
    leak = math.e * sharing / weights.size * weights.sum() * math.exp(-shift)
    unscaled = growth * weights + leak
    return np.asarray(unscaled / unscaled.sum())


def draw(probabilities: Floats, rng: np.random.Generator) -> int:
    """Return an arm drawn with these probabilities, from one uniform number."""
    cumulative = probabilities.cumsum()
    arm = int(cumulative.searchsorted(rng.random() * cumulative[-1], side="right"))
    return min(arm, probabilities.size - 1)  # the product may round up to the last number itself


def _means(counts: Floats, sums: Floats) -> Floats:
    """Return mean rewards, infinite for unobserved arms."""
    return np.asarray(np.divide(sums, counts, out=np.full(counts.size, np.inf), where=counts > 0))


def _check_share(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name}={value} must be in [0, 1]: it is a share.")
