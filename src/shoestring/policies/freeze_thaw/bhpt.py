"""BHPT (budgeted hyper-parameter tuning): a step of the run whose future is worth knowing most; short of money, of the best.

Lu, Chiang, Sha, "Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532, Algorithm 1 with eq. 5 (BHPT) or
eq. 11 (BHPT-eps). The value Q is computed in `models.freeze_thaw.action_value`, the belief in `models.freeze_thaw.belief`.

    paper    here         meaning                                                                      unit
    B        budget       what the study may spend                                                     steps, s, $
    r        Reach.buys   steps that all the money left would buy of an arm                            steps
    tau*     tau_star     steps after which the best arm is expected to be at its best                 steps
    c_hat    c_hat        arm whose expected best is lowest                                            —
    Q        Q            E min(best of this arm, expected best of the others)                         loss
    eps      eps          probability of c_hat in BHPT-eps; None: BHPT                                 —

`why` tells of the arm bought: Q, VoI (what knowing its future is worth), mu and sigma (its expected best and how sure
that is, in the unit of the values) and tau (steps until then); and of the moment: c_hat, tau_star, r, committed.

Ablations are settings: `commit=False` is Q alone, with `eps=0.5` Q-eps alone; `eps=1` is greedy.

**The default is not the method as printed; `printed=True` is.** Three things differ, each a setting of its own:
- `falling`: curves have a prior mean that falls, where the paper's stays (see `models.freeze_thaw.curves`). A curve is then
  best at its end, so the rule of commitment fires as soon as what is left is no longer than the best arm's rest: at once,
  and to the last order, where the whole budget is one full training or less.
- `samples=1`: what is expected comes from one draw of the parameters, a fresh one for each receipt, so that committed orders
  still explore, as Thompson sampling does. Averaged over ten draws the first good arm would keep the money.
- `steps_per_arm`: no new arm is begun once the budget buys fewer than four steps for each. Where first steps tell nothing,
  every arm not yet seen looks as good as those seen, and looks alone would use up the money.

Departs from the paper:
- In time and money an arm's horizon r is what is left divided by the arm's own mean price of a step; an arm that has not
  run is priced at the mean of those that have. "Committed" compares tau* with the r of the arm expected to be best.
- Several workers: an arm that is being trained is left out of the choice, and r counts only what is not reserved.
- A diverged or failed arm is out; its diverged loss stays in the belief as a bad one.
- `tolerance` (off) lets the best arm count as done once only that share of its expected progress is missing; without it
  a curve expected to fall for ever commits at once.
- `past_best` (off) counts only what would be lower than the best loss so far; Q as printed looks forward alone.
- When every arm is at its end, further configs are drawn and trained.
- `belief="learned"` puts the rule on what a network has learned from other studies: see `learned`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal

import numpy as np

from shoestring.core.deciding.comparison import compare_losses, compare_scores
from shoestring.core.deciding.decision import Decision, Why
from shoestring.core.deciding.prediction import Believed
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.arrays import Floats, first_true
from shoestring.core.values.checks import require_at_least, require_one_of, require_share, require_within
from shoestring.models.freeze_thaw.action_value import ValuePlan, plan_values
from shoestring.policies.freeze_thaw.arms import ArmsView, Reach, buy_steps, measure_reach
from shoestring.policies.freeze_thaw.curve_policy import CurvePolicy, Outlook, mix

_PRINTED_SAMPLES = 10  # the paper names no number; averaged, so that its Q is an expectation over the parameters too
_STEPS_PER_ARM = 4.0  # as many arms as sequential halving would begin


@dataclass(frozen=True, slots=True, kw_only=True)
class BHPT(CurvePolicy):
    name: ClassVar[str] = "bhpt"
    samples: int = 1
    falling: bool = True
    printed: bool = False
    steps_per_arm: float | None = None
    eps: float | None = None
    commit: bool = True
    tolerance: float = 0.0
    past_best: bool = False
    belief: Literal["freeze_thaw", "learned"] = "freeze_thaw"

    def __post_init__(self) -> None:
        require_one_of(self, "printed", (True, False))
        if self.printed:
            object.__setattr__(self, "samples", _PRINTED_SAMPLES)
            object.__setattr__(self, "falling", False)
        CurvePolicy.__post_init__(self)
        require_one_of(self, "belief", ("freeze_thaw", "learned"))
        require_at_least(self, "steps_per_arm", 0.0, "it is a number of steps; 0: no limit", "Try 4.", optional=True)
        require_within(self, "eps", 0.0, 1.0, "it is a probability; None is plain BHPT", "Try 0.5.", optional=True)
        require_share(self, "tolerance", "it is a share of the progress to come", "Try 0.05.", may_be_one=False)

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if self.belief == "learned":
            decision: Decision = self._learned_rule().decide(ledger, rng)
            return decision
        if self.eps is None and ledger.open_orders and not ledger.books.receipts and not ledger.queue:
            # Nothing is known, so all arms that are not under way promise the same: the next one, without a belief.
            arms = ledger.view(ArmsView(self.arms))
            room = measure_reach(ledger, arms).room
            if room.any():
                arm = int(first_true(room > 0))
                return buy_steps(ledger, arms, arm, why={"arm": arm}, memo=ledger.memo)
        return CurvePolicy.decide(self, ledger, rng)

    def believe(self, ledger: Ledger, order: Order) -> Believed | None:
        if self.belief == "learned":
            believed: Believed | None = self._learned_rule().believe(ledger, order)
            return believed
        return CurvePolicy.believe(self, ledger, order)

    def _learned_rule(self) -> Any:
        # Found late: whoever reads or runs the paper's belief needs neither the network nor what thrift has around it.
        learned = import_module("shoestring.policies.freeze_thaw.learned")
        return learned.LearnedRule(self.arms, self.eps, self.commit, self.tolerance, self.past_best)

    def choose_arm(self, outlook: Outlook, reach: Reach, rng: np.random.Generator) -> tuple[int, Why]:
        """Algorithm 1: the best arm once it needs all that is left, else the one whose future is most worth knowing."""
        usual = _STEPS_PER_ARM if self.falling else 0.0
        reach = reach.spread_over(outlook.arms, usual if self.steps_per_arm is None else self.steps_per_arm)
        mean, variance = outlook.predict()  # (n_samples, n_arms, max_steps)
        best = outlook.best_scaled_loss if self.past_best else math.inf
        plan = plan_values(mean, variance, outlook.arms.trained, reach.room, self.tolerance, best)
        r = int(reach.buys[plan.top_arm])
        committed = self.commit and plan.tau_star >= r
        arm = plan.top_arm if committed else plan.choose_arm(rng, self.eps)
        at = int(outlook.arms.trained[arm] + plan.tau[arm]) - 1
        mu, sigma = _describe(outlook, *mix(mean[:, arm, at], variance[:, arm, at]))
        by_gain = not committed and (arm != plan.top_arm or (self.eps is None and plan.gain[arm] > 0.0))
        return arm, {
            **_compare(outlook, plan, arm, by_gain),
            "c_hat": plan.top_arm,
            "committed": committed,
            "Q": outlook.to_value(float(plan.q[arm])),
            "VoI": float(plan.gain[arm]) * outlook.scaling.scale,
            "mu": mu,
            "sigma": sigma,
            "tau": int(plan.tau[arm]),
            "tau_star": plan.tau_star,
            "r": r,
        }


def _compare(outlook: Outlook, plan: ValuePlan, arm: int, by_gain: bool) -> Why:
    arms, scale = outlook.arms, outlook.scaling.scale
    if by_gain:
        name = "improvement to expect from knowing the run's future"
        return compare_scores(name, "highest", plan.gain, arm, arms.say, in_unit=lambda gain: gain * scale)
    name = "value expected at the run's best"
    return compare_losses(name, plan.mean, arm, arms.say, sign=arms.sign, undo=outlook.scaling.undo)


def _describe(outlook: Outlook, mean: Floats, std: Floats) -> tuple[float, float]:
    """Mean and standard deviation in the unit of the values."""
    centre, sigma = float(mean), float(std)
    # the way back to values need not be linear: half the width of the interval of one sigma either side
    width = abs(outlook.to_value(centre + sigma) - outlook.to_value(centre - sigma))
    return outlook.to_value(centre), width / 2.0
