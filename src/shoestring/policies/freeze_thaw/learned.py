"""BHPT's rule on the learned belief: Q, the commitment and eps as in the paper, where a network says how curves end.

The network of `models.thrift` gives the whole distribution of nu, the lowest loss of an arm within what the money left buys
of it. So Q needs no Gaussian: E min(nu, mu of the others) is a sum over bins. tau* is found by asking once more about the
best arm with fewer steps: the fewest after which its expected lowest loss is within `tolerance` of that at its end.

    bhpt        here                  meaning                                                                   unit
    nu          Belief.chances        lowest loss within reach, in 100 bins                                     loss
    mu, sigma   mean, std             of nu; a loss above the typical first one counts as that                  loss
    tau*        count_steps_to_best   steps after which the best arm is expected to be at its lowest            steps
    r           buys                  steps that all the money left would buy of the best arm                   steps

Arms are the study's trials and configs that might be opened, as in `thrift`. Before the first loss there is nothing to
read, and the first of those is opened.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from shoestring.core.deciding.comparison import compare_losses, compare_scores
from shoestring.core.deciding.decision import Decision, Train, Wait, Why
from shoestring.core.deciding.policy import nothing_to_buy, train_further, train_new
from shoestring.core.deciding.prediction import BEST_BY_THEN, Believed, put_first
from shoestring.core.deciding.reproducible import reaches, sort_best_first
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config
from shoestring.core.values.arrays import Floats, first_true
from shoestring.models.freeze_thaw.action_value import ValuePlan
from shoestring.models.thrift.belief import Belief, believe, believe_with_reach
from shoestring.models.thrift.network import shipped
from shoestring.policies.thrift.arms import Scene, look


@dataclass(frozen=True, slots=True)
class LearnedRule:
    """Settings as in BHPT; `arms`: trials and candidates in all."""

    arms: int | None
    eps: float | None
    commit: bool
    tolerance: float
    past_best: bool

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if ledger.queue:
            return train_new(ledger, ledger.queue[0], 1, why={"queued": True})
        scene = look(ledger, self._count_candidates(ledger))
        if not scene.can_buy.any():
            return _settle(ledger, scene)
        if not scene.is_told:
            first = int(np.flatnonzero(scene.can_buy)[0])
            return _buy(ledger, scene, first, {})
        belief = believe(shipped(), scene.arms)
        plan, std = self._plan(belief, scene)
        r = int(scene.affordable[plan.top_arm])
        plan = replace(plan, tau_star=self._count_steps_to_best(scene, plan.top_arm))
        committed = self.commit and plan.tau_star >= r
        arm = plan.top_arm if committed else plan.choose_arm(rng, self.eps)
        by_gain = not committed and (arm != plan.top_arm or (self.eps is None and plan.gain[arm] > 0.0))
        sign = ledger.opened.sign
        why = {
            **_compare(scene, plan, arm, by_gain, sign),
            "committed": committed,
            "Q": _round(sign * float(plan.q[arm])),
            "VoI": _round(float(plan.gain[arm])),
            "mu": _round(sign * float(plan.mean[arm])),
            "sigma": _round(float(std[arm])),
            "tau_star": plan.tau_star,
            "r": r,
        }
        return _buy(ledger, scene, arm, why)

    def believe(self, ledger: Ledger, order: Order) -> Believed | None:
        """How low the arms with the lowest mean can get, the longer they are trained."""
        if "mu" not in order.why:
            return None
        scene = look(ledger, self._count_candidates(ledger))
        mean = self._plan(believe(shipped(), scene.arms), scene)[0].mean
        bought = scene.find(order)
        if bought is None:
            return None
        ranked = sort_best_first(mean, "lowest", int(np.count_nonzero(np.isfinite(mean))))
        return Believed(scene.tell(ledger, put_first(ranked, bought), shipped(), 1.0), BEST_BY_THEN)

    def _count_candidates(self, ledger: Ledger) -> int:
        rows = ledger.space.rows
        most = self.arms if self.arms is not None else 100 if rows is None else len(rows)
        return max(1, most - len(ledger.trials))

    def _plan(self, belief: Belief, scene: Scene) -> tuple[ValuePlan, Floats]:
        """What a choice needs, without tau*; and the standard deviation of nu (K,)."""
        losses = belief.losses
        mean = np.where(scene.can_buy, belief.chances @ losses, math.inf)
        std = np.sqrt(np.maximum(belief.chances @ losses**2 - (belief.chances @ losses) ** 2, 0.0))
        order = sort_best_first((mean - belief.scale.best) / belief.scale.unit, "lowest", 2)
        top = int(order[0])
        ref = np.full(len(mean), mean[top])
        ref[top] = mean[order[1]] if len(mean) > 1 else math.inf
        if self.past_best:
            ref = np.minimum(ref, belief.scale.best)
        q = np.einsum("ab,ab->a", belief.chances, np.minimum(losses, ref[:, None]))
        gain = np.where(scene.can_buy, np.maximum(np.minimum(mean, ref) - q, 0.0), -math.inf)
        q = np.where(scene.can_buy, q, math.inf)
        return ValuePlan(q=q, gain=gain, mean=mean, tau=scene.reach, top_arm=top, tau_star=0), std

    def _count_steps_to_best(self, scene: Scene, arm: int) -> int:
        """In real steps; the belief is asked about all numbers of steps that it can tell apart."""
        reach = np.arange(1, scene.arms.reach[arm] + 1)
        asked = believe_with_reach(shipped(), scene.arms, arm, reach)
        lowest = np.minimum.accumulate(asked.chances @ asked.losses)
        allowed = lowest[-1] + self.tolerance * (lowest[0] - lowest[-1])
        seen = int(first_true(reaches(-lowest, -allowed, spread=asked.scale.unit))) + 1
        return min(math.ceil(seen * scene.curves.block), int(scene.reach[arm]))


def _settle(ledger: Ledger, scene: Scene) -> Decision:
    """Nothing can be bought: others are being trained, the money is spent, or there is nothing left to train."""
    if ledger.open_orders:
        return Wait()
    if len(scene.pool.points):  # too dear: the ledger refuses, and the study ends because its budget does
        return _buy(ledger, scene, scene.trials, {})
    return nothing_to_buy(ledger, "every config of the space was trained to its end")


def _buy(ledger: Ledger, scene: Scene, arm: int, why: Why) -> Train:
    if arm < scene.trials:
        trial = ledger.trials[arm]
        return train_further(trial, trial.steps + 1, why=why)
    return train_new(ledger, scene.config(arm), 1, why=why)


def _compare(scene: Scene, plan: ValuePlan, arm: int, by_gain: bool, sign: float) -> Why:
    def name(one: int) -> int | Config:
        return one if one < scene.trials else scene.config(one)

    if by_gain:
        score = "improvement to expect from knowing the run's future"
        return compare_scores(score, "highest", plan.gain, arm, name, in_unit=_round)
    score = "value expected at the run's best"
    return compare_losses(score, plan.mean, arm, name, sign=sign, undo=lambda loss: np.asarray(_round(float(loss))))


def _round(number: float) -> float:
    """The last digits differ from machine to machine."""
    return float(f"{number:.3g}")
