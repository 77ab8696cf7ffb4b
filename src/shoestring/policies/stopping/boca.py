"""BOCA: choose a config by its bound at full training, then the shortest training that still tells something about it.

Kandasamy, Dasarathy, Schneider and Póczos, "Multi-fidelity Bayesian Optimisation with Continuous Approximations",
arXiv:1703.06240, in the practical form of its authors' package; a baseline of BO-BOS. Squared-exponential surrogate on configs
and length of training: `surrogate`; all that it shares with GP-UCB: `ucb_policy`.

    paper      here          meaning                                                                    unit
    z          step / N      length, a share of a full training                                         —
    lambda(z)  step          cost of a length                                                           steps
    phi        —             correlation of a length with the full one, by the kernel                   —
    xi(z)      gap           sqrt(1 - phi(z)^2): what a length cannot tell                              —
    kappa0     coefficient   of the threshold; starts at `threshold`                                    —
    tau        std           deviation of the surrogate at (z, x), in units of its amplitude            —

A length qualifies when std > coefficient (range of y) sqrt(step / N) gap. The shortest that does is bought; full training if
none does or if it costs more than 0.9 of full. The coefficient grows by a tenth when less than a quarter of the last 20 queries
were full trainings, and shrinks as much when more than three quarters were. `why`: the config's bound, and std, gap and threshold
at the length bought.

Departs from the paper: the initial design is trained in full. A trial that was trained for a while competes with new configs;
when it is chosen, it goes on from where it is, and only longer trainings are looked at. The shares of a quarter and three
quarters are ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.core.deciding.decision import Decision, Why
from shoestring.core.deciding.policy import ALL_TRIED, nothing_to_buy, train_further, train_new
from shoestring.core.deciding.reproducible import reaches
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.checks import require_between
from shoestring.policies.config_table import ConfigTable
from shoestring.policies.stopping.active_runs import RunsUnderWay
from shoestring.policies.stopping.surrogate import (
    SURROGATE_MEMO,
    Surrogate,
    SurrogateForm,
    fit_surrogate,
    observe,
    place_of_length,
)
from shoestring.policies.stopping.ucb_policy import UcbPolicy, explain_choice
from shoestring.policies.stopping.ucb_search import Chosen

_FORM = SurrogateForm(family="se")
_NEARLY_FULL = 0.9
_REMEMBERED = 20  # queries
_FEW, _MANY = 0.25, 0.75  # share of full trainings among them
_CHANGE = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class BOCA(UcbPolicy):
    name: ClassVar[str] = "boca"
    memo_lists: ClassVar[tuple[str, ...]] = (*SURROGATE_MEMO, "coefficient", "recent")
    threshold: float = 0.01

    def __post_init__(self) -> None:
        UcbPolicy.__post_init__(self)
        require_between(self, "threshold", 0.0, math.inf, "at 0 no run would ever be longer than one step", "Try 0.01.")

    def form_belief(self, ledger: Ledger, table: ConfigTable, runs: RunsUnderWay) -> Surrogate | None:
        seen = observe(ledger, intermediate=False, idle_only=False)
        if not seen:
            return None
        return fit_surrogate(ledger, table, seen, lengths=True, refit_every=self.refit_every, form=_FORM)

    def bound_multiplier(self, ledger: Ledger, table: ConfigTable, iteration: int) -> float:
        if self.exploration == "theory":
            return UcbPolicy.bound_multiplier(self, ledger, table, iteration)
        d = max(1, ledger.space.dims)
        return math.sqrt(0.5 * d * math.log(2.0 * d * iteration + 1.0))

    def begin_run(
        self, ledger: Ledger, rng: np.random.Generator, belief: Surrogate, runs: RunsUnderWay, why: Why
    ) -> Decision:
        """A new run, or a frozen one gone on with, of the shortest length that tells enough."""
        frozen = [trial.number for trial in runs.find_frozen(ledger)]
        chosen = self.choose_next(ledger, rng, belief, runs, frozen)
        if chosen is None:
            return nothing_to_buy(ledger, ALL_TRIED)
        trial = None if chosen.trial is None else ledger.trials[chosen.trial]
        done, limit = (trial.steps, trial.limit) if trial is not None else (0, ledger.max_steps)
        coefficient = runs.lists.get("coefficient", [self.threshold])[0]
        goal, lengths = _pick_length(belief, chosen, coefficient, done, limit, ledger.max_steps)
        recent = [*runs.lists.get("recent", []), 1.0 if goal == limit else 0.0][-_REMEMBERED:]
        runs.lists |= {"coefficient": [_adapt(coefficient, recent)], "recent": recent}
        runs.begin(ledger, len(ledger.trials) if trial is None else trial.number, goal)
        why = {**why, **explain_choice(ledger, belief, chosen), "coefficient": coefficient, **lengths}
        if trial is None:
            return train_new(ledger, chosen.config, goal, why=why, memo=runs.memo())
        return train_further(trial, goal, why=why, memo=runs.memo())


def _pick_length(
    belief: Surrogate, chosen: Chosen, coefficient: float, done: int, limit: int, max_steps: int
) -> tuple[int, Why]:
    """The shortest training beyond `done` steps that tells enough, and the numbers that say so."""
    steps = np.arange(done + 1, limit + 1)
    share = steps / max_steps
    _, std = belief.predict(chosen.point.take(np.zeros(steps.size, dtype=np.intp)), share)
    gp = belief.gp
    # theta: log signal variance, log length-scales, log noise variance; the length of training is the last column
    std = std / (gp.scale * math.exp(0.5 * gp.theta[0]))
    apart = (1.0 - place_of_length(share, max_steps)) / math.exp(gp.theta[-2])
    gap = np.sqrt(-np.expm1(-np.square(apart)))  # 1 - phi^2, phi = exp(-apart^2 / 2)
    least = coefficient * float(np.ptp(gp.y)) / gp.scale * np.sqrt(share) * gap
    qualified = np.flatnonzero(~reaches(least, std) & (steps <= _NEARLY_FULL * limit))
    at = int(qualified[0]) if qualified.size else steps.size - 1
    return int(steps[at]), {
        "length_std": float(std[at]),
        "length_gap": float(gap[at]),
        "length_least": float(least[at]),
    }


def _adapt(coefficient: float, recent: list[float]) -> float:
    """Larger when few of the recent queries were full trainings, smaller when most were."""
    share = sum(recent) / _REMEMBERED
    if len(recent) < _REMEMBERED or _FEW <= share <= _MANY:
        return coefficient
    return coefficient * _CHANGE if share < _FEW else coefficient / _CHANGE
