"""Where to act, and whether that is worth paying an observation for, from one round's posterior.

Wang, Ren, Bogunovic, Xiong, Urtasun, "Cost-Efficient Online Hyperparameter Optimization", arXiv:2101.06590: UCB of
Sect. 3.1, query rules of Sect. 3.2, Algorithm 1, Lemma 1 and eqs. 3-8 of Appendix B, local optima of Appendix C.1.

    paper       here              meaning                                                         unit
    t           round             number of the round, from 1, paid for or not                    rounds
    mu, sigma^2 mean, variance    posterior of this round's function, without noise               value, value^2
    beta_t      beta              exploration: u = mu + sqrt(beta) sigma                          —
    x_t         chosen            argmax of u                                                     index
    kappa       confidence        query unless x_t beats every competitor this surely             probability
    N           reset_block       rounds between two resets of R-GP-UCB                           rounds

A competitor is a point that x_t is compared with: on a dense domain neighbours within one hump cannot be distinguished, so
only other local maxima of u count; among a few unrelated arms, all others do.

Departs from the paper: no competitor means query (read literally the rule would skip, and the agent could sit on one
point for ever). beta_t = 0.8 ln 4t and the reset block are not in the paper; the first is common in code for this model
and reproduces its Table A2. Corrected: the confidence gamma_t at which both rules meet is Phi(sqrt(2 beta_t)), where
Appendix B prints Phi(sqrt(2) beta_t); it recovers LCB-UCB only when both standard deviations are equal, and otherwise
asks more often; the step to eq. 5 needs gamma >= 1/2; N(., .) of Appendix B takes variances. The two values compared are
taken as independent, as in eq. 3; their exact covariance may be given. Probability of improvement over the best posterior
mean, the paper's baseline, has no margin: its argmax is the argmax of the mean.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import ndtr

from shoestring.core.deciding.reproducible import find_best, reaches, settle, sort_best_first
from shoestring.core.values.arrays import Floats, Indices, invert

# Decimals to which acquisitions are compared, for values of scale 1. That is finer than the tolerance of `core.choosing`:
# neighbours on a dense grid differ by less than that, so the first of the equals would lie beside the top of its own hump,
# and the top would count as its competitor.
_DECIMALS = 10
_VARIANCE_FLOOR = 1e-12  # of the sum of both variances
_NEAR = 0.5  # in the unit cube: a point farther away is not a neighbour
_APART = 1e6  # puts points with other labels further away than that, however many labels there are


def beta_schedule(round: int) -> float:
    """Exploration beta_t = 0.8 ln(4 t) of round t = 1, 2, …"""
    if round < 1:
        raise ValueError(f"round={round} must be at least 1: rounds are counted from 1.")
    return 0.8 * math.log(4.0 * round)


def reset_block(forgetting_rate: float, horizon_rounds: int) -> int:
    """Rounds after which R-GP-UCB drops its data: ceil(min(T, 12 eps^(-1/4))); the horizon itself when eps = 0."""
    if not 0.0 <= forgetting_rate <= 1.0:
        raise ValueError(f"forgetting_rate={forgetting_rate} must lie in [0, 1].")
    if horizon_rounds < 1:
        raise ValueError(f"horizon_rounds={horizon_rounds} must be at least 1.")
    if forgetting_rate == 0.0:
        return horizon_rounds
    return math.ceil(min(float(horizon_rounds), 12.0 / math.sqrt(math.sqrt(forgetting_rate))))


def upper_confidence(mean: Floats, variance: Floats, beta: float) -> Floats:
    """u = mu + sqrt(beta) sigma, shape of `mean`, on a grid of 1e-10 so that equal points tie exactly."""
    if beta < 0.0:
        raise ValueError(f"beta={beta} must be at least 0: it is the square of a number of standard deviations.")
    ucb = mean + math.sqrt(beta) * np.sqrt(variance)
    return settle(ucb, _DECIMALS)


def probability_of_improvement(mean: Floats, variance: Floats) -> Floats:
    """Phi((mu - mu+) / sigma) with mu+ the best mean of this round, shape of `mean`."""
    return np.asarray(ndtr((mean - mean.max()) / np.sqrt(variance)))


def expected_improvement(mean: Floats, variance: Floats) -> Floats:
    """E max(f - mu+, 0) with mu+ the best mean of this round, shape of `mean`."""
    sigma = np.sqrt(variance)
    z = (mean - mean.max()) / sigma  # never positive
    density = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    # The difference loses z^2 roundings, no more, since both terms are exact to one; it ends at 0 when they underflow.
    return np.asarray(np.maximum(sigma * (density + z * ndtr(z)), 0.0))


def choose(acquisition: Floats) -> int:
    """Index of the greatest value; the lowest one of a tie, such as the flat prior of round 1."""
    return find_best(settle(acquisition, _DECIMALS), "highest", exact=True)


def local_maxima(heights: Floats) -> Indices:
    """Local maxima of `heights` (n,) along an interval.

    A point counts when it is at least its predecessor and above its successor. End points miss a neighbour and are not
    held to it. A plateau counts once, at its last point, as does a shelf in a descent.
    """
    if heights.size == 0:
        raise ValueError("heights is empty: a domain needs at least one point.")
    is_peak = np.ones(heights.size, dtype=np.bool_)
    is_peak[1:] &= heights[1:] >= heights[:-1]
    is_peak[:-1] &= heights[:-1] > heights[1:]
    return np.flatnonzero(is_peak)


def other_maxima(heights: Floats, chosen: int) -> Indices:
    """Competitors of `chosen` along an interval: the other local maxima, (m,), perhaps none."""
    peaks = local_maxima(heights)
    return np.asarray(peaks[peaks != chosen])


def other_arms(n_arms: int, chosen: int) -> Indices:
    """Competitors of `chosen` in a bandit of unrelated arms: all others, (n_arms - 1,)."""
    if not 0 <= chosen < n_arms:
        raise ValueError(f"chosen={chosen} must be an arm in 0..{n_arms - 1}.")
    return np.delete(np.arange(n_arms), chosen)


class Competitors:
    """Who competes with whom on a finite list of points: `places` (N, n_columns), numbers in some columns, else labels.

    Where one number is all that varies, the points lie along an interval. Where only labels do, all points compete, as arms
    do. Else a local maximum is a point that none of its nearest neighbours with equal labels exceeds.
    """

    def __init__(self, places: Floats, numbers: Indices) -> None:
        varies = np.ptp(places, axis=0) > 0.0
        self._along: Indices | None = None  # the points in their order along their one number
        self._place: Indices | None = None  # of each point in that order
        self._neighbours: Indices | None = None  # (N, k); a point that lacks neighbours is its own
        if varies[numbers].any() and varies.sum() == 1:
            self._along = sort_best_first(places[:, varies][:, 0], "lowest", exact=True)
            self._place = invert(self._along)
        elif varies[numbers].any():
            self._neighbours = _nearest(places, numbers, int(varies[numbers].sum()))

    def of(self, chosen: int, height: Floats) -> Indices:
        """Competitors of `chosen`, (m,), given the acquisition's height (N,) everywhere."""
        if self._along is not None and self._place is not None:
            return np.asarray(self._along[other_maxima(height[self._along], int(self._place[chosen]))])
        if self._neighbours is None:
            return other_arms(height.size, chosen)
        peaks = np.flatnonzero((height[:, None] >= height[self._neighbours]).all(axis=1))
        return np.asarray(peaks[peaks != chosen])


def _nearest(places: Floats, numbers: Indices, n_varying: int) -> Indices:
    """The nearest neighbours of each point, (N, k), the point itself among them and in place of those too far away."""
    apart = places.copy()
    apart[:, np.setdiff1d(np.arange(places.shape[1]), numbers)] *= _APART
    k = min(2 * n_varying + 1, len(places))  # as many as a grid has, and the point itself
    distance, nearest = cKDTree(apart).query(apart, k=k)
    return np.where(distance <= _NEAR, nearest, np.arange(len(places))[:, None])


def probability_better(
    mean: Floats, variance: Floats, chosen: int, competitors: Indices, covariance: Floats | None = None
) -> Floats:
    """Pr(f(chosen) > f(x)) for each competitor x, (m,), eq. 3.

    `covariance` (n,) of the chosen point with every point makes it exact; without it the values count as independent.
    """
    spread = variance[chosen] + variance[competitors]
    if covariance is not None:
        # Of two nearly equal points the difference is all rounding: keep it a variance.
        spread = np.maximum(spread - 2.0 * covariance[competitors], _VARIANCE_FLOOR * spread)
    return np.asarray(ndtr((mean[chosen] - mean[competitors]) / np.sqrt(spread)))


def query_by_confidence(probability: Floats, confidence: float) -> bool:
    """Query iff some competitor is not beaten with probability `confidence`, or there is none.

    At confidence <= 1/2 a leading point is never questioned.
    """
    if not 0.0 < confidence <= 1.0:
        raise ValueError(f"confidence={confidence} must lie in (0, 1]: try 0.9; to query always, do so without a rule.")
    return probability.size == 0 or not reaches(float(probability.min()), confidence)


def query_by_bounds(mean: Floats, variance: Floats, chosen: int, competitors: Indices, beta: float) -> bool:
    """LCB-UCB rule (Lemma 1): query iff a competitor's upper bound exceeds the chosen one's lower, or none is there."""
    width = math.sqrt(beta) * np.sqrt(variance)
    upper = mean[competitors] + width[competitors]
    lower = mean[chosen] - width[chosen]
    return competitors.size == 0 or not reaches(lower, upper.max(), spread=width.max())


def query_by_chance(probability: float, rng: np.random.Generator) -> bool:
    """Ber(p): query with a fixed probability, whatever the posterior says."""
    if not 0.0 <= probability <= 1.0:
        raise ValueError(f"probability={probability} must lie in [0, 1]: for B of T rounds take B / T.")
    return bool(rng.random() < probability)
