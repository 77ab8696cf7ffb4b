"""Rules that trade expected improvement against cost: which candidate to train, given log EI and log cost of each.

Guinet et al., arXiv:2011.11456: EI per unit cost and EI-cool (section 2, after Lee et al., arXiv:2003.10870), EI_alpha
(eq. 1), contextual EI (eq. 2), cost Pareto front (section 3.1).

    paper     here              meaning                                                        unit
    c         exp(log_cost)     predicted cost                                                 seconds, dollars, …
    alpha     alpha             exponent of the cost, >= 0: 0 is EI, 1 is EI per unit cost     —
    lambda    slack             fraction of the best EI that may be given up, 0..1             —
    tau       total_cost        whole budget                                                   as c
    tau_k     spent_cost        spent so far, the initial design included                      as c
    tau_init  initial_cost      spent on the initial design                                    as c

Rules take arrays (m,) and return an index. log EI may be -inf, for a point without expected improvement.

Differences from the paper:
- All comparisons are in logs: an EI that underflows to 0 would admit every point to CEI's set, and the choice by EI per unit
  cost would be arbitrary.
- CEI admits points by a threshold on the EI value, as eq. (2) says, not "the best 100 lambda per cent of the points" of the
  text.
- Ties (scores that are equal up to the tolerance of `core.deciding.reproducible`) go to the cheaper point, then to the larger
  EI, then to the lower index. Without this rule CEI's choice would be only weakly efficient and might not lie on the front.
- EI_alpha reaches only the vertices of the upper convex hull of (log c, log EI); see `find_implied_alpha`.
- The exponent of EI-cool is clipped to 0..1, and is 0 when the initial design has used up the budget.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoestring.core.deciding.reproducible import LOG_SPREAD, are_best, find_best, reaches, sort_best_first
from shoestring.core.values.arrays import Floats, Indices


def choose_ei_alpha(log_ei: Floats, log_cost: Floats, alpha: float) -> int:
    """Return the index of the largest EI / c^alpha, eq. (1)."""
    _check(log_ei, log_cost)
    if not alpha >= 0.0:
        raise ValueError(f"alpha={alpha} must be >= 0: a negative exponent would pay extra for expensive points.")
    score = log_ei - alpha * log_cost
    return _pick_cheapest(np.flatnonzero(are_best(score, "highest", spread=LOG_SPREAD)), log_ei, log_cost)


def cooling_exponent(total_cost: float, initial_cost: float, spent_cost: float) -> float:
    """Return alpha_k of EI-cool: 1 after the initial design, then proportional to the remaining budget, 0 at the end."""
    if total_cost <= initial_cost:
        return 0.0
    return min(1.0, max(0.0, (total_cost - spent_cost) / (total_cost - initial_cost)))


def choose_cei(log_ei: Floats, log_cost: Floats, slack: float) -> int:
    """Return the index of the cheapest point with EI >= (1 - slack) max EI, eq. (2); slack 0 is EI, slack 1 the cheapest."""
    _check(log_ei, log_cost)
    is_admissible = reaches(log_ei, cei_threshold(float(log_ei.max()), slack))
    return _pick_cheapest(np.flatnonzero(is_admissible), log_ei, log_cost)


def cei_threshold(log_ei_max: float, slack: float) -> float:
    """Return the smallest admissible log EI; values equal to it up to tolerance (`reaches`) are admissible too."""
    if not 0.0 <= slack <= 1.0:
        raise ValueError(f"slack={slack} must lie in 0..1: it is the fraction of the best EI that may be given up.")
    return -np.inf if slack == 1.0 else log_ei_max + float(np.log1p(-slack))


def pareto_front(log_ei: Floats, log_cost: Floats) -> Indices:
    """Return the rising indices of the efficient points, in O(m log m).

    A point is efficient if no other is as cheap and as good, and better in one of the two.
    """
    _check(log_ei, log_cost)
    # The front runs from the cheapest point to that of the largest EI: points outside need no sorting.
    least = float(log_ei[log_cost == log_cost.min()].max())
    most = float(log_cost[log_ei == log_ei.max()].min())
    between = np.flatnonzero((log_ei >= least) & (log_cost <= most))
    order = between[_sort_cheapest_first(log_ei[between], log_cost[between])]
    e, c = log_ei[order], log_cost[order]
    first = np.searchsorted(c, c)  # start of each point's group of equal cost
    best = np.maximum.accumulate(e)
    is_beaten = (first > 0) & (e <= best[first - 1])  # by a strictly cheaper point
    return np.sort(order[(e == e[first]) & ~is_beaten])


def is_efficient(log_ei: Floats, log_cost: Floats, index: int) -> bool:
    """Return whether no point is as cheap and as good as this one and, by more than the tolerance, better in one of the two."""
    as_good, as_cheap = reaches(log_ei, log_ei[index]), reaches(log_cost[index], log_cost)
    better, cheaper = ~reaches(log_ei[index], log_ei), ~reaches(log_cost, log_cost[index])
    return not np.any(as_good & as_cheap & (better | cheaper))


@dataclass(frozen=True, slots=True)
class ImpliedAlpha:
    """The exponents for which EI_alpha would have chosen a point.

    Supported: every alpha in low..high chooses it (high may be inf). `alpha` is the middle, or `low` if unbounded; `gap` is 0.
    Unsupported: no alpha chooses it. `alpha` comes closest, and `gap` is the log score by which the point still loses.
    """

    low: float
    high: float
    supported: bool
    alpha: float
    gap: float


def find_implied_alpha(log_ei: Floats, log_cost: Floats, index: int) -> ImpliedAlpha:
    """Return the alphas for which EI_alpha chooses the point `index`, whose EI must be positive (a finite log EI)."""
    _check(log_ei, log_cost)
    if not np.isfinite(log_ei[index]):
        raise ValueError(f"log_ei[{index}]={log_ei[index]} must be finite: without improvement there is no alpha.")
    gain, extra = log_ei - log_ei[index], log_cost - log_cost[index]
    costlier, cheaper = extra > 0.0, extra < 0.0
    low = max(0.0, float(np.max(gain[costlier] / extra[costlier], initial=0.0)))
    high = float(np.min(gain[cheaper] / extra[cheaper], initial=np.inf))
    is_beaten = bool(np.any(gain[extra == 0.0] > 0.0))  # by a point of the same cost
    if low <= high and not is_beaten:
        return ImpliedAlpha(low, high, True, low if np.isinf(high) else 0.5 * (low + high), 0.0)
    alpha = _least_gap_alpha(log_ei, log_cost, index)
    return ImpliedAlpha(low, high, False, alpha, float(np.max(gain - alpha * extra)))


def _least_gap_alpha(log_ei: Floats, log_cost: Floats, index: int) -> float:
    """Return the slope, at this point's cost, of the upper hull of (log c, log EI), at least 0.

    The gap max_j score_j - score_i is convex in alpha, and its minimum is the height of the hull above the point. A chord
    of the hull that spans the point is raised until no point lies above it: one O(m) pass per hull edge, without sorting.
    """
    finite = np.isfinite(log_ei)  # a point without improvement never scores highest
    index, log_ei, log_cost = int(np.count_nonzero(finite[:index])), log_ei[finite], log_cost[finite]
    left = _pick_cheapest(np.arange(log_ei.size), log_ei, log_cost)
    right = choose_ei_alpha(log_ei, log_cost, 0.0)
    if log_cost[right] <= log_cost[index]:
        return 0.0
    while True:
        alpha = float((log_ei[right] - log_ei[left]) / (log_cost[right] - log_cost[left]))
        score = log_ei - alpha * log_cost
        top = find_best(score, "highest", spread=LOG_SPREAD)
        if score[top] <= max(score[left], score[right]) or log_cost[top] in (log_cost[left], log_cost[right]):
            return alpha
        if log_cost[top] <= log_cost[index]:
            left = top
        else:
            right = top


def _pick_cheapest(among: Indices, log_ei: Floats, log_cost: Floats) -> int:
    """Return the cheapest of these indices; of equally cheap ones, that of the largest EI; then the first."""
    among = among[are_best(log_cost[among], "lowest", spread=LOG_SPREAD)]
    return int(among[find_best(log_ei[among], "highest", spread=LOG_SPREAD)])


def _sort_cheapest_first(log_ei: Floats, log_cost: Floats) -> Indices:
    """Return all indices, cheapest first; of exactly equal costs, the largest EI first."""
    by_ei = sort_best_first(log_ei, "highest", exact=True)
    return by_ei[sort_best_first(log_cost[by_ei], "lowest", exact=True)]


def _check(log_ei: Floats, log_cost: Floats) -> None:
    if not log_ei.shape == log_cost.shape == (log_ei.size,) or not log_ei.size:
        raise ValueError(
            f"log_ei {log_ei.shape} and log_cost {log_cost.shape} must hold one number for each candidate."
        )
    if np.any(np.isnan(log_ei)) or np.any(log_ei == np.inf) or not np.all(np.isfinite(log_cost)):
        raise ValueError("log_ei must hold no NaN or +inf and log_cost only finite numbers: floor the costs above 0.")
