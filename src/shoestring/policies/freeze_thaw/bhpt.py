"""BHPT (budgeted hyper-parameter tuning): train the trial whose future is most useful to know; near the end, the best one.

Lu, Chiang, Sha, "Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532, Algorithm 1 with eq. 5 (BHPT) or
eq. 11 (BHPT-eps). The value Q is computed in `models.freeze_thaw.action_value`, the predicted curves in
`models.freeze_thaw.curve_posterior`.

    paper    here                  meaning                                                             unit
    B        budget                budget of the study                                                 steps, s, $
    r        ArmLimits.affordable  steps of an arm that the rest of the budget pays for                steps
    tau*     tau_star              steps until the predicted minimum of the best arm                   steps
    c_hat    c_hat                 arm with the lowest expected minimum                                -
    Q        Q                     E min(best loss of this arm, expected best of the others)           loss
    eps      eps                   probability of c_hat in BHPT-eps; None: BHPT                        -

`why` holds, for the chosen arm, Q, VoI (the value of knowing its future), mu and sigma (mean and standard deviation of its
best value) and tau (steps until then); and, for the decision, c_hat, tau_star, r and committed.

The paper's ablations are settings: `commit=False` is Q alone, with `eps=0.5` it is Q-eps alone; `eps=1` is greedy.

**The default is not the method as printed; `printed=True` is.** Three things differ (`as_printed` below), and each is a setting:
- `falling`: curves have a prior mean that falls; in the paper it is constant (see `models.freeze_thaw.arm_curves`). Then a
  curve is best at its end, so the policy commits as soon as the rest of the budget is not longer than the rest of the best
  arm. If the whole budget is one full training or less, that holds for every order.
- `samples=1`: predictions come from one sample of the parameters, a new one for each receipt. So committed orders still
  explore, as in Thompson sampling. With the average of ten samples the first good arm would get the whole budget.
- `steps_per_arm`: no new arm is started if the budget has fewer than four steps for each arm. If first steps do not tell
  arms apart, every new arm looks as good as the trained ones, and first steps alone would use up the budget.

Differences from the paper:
- In time and money the horizon r of an arm is the rest of the budget divided by the mean price of its steps. An arm that
  was not trained gets the mean price of those that have. "Committed" compares tau* with r of the arm expected to be best.
- Several workers: an arm that is being trained cannot be chosen, and r counts only the part of the budget that is not
  reserved.
- A diverged or failed arm cannot be chosen; the model still uses its diverged loss as a bad one.
- When every arm is at its end, further configurations are drawn and trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.core.deciding.printed_form import as_printed
from shoestring.core.values.arrays import Floats, first_true
from shoestring.models.freeze_thaw.action_value import ValuePlan, plan_values
from shoestring.policies.freeze_thaw.arm_table import ARM_LABELS, ArmLimits, ArmsView, compute_limits, train_arm
from shoestring.policies.freeze_thaw.curve_policy import CurveForecast, CurvePolicy, mix
from shoestring.policy import (
    Decision,
    Labels,
    Ledger,
    Order,
    Why,
    WhyText,
    compare_losses,
    compare_scores,
    require_at_least,
    require_one_of,
    require_within,
)

# The paper names no number. The samples are averaged, so that Q is an expectation over the parameters too.
_PRINTED_SAMPLES = 10
_STEPS_PER_ARM = 4.0  # sequential halving would start about as many arms


@as_printed(samples=_PRINTED_SAMPLES, falling=False, steps_per_arm=0.0)
@dataclass(frozen=True, slots=True, kw_only=True)
class BHPT(CurvePolicy):
    name: ClassVar[str] = "bhpt"
    why_labels: ClassVar[Labels] = {
        **ARM_LABELS,
        "c_hat": "c_hat, trial that is expected to end best (number)",
        "committed": "whether the rest of the budget goes to the trial expected to end best",
        "mu": "mu, best value expected of the trial (value)",
        "Q": "Q, best value expected once the trial's future is known (value)",
        "r": "r, steps that the rest of the budget pays for (steps)",
        "sigma": "sigma, standard deviation of mu (value)",
        "tau": "tau, steps until the trial is at its best (steps)",
        "tau_star": "tau_star, steps until the best trial is at its best (steps)",
        "VoI": "VoI, expected improvement from knowing the trial's future (value)",
    }
    samples: int = 1
    falling: bool = True
    printed: bool = False
    steps_per_arm: float | None = None
    eps: float | None = None
    commit: bool = True

    def __post_init__(self) -> None:
        CurvePolicy.__post_init__(self)
        require_at_least(self, "steps_per_arm", 0.0, "it is a number of steps; 0: no limit", "Try 4.", optional=True)
        require_one_of(self, "commit", (True, False))
        require_within(self, "eps", 0.0, 1.0, "it is a probability; None is plain BHPT", "Try 0.5.", optional=True)

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if self.eps is None and ledger.open_orders and not ledger.state.receipts and not ledger.queue:
            # Before the first receipt all arms that are not being trained have the same prediction, so the next one is
            # trained without computing it.
            arms = ledger.view(ArmsView(self.arms))
            room = compute_limits(ledger, arms).room
            if room.any():
                arm = int(first_true(room > 0))
                return train_arm(ledger, arms, arm, why={"arm": arm}, memo=ledger.memo)
        return CurvePolicy.decide(self, ledger, rng)

    @staticmethod
    def describe_why(order: Order) -> WhyText:
        clause = "the rest of the budget goes to the trial expected to end best"
        return WhyText(clauses=(clause,) if order.why.get("committed") else ())

    def choose_arm(self, forecast: CurveForecast, limits: ArmLimits, rng: np.random.Generator) -> tuple[int, Why]:
        """Return the best arm once it needs the rest of the budget, else the arm whose future is most useful to know."""
        usual = _STEPS_PER_ARM if self.falling else 0.0
        limits = limits.without_new_arms_below(
            forecast.arms, usual if self.steps_per_arm is None else self.steps_per_arm
        )
        mean, variance = forecast.predict()  # (n_samples, n_arms, max_steps)
        plan = plan_values(mean, variance, forecast.arms.trained, limits.room)
        r = int(limits.affordable[plan.top_arm])
        committed = self.commit and plan.tau_star >= r
        arm = plan.top_arm if committed else plan.choose_arm(rng, self.eps)
        at = int(forecast.arms.trained[arm] + plan.tau[arm]) - 1
        mu, sigma = _describe(forecast, *mix(mean[:, arm, at], variance[:, arm, at]))
        by_gain = not committed and (arm != plan.top_arm or (self.eps is None and plan.gain[arm] > 0.0))
        return arm, {
            **_compare(forecast, plan, arm, by_gain),
            "c_hat": plan.top_arm,
            "committed": committed,
            "Q": forecast.to_value(float(plan.q[arm])),
            "VoI": float(plan.gain[arm]) * forecast.scaling.scale,
            "mu": mu,
            "sigma": sigma,
            "tau": int(plan.tau[arm]),
            "tau_star": plan.tau_star,
            "r": r,
        }


def _compare(forecast: CurveForecast, plan: ValuePlan, arm: int, by_gain: bool) -> Why:
    arms, scale = forecast.arms, forecast.scaling.scale
    if by_gain:
        name = "expected improvement from knowing the trial's future"
        return compare_scores(name, "highest", plan.gain, arm, arms.identify, in_unit=lambda gain: gain * scale)
    name = "expected best value of the trial"
    return compare_losses(name, plan.mean, arm, arms.identify, sign=arms.sign, undo=forecast.scaling.undo)


def _describe(forecast: CurveForecast, mean: Floats, std: Floats) -> tuple[float, float]:
    """Return mean and standard deviation in the unit of the values."""
    centre, sigma = float(mean), float(std)
    width = abs(forecast.to_value(centre + sigma) - forecast.to_value(centre - sigma))
    return forecast.to_value(centre), width / 2.0
