"""Rungs: the steps at which trials are compared, and which trials wait there. Shared by all policies of this folder.

`RungSettings` and `rung_steps` define the rungs of ASHA, successive halving and Hyperband. `NotPromoted` is the view of the
trials that wait at a step, and `compare_race` describes a promotion for `why`.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from shoestring.core.deciding.comparison import BestIs
from shoestring.core.space.parameters import Scalar
from shoestring.core.values.checks import require_reduction_factor
from shoestring.policies.halving.newcomers import (
    GUIDE_LABELS,
    Source,
    describe_guided,
    predict_newcomer,
    require_source,
)
from shoestring.policy import (
    Entry,
    Labels,
    Ledger,
    Order,
    Prediction,
    Receipt,
    StudyDefinition,
    WhyText,
    compare,
    require_whole,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RungSettings:
    """Settings that ASHA, successive halving and Hyperband share."""

    why_labels: ClassVar[Labels] = {
        **GUIDE_LABELS,
        "arm": "place in the bracket (number, from 0)",
        "at": "steps trained before (steps)",
        "bracket": "bracket (number, from 0)",
        "of": "new configurations of the bracket (number)",
        "rung": "rung (number, from 0)",
        "was": "state of the trial",
    }
    reduction_factor: int = 3  # one trial in this many is promoted
    min_steps: int = 1  # a new trial is trained for at least this many steps
    newcomers: Source = "drawn"  # new configurations are drawn evenly, or "guided" by a model of first looks

    def __post_init__(self) -> None:
        require_reduction_factor(self)
        require_whole(self, "min_steps", 1, "a newcomer is trained for at least one step", "Try 1.")
        require_source(self)

    def predict(self, ledger: Ledger, order: Order) -> Prediction | None:
        """Return the values that the guide expected of a newcomer and of its best competitors; None if it did not choose."""
        return predict_newcomer(ledger, order)

    @staticmethod
    def describe_why(order: Order) -> WhyText:
        why = order.why
        place: tuple[str, ...] = ()
        if "arm" in why and "of" in why:
            place = (f"configuration {int(str(why['arm'])) + 1} of {why['of']} in its bracket",)
        return WhyText(clauses=(*place, *describe_guided(order)))


def count_halvings(max_steps: int, min_steps: int, reduction_factor: int) -> int:
    """Return floor(log_eta(R)); a little is added because log(243) / log(3) is 4.999… in floating point."""
    units = max(1.0, max_steps / min_steps)
    return math.floor(math.log(units) / math.log(reduction_factor) + 1e-9)


@lru_cache(maxsize=64)
def rung_steps(max_steps: int, min_steps: int, reduction_factor: int) -> tuple[int, ...]:
    """Return the steps min_steps * eta**k below full training, then full training."""
    steps = []
    step = min_steps
    while step < max_steps:
        steps.append(step)
        step *= reduction_factor
    return (*steps, max_steps)


@dataclass(slots=True)
class NotPromotedTrials:
    """State of `NotPromoted`."""

    sign: float
    waiting: list[tuple[float, int]] = field(default_factory=list)  # (loss, trial), best first
    losses: dict[int, float] = field(default_factory=dict)  # {trial: loss at the step}; inf: no loss was reported
    ordered: dict[int, int] = field(default_factory=dict)  # {trial: the last step that was ordered}


@dataclass(frozen=True, slots=True)
class NotPromoted:
    """The trials that reported a loss at `step` and were never ordered beyond it, best first."""

    step: int

    def start(self, definition: StudyDefinition) -> NotPromotedTrials:
        return NotPromotedTrials(definition.sign)

    def absorb(self, state: NotPromotedTrials, entry: Entry) -> NotPromotedTrials:
        if isinstance(entry, Order):
            was = state.ordered.get(entry.trial, 0)
            state.ordered[entry.trial] = max(was, entry.until)
            if was <= self.step < entry.until and math.isfinite(loss := state.losses.get(entry.trial, math.inf)):
                del state.waiting[bisect_left(state.waiting, (loss, entry.trial))]
        elif isinstance(entry, Receipt) and entry.step == self.step and entry.is_finished:
            if entry.trial in state.losses:
                return state  # a repeated step keeps its first loss
            has_loss = entry.status == "ok" and entry.value is not None
            state.losses[entry.trial] = state.sign * (entry.value or 0.0) if has_loss else math.inf
            if has_loss and state.ordered[entry.trial] <= self.step:
                insort(state.waiting, (state.losses[entry.trial], entry.trial))
        return state


def compare_race(
    step: int, sign: float, compared: int, rank: int, loss: float, last_kept: float, left: tuple[float, int] | None
) -> dict[str, Scalar]:
    """Describe for `why` a decision that promotes several trials, ranked by their values after `step`.

    Parameters
    ----------
    step : int
        The step at which they were ranked.
    sign : float
        As for `compare_losses`.
    compared : int
        Number of ranked trials.
    rank : int
        Rank of the chosen trial; 0 is the best.
    loss : float
        Its loss.
    last_kept : float
        Loss of the last trial that is promoted.
    left : (float, int), optional
        Loss and number of the best trial that is not promoted.

    Returns
    -------
    dict
        The entries for the `why` of the decision.
    """
    best_is: BestIs = "lowest" if sign > 0.0 else "highest"
    runner_up = () if left is None else (left[1], sign * left[0])
    why = compare(name_score(step), best_is, compared, sign * loss, *runner_up)
    return why | {"rank": rank, "last_kept_score": sign * last_kept}


def name_score(step: int) -> str:
    """Return the name of the score by which trials are ranked after `step`."""
    return f"value after step {step}"
