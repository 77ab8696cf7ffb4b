"""Is this run worth finishing? Bayesian optimal stopping of one training run by simulated futures.

Dai, Yu, Low and Jaillet, "Bayesian Optimization Meets Bayesian Optimal Stopping", ICML 2019 (PMLR 97, no arXiv
version known to us): losses (3), (4), Bellman equation (2), Algorithm 2 (appendix B), Lemma 7 (noise correction).

    paper       here              meaning                                                          unit
    N0, N       n0, n_max         steps seen before the first decision; full training              steps
    M           n_cells           equal cells of the statistic, cell i is (i / M, (i + 1) / M]     -
    y*          incumbent         best value so far, as an error: smaller is better                value, error
    xi_t        xi                allowance for noise in the incumbent                             as incumbent
    theta_1     -                 the run ends no better: final error > incumbent + xi             -
    theta_2     better            the run ends better                                              -
    d0 d1 d2    0, 1, 2           go on; give up ("it will not win"); trust it ("it will win")     -
    K1          k1                loss of giving up a run that would have won                      loss
    K2          k2                loss of trusting a run that does not win                         loss
    c_d0        cost              loss of one more step                                            loss
    rho_n       value             least expected loss from step n on                               loss
    kappa       kappa             how much surer of the end than of now the surrogate must be (C2) -

Equation (2): rho_n = min{ K1 Pr(theta_2), K2 Pr(theta_1), E[rho_{n+1}] + c }, without the last term at N. Only d1
stops training: a run judged good is trained in full, so that its value is known.

Departs from the paper:
- The statistic is the mean error over steps N0+1..n, as in the authors' code; the text's mean over 1..n is an option.
- A cell with at most `min_paths` paths always goes on, and its value is the loss of going on. (The authors' code
  leaves that value at 0, which makes going on look free one step earlier.)
- Fewer than `min_survivors` paths: go on everywhere, the curve model does not fit this run.
- Losses equal up to rounding are ties; ties prefer d0, then d1, then d2.
- A cell in which no path wins has K1 Pr = 0 even for k1 = inf. Since 0 of finitely many paths is no proof, and
  Theorem 2 uses k1 = inf to end all stopping, `StoppingRule` never stops with k1 = inf.
- Line 19 of Algorithm 2 prints rho_{n+1} of y_n; it is of y_{n+1}. Lemma 8 prints gamma_t for xi_t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from shoestring.models.stopping.curve_paths import (
    NOISE_VARIANCE,
    CurveFit,
    curve_posterior,
    draw_paths,
    fit_curve,
    paths_within_unit,
)

Array = NDArray[np.float64]
Integers = NDArray[np.intp]

GO_ON, GIVE_UP, TRUST = 0, 1, 2
K1_GROWTH = {"fixed": 1.0, "small": 0.99, "normal": 0.95, "large": 0.89}
_EDGE_SLACK = 1e-9  # of a cell: a mean that equals an edge in exact arithmetic may round to just above it
_TIE = 1e-12  # relative difference of two losses that is rounding, not preference


@dataclass(frozen=True, slots=True, eq=False)
class DecisionMap:
    """What to do at each step and cell of the statistic; row 0 is step N0+1. NaN where no path goes."""

    decision: Integers  # (steps, n_cells), 0 go on, 1 give up, 2 trust
    value: Array  # (steps, n_cells), least expected loss
    loss_go_on: Array  # (steps, n_cells), NaN in the last row: nothing left to buy
    loss_give_up: Array  # (steps, n_cells)
    loss_trust: Array  # (steps, n_cells)
    prob_better: Array  # (steps, n_cells), Pr(theta_2)
    count: Integers  # (steps, n_cells), paths through the cell
    n_paths: int  # paths that stayed in (0, 1)
    enough_paths: bool  # False: the decision is 0 everywhere


@dataclass(frozen=True, slots=True)
class Verdict:
    """Continue or stop, and why. NaN and -1 stand for numbers that do not exist at this step."""

    stop: bool
    reason: str
    step: int
    decision: int = GO_ON  # what the map says: 0 go on, 1 give up, 2 trust; stops only if `stop`
    statistic: float = math.nan  # mean error so far, in [0, 1]
    cell: int = -1
    prob_better: float = math.nan
    loss_go_on: float = math.nan
    loss_give_up: float = math.nan
    loss_trust: float = math.nan
    paths_in_cell: int = 0


def statistic_cell(statistic: Array, n_cells: int) -> Integers:
    """Cell of each statistic: (i / M, (i + 1) / M] has index i; outside [0, 1] the nearest cell."""
    cell = np.ceil(statistic * n_cells - _EDGE_SLACK)
    return np.clip(cell, 1.0, n_cells).astype(np.intp) - 1


def backward_induction(
    paths: Array,
    incumbent_error: float,
    *,
    k1: float,
    k2: float = 99.0,
    cost: float = 1.0,
    n_cells: int = 100,
    min_paths: int = 30,
    min_survivors: int = 1000,
    head: Array | Sequence[float] = (),
) -> DecisionMap:
    """Algorithm 2 on simulated errors `paths` (n_paths, steps) for steps N0+1..N; the last column decides who wins.

    `incumbent_error` includes the noise correction. `head` (n0,) holds errors to average in with the simulated ones:
    empty for a statistic over N0+1..n, the first N0 errors for one over 1..n.
    """
    by_step = np.ascontiguousarray(np.asarray(paths, dtype=np.float64).T)  # (steps, n_paths)
    if by_step.ndim != 2 or by_step.shape[0] == 0:
        raise ValueError(f"paths of shape {np.shape(paths)} must be (n_paths, steps) with at least one step to decide.")
    _check_losses(k1, k2, cost)
    if n_cells < 1 or min_paths < 0:
        raise ValueError(f"n_cells={n_cells} must be at least 1 and min_paths={min_paths} at least 0. Try 100 and 30.")
    steps, n_paths = by_step.shape
    better = by_step[-1] <= incumbent_error  # (n_paths,)

    # Bin 2 i + 1 holds the winners of cell i, bin 2 i the losers: one count serves both.
    bins = np.empty((steps, n_paths), dtype=np.intp)
    split = np.empty((steps, 2 * n_cells), dtype=np.intp)
    observed = np.asarray(head, dtype=np.float64)
    total = np.full(n_paths, observed.sum())
    for row in range(steps):
        total += by_step[row]
        bins[row] = 2 * statistic_cell(total / (observed.size + row + 1), n_cells) + better
        split[row] = np.bincount(bins[row], minlength=2 * n_cells)
    lost, won = split[:, ::2], split[:, 1::2]  # (steps, n_cells)
    count = lost + won
    visited = count > 0
    paths_here = np.maximum(count, 1)  # divisor; where it is not the count, the result is NaN
    prob_better = np.where(visited, won / paths_here, np.nan)
    loss_give_up = np.where(visited, _times(k1, won) / paths_here, np.nan)
    loss_trust = np.where(visited, _times(k2, lost) / paths_here, np.nan)

    stop_loss = np.minimum(loss_give_up, loss_trust)
    giving_up = np.where(loss_give_up <= loss_trust * (1.0 + _TIE), GIVE_UP, TRUST)
    sparse = count <= min_paths  # unvisited cells included
    loss_go_on = np.full_like(stop_loss, np.nan)
    value = stop_loss.copy()
    decision = np.where(sparse, GO_ON, giving_up)  # holds for the last step, after which there is nothing to buy
    for row in reversed(range(steps - 1)):
        next_value = np.repeat(value[row + 1], 2)[bins[row + 1]]  # (n_paths,)
        arriving = np.bincount(bins[row], weights=next_value, minlength=2 * n_cells).reshape(n_cells, 2).sum(axis=1)
        loss_go_on[row] = np.where(visited[row], arriving / paths_here[row] + cost, np.nan)
        go_on = sparse[row] | (loss_go_on[row] <= stop_loss[row] * (1.0 + _TIE))
        value[row] = np.where(go_on, loss_go_on[row], stop_loss[row])
        decision[row] = np.where(go_on, GO_ON, giving_up[row])
    enough = n_paths >= min_survivors
    if not enough:
        decision[:] = GO_ON
    return DecisionMap(decision, value, loss_go_on, loss_give_up, loss_trust, prob_better, count, n_paths, enough)


def noise_correction(iteration: int, noise_variance: float, failure_probability: float = 0.1) -> float:
    """xi_t of Lemma 7: how far noise may have lifted the best of t - 1 observed values; t counts from 1."""
    if iteration < 1 or noise_variance < 0.0 or not 0.0 < failure_probability < 1.0:
        raise ValueError(
            f"noise_correction(iteration={iteration}, noise_variance={noise_variance}, failure_probability="
            f"{failure_probability}) needs iteration >= 1, noise_variance >= 0 and a probability inside (0, 1)."
        )
    t = iteration
    if t == 1:
        return 0.0  # nothing observed yet, nothing to correct
    return math.sqrt(2.0 * noise_variance * math.log(math.pi**2 * t**2 * (t - 1) / (6.0 * failure_probability)))


def k1_schedule(growth: str | float, iteration: int, k1_initial: float = 100.0) -> float:
    """K_{1,t} = k1_initial / g^t: giving up gets dearer, so early runs explore and late ones are finished.

    `growth` is "fixed", "small", "normal", "large" or the number g in (0, 1]; `iteration` is 0 for the first run after
    the initial design. Overflows to inf, which ends all stopping.
    """
    g = K1_GROWTH.get(growth) if isinstance(growth, str) else growth
    if g is None or not 0.0 < g <= 1.0 or iteration < 0:
        raise ValueError(
            f"k1_schedule(growth={growth!r}, iteration={iteration}) needs one of {', '.join(K1_GROWTH)} or a number in "
            "(0, 1], and an iteration from 0 on. Try 'normal'."
        )
    with np.errstate(over="ignore", divide="ignore"):
        return float(np.float64(k1_initial) / np.float64(g) ** iteration)


def surrogate_allows_stop(std_now: float, std_full: float, kappa: float = 2.0) -> bool:
    """Condition C2: the surrogate (latent deviations) is not much less sure of the fully trained run than of now."""
    if kappa < 1.0:
        raise ValueError(f"kappa={kappa} must be at least 1, or C2 could fail at full training itself. Try 2.")
    return std_full <= kappa * std_now


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRule:
    """Optimal stopping for any searcher: feed it a curve of losses and the best loss so far.

    `low` and `high` bound the losses and are mapped to errors 0 and 1; losses beyond them count as the bound. (For an
    accuracy, feed 1 - accuracy.) The rule knows nothing of other runs: C2 is for the caller, if it has a surrogate.

        rule = StoppingRule(n0=8, n_max=50, k1=k1_schedule("normal", runs_done))
        plan = rule.plan(losses, incumbent, rng)     # once, after n0 steps: some 0.1 s at 100,000 paths
        verdict = plan.judge(losses)                 # after each further step: microseconds
    """

    n0: int = 8
    n_max: int = 50
    k1: float = 100.0
    k2: float = 99.0
    cost: float = 1.0
    low: float = 0.0
    high: float = 1.0
    n_paths: int = 100_000
    n_cells: int = 100
    min_paths: int = 30
    min_survivors: int = 1000
    statistic: Literal["after_n0", "all"] = "after_n0"
    noise_variance: float = NOISE_VARIANCE  # of one error, after mapping to [0, 1]
    with_asymptote: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.n0 < self.n_max:
            raise ValueError(f"n0={self.n0} must be at least 1 and below n_max={self.n_max}. Try n0={self.n_max // 6}.")
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"low={self.low} must be below high={self.high}, both finite: they bound the losses.")
        if self.statistic not in ("after_n0", "all"):
            raise ValueError(f"statistic={self.statistic!r} must be 'after_n0' or 'all'.")
        _check_losses(self.k1, self.k2, self.cost)

    def plan(
        self, values: Array | Sequence[float], incumbent: float, rng: np.random.Generator, *, xi: float = 0.0
    ) -> StoppingPlan:
        """Solve the stopping problem from the first n0 losses; later ones are not looked at.

        `incumbent` (inf if there is none) and the noise correction `xi` are in units of the losses.
        """
        errors = self.errors(values)
        if errors.size < self.n0:
            raise ValueError(f"values has {errors.size} steps, the plan needs n0={self.n0}: train on, then plan.")
        if math.isnan(incumbent) or not 0.0 <= xi < math.inf:
            raise ValueError(f"incumbent={incumbent} must be a loss (inf if there is none) and xi={xi} not negative.")
        seen = errors[: self.n0]
        fit = fit_curve(seen, noise_variance=self.noise_variance, with_asymptote=self.with_asymptote)
        mean, cov = curve_posterior(seen, range(self.n0 + 1, self.n_max + 1), fit)
        paths = paths_within_unit(draw_paths(mean, cov, self.n_paths, rng))
        decisions = backward_induction(
            paths,
            (incumbent + xi - self.low) / (self.high - self.low),
            k1=self.k1,
            k2=self.k2,
            cost=self.cost,
            n_cells=self.n_cells,
            min_paths=self.min_paths,
            min_survivors=self.min_survivors,
            head=seen if self.statistic == "all" else (),
        )
        return StoppingPlan(self, fit, decisions)

    def errors(self, values: Array | Sequence[float]) -> Array:
        """Losses (n,) as errors in [0, 1]."""
        losses = np.asarray(values, dtype=np.float64)
        if losses.ndim != 1 or losses.size > self.n_max:
            raise ValueError(f"values of shape {losses.shape} must be one loss a step, at most n_max={self.n_max}.")
        if np.isnan(losses).any():
            raise ValueError(
                f"values has a NaN at step {int(np.isnan(losses).argmax()) + 1}: the run diverged, end it."
            )
        return np.clip((losses - self.low) / (self.high - self.low), 0.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class StoppingPlan:
    """A solved rule for one run; `judge` looks up the cell its curve is in."""

    rule: StoppingRule
    fit: CurveFit
    decisions: DecisionMap

    def judge(self, values: Array | Sequence[float]) -> Verdict:
        """Whether to stop after the losses seen so far, one a step from step 1."""
        rule, found = self.rule, self.decisions
        errors = rule.errors(values)
        step = errors.size
        if step <= rule.n0:
            return Verdict(False, f"the first {rule.n0} steps are always trained", step)
        statistic = float(errors[rule.n0 if rule.statistic == "after_n0" else 0 :].mean())
        at = (step - rule.n0 - 1, int(statistic_cell(np.array(statistic), rule.n_cells)))
        decision, here = int(found.decision[at]), int(found.count[at])
        stop = False
        if step == rule.n_max:
            reason = "trained in full"
        elif not found.enough_paths:
            reason = f"only {found.n_paths} simulated curves stayed within bounds: the model does not fit, no stopping"
        elif here <= rule.min_paths:
            reason = f"{here} simulated curves pass here, more than {rule.min_paths} are needed to judge"
        elif decision == GIVE_UP and math.isinf(rule.k1):
            reason = "k1 is infinite: no run is given up"
        elif decision == GIVE_UP:
            stop, reason = True, "giving up now costs less than going on"
        elif decision == TRUST:
            reason = "likely to beat the incumbent: worth training in full"
        else:
            reason = "undecided: another step is worth its cost"
        return Verdict(
            stop,
            reason,
            step,
            decision,
            statistic,
            at[1],
            float(found.prob_better[at]),
            float(found.loss_go_on[at]),
            float(found.loss_give_up[at]),
            float(found.loss_trust[at]),
            here,
        )


def _times(loss: float, count: Integers) -> Array:
    """loss * count with inf * 0 = 0."""
    return np.multiply(loss, count, out=np.zeros(count.shape), where=count > 0)


def _check_losses(k1: float, k2: float, cost: float) -> None:
    if not (k1 > 0.0 and 0.0 < k2 < math.inf and 0.0 <= cost < math.inf):
        raise ValueError(
            f"k1={k1}, k2={k2}, cost={cost}: k1 must be positive (inf allowed), k2 positive and finite, "
            "cost finite and not negative. Try 100, 99, 1."
        )
