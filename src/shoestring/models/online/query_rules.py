"""The point of the next round, its competitors, and whether to validate the round, from the posterior for that round.

Wang, Ren, Bogunovic, Xiong, Urtasun, "Cost-Efficient Online Hyperparameter Optimization", arXiv:2101.06590: UCB of
Sect. 3.1, query rules of Sect. 3.2, Algorithm 1, Lemma 1 and eqs. 3-8 of Appendix B, local optima of Appendix C.1.

    paper       here              meaning                                                         unit
    t           round             number of the round, from 1, with or without validation         rounds
    mu, sigma^2 mean, variance    posterior of this round's function, without noise               value, value^2
    beta_t      beta              exploration: u = mu + sqrt(beta) sigma                          —
    x_t         chosen            argmax of u                                                     index
    kappa       confidence        query unless x_t beats every competitor with this probability   probability
    N           reset_block       rounds between two resets of R-GP-UCB                           rounds

To query is to validate a round. A competitor is a point that x_t is compared with. On a dense domain, neighbours within one
mode cannot be told apart, so only other local maxima of u count; among a few unrelated arms, all others do.

Differences from the paper:
- Without a competitor the rule queries. (The paper's rule, read literally, would not, and the agent could stay at one point for
  ever.)
- beta_t = 0.8 ln 4t and the reset block are not in the paper. The first is common in code for this model and reproduces its
  Table A2.
- The two values that are compared count as independent, as in eq. 3; their exact covariance may be given.
- Probability of improvement over the best posterior mean, the paper's baseline, has no margin: its argmax is the argmax of the
  mean.

Corrections to Appendix B: the confidence gamma_t at which both rules agree is Phi(sqrt(2 beta_t)), not Phi(sqrt(2) beta_t). They
agree only when both standard deviations are equal; otherwise the confidence rule queries more often. The step to eq. 5 needs
gamma >= 1/2. The second argument of N(., .) is a variance.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import ndtr

from shoestring.core.deciding.reproducible import find_best, reaches, round_result, sort_best_first
from shoestring.core.values.arrays import Floats, Indices, invert
from shoestring.models.gp.acquisition import standard_expected_improvement

# Decimals to which acquisitions are compared, for values of scale 1. That is finer than the tolerance of
# `core/deciding/reproducible.py`: neighbours on a dense grid differ by less than that tolerance, so the first of equal points
# could lie beside the top of its own mode, and the top would count as its competitor.
_DECIMALS = 10
_VARIANCE_FLOOR = 1e-12  # as a share of the sum of both variances
_MAX_DISTANCE = 0.5  # between neighbours in the unit cube
_LABEL_DISTANCE = 1e6  # keeps points with different labels farther apart than that


def beta_schedule(round: int) -> float:
    """Return the exploration beta_t = 0.8 ln(4 t) of round t = 1, 2, …"""
    if round < 1:
        raise ValueError(f"round={round} must be at least 1: rounds are counted from 1.")
    return 0.8 * math.log(4.0 * round)


def reset_block(forgetting_rate: float, horizon_rounds: int) -> int:
    """Return the rounds after which R-GP-UCB drops its data: ceil(min(T, 12 eps^(-1/4))), or the horizon if eps = 0."""
    if not 0.0 <= forgetting_rate <= 1.0:
        raise ValueError(f"forgetting_rate={forgetting_rate} must be in [0, 1].")
    if horizon_rounds < 1:
        raise ValueError(f"horizon_rounds={horizon_rounds} must be at least 1.")
    if forgetting_rate == 0.0:
        return horizon_rounds
    return math.ceil(min(float(horizon_rounds), 12.0 / math.sqrt(math.sqrt(forgetting_rate))))


def upper_confidence(mean: Floats, variance: Floats, beta: float) -> Floats:
    """Return u = mu + sqrt(beta) sigma, shape of `mean`, rounded to 1e-10 so that equal points tie exactly."""
    if beta < 0.0:
        raise ValueError(f"beta={beta} must be at least 0: it is the square of a number of standard deviations.")
    ucb = mean + math.sqrt(beta) * np.sqrt(variance)
    return round_result(ucb, _DECIMALS)


def probability_of_improvement(mean: Floats, variance: Floats) -> Floats:
    """Return Phi((mu - mu+) / sigma), shape of `mean`; mu+ is the best mean of this round."""
    return np.asarray(ndtr((mean - mean.max()) / np.sqrt(variance)))


def expected_improvement(mean: Floats, variance: Floats) -> Floats:
    """Return E max(f - mu+, 0), shape of `mean`; mu+ is the best mean of this round."""
    sigma = np.sqrt(variance)
    z = (mean - mean.max()) / sigma  # never positive
    return np.asarray(sigma * standard_expected_improvement(z))


def choose(acquisition: Floats) -> int:
    """Return the index of the largest value, the lowest index of a tie (as under the flat prior of round 1)."""
    return find_best(round_result(acquisition, _DECIMALS), "highest", exact=True)


def local_maxima(heights: Floats) -> Indices:
    """Return the indices of the local maxima of `heights` (n,) along an interval.

    A point is one if it is at least as high as its predecessor and higher than its successor. End points lack one neighbour
    and are compared with the other alone. A plateau counts once, at its last point, and so does a flat part of a descent.
    """
    if heights.size == 0:
        raise ValueError("heights is empty: a domain needs at least one point.")
    is_peak = np.ones(heights.size, dtype=np.bool_)
    is_peak[1:] &= heights[1:] >= heights[:-1]
    is_peak[:-1] &= heights[:-1] > heights[1:]
    return np.flatnonzero(is_peak)


def other_maxima(heights: Floats, chosen: int) -> Indices:
    """Return the competitors of `chosen` along an interval: the other local maxima, (m,), perhaps none."""
    peaks = local_maxima(heights)
    return np.asarray(peaks[peaks != chosen])


def other_arms(n_arms: int, chosen: int) -> Indices:
    """Return the competitors of `chosen` in a bandit of unrelated arms: all others, (n_arms - 1,)."""
    if not 0 <= chosen < n_arms:
        raise ValueError(f"chosen={chosen} must be an arm in 0..{n_arms - 1}.")
    return np.delete(np.arange(n_arms), chosen)


class Competitors:
    """The competitors of each point of a finite list: `places` (N, n_columns), numbers in some columns, labels in the others.

    If a single number varies, the points lie along an interval. If only labels vary, all points compete, as arms do. Otherwise
    a local maximum is a point that is as high as its nearest neighbours with equal labels.
    """

    def __init__(self, places: Floats, numbers: Indices) -> None:
        varies = np.ptp(places, axis=0) > 0.0
        self._along: Indices | None = None  # the points in the order of their one number
        self._place: Indices | None = None  # the place of each point in that order
        self._neighbours: Indices | None = None  # (N, k); missing neighbours are replaced by the point itself
        if varies[numbers].any() and varies.sum() == 1:
            self._along = sort_best_first(places[:, varies][:, 0], "lowest", exact=True)
            self._place = invert(self._along)
        elif varies[numbers].any():
            self._neighbours = _nearest(places, numbers, int(varies[numbers].sum()))

    def of(self, chosen: int, height: Floats) -> Indices:
        """Return the competitors of `chosen`, (m,), given the acquisition `height` (N,) of every point."""
        if self._along is not None and self._place is not None:
            return np.asarray(self._along[other_maxima(height[self._along], int(self._place[chosen]))])
        if self._neighbours is None:
            return other_arms(height.size, chosen)
        peaks = np.flatnonzero((height[:, None] >= height[self._neighbours]).all(axis=1))
        return np.asarray(peaks[peaks != chosen])


def _nearest(places: Floats, numbers: Indices, n_varying: int) -> Indices:
    """Return the nearest neighbours of each point, (N, k), itself included; it also replaces neighbours that are too far away."""
    apart = places.copy()
    apart[:, np.setdiff1d(np.arange(places.shape[1]), numbers)] *= _LABEL_DISTANCE
    k = min(2 * n_varying + 1, len(places))  # as many neighbours as in a grid, and the point itself
    distance, nearest = cKDTree(apart).query(apart, k=k)
    return np.where(distance <= _MAX_DISTANCE, nearest, np.arange(len(places))[:, None])


def probability_better(
    mean: Floats, variance: Floats, chosen: int, competitors: Indices, covariance: Floats | None = None
) -> Floats:
    """Return Pr(f(chosen) > f(x)) for each competitor x, (m,), eq. 3.

    `covariance` (n,), of the chosen point with every point, makes it exact; without it the values count as independent.
    """
    spread = variance[chosen] + variance[competitors]
    if covariance is not None:
        # For two nearly equal points the difference is only rounding: keep it positive.
        spread = np.maximum(spread - 2.0 * covariance[competitors], _VARIANCE_FLOOR * spread)
    return np.asarray(ndtr((mean[chosen] - mean[competitors]) / np.sqrt(spread)))


def query_by_confidence(probability: Floats, confidence: float) -> bool:
    """Return whether some competitor is not beaten with probability `confidence`, or there is no competitor.

    At confidence <= 1/2 a point with the largest mean is never validated.
    """
    if not 0.0 < confidence <= 1.0:
        raise ValueError(f"confidence={confidence} must be in (0, 1]: try 0.9.")
    return probability.size == 0 or not reaches(float(probability.min()), confidence)


def query_by_bounds(mean: Floats, variance: Floats, chosen: int, competitors: Indices, beta: float) -> bool:
    """Return whether a competitor's upper bound exceeds the lower bound of `chosen` (LCB-UCB, Lemma 1), or there is none."""
    width = math.sqrt(beta) * np.sqrt(variance)
    upper = mean[competitors] + width[competitors]
    lower = mean[chosen] - width[chosen]
    return competitors.size == 0 or not reaches(lower, upper.max(), spread=width.max())


def query_by_chance(probability: float, rng: np.random.Generator) -> bool:
    """Return True with a fixed probability, Ber(p), independent of the posterior."""
    if not 0.0 <= probability <= 1.0:
        raise ValueError(f"probability={probability} must be in [0, 1]: for B of T rounds use B / T.")
    return bool(rng.random() < probability)
