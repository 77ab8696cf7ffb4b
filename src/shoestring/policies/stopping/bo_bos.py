"""BO-BOS: choose trials by a confidence bound, and after each step decide whether to finish the trial.

Dai, Yu, Low and Jaillet, "Bayesian Optimization Meets Bayesian Optimal Stopping", ICML 2019 (PMLR 97, no arXiv version known
to us), Algorithm 1. The stopping rule (Algorithm 2) is in `models.stopping.optimal_stopping`, the surrogate in `surrogate`,
and what it shares with GP-UCB in `ucb_policy`.

    paper    here             meaning                                                                   unit
    N0       n0               steps of a trial before its first check; the first stop is after N0+1     steps
    N        max_steps        a full training                                                           steps
    K1       k1, k1_growth    loss of stopping a winner: k1 / g^t grows with the trials started         loss
    K2       k2               loss of finishing a loser                                                 loss
    c_d0     step_cost        loss of one more step                                                     loss
    kappa    kappa            C2: the deviation at N is at most kappa times that at n                   -
    xi_t     noise_allowance  whether the incumbent is corrected for noise (Lemma 7)                    -
    y*       incumbent        best loss of all other trials                                             loss
    -        search_by        surrogate that chooses configurations: "ends" or "lengths", see below     -
    -        intermediate     whether the surrogate of lengths also uses the first step and every N / 5 -
    -        replan_every     steps after which future curves are simulated again                       -
    -        curve_fit        how alpha and beta of a curve are found, see `models.stopping.curve_paths` -
    -        printed          the method as printed: all settings in which the default differs          -

A trial stops when the rule decides so (C1) and the surrogate allows it (C2). A trial that the rule expects to win is trained
further, so that its value is known. `why` of a one-step order holds the statistic and its cell of the decision map,
prob_better, the expected losses of continuing, stopping and finishing, the two deviations of C2, the incumbent and k1. The order
that starts the next trial holds the same numbers for the trial that was just stopped.

Differences from the paper:
- Future curves are simulated again every `replan_every` steps, from all losses so far, with the current step in the place of
  N0. A plan made once, after 8 of 50 steps, has no information about a curve that has left all simulated curves, and most trials
  that should be stopped do leave them. None plans once.
- The incumbent is the best loss that any other trial has had at any step; with several workers, at this moment.
- Configurations are chosen as in GP-UCB, by a surrogate of the best loss of each trial ("ends"); a stopped trial has the loss
  that it had reached. In a surrogate of configurations and lengths early losses, which differ most, widen the bounds: a third of
  the studies in benchmarks/bo_bos then needed more steps than GP-UCB, against one in six. By default it is used only for C2.
  "lengths" is the paper's own surrogate: n / N, one length-scale for all columns, most likely parameters from ten restarts.
- The statistic is the mean error over the steps after the plan, as in the authors' programs; in the paper it is over all steps.
- The deviations of C2 are those of the latent loss at the moment the trial was started; the order that started it stores them.
- Losses are converted to errors as in `error_range`. No trial is stopped while the incumbent is below that range.
- A stopped trial is paused, not closed.
- The simulated curves of a trial have their own random stream, so an interrupted study makes the same decisions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, get_args

import numpy as np

from shoestring.core.deciding.printed_form import as_printed
from shoestring.core.space.parameters import Scalar
from shoestring.core.values.arrays import Floats
from shoestring.core.values.checks import is_number
from shoestring.core.values.randomness import stream
from shoestring.errors import PolicyError
from shoestring.models.loss_scaling import normal_quantile
from shoestring.models.stopping.curve_paths import CurveFitRule
from shoestring.models.stopping.optimal_stopping import (
    K1_GROWTH,
    StoppingDecision,
    StoppingPlan,
    StoppingRule,
    k1_schedule,
    noise_correction,
    surrogate_allows_stop,
)
from shoestring.policies.config_table import ConfigTable
from shoestring.policies.stopping.active_trials import (
    INCOMPLETE_CURVE,
    ActiveTrial,
    ActiveTrials,
    ContinueTrial,
    StopTrial,
    curve_of,
    find_incumbent,
)
from shoestring.policies.stopping.error_range import BELOW_RANGE, ErrorRange, is_below_range, pick_range, require_range
from shoestring.policies.stopping.surrogate import (
    PRINTED_FORM,
    SURROGATE_MEMO,
    Surrogate,
    fit_surrogate,
    observe,
)
from shoestring.policies.stopping.ucb_policy import UcbPolicy, label_stopping_check
from shoestring.policies.stopping.ucb_search import UcbChoice
from shoestring.policy import (
    CurvePrediction,
    Labels,
    Ledger,
    Memo,
    Regions,
    Trial,
    Why,
    compare,
    require_between,
    require_one_of,
    require_whole,
    require_within,
)

_LENGTHS = "lengths_"  # prefix of the names of the second surrogate in the memo
_REFIT_LENGTHS = 10  # trials between two fits of the second surrogate, as in the paper: C2 needs no precise deviations
_EXPLAINED = ("reason", "decision", "statistic", "cell", "prob_better", "loss_continue", "loss_stop", "loss_finish")


@as_printed(search_by="lengths", statistic="all", replan_every=None, refit_every=10)
@dataclass(frozen=True, slots=True, kw_only=True)
class BOBOS(UcbPolicy):
    name: ClassVar[str] = "bo_bos"
    why_labels: ClassVar[Labels] = label_stopping_check(
        {
            "cell": "cell of the decision map (number)",
            "decision": "action of the decision map (0 continue, 1 stop, 2 finish)",
            "k1": "loss of stopping a trial that would have been the best (steps)",
            "loss_stop": "expected loss of stopping (steps)",
            "loss_continue": "expected loss of another step (steps)",
            "loss_finish": "expected loss of training to the end (steps)",
            "planned_at": "step at which its future curves were simulated (step)",
            "prob_better": "probability of ending better than the best other trial",
            "reason": "reason",
            "statistic": "mean error so far (0 to 1)",
            "std_full": "standard deviation at the end of the trial (value)",
            "std_now": "standard deviation now (value)",
        }
    )
    memo_lists: ClassVar[tuple[str, ...]] = (*SURROGATE_MEMO, *(_LENGTHS + name for name in SURROGATE_MEMO))
    n0: int = 8
    k1: float = 100.0
    k1_growth: str | float = "normal"
    k2: float = 99.0
    step_cost: float = 1.0
    kappa: float = 2.0
    noise_allowance: bool = False
    search_by: Literal["ends", "lengths"] = "ends"
    intermediate: bool = True
    statistic: Literal["after_n0", "all"] = "after_n0"
    paths: int = 100_000
    cells: int = 100
    replan_every: int | None = 8
    curve_fit: CurveFitRule = "likelihood"
    printed: bool = False
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        UcbPolicy.__post_init__(self)
        require_whole(self, "n0", 1, "the curve model needs a beginning", "Try 8.")
        require_whole(self, "paths", 1, "the rule needs simulated curves", "Try 100000.")
        require_whole(
            self, "replan_every", 1, "a trial is checked after each step", "Try 8; None: plan once.", optional=True
        )
        require_whole(self, "cells", 1, "the statistic falls into a cell", "Try 100.")
        if self.k1 != math.inf:
            because = "it is the loss of stopping a winner"
            require_between(self, "k1", 0.0, math.inf, because, "Try 100; inf: nothing is stopped.")
        require_between(self, "k2", 0.0, math.inf, "it is the loss of finishing a loser", "Try 99.")
        require_between(self, "step_cost", 0.0, math.inf, "a step without cost would always be taken", "Try 1.")
        require_within(self, "kappa", 1.0, math.inf, "below 1, C2 would fail at full training", "Try 2; inf: no C2.")
        require_one_of(self, "noise_allowance", (True, False))
        require_one_of(self, "intermediate", (True, False))
        require_one_of(self, "statistic", ("after_n0", "all"))
        require_one_of(self, "curve_fit", get_args(CurveFitRule))
        require_one_of(self, "search_by", ("ends", "lengths"))
        growth = K1_GROWTH.get(self.k1_growth) if isinstance(self.k1_growth, str) else self.k1_growth
        if growth is None or not is_number(growth) or not 0.0 < growth <= 1.0:
            raise PolicyError(
                f"bo_bos(k1_growth={self.k1_growth!r}) must be one of {', '.join(K1_GROWTH)} or a number above 0 and at most 1 "
                "by which k1 is divided for each trial. Try 'normal'."
            )
        require_range(self, self.low, self.high)

    @property
    def has_whole_design(self) -> bool:
        return self.printed

    # starting a trial ------------------------------------------------------------------------------------------------

    def first_goal(self, ledger: Ledger) -> int:
        return min(self.n0 + 1, ledger.max_steps)

    def make_surrogate(self, ledger: Ledger, table: ConfigTable, active: ActiveTrials) -> Surrogate | None:
        if self.search_by == "ends":
            return UcbPolicy.make_surrogate(self, ledger, table, active)
        seen = observe(ledger, intermediate=self.intermediate, idle_only=False)
        if not seen:
            return None
        return fit_surrogate(ledger, table, seen, lengths=True, refit_every=self.refit_every, form=PRINTED_FORM)

    def opening_memo(self, ledger: Ledger, surrogate: Surrogate, chosen: UcbChoice, active: ActiveTrials) -> Memo:
        """Return the deviation of the loss after each step, (max_steps,), for C2, and the allowance for noise."""
        noise_variance = surrogate.gp.noise_variance * surrogate.scale.scale**2
        xi = noise_correction(active.started + 1, noise_variance) if self.noise_allowance else 0.0
        if math.isinf(self.kappa):
            return {"xi": [xi]}
        if self.search_by == "ends":
            seen = observe(ledger, intermediate=self.intermediate, idle_only=False)
            surrogate = fit_surrogate(
                ledger, surrogate.table, seen, lengths=True, refit_every=_REFIT_LENGTHS, prefix=_LENGTHS
            )
            active.lists |= surrogate.memo
        n = ledger.max_steps
        _, std = surrogate.predict(chosen.point.take(np.zeros(n, dtype=np.intp)), np.arange(1.0, n + 1.0) / n)
        return {"std": [float(v) * surrogate.scale.scale for v in std], "xi": [xi]}

    # the stopping check ----------------------------------------------------------------------------------------------

    def continue_or_stop(self, ledger: Ledger, checked: ActiveTrial, active: ActiveTrials) -> ContinueTrial | StopTrial:
        trial = ledger.trials[checked.number]
        if trial.steps <= self.n0:  # the budget ended before the first check
            return ContinueTrial(self.n0 + 1, {"phase": "warm-up"})
        losses = curve_of(trial)
        if not losses:
            return ContinueTrial(trial.steps + 1, INCOMPLETE_CURVE)
        opening = ledger.orders[checked.order].memo
        bounds = pick_range(ledger, self.low, self.high, active.error_range)
        best, k1 = find_incumbent(ledger, trial.number), k1_schedule(self.k1_growth, checked.iteration, self.k1)
        n0 = self.plan_step(trial.steps)
        why: dict[str, Scalar] = {
            "phase": "stopping check",
            "incumbent": ledger.state.sign * best,
            "k1": k1,
            "planned_at": n0,
        }
        std_now, std_full = 1.0, 1.0  # without C2 there are no deviations, and the condition holds
        if "std" in opening:
            std_now, std_full = opening["std"][trial.steps - 1], opening["std"][-1]
            why |= {"std_now": std_now, "std_full": std_full}
        if is_below_range(best, bounds):
            return ContinueTrial(trial.steps + 1, {**why, "reason": BELOW_RANGE})
        rule = self.make_rule(n0, ledger.max_steps, k1, bounds)
        plan = solve_rule(rule, tuple(losses[:n0]), best, opening["xi"][0], ledger.definition.seed, trial.number)
        decision = plan.decide(losses)
        why |= _explain(decision)
        if not decision.stop:
            return ContinueTrial(trial.steps + 1, {**_compare(decision), **why})
        if not surrogate_allows_stop(std_now, std_full, self.kappa):
            why["reason"] = "the rule would stop, but the surrogate is too uncertain about the end (C2)"
            return ContinueTrial(trial.steps + 1, {**_compare(decision), **why})
        return StopTrial(why)

    def forecast_trial(self, ledger: Ledger, trial: Trial, check: Why) -> list[CurvePrediction]:
        """Return the distribution of the simulated curves, from the step at which they were simulated."""
        if "decision" not in check:
            return []
        rule = self._restore_rule(ledger, check)
        _, mean, cov = rule.forecast(curve_of(trial)[: rule.n0])
        std = np.sqrt(np.maximum(np.diagonal(cov), 0.0) + rule.noise_variance)

        def to_losses(errors: Floats) -> Floats:  # curves that leave the range of errors are not used
            return rule.losses(np.clip(errors, 0.0, 1.0))

        quantile, steps = normal_quantile(mean, std, to_losses), range(rule.n0 + 1, ledger.max_steps + 1)
        return [CurvePrediction.of(trial.number, trial.config, steps, quantile, ledger.definition.sign)]

    def map_actions(self, ledger: Ledger, trial: Trial, check: Why) -> Regions | None:
        """Return the actions of the whole plan, not only that in the cell of the trial."""
        if "decision" not in check:
            return None
        rule, losses = self._restore_rule(ledger, check), curve_of(trial)
        best = ledger.state.sign * float(str(check["incumbent"]))
        active = ActiveTrials.read(ledger.memo, self.memo_lists).trials
        opening = next(ledger.orders[one.order].memo for one in active if one.number == trial.number)
        plan = solve_rule(rule, tuple(losses[: rule.n0]), best, opening["xi"][0], ledger.definition.seed, trial.number)
        found, sign, errors = plan.decisions, ledger.definition.sign, rule.errors(losses)
        edges = sign * rule.losses(np.linspace(0.0, 1.0, rule.n_cells + 1))
        action = np.where(found.count > rule.min_paths, found.decision, -1)
        if sign < 0:
            edges, action = edges[::-1], action[:, ::-1]
        means = np.array([rule.mean_error(errors[:step]) for step in range(rule.n0 + 1, errors.size + 1)])
        return Regions(trial.number, np.arange(rule.n0 + 1, rule.n_max + 1), edges, action, sign * rule.losses(means))

    def _restore_rule(self, ledger: Ledger, check: Why) -> StoppingRule:
        """Return the rule of an earlier stopping check from its numbers in `why`."""
        active = ActiveTrials.read(ledger.memo, self.memo_lists)
        bounds = pick_range(ledger, self.low, self.high, active.error_range)
        return self.make_rule(int(str(check["planned_at"])), ledger.max_steps, float(str(check["k1"])), bounds)

    def plan_step(self, steps: int) -> int:
        """Return the step that replaces N0 for a trial of `steps` steps: that at which its curves were last simulated."""
        return steps - 1 - ((steps - 1 - self.n0) % self.replan_every) if self.replan_every else self.n0

    def make_rule(self, n0: int, n_max: int, k1: float, bounds: ErrorRange) -> StoppingRule:
        return StoppingRule(
            n0=n0,
            n_max=n_max,
            k1=k1,
            k2=self.k2,
            cost=self.step_cost,
            low=bounds.low,
            high=bounds.high,
            n_paths=self.paths,
            n_cells=self.cells,
            statistic=self.statistic,
            curve_fit=self.curve_fit,
        )


@lru_cache(maxsize=32)
def solve_rule(
    rule: StoppingRule, beginning: tuple[float, ...], best: float, xi: float, seed: int, trial: int
) -> StoppingPlan:
    """Return the solved rule of one trial. The function is pure, and cached because every step of the trial needs it again."""
    return rule.plan(beginning, best, stream(seed, "stopping", trial), xi=xi)


def _compare(decision: StoppingDecision) -> Why:
    """Return the comparison of further training with stopping; empty if too few simulated curves pass the cell."""
    further = (loss for loss in (decision.loss_continue, decision.loss_finish) if not math.isnan(loss))
    train_on = min(further, default=math.nan)
    if math.isnan(train_on) or math.isnan(decision.loss_stop):
        return {}
    return compare("expected loss of training on (in steps)", "lowest", 2, train_on, "stopping", decision.loss_stop)


def _explain(decision: StoppingDecision) -> Why:
    """Return the numbers of a decision except those that are NaN, because NaN is not equal to itself."""
    numbers = {name: getattr(decision, name) for name in _EXPLAINED}
    return {name: value for name, value in numbers.items() if not (isinstance(value, float) and math.isnan(value))}
