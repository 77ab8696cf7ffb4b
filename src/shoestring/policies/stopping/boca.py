"""BOCA: choose a configuration by its bound at full training, then the shortest training that is still informative.

Kandasamy, Dasarathy, Schneider and Póczos, "Multi-fidelity Bayesian Optimisation with Continuous Approximations",
arXiv:1703.06240, in the practical form of its authors' package; a baseline of BO-BOS. The surrogate, squared-exponential on
configurations and length of training, is in `surrogate`; what it shares with GP-UCB is in `ucb_policy`.

    paper      here          meaning                                                                    unit
    z          step / N      length, a share of a full training                                         -
    lambda(z)  step          cost of a length                                                           steps
    phi        -             correlation of a length with the full length, by the kernel                -
    xi(z)      gap           sqrt(1 - phi(z)^2): what a length cannot predict                           -
    kappa0     coefficient   factor of the threshold; starts at `threshold`                             -
    tau        std           deviation of the surrogate at (z, x), in units of its amplitude            -

A length qualifies if std > coefficient (range of y) sqrt(step / N) gap. The shortest such length is trained; it is full training
if there is none or if the length is more than 0.9 of full. The coefficient grows by a tenth if less than a quarter of the last
20 queries were full trainings, and shrinks by as much if more than three quarters were. `why` holds the bound of the
configuration, and std, gap and threshold at the chosen length.

Differences from the paper: the initial design is trained in full. A paused trial competes with new configurations; if it is
chosen, it continues from its last step, and only longer trainings qualify. The shares of a quarter and three quarters are ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.core.deciding.policy import ALL_TRIED
from shoestring.policies.config_table import ConfigTable
from shoestring.policies.stopping.active_trials import ActiveTrials
from shoestring.policies.stopping.surrogate import (
    SURROGATE_MEMO,
    Surrogate,
    SurrogateForm,
    fit_surrogate,
    observe,
    scale_length,
)
from shoestring.policies.stopping.ucb_policy import CHOICE_LABELS, UcbPolicy, explain_choice
from shoestring.policies.stopping.ucb_search import UcbChoice
from shoestring.policy import (
    Decision,
    Labels,
    Ledger,
    Why,
    continue_trial,
    nothing_to_train,
    reaches,
    require_between,
    start_trial,
)

_FORM = SurrogateForm(family="se")
_NEARLY_FULL = 0.9  # a length above this share of a full training becomes a full training
_RECENT = 20  # queries that the coefficient depends on
_FEW, _MANY = 0.25, 0.75  # shares of full trainings among them
_CHANGE = 1.1  # factor of a change of the coefficient


@dataclass(frozen=True, slots=True, kw_only=True)
class BOCA(UcbPolicy):
    name: ClassVar[str] = "boca"
    why_labels: ClassVar[Labels] = {
        **CHOICE_LABELS,
        "coefficient": "factor of the threshold on lengths",
        "length_gap": "what a training of this length cannot predict (share)",
        "length_least": "smallest standard deviation for which this length is chosen",
        "length_std": "standard deviation at this length (in amplitudes of the surrogate)",
    }
    memo_lists: ClassVar[tuple[str, ...]] = (*SURROGATE_MEMO, "coefficient", "recent")
    threshold: float = 0.01

    def __post_init__(self) -> None:
        UcbPolicy.__post_init__(self)
        require_between(self, "threshold", 0.0, math.inf, "at 0 no training would be longer than one step", "Try 0.01.")

    def make_surrogate(self, ledger: Ledger, table: ConfigTable, active: ActiveTrials) -> Surrogate | None:
        seen = observe(ledger, intermediate=False, idle_only=False)
        if not seen:
            return None
        return fit_surrogate(ledger, table, seen, lengths=True, refit_every=self.refit_every, form=_FORM)

    def bound_multiplier(self, ledger: Ledger, table: ConfigTable, iteration: int) -> float:
        if self.exploration == "theory":
            return UcbPolicy.bound_multiplier(self, ledger, table, iteration)
        d = max(1, ledger.space.dims)
        return math.sqrt(0.5 * d * math.log(2.0 * d * iteration + 1.0))

    def train_chosen(
        self, ledger: Ledger, rng: np.random.Generator, surrogate: Surrogate, active: ActiveTrials, why: Why
    ) -> Decision:
        """Return the order for a new or a paused trial, with the shortest length that is informative enough."""
        paused = [trial.number for trial in active.find_paused(ledger)]
        chosen = self.choose_next(ledger, rng, surrogate, active, paused)
        if chosen is None:
            return nothing_to_train(ledger, ALL_TRIED)
        trial = None if chosen.trial is None else ledger.trials[chosen.trial]
        done, limit = (trial.steps, trial.limit) if trial is not None else (0, ledger.max_steps)
        coefficient = active.lists.get("coefficient", [self.threshold])[0]
        goal, lengths = _pick_length(surrogate, chosen, coefficient, done, limit, ledger.max_steps)
        recent = [*active.lists.get("recent", []), 1.0 if goal == limit else 0.0][-_RECENT:]
        active.lists |= {"coefficient": [_adapt(coefficient, recent)], "recent": recent}
        active.add(ledger, len(ledger.trials) if trial is None else trial.number, goal)
        why = {**why, **explain_choice(ledger, surrogate, chosen), "coefficient": coefficient, **lengths}
        if trial is None:
            return start_trial(ledger, chosen.config, goal, why=why, memo=active.memo())
        return continue_trial(trial, goal, why=why, memo=active.memo())


def _pick_length(
    surrogate: Surrogate, chosen: UcbChoice, coefficient: float, done: int, limit: int, max_steps: int
) -> tuple[int, Why]:
    """Return the shortest training beyond `done` steps that is informative enough, and the numbers behind it."""
    steps = np.arange(done + 1, limit + 1)
    share = steps / max_steps
    _, std = surrogate.predict(chosen.point.take(np.zeros(steps.size, dtype=np.intp)), share)
    gp = surrogate.gp
    # theta: log signal variance, log length-scales, log noise variance; the length of training is the last column
    std = std / (gp.scale * math.exp(0.5 * gp.theta[0]))
    distance = (1.0 - scale_length(share, max_steps)) / math.exp(gp.theta[-2])
    gap = np.sqrt(-np.expm1(-np.square(distance)))  # 1 - phi^2, phi = exp(-distance^2 / 2)
    least = coefficient * float(np.ptp(gp.y)) / gp.scale * np.sqrt(share) * gap
    qualified = np.flatnonzero(~reaches(least, std) & (steps <= _NEARLY_FULL * limit))
    at = int(qualified[0]) if qualified.size else steps.size - 1
    return int(steps[at]), {
        "length_std": float(std[at]),
        "length_gap": float(gap[at]),
        "length_least": float(least[at]),
    }


def _adapt(coefficient: float, recent: list[float]) -> float:
    """Return a larger coefficient if few recent queries were full trainings, a smaller one if most were."""
    share = sum(recent) / _RECENT
    if len(recent) < _RECENT or _FEW <= share <= _MANY:
        return coefficient
    return coefficient * _CHANGE if share < _FEW else coefficient / _CHANGE
