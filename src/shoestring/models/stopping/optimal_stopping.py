"""Bayesian optimal stopping of one training by simulated curves.

Dai, Yu, Low and Jaillet, "Bayesian Optimization Meets Bayesian Optimal Stopping", ICML 2019 (PMLR 97, no arXiv
version known to us): the rule around Algorithm 2, which is in `decision_map`, and Lemma 7 (noise correction).

    paper       here              meaning                                                          unit
    N0, N       n0, n_max         steps before the first decision; full training                   steps
    M           n_cells           equal cells of the statistic                                     -
    y*          incumbent         best loss so far                                                 loss
    xi_t        xi                allowance for noise in the incumbent                             loss
    K1, K2      k1, k2            loss of stopping a winner, of finishing a loser                  loss
    c_d0        cost              loss of one more step                                            loss
    kappa       kappa             C2: limit on std_full / std_now of the surrogate                 -

Only d1 ("it will not win") stops training. A training expected to win goes on to the end, so that its value is known.

Differences from the paper:
- The statistic is the mean error over steps N0+1..n, as in the authors' code; the text's mean over 1..n is an option.
- Theorem 2 uses k1 = inf to end all stopping. Since 0 winners among finitely many paths is no proof, `StoppingRule` never
  stops with k1 = inf.
- Lemma 8 prints gamma_t for xi_t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from shoestring.core.deciding.reproducible import reaches
from shoestring.core.values.arrays import Floats, first_true
from shoestring.models.stopping.curve_paths import (
    NOISE_VARIANCE,
    CurveFit,
    CurveFitRule,
    curve_posterior,
    draw_paths,
    fit_curve,
    keep_paths_within_unit,
)
from shoestring.models.stopping.decision_map import (
    CONTINUE,
    FINISH,
    DecisionMap,
    require_losses,
    solve_backwards,
    statistic_cell,
)

K1_GROWTH = {"fixed": 1.0, "small": 0.99, "normal": 0.95, "large": 0.89}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRule:
    """Optimal stopping for any search method. Its inputs are a curve of losses and the best loss so far.

    The rule has no information about other runs: a caller with a surrogate checks condition C2 itself.

    Parameters
    ----------
    n0, n_max : int
        The steps before the plan; the steps of a full training.
    k1, k2, cost : float
        The loss of stopping a run that would have been the best, of finishing one that is not, and of one more step.
    low, high : float
        The losses that are mapped to errors 0 and 1; losses beyond a bound count as the bound. For an accuracy, pass
        1 - accuracy.
    n_paths, n_cells : int
        The number of simulated curves, and the resolution of the decision table.
    min_paths : int
        A run continues where no more simulated curves than this pass its cell of the decision table.
    min_survivors : int
        No run is stopped if fewer simulated curves than this stay between the errors 0 and 1: then the model of curves does not
        fit.
    statistic : {"after_n0", "all"}
        Whether the mean error is computed from the steps after `n0`, or from all of them.
    noise_variance : float
        The variance of one error, after mapping to [0, 1].
    curve_fit : {"likelihood", "update"}
        How the parameters of the model of curves are found: the most likely ones, or by the update in the paper's appendix B,
        which predicts errors near 0 for every curve.

    Examples
    --------
        rule = StoppingRule(n0=8, n_max=50, k1=k1_schedule("normal", runs_done))
        plan = rule.plan(losses, incumbent, rng)     # once, after n0 steps: about 0.1 s at 100,000 paths
        decision = plan.decide(losses)               # after each further step: microseconds
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
    noise_variance: float = NOISE_VARIANCE
    curve_fit: CurveFitRule = "likelihood"

    def __post_init__(self) -> None:
        if not 1 <= self.n0 < self.n_max:
            raise ValueError(f"n0={self.n0} must be at least 1 and below n_max={self.n_max}. Try n0={self.n_max // 6}.")
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"low={self.low} must be below high={self.high}, both finite: they bound the losses.")
        if self.statistic not in ("after_n0", "all"):
            raise ValueError(f"statistic={self.statistic!r} must be 'after_n0' or 'all'.")
        if self.curve_fit not in get_args(CurveFitRule):
            raise ValueError(f"curve_fit={self.curve_fit!r} must be 'likelihood' or 'update'.")
        require_losses(self.k1, self.k2, self.cost)

    def plan(
        self, values: Floats | Sequence[float], incumbent: float, rng: np.random.Generator, *, xi: float = 0.0
    ) -> StoppingPlan:
        """Solve the stopping problem from the first n0 losses; later losses are not used.

        Parameters
        ----------
        values : sequence of float
            The losses of the run, at least `n0`.
        incumbent : float
            The best loss of the other runs; inf if there is none.
        rng : numpy.random.Generator
            Draws the simulated curves.
        xi : float
            The correction of the incumbent for noise, in the unit of the losses.

        Returns
        -------
        StoppingPlan
            The plan; its method `decide` is called after each further step.

        Raises
        ------
        ValueError
            If there are fewer than `n0` losses, or one of them is not a number; if `incumbent` is not a number, or `xi` is
            negative or infinite.
        """
        if math.isnan(incumbent) or not 0.0 <= xi < math.inf:
            raise ValueError(f"incumbent={incumbent} must be a loss (inf if there is none) and xi={xi} not negative.")
        fit, mean, cov = self.forecast(values)
        paths = keep_paths_within_unit(draw_paths(mean, cov, self.n_paths, rng))
        decisions = solve_backwards(
            paths,
            (incumbent + xi - self.low) / (self.high - self.low),
            k1=self.k1,
            k2=self.k2,
            cost=self.cost,
            n_cells=self.n_cells,
            min_paths=self.min_paths,
            min_survivors=self.min_survivors,
            head=self.errors(values)[: self.n0] if self.statistic == "all" else (),
        )
        return StoppingPlan(self, fit, decisions)

    def forecast(self, values: Floats | Sequence[float]) -> tuple[CurveFit, Floats, Floats]:
        """Return the fit to the first n0 losses, and mean (m,) and covariance (m, m) of the errors after them.

        Parameters
        ----------
        values : sequence of float
            The losses of the run, at least `n0`.

        Returns
        -------
        tuple of (CurveFit, array, array)
            The fit, the mean and the covariance.
        """
        errors = self.errors(values)
        if errors.size < self.n0:
            raise ValueError(f"values has {errors.size} steps, the plan needs n0={self.n0}: train further, then plan.")
        seen = errors[: self.n0]
        fit = fit_curve(seen, noise_variance=self.noise_variance, rule=self.curve_fit)
        return fit, *curve_posterior(seen, range(self.n0 + 1, self.n_max + 1), fit)

    def losses(self, errors: Floats) -> Floats:
        """Convert errors in [0, 1] to losses.

        Parameters
        ----------
        errors : array
            The errors.

        Returns
        -------
        array
            The losses.
        """
        return np.asarray(self.low + (self.high - self.low) * errors)

    def mean_error(self, errors: Floats) -> float:
        """Return the statistic of a run: its mean error.

        Parameters
        ----------
        errors : array (n,)
            The error after each step; there must be more than `n0`.

        Returns
        -------
        float
            The mean.
        """
        return float(errors[self.n0 if self.statistic == "after_n0" else 0 :].mean())

    def errors(self, values: Floats | Sequence[float]) -> Floats:
        """Convert losses to errors in [0, 1].

        Parameters
        ----------
        values : sequence of float
            The losses.

        Returns
        -------
        array (n,)
            The errors.
        """
        losses = np.asarray(values, dtype=np.float64)
        if losses.ndim != 1 or losses.size > self.n_max:
            raise ValueError(f"values of shape {losses.shape} must be one loss per step, at most n_max={self.n_max}.")
        if np.isnan(losses).any():
            raise ValueError(
                f"values has a NaN at step {int(first_true(np.isnan(losses))) + 1}: the run diverged, stop it."
            )
        return np.clip((losses - self.low) / (self.high - self.low), 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class StoppingDecision:
    """Whether to stop, and why. NaN and -1 stand for numbers that do not exist at this step."""

    stop: bool
    reason: str
    step: int
    decision: int = CONTINUE  # action of the map: CONTINUE, STOP or FINISH; the run stops only if `stop` is true
    statistic: float = math.nan  # mean error so far, in [0, 1]
    cell: int = -1
    prob_better: float = math.nan
    loss_continue: float = math.nan
    loss_stop: float = math.nan
    loss_finish: float = math.nan
    paths_in_cell: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class StoppingPlan:
    """The solved rule of one run; `decide` looks up the cell of its curve."""

    rule: StoppingRule
    fit: CurveFit
    decisions: DecisionMap

    def decide(self, values: Floats | Sequence[float]) -> StoppingDecision:
        """Return whether to stop the run now.

        Parameters
        ----------
        values : sequence of float
            The losses so far, one for each step from step 1 on.

        Returns
        -------
        StoppingDecision
            The decision; its attribute `stop` says whether to stop, and `reason` says why.

        Raises
        ------
        ValueError
            If there are more than `n_max` losses, or one of them is not a number.
        """
        rule, table = self.rule, self.decisions
        errors = rule.errors(values)
        step = errors.size
        if step <= rule.n0:
            return StoppingDecision(False, f"the first {rule.n0} steps are always trained", step)
        statistic = rule.mean_error(errors)
        at = (step - rule.n0 - 1, int(statistic_cell(np.array(statistic), rule.n_cells)))
        decision, here = int(table.decision[at]), int(table.count[at])
        stop, reason = self._explain(step, decision, here)
        return StoppingDecision(
            stop,
            reason,
            step,
            decision=decision,
            statistic=statistic,
            cell=at[1],
            prob_better=float(table.prob_better[at]),
            loss_continue=float(table.loss_continue[at]),
            loss_stop=float(table.loss_stop[at]),
            loss_finish=float(table.loss_finish[at]),
            paths_in_cell=here,
        )

    def _explain(self, step: int, decision: int, here: int) -> tuple[bool, str]:
        """Return whether to stop and why, with `here` simulated curves in the cell."""
        rule, table = self.rule, self.decisions
        if step == rule.n_max:
            return False, "trained in full"
        if not table.enough_paths:
            reason = f"only {table.n_paths} simulated curves stayed within bounds: the model does not fit, no stopping"
            return False, reason
        if here <= rule.min_paths:
            return False, f"{here} simulated curves pass here, more than {rule.min_paths} are needed"
        if decision == FINISH:
            return False, "likely to beat the incumbent: it is trained in full"
        if decision == CONTINUE:
            return False, "undecided: another step is worth its cost"
        if math.isinf(rule.k1):
            return False, "k1 is infinite: nothing is stopped"
        return True, "stopping now has a lower expected loss than continuing"


# numbers that the search method provides ------------------------------------------------------------------------------


def noise_correction(iteration: int, noise_variance: float, failure_probability: float = 0.1) -> float:
    """Return xi_t of Lemma 7: how far noise may have lifted the best of t - 1 observed values; t counts from 1."""
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
    """Return K_{1,t} = k1_initial / g^t. The loss of stopping grows, so early runs explore and late runs are finished.

    Parameters
    ----------
    growth : {"fixed", "small", "normal", "large"} or float
        The number g in (0, 1], or a name for it.
    iteration : int
        The number t: 0 for the first run after the initial design.
    k1_initial : float
        The loss at t = 0.

    Returns
    -------
    float
        The loss of stopping a run that would have been the best. It may overflow to inf, which ends all stopping.

    Raises
    ------
    ValueError
        If `growth` or `iteration` is out of range.
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
    """Return condition C2: the latent standard deviation at full training is at most kappa times the present one."""
    if kappa < 1.0:
        raise ValueError(f"kappa={kappa} must be at least 1, or C2 could fail at full training itself. Try 2.")
    return bool(reaches(kappa * std_now, std_full, spread=std_full))
