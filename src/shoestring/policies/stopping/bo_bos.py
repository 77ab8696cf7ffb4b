"""BO-BOS: choose runs by a confidence bound, and after each step ask whether the run is worth finishing.

Dai, Yu, Low and Jaillet, "Bayesian Optimization Meets Bayesian Optimal Stopping", ICML 2019 (PMLR 97, no arXiv version known
to us), Algorithm 1. The stopping rule (Algorithm 2) is in `models.stopping.optimal_stopping`, the surrogate in `surrogate`,
all that it shares with GP-UCB in `ucb_policy`.

    paper    here             meaning                                                                unit
    N0       n0               steps of a run before it can be judged; the first stop is after N0+1   steps
    N        max_steps        a full training                                                        steps
    K1       k1, k1_growth    loss of giving up a winner: k1 / g^t grows with the runs begun         loss
    K2       k2               loss of trusting a loser                                               loss
    c_d0     step_cost        loss of one more step                                                  loss
    kappa    kappa            C2: the deviation at N is at most kappa times that at n                —
    xi_t     noise_allowance  whether the incumbent is corrected for noise (Lemma 7)                 —
    y*       incumbent        best loss of all other runs                                            loss
    —        search_by        surrogate that chooses configs: of "ends", of "lengths" too, or "printed"  —
    —        intermediate     whether the latter sees a run at its first step and every N / 5        —
    —        replan_every     steps after which the future is simulated afresh                       steps

A run stops when the rule gives it up (C1) and the surrogate allows it (C2); a run that the rule trusts is trained on, so that
its value is known. `why` of a one-step order: statistic and cell of the decision map, prob_better, the expected losses of going
on, giving up and trusting, the two deviations of C2, incumbent and k1. The order that opens the next run tells the same of the
run just given up.

Departs from the paper:
- The future is simulated afresh every `replan_every` steps, from all losses so far, with the present step in the place of N0. A
  plan made once, after 8 of 50 steps, says nothing any more about a curve that has left everything simulated, and most runs
  that should be given up do. None plans once.
- The incumbent is the best loss that any other run has shown at any step, this moment's with several workers.
- Configs are chosen as GP-UCB would, by a surrogate of the best loss of each run; one that was given up stands for what it had
  reached. In the paper's surrogate of configs and lengths ("lengths") early losses, which differ most, widen the bounds: a third
  of the studies in benchmarks/bo_bos then needed more epochs than GP-UCB, against one in six. It only serves C2. "printed" is
  that surrogate as the paper has it: n / N, one length-scale for all, most likely parameters from ten restarts. Together with
  `replan_every=None` and `refit_every=10` it is the paper's own combination.
- Deviations of C2 are latent ones, at the moment the run was opened; the order that opened it remembers them.
- Losses become errors as `error_range` says; when the incumbent has left that range, no run is stopped.
- A stopped run is frozen. With `thaw`, when what is left does not pay for another full training or every config was tried,
  the frozen run that the surrogate expects to end lowest is trained to its end.
- The simulated futures of a run come from a stream of its own, so a study that was cut off judges as before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from scipy.special import ndtri

from shoestring.core.deciding.comparison import compare, compare_losses
from shoestring.core.deciding.decision import Memo, Why
from shoestring.core.deciding.prediction import BelievedCurve, Regions
from shoestring.core.deciding.reproducible import find_best
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.space.parameters import Scalar
from shoestring.core.values.arrays import Floats
from shoestring.core.values.checks import require_between, require_one_of, require_whole, require_within
from shoestring.core.values.randomness import stream
from shoestring.errors import PolicyError
from shoestring.models.stopping.optimal_stopping import (
    K1_GROWTH,
    StoppingPlan,
    StoppingRule,
    Verdict,
    k1_schedule,
    noise_correction,
    surrogate_allows_stop,
)
from shoestring.policies.config_table import ConfigTable
from shoestring.policies.stopping.active_runs import (
    WITH_GAPS,
    ActiveRun,
    GiveUp,
    GoOn,
    RunsUnderWay,
    curve_of,
    find_incumbent,
)
from shoestring.policies.stopping.error_range import RANGE_LEFT, ErrorRange, pick_range, require_range
from shoestring.policies.stopping.surrogate import OURS, PRINTED, SURROGATE_MEMO, Surrogate, fit_surrogate, observe
from shoestring.policies.stopping.ucb_policy import UcbPolicy
from shoestring.policies.stopping.ucb_search import Chosen

_LENGTHS = "lengths_"  # begins the names of the second surrogate in the memo
_REFIT_LENGTHS = 10  # trials between two fits of it, as in the paper: C2 needs no fine deviations
_EXPLAINED = ("reason", "decision", "statistic", "cell", "prob_better", "loss_go_on", "loss_give_up", "loss_trust")


@dataclass(frozen=True, slots=True, kw_only=True)
class BOBOS(UcbPolicy):
    name: ClassVar[str] = "bo_bos"
    memo_lists: ClassVar[tuple[str, ...]] = (*SURROGATE_MEMO, *(_LENGTHS + name for name in SURROGATE_MEMO))
    n0: int = 8
    k1: float = 100.0
    k1_growth: str | float = "normal"
    k2: float = 99.0
    step_cost: float = 1.0
    kappa: float = 2.0
    noise_allowance: bool = False
    search_by: Literal["ends", "lengths", "printed"] = "ends"
    intermediate: bool = True
    statistic: Literal["after_n0", "all"] = "after_n0"
    asymptote: bool = False
    curve_noise_variance: float = 1e-3
    paths: int = 100_000
    cells: int = 100
    replan_every: int | None = 8
    low: float | None = None
    high: float | None = None
    thaw: bool = False

    def __post_init__(self) -> None:
        UcbPolicy.__post_init__(self)
        require_whole(self, "n0", 1, "the curve model needs a beginning", "Try 8.")
        require_whole(self, "paths", 1, "the rule looks at simulated futures", "Try 100000.")
        require_whole(
            self, "replan_every", 1, "a run is judged after each step", "Try 8; None: plan once.", optional=True
        )
        require_whole(self, "cells", 1, "the statistic falls into a cell", "Try 100.")
        require_between(self, "k1", 0.0, math.inf, "it is the loss of giving up a winner", "Try 100.")
        require_between(self, "k2", 0.0, math.inf, "it is the loss of trusting a loser", "Try 99.")
        require_between(self, "step_cost", 0.0, math.inf, "a free step would always be bought", "Try 1.")
        require_between(
            self, "curve_noise_variance", 1e-10, math.inf, "the kernel matrix would be singular", "Try 0.001."
        )
        require_within(self, "kappa", 1.0, math.inf, "below, C2 would fail at full training", "Try 2; inf: no C2.")
        require_one_of(self, "statistic", ("after_n0", "all"))
        require_one_of(self, "search_by", ("ends", "lengths", "printed"))
        growth = K1_GROWTH.get(self.k1_growth) if isinstance(self.k1_growth, str) else self.k1_growth
        if not isinstance(growth, int | float) or not 0.0 < growth <= 1.0:
            raise PolicyError(
                f"BOBOS(k1_growth={self.k1_growth!r}) must be one of {', '.join(K1_GROWTH)} or a number above 0 and at most 1 "
                "by which k1 is divided at each run. Try 'normal'."
            )
        require_range(self, self.low, self.high)

    # beginning a run -------------------------------------------------------------------------------------------------

    def first_goal(self, ledger: Ledger) -> int:
        return min(self.n0 + 1, ledger.max_steps)

    def form_belief(self, ledger: Ledger, table: ConfigTable, runs: RunsUnderWay) -> Surrogate | None:
        if self.search_by == "ends":
            return UcbPolicy.form_belief(self, ledger, table, runs)
        seen = observe(ledger, intermediate=self.intermediate, idle_only=False)
        form = PRINTED if self.search_by == "printed" else OURS
        return (
            fit_surrogate(ledger, table, seen, lengths=True, refit_every=self.refit_every, form=form) if seen else None
        )

    def opening_memo(self, ledger: Ledger, belief: Surrogate, chosen: Chosen, runs: RunsUnderWay) -> Memo:
        """The deviation of the loss after each step, (max_steps,), for C2; and the allowance for noise."""
        noise_variance = belief.gp.noise_variance * belief.scale.scale**2
        xi = noise_correction(runs.begun + 1, noise_variance) if self.noise_allowance else 0.0
        if math.isinf(self.kappa):
            return {"xi": [xi]}
        if self.search_by == "ends":
            seen = observe(ledger, intermediate=self.intermediate, idle_only=False)
            belief = fit_surrogate(
                ledger, belief.table, seen, lengths=True, refit_every=_REFIT_LENGTHS, prefix=_LENGTHS
            )
            runs.lists |= belief.memo
        n = ledger.max_steps
        _, std = belief.predict(chosen.point.take(np.zeros(n, dtype=np.intp)), np.arange(1.0, n + 1.0) / n)
        return {"std": [float(v) * belief.scale.scale for v in std], "xi": [xi]}

    def find_run_to_thaw(self, ledger: Ledger, belief: Surrogate, runs: RunsUnderWay) -> tuple[Trial, Why] | None:
        if not self.thaw:
            return None
        short_of_money = ledger.left < ledger.step_price() * ledger.max_steps
        if not (short_of_money or belief.table.is_used_up):
            return None
        frozen = runs.find_frozen(ledger)
        affordable = [t for t in frozen if ledger.step_price(t.number) * (t.limit - t.held) <= ledger.left]
        if not affordable:
            return None
        mean, _ = belief.predict(belief.table.stack([trial.number for trial in affordable]))
        at, numbers = find_best(mean, "lowest"), [trial.number for trial in affordable]
        name, sign, undo = "value expected at the end of the run", ledger.opened.sign, belief.scale.undo
        return affordable[at], compare_losses(name, mean, at, numbers.__getitem__, sign=sign, undo=undo)

    # judging it ------------------------------------------------------------------------------------------------------

    def judge(self, ledger: Ledger, run: ActiveRun, runs: RunsUnderWay) -> GoOn | GiveUp:
        trial = ledger.trials[run.trial]
        if trial.steps <= self.n0:  # the wall came first
            return GoOn(self.n0 + 1, {"phase": "warm-up"})
        losses = curve_of(trial)
        if not losses:
            return GoOn(trial.steps + 1, WITH_GAPS)
        opening = ledger.orders[run.order].memo
        bounds = pick_range(ledger, self.low, self.high, runs.error_range)
        best, k1 = find_incumbent(ledger, run.trial), k1_schedule(self.k1_growth, run.iteration, self.k1)
        n0 = self.plan_step(trial.steps)
        why: dict[str, Scalar] = {"phase": "judged", "incumbent": ledger.books.sign * best, "k1": k1, "planned_at": n0}
        std_now, std_full = 1.0, 1.0  # without C2 there are none, and it holds
        if "std" in opening:
            std_now, std_full = opening["std"][trial.steps - 1], opening["std"][-1]
            why |= {"std_now": std_now, "std_full": std_full}
        if bounds.is_left_by(best):
            return GoOn(trial.steps + 1, {**why, "reason": RANGE_LEFT})
        rule = self.make_rule(n0, ledger.max_steps, k1, bounds)
        plan = solve_rule(rule, tuple(losses[:n0]), best, opening["xi"][0], ledger.opened.seed, run.trial)
        verdict = plan.judge(losses)
        why |= _explain(verdict)
        if not verdict.stop:
            return GoOn(trial.steps + 1, {**_compare(verdict), **why})
        if not surrogate_allows_stop(std_now, std_full, self.kappa):
            why["reason"] = "the rule would give up, but the surrogate is too unsure of the end (C2)"
            return GoOn(trial.steps + 1, {**_compare(verdict), **why})
        return GiveUp(why)

    def foresee(self, ledger: Ledger, trial: Trial, judged: Why) -> list[BelievedCurve]:
        """The futures that were simulated, from the step where that was done."""
        if "decision" not in judged:
            return []
        rule = self._rule_then(ledger, judged)
        _, mean, cov = rule.foresee(curve_of(trial)[: rule.n0])
        std = np.sqrt(np.maximum(np.diagonal(cov), 0.0) + rule.noise_variance)

        def quantile(level: float) -> Floats:  # a future that leaves the range of errors is not looked at
            return rule.losses(np.clip(mean + ndtri(level) * std, 0.0, 1.0))

        steps = range(rule.n0 + 1, ledger.max_steps + 1)
        return [BelievedCurve.of(trial.number, trial.config, steps, quantile, ledger.opened.sign)]

    def map_verdicts(self, ledger: Ledger, trial: Trial, judged: Why) -> Regions | None:
        """The plan that was solved, looked up whole and not only where the run stood."""
        if "decision" not in judged:
            return None
        rule, losses = self._rule_then(ledger, judged), curve_of(trial)
        best = ledger.books.sign * float(str(judged["incumbent"]))
        active = RunsUnderWay.read(ledger.memo, self.memo_lists).active
        opening = next(ledger.orders[run.order].memo for run in active if run.trial == trial.number)
        plan = solve_rule(rule, tuple(losses[: rule.n0]), best, opening["xi"][0], ledger.opened.seed, trial.number)
        found, sign, errors = plan.decisions, ledger.opened.sign, rule.errors(losses)
        edges = sign * rule.losses(np.linspace(0.0, 1.0, rule.n_cells + 1))
        verdict = np.where(found.count > rule.min_paths, found.decision, -1)
        if sign < 0:
            edges, verdict = edges[::-1], verdict[:, ::-1]
        means = np.array([rule.mean_error(errors[:step]) for step in range(rule.n0 + 1, errors.size + 1)])
        return Regions(trial.number, np.arange(rule.n0 + 1, rule.n_max + 1), edges, verdict, sign * rule.losses(means))

    def _rule_then(self, ledger: Ledger, judged: Why) -> StoppingRule:
        """By which a run was judged, with these reasons."""
        runs = RunsUnderWay.read(ledger.memo, self.memo_lists)
        bounds = pick_range(ledger, self.low, self.high, runs.error_range)
        return self.make_rule(int(str(judged["planned_at"])), ledger.max_steps, float(str(judged["k1"])), bounds)

    def plan_step(self, steps: int) -> int:
        """The step in the place of N0: a run of so many steps is judged by the futures simulated there."""
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
            noise_variance=self.curve_noise_variance,
            with_asymptote=self.asymptote,
        )


@lru_cache(maxsize=32)
def solve_rule(
    rule: StoppingRule, beginning: tuple[float, ...], best: float, xi: float, seed: int, trial: int
) -> StoppingPlan:
    """The solved rule of one run: a pure function, cached since it is asked for again after every step of the run."""
    return rule.plan(beginning, best, stream(seed, "stopping", trial), xi=xi)


def _compare(verdict: Verdict) -> Why:
    """Training on, whether undecided or trusted, against giving up; nothing where too few curves pass to tell."""
    train_on = min(
        (loss for loss in (verdict.loss_go_on, verdict.loss_trust) if not math.isnan(loss)), default=math.nan
    )
    if math.isnan(train_on) or math.isnan(verdict.loss_give_up):
        return {}
    return compare("expected loss of training on (in steps)", "lowest", 2, train_on, "giving up", verdict.loss_give_up)


def _explain(verdict: Verdict) -> Why:
    """What exists of a verdict, NaN left out: it equals nothing, not even itself."""
    numbers = {name: getattr(verdict, name) for name in _EXPLAINED}
    return {name: value for name, value in numbers.items() if not (isinstance(value, float) and math.isnan(value))}
