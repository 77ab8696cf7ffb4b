"""Thrift: sequential halving and, where it helps, the largest expected improvement by a surrogate learned from other studies.

A small network (`models.thrift`) reads the whole study, with candidates that were not started. For each arm (a trial or a
candidate) it predicts the lowest loss in its next steps: at most twice as many as it has had, as far as the remaining budget
allows. The arm with the largest index is trained: a trial for as many steps as it has had, a candidate for its first step (its
first block of steps, if a full training has more than 50 steps).

    index = gain * share^0.5 / (price * steps^0.5)

    here    meaning                                                                             unit
    gain    expected improvement on the best loss so far, within the arm's reach                loss
    share   share of arms that were no better at the arm's last step; 0.5 for candidates        —
    price   price of a step of the arm relative to the mean; 1 if the budget is in steps        —
    steps   steps within reach                                                                  steps

The network was trained on other studies, never on this one, so it does not decide alone. It decides where it was shown to help
(docs/explanation/learned-surrogate.md): with budgets of seven to forty full trainings and, under a budget of time or money,
steps of a second or more. Sequential halving decides everything else, and the first part of such a budget too: 75 % over the root
of the number of full trainings. Setting `opening` always enables the network.

Because of `share`, arms that are far behind are not trained for a small probability of a large gain. Expected improvement does
not account for the many steps that a distant gain takes: where all arms look alike, each would get a few steps and none enough.
So an arm is trained only if sequential halving would still have budget for it.

Trials of one step are left to sequential halving, which then is quasi-random search. Under a budget of time the network's own
time is charged; where a pass is expensive compared with an order, it decides several orders (`plan`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.core.deciding.prediction import BEST_VALUE_BY_STEP, put_first
from shoestring.core.values.arrays import Floats
from shoestring.models.thrift.features import is_in_race, rank_share
from shoestring.models.thrift.lowest_losses import LowestLosses, predict_lowest_losses
from shoestring.models.thrift.network import Network, load_shipped_networks, to_single_precision
from shoestring.policies.halving.sequential_halving import SequentialHalving
from shoestring.policies.thrift.candidates import MIN_CANDIDATES
from shoestring.policies.thrift.network_input import NetworkInput, make_network_input
from shoestring.policies.thrift.plan import (
    choose_arms,
    count_orders_due,
    is_clear,
    make_plan_memo,
    next_planned_order,
)
from shoestring.policy import (
    Config,
    Decision,
    Labels,
    Ledger,
    Order,
    Prediction,
    Train,
    Wait,
    Why,
    compare_scores,
    continue_trial,
    require_at_least,
    require_share,
    sort_best_first,
    start_trial,
)

MIN_CURVES = 7.0  # with a smaller budget sequential halving is as good, and safer
OPENING = 0.75  # over the root of the number of full trainings: share of the budget for sequential halving at first
GROWTH = 1.0  # steps of an order, as a share of the steps that the arm has had
HORIZON = 2.0  # further steps that the network predicts, at most, as a multiple of the steps that the arm has had
SHARE_POWER = 0.5  # power of the share of arms that were no better
STEPS_POWER = 0.5  # power of the steps within reach, by which the expected improvement is divided
CHANCE_POWER = 1.4  # power of the network's probabilities: above 1 they are narrower than it was trained to make them
CANDIDATES_PER_CURVE = 25.0  # trials and candidates for each full training in the budget
MAX_CANDIDATES = 100
_SCORE = "expected improvement per price, weighted by the share of trials that were no better"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thrift:
    # share of the budget that sequential halving spends first; a number enables the network in any study
    opening: float | None = None
    # orders for one pass of the network; None: 1, or as many as keep its time below 5 % of the time for training
    orders_per_pass: int | None = None
    # the network does not decide if the budget pays for more full trainings than this
    most_curves: float = 40.0
    # under a budget of time or money, the network does not decide if steps are quicker than this (s)
    quickest_step_s: float = 1.0
    name: ClassVar[str] = "thrift"
    base_rule: ClassVar[SequentialHalving] = SequentialHalving()
    why_labels: ClassVar[Labels] = {
        **SequentialHalving.why_labels,
        "chance_to_beat_best": "probability of beating the best value so far (probability)",
        "expected_end": "value expected at the end of the trial (value)",
        "expected_gain": "expected improvement (value)",
        "reach": "steps of it that the rest of the budget pays for (steps)",
    }
    describe_why = staticmethod(SequentialHalving.describe_why)

    def __post_init__(self) -> None:
        if self.opening is not None:
            require_share(self, "opening", "it is a share of the budget", "Leave it out.")
        if self.orders_per_pass is not None:
            require_at_least(self, "orders_per_pass", 1, "a pass must decide an order", "Leave it out.")
        require_at_least(self, "most_curves", 0.0, "it is a number of full trainings", "Try 40.")
        require_at_least(self, "quickest_step_s", 0.0, "it is the time of a step in seconds", "Try 1.")

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        is_enabled = ledger.max_steps > 1 and self._is_in_scope(ledger)
        if not is_enabled or ledger.queue or not self._is_opening_over(ledger):
            decision = self.base_rule.decide(ledger, rng)
            if not (is_enabled and isinstance(decision, Wait)):  # the network has work for a worker that would wait
                return decision
        if (planned := next_planned_order(ledger)) is not None:
            return planned
        inputs = self._make_input(ledger)
        if not inputs.has_losses or not inputs.can_train.any():
            return self.base_rule.decide(ledger, rng)
        return self._decide_by_network(ledger, inputs.within(HORIZON))

    def _is_in_scope(self, ledger: Ledger) -> bool:
        """Return whether the network was shown to help in studies like this one."""
        if self.opening is not None:
            return True
        state = ledger.state
        is_quick = state.budget.unit != "epochs" and state.step_seconds < self.quickest_step_s * len(state.step_costs)
        return not is_quick and MIN_CURVES <= self._count_curves(ledger) <= self.most_curves

    def _is_opening_over(self, ledger: Ledger) -> bool:
        """Return whether sequential halving has had its first part of the budget."""
        share = OPENING / math.sqrt(self._count_curves(ledger)) if self.opening is None else self.opening
        return ledger.spent + ledger.reserved >= share * ledger.budget.total

    def _count_curves(self, ledger: Ledger) -> float:
        """Return the number of full trainings that the budget pays for; 1 before a price is known."""
        price = ledger.step_price()
        return ledger.budget.total / (price * ledger.max_steps) if price > 0 else 1.0

    def _make_input(self, ledger: Ledger) -> NetworkInput:
        candidates = round(CANDIDATES_PER_CURVE * self._count_curves(ledger)) - len(ledger.trials)
        return make_network_input(ledger, min(MAX_CANDIDATES, max(MIN_CANDIDATES, candidates)))

    def _networks(self) -> tuple[Network, ...]:
        return load_shipped_networks()

    def _decide_by_network(self, ledger: Ledger, inputs: NetworkInput) -> Train:
        networks = self._networks()
        lowest = predict_lowest_losses(to_single_precision(networks), inputs.arms, CHANCE_POWER)
        index, count = _weigh(inputs, lowest), self.orders_per_pass or count_orders_due(ledger)
        if not is_clear(index, count):  # single precision cannot tell which is the largest
            lowest = predict_lowest_losses(networks, inputs.arms, CHANCE_POWER)
            index = _weigh(inputs, lowest)
        (chosen, until), *others = [(arm, _next_stop(inputs, arm)) for arm in choose_arms(index, count)]
        memo = make_plan_memo(ledger, inputs, others, count)
        why = _explain(ledger, inputs, lowest, index, chosen)
        if chosen < inputs.trials:
            return continue_trial(ledger.trials[chosen], until, why=why, memo=memo)
        return start_trial(ledger, inputs.config(chosen), until, why=why, memo=memo)

    def predict(self, ledger: Ledger, order: Order) -> Prediction | None:
        """Return the predicted lowest losses of the arms with the largest index, by further steps."""
        if "expected_end" not in order.why:
            return None  # sequential halving or an earlier pass of the network decided
        networks, inputs = self._networks(), self._make_input(ledger).within(HORIZON)
        if (chosen := inputs.find(order)) is None:
            return None
        index = _weigh(inputs, predict_lowest_losses(networks, inputs.arms, CHANCE_POWER))
        ranked = sort_best_first(index, "highest", int(np.count_nonzero(index > -math.inf)))
        curves = inputs.predict_curves(ledger, put_first(ranked, chosen), networks, CHANCE_POWER)
        return Prediction(curves, BEST_VALUE_BY_STEP)


def _weigh(inputs: NetworkInput, lowest: LowestLosses) -> Floats:
    """Return the index of each arm, (K,), -inf for an arm that must not be trained."""
    share, can_train = rank_share(inputs.arms), inputs.can_train
    if (racing := can_train & is_in_race(inputs.arms, np.where(can_train, share, -1.0))).any():
        can_train = racing
    cost = inputs.arms.price * np.maximum(inputs.arms.reach, 1) ** STEPS_POWER
    return np.where(can_train, lowest.gain * share**SHARE_POWER / cost, -math.inf)


def _next_stop(inputs: NetworkInput, arm: int) -> int:
    """Return the step up to which the arm is trained: as many more steps as it has had, within its reach."""
    steps = int(inputs.steps[arm])
    more = max(math.ceil(inputs.curves.steps_per_block), int(GROWTH * steps))
    return steps + min(more, int(inputs.reach[arm]))


def _explain(ledger: Ledger, inputs: NetworkInput, lowest: LowestLosses, index: Floats, chosen: int) -> Why:
    """Return the numbers behind a choice, rounded, because the last digits differ from machine to machine."""

    def name(arm: int) -> int | Config:
        return arm if arm < inputs.trials else inputs.config(arm)

    compared = compare_scores(_SCORE, "highest", index, chosen, name, in_unit=_round)
    return compared | {
        "expected_end": _round(ledger.definition.sign * float(lowest.median[chosen])),
        "chance_to_beat_best": round(float(lowest.chance_better[chosen]), 2),
        "expected_gain": _round(float(lowest.gain[chosen])),
        "reach": int(inputs.reach[chosen]),
    }


def _round(number: float) -> float:
    return float(f"{number:.3g}")
