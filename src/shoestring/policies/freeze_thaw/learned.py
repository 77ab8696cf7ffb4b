"""BHPT's rule with a learned surrogate: Q, the commitment and eps are those of the paper; a network makes the predictions.

The network of `models.thrift` predicts the whole distribution of nu, the lowest loss of an arm within the steps that the
rest of the budget pays for. So Q needs no Gaussian: E min(nu, mu of the others) is a sum over bins. A second query about the
best arm with fewer steps gives tau*: the fewest steps after which its expected lowest loss is that at its end.

    bhpt        here                        meaning                                                             unit
    nu          LowestLosses.chances        lowest loss within reach, in 100 bins                               loss
    mu, sigma   mean, std                   moments of nu; the typical first loss replaces all losses above it  loss
    tau*        count_steps_to_best         steps until the expected lowest loss of the best arm is reached     steps
    r           affordable                  steps of the best arm that the rest of the budget pays for          steps

The arms are the trials of the study and configurations that could be started, as in `thrift`. Before the first loss the
network has no input, and the first of these configurations is started.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from shoestring.core.deciding.prediction import BEST_VALUE_BY_STEP, put_first
from shoestring.core.values.arrays import Floats, first_true
from shoestring.models.freeze_thaw.action_value import ValuePlan
from shoestring.models.thrift.lowest_losses import LowestLosses, predict_lowest_losses, predict_with_reach
from shoestring.models.thrift.network import load_shipped_networks
from shoestring.policies.thrift.network_input import NetworkInput, make_network_input
from shoestring.policy import (
    Config,
    Decision,
    Ledger,
    Order,
    Prediction,
    Train,
    Wait,
    Why,
    compare_losses,
    compare_scores,
    continue_trial,
    nothing_to_train,
    reaches,
    sort_best_first,
    start_trial,
)


@dataclass(frozen=True, slots=True)
class LearnedRule:
    """BHPT with the predictions of the network. The settings are those of BHPT; `arms` counts trials and candidates together."""

    arms: int | None
    eps: float | None
    commit: bool

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if ledger.queue:
            return start_trial(ledger, ledger.queue[0], 1, why={"queued": True})
        inputs = make_network_input(ledger, self._count_candidates(ledger))
        if not inputs.can_train.any():
            return _decide_without_choice(ledger, inputs)
        if not inputs.has_losses:
            first = int(np.flatnonzero(inputs.can_train)[0])
            return _train_arm(ledger, inputs, first, {})
        prediction = predict_lowest_losses(load_shipped_networks(), inputs.arms)
        plan, std = self._plan(prediction, inputs)
        r = int(inputs.affordable[plan.top_arm])
        plan = replace(plan, tau_star=self._count_steps_to_best(inputs, plan.top_arm))
        committed = self.commit and plan.tau_star >= r
        arm = plan.top_arm if committed else plan.choose_arm(rng, self.eps)
        by_gain = not committed and (arm != plan.top_arm or (self.eps is None and plan.gain[arm] > 0.0))
        sign = ledger.definition.sign
        why = {
            **_compare(inputs, plan, arm, by_gain, sign),
            "committed": committed,
            "Q": _round(sign * float(plan.q[arm])),
            "VoI": _round(float(plan.gain[arm])),
            "mu": _round(sign * float(plan.mean[arm])),
            "sigma": _round(float(std[arm])),
            "tau_star": plan.tau_star,
            "r": r,
        }
        return _train_arm(ledger, inputs, arm, why)

    def predict(self, ledger: Ledger, order: Order) -> Prediction | None:
        """Return the lowest values that the arms with the lowest means are expected to reach, by their number of steps."""
        if "mu" not in order.why:
            return None
        inputs = make_network_input(ledger, self._count_candidates(ledger))
        mean = self._plan(predict_lowest_losses(load_shipped_networks(), inputs.arms), inputs)[0].mean
        chosen = inputs.find(order)
        if chosen is None:
            return None
        ranked = sort_best_first(mean, "lowest", int(np.count_nonzero(np.isfinite(mean))))
        return Prediction(
            inputs.predict_curves(ledger, put_first(ranked, chosen), load_shipped_networks(), 1.0), BEST_VALUE_BY_STEP
        )

    def _count_candidates(self, ledger: Ledger) -> int:
        rows = ledger.space.rows
        most = self.arms if self.arms is not None else 100 if rows is None else len(rows)
        return max(1, most - len(ledger.trials))

    def _plan(self, prediction: LowestLosses, inputs: NetworkInput) -> tuple[ValuePlan, Floats]:
        """Return the values of the arms, without tau*, and the standard deviations of nu (K,)."""
        losses = prediction.losses
        mean = np.where(inputs.can_train, prediction.chances @ losses, math.inf)
        std = np.sqrt(np.maximum(prediction.chances @ losses**2 - (prediction.chances @ losses) ** 2, 0.0))
        order = sort_best_first((mean - prediction.scale.best) / prediction.scale.unit, "lowest", 2)
        top = int(order[0])
        ref = np.full(len(mean), mean[top])
        ref[top] = mean[order[1]] if len(mean) > 1 else math.inf
        q = np.einsum("ab,ab->a", prediction.chances, np.minimum(losses, ref[:, None]))
        gain = np.where(inputs.can_train, np.maximum(np.minimum(mean, ref) - q, 0.0), -math.inf)
        q = np.where(inputs.can_train, q, math.inf)
        return ValuePlan(q=q, gain=gain, mean=mean, tau=inputs.reach, top_arm=top, tau_star=0), std

    def _count_steps_to_best(self, inputs: NetworkInput, arm: int) -> int:
        """Return tau* in steps of the training. The network is queried for all numbers of steps that it can tell apart."""
        reach = np.arange(1, inputs.arms.reach[arm] + 1)
        queried = predict_with_reach(load_shipped_networks(), inputs.arms, arm, reach)
        lowest = np.minimum.accumulate(queried.chances @ queried.losses)
        steps = int(first_true(reaches(-lowest, -lowest[-1], spread=queried.scale.unit))) + 1
        return min(math.ceil(steps * inputs.curves.steps_per_block), int(inputs.reach[arm]))


def _decide_without_choice(ledger: Ledger, inputs: NetworkInput) -> Decision:
    """Return the decision if no arm can be trained: all are being trained, the budget is spent, or nothing is left to train."""
    if ledger.open_orders:
        return Wait()
    if len(inputs.pool.points):
        # too expensive: the ledger refuses the order, and the study ends because its budget is spent
        return _train_arm(ledger, inputs, inputs.trials, {})
    return nothing_to_train(ledger, "every configuration of the space was trained to its end")


def _train_arm(ledger: Ledger, inputs: NetworkInput, arm: int, why: Why) -> Train:
    if arm < inputs.trials:
        trial = ledger.trials[arm]
        return continue_trial(trial, trial.steps + 1, why=why)
    return start_trial(ledger, inputs.config(arm), 1, why=why)


def _compare(inputs: NetworkInput, plan: ValuePlan, arm: int, by_gain: bool, sign: float) -> Why:
    def name(one: int) -> int | Config:
        return one if one < inputs.trials else inputs.config(one)

    if by_gain:
        score = "expected improvement from knowing the trial's future"
        return compare_scores(score, "highest", plan.gain, arm, name, in_unit=_round)
    score = "expected best value of the trial"
    return compare_losses(score, plan.mean, arm, name, sign=sign, undo=lambda loss: np.asarray(_round(float(loss))))


def _round(number: float) -> float:
    """Return the number rounded to three digits, since further digits differ between machines."""
    return float(f"{number:.3g}")
