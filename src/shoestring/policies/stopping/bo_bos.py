"""BO-BOS: choose runs by a confidence bound, and after each step ask whether the run is worth finishing.

Dai, Yu, Low and Jaillet, "Bayesian Optimization Meets Bayesian Optimal Stopping", ICML 2019 (PMLR 97, no arXiv version known
to us), Algorithm 1. The stopping rule (Algorithm 2) is in `models.stopping.optimal_stopping`, the surrogate in `ucb_search`.

    paper    here             meaning                                                              unit
    N0       n0               steps of a run before it can be judged; the first stop is after N0+1   steps
    N        max_steps        a full training                                                      steps
    K1       k1, k1_growth    loss of giving up a winner: k1 / g^t grows with the runs begun       loss
    K2       k2               loss of trusting a loser                                             loss
    c_d0     step_cost        loss of one more step                                                loss
    kappa    kappa            C2: the deviation at N is at most kappa times that at n              —
    xi_t     noise_allowance  whether the incumbent is corrected for noise (Lemma 7)               —
    y*       incumbent        best loss of all other runs                                          loss
    —        search_by        surrogate that chooses configs: of "ends", or of "lengths" too         —
    —        intermediate     whether the latter sees a run at its first step and every N / 5       —
    —        replan_every     steps after which the future is simulated afresh                     steps

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
  of the studies in benchmarks/bo_bos then needed more epochs than GP-UCB, against one in six. It only serves C2.
- Deviations of C2 are latent ones, at the moment the run was opened; the order that opened it remembers them.
- Losses become errors as `error_range` says; when the incumbent has left that range, no run is stopped.
- A stopped run is frozen. With `thaw`, when what is left does not pay for another full training or every config was tried,
  the frozen run that the surrogate expects to end lowest is trained to its end.
- The simulated futures of a run come from a stream of its own, so a study that was cut off judges as before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from shoestring.core.books import Trial
from shoestring.core.decision import Memo
from shoestring.core.ledger import Ledger
from shoestring.core.settings import require_between, require_one_of, require_whole
from shoestring.core.streams import stream
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
from shoestring.policies.outcomes import Table
from shoestring.policies.stopping.error_range import error_bounds, given_bounds, incumbent
from shoestring.policies.stopping.runs import (
    GiveUp,
    GoOn,
    Run,
    Runs,
    Scalars,
    UcbRuns,
)
from shoestring.policies.stopping.search import KERNEL_MEMO, Chosen, Surrogate, observations, surrogate

_LENGTHS = "lengths_"  # begins the names of the second surrogate in the memo
_REFIT_LENGTHS = 10  # trials between two fits of it, as in the paper: C2 needs no fine deviations


@dataclass(frozen=True, slots=True, kw_only=True)
class BOBOS(UcbRuns):
    name: ClassVar[str] = "bo_bos"
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
    asymptote: bool = False
    curve_noise_variance: float = 1e-3
    paths: int = 100_000
    cells: int = 100
    replan_every: int | None = 8
    low: float | None = None
    high: float | None = None
    thaw: bool = False

    def __post_init__(self) -> None:
        UcbRuns.__post_init__(self)
        require_whole(self, "n0", 1, "the curve model needs a beginning", "Try 8.")
        require_whole(self, "paths", 1, "the rule looks at simulated futures", "Try 100000.")
        if self.replan_every is not None:
            require_whole(self, "replan_every", 1, "a run is judged after each step", "Try 8; None: plan once.")
        require_whole(self, "cells", 1, "the statistic falls into a cell", "Try 100.")
        for setting, low, because, remedy in (
            ("k1", 0.0, "it is the loss of giving up a winner", "Try 100."),
            ("k2", 0.0, "it is the loss of trusting a loser", "Try 99."),
            ("step_cost", 0.0, "a free step would always be bought", "Try 1."),
            ("curve_noise_variance", 1e-10, "the kernel matrix would be singular", "Try 0.001."),
        ):
            require_between(self, setting, low, math.inf, because, remedy)
        if not isinstance(self.kappa, int | float) or not self.kappa >= 1.0:
            raise PolicyError(
                f"BOBOS(kappa={self.kappa!r}) must be a number >= 1, or C2 would fail at full training. Try 2; inf: no C2."
            )
        require_one_of(self, "statistic", ("after_n0", "all"))
        require_one_of(self, "search_by", ("ends", "lengths"))
        growth = K1_GROWTH.get(self.k1_growth) if isinstance(self.k1_growth, str) else self.k1_growth
        if not isinstance(growth, int | float) or not 0.0 < growth <= 1.0:
            raise PolicyError(
                f"BOBOS(k1_growth={self.k1_growth!r}) must be one of {', '.join(K1_GROWTH)} or a number above 0 and at most 1 "
                "by which k1 is divided at each run. Try 'normal'."
            )
        given_bounds(self, self.low, self.high)

    # the runs --------------------------------------------------------------------------------------------------------

    def model(self, ledger: Ledger, table: Table, runs: Runs) -> Surrogate | None:
        if self.search_by == "ends":
            return UcbRuns.model(self, ledger, table, runs)
        seen = observations(ledger, intermediate=self.intermediate, whole_only=False)
        return surrogate(ledger, table, seen, lengths=True, refit_every=self.refit_every) if seen else None

    def extra_memo(self) -> tuple[str, ...]:
        return tuple(_LENGTHS + key for key in KERNEL_MEMO)

    def first_goal(self, ledger: Ledger) -> int:
        return min(self.n0 + 1, ledger.max_steps)

    def known_at_opening(self, ledger: Ledger, table: Table, belief: Surrogate, chosen: Chosen, runs: Runs) -> Memo:
        """The deviation at each step, (max_steps,), of the loss; and the allowance for noise."""
        n, unit = ledger.max_steps, belief.scale.scale
        xi = noise_correction(runs.begun + 1, belief.gp.noise_variance * unit**2) if self.noise_allowance else 0.0
        if math.isinf(self.kappa):
            return {"xi": [xi]}
        if self.search_by == "ends":
            seen = observations(ledger, intermediate=self.intermediate, whole_only=False)
            belief = surrogate(ledger, table, seen, lengths=True, refit_every=_REFIT_LENGTHS, prefix=_LENGTHS)
            runs.extra |= belief.memo
        point = chosen.point.take(np.zeros(n, dtype=np.intp))
        _, std = belief.predict(point, np.arange(1.0, n + 1.0) / n)
        return {"std": [float(v) * belief.scale.scale for v in std], "xi": [xi]}

    def judge(self, ledger: Ledger, run: Run, runs: Runs) -> GoOn | GiveUp:
        trial = ledger.trials[run.trial]
        if trial.steps <= self.n0:  # the wall came first
            return GoOn(min(self.n0 + 1, trial.limit), {"phase": "warm-up"})
        losses = [loss for loss in trial.losses if loss is not None]
        if len(losses) < trial.steps:
            return GoOn(trial.steps + 1, {"phase": "not judged", "reason": "a step was not validated"})
        opening = ledger.orders[run.order].memo
        best, k1 = incumbent(ledger, run.trial), k1_schedule(self.k1_growth, run.iteration, self.k1)
        planned_at = self.planned_at(trial.steps)
        rule = self.rule(ledger, runs, k1, planned_at)
        why: Scalars = {
            "phase": "judged",
            "incumbent": ledger.books.sign * best,
            "k1": k1,
            "planned_at": planned_at,
        }
        std_now, std_full = 1.0, 1.0  # without C2 there are none, and it holds
        if "std" in opening:
            std_now, std_full = opening["std"][trial.steps - 1], opening["std"][-1]
            why |= {"std_now": std_now, "std_full": std_full}
        if math.isfinite(best) and best <= rule.low:
            why["reason"] = "the best loss lies below the range of errors: no stopping"
            return GoOn(trial.steps + 1, why)
        plan = stopping_plan(rule, tuple(losses[:planned_at]), best, opening["xi"][0], ledger.opened.seed, run.trial)
        verdict = plan.judge(losses)
        why |= _numbers(verdict)
        if not verdict.stop:
            return GoOn(trial.steps + 1, why)
        if not surrogate_allows_stop(std_now, std_full, self.kappa):
            why["reason"] = "the rule would give up, but the surrogate is too unsure of the end (C2)"
            return GoOn(trial.steps + 1, why)
        return GiveUp(why)

    def planned_at(self, steps: int) -> int:
        """The step from which the future was simulated that a run of so many steps is judged by."""
        return steps - 1 - ((steps - 1 - self.n0) % self.replan_every) if self.replan_every else self.n0

    def rule(self, ledger: Ledger, runs: Runs, k1: float, planned_at: int) -> StoppingRule:
        low, high = runs.bounds or error_bounds(ledger)
        if self.low is not None and self.high is not None:
            low, high = self.low, self.high
        return StoppingRule(
            n0=planned_at,
            n_max=ledger.max_steps,
            k1=k1,
            k2=self.k2,
            cost=self.step_cost,
            low=low,
            high=high,
            n_paths=self.paths,
            n_cells=self.cells,
            statistic=self.statistic,
            noise_variance=self.curve_noise_variance,
            with_asymptote=self.asymptote,
        )

    def thawed(self, ledger: Ledger, table: Table, belief: Surrogate, runs: Runs) -> Trial | None:
        if not self.thaw:
            return None
        price = ledger.step_price()
        short_of_money = ledger.left < price * ledger.max_steps
        used_up = table.rows is not None and not table.unused.any()
        if not (short_of_money or used_up):
            return None
        under_way = {run.trial for run in runs.under_way}
        frozen = [
            trial
            for trial in ledger.trials
            if trial.open_order is None and not trial.is_stuck and trial.steps and trial.number not in under_way
        ]
        can_be_paid = [t for t in frozen if ledger.step_price(t.number) * (t.limit - t.held) <= ledger.left]
        if not can_be_paid:
            return None
        mean, _ = belief.predict(table.stacked([trial.number for trial in can_be_paid]))
        return can_be_paid[int(np.argmin(mean))]


def _numbers(verdict: Verdict) -> Scalars:
    """What exists of a verdict, NaN left out: it equals nothing, not even itself."""
    told: Scalars = {
        "reason": verdict.reason,
        "decision": verdict.decision,
        "statistic": verdict.statistic,
        "cell": verdict.cell,
        "prob_better": verdict.prob_better,
        "loss_go_on": verdict.loss_go_on,
        "loss_give_up": verdict.loss_give_up,
        "loss_trust": verdict.loss_trust,
    }
    return {name: value for name, value in told.items() if not (isinstance(value, float) and math.isnan(value))}


@lru_cache(maxsize=32)
def stopping_plan(
    rule: StoppingRule, beginning: Sequence[float], best: float, xi: float, seed: int, trial: int
) -> StoppingPlan:
    """The solved rule of one run: a pure function, kept since it is asked for again after every step of the run."""
    return rule.plan(beginning, best, stream(seed, "stopping", trial), xi=xi)
