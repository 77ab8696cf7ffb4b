"""Value of the next step of each arm: the best loss to expect if the future of that arm were known.

Lu, Chiang, Sha, "Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532, eq. 5-8, 10, 11 and Algorithm 1.

    paper      here           meaning                                                                 unit
    n_k        trained        steps that arm k has been trained                                       steps
    r          -              steps left, including the one now decided: B - n + 1                    steps
    h_k        room           steps that arm k can still take: min(r, length of a curve - n_k)        steps
    nu_r^k     -              best loss of arm k in its next h_k steps, approximated by one Gaussian  loss
    tau_k      tau            steps from now to the smallest predicted mean                           steps
    mu, sigma  mean, std      mean and standard deviation of the curve at that step                   loss
    c_hat      top_arm        arm with the smallest mu                                                -
    Q          q              E min(nu_a, best mu of the other arms); smaller is better               loss
    VoI        gain           mu_1st - Q, the value of information                                    loss
    tau*       tau_star       tau of the top arm; the policy commits once it is r or more             steps
    eps        epsilon        probability of the top arm in BHPT-eps                                  -

Differences from the paper:
- r counts the step being decided (with r = B - n the last step has no horizon).
- The top arm is chosen with probability epsilon, as the text says, not 1 - epsilon as eq. 11 says (the same at 0.5).
- The first term of eq. 7 is mu_1st, which Appendix B misprints.
- With several parameter samples Q is averaged, and each sample has its own top arm. The top arm and tau* of the decision
  come from the averaged mean curves.
- Of equal arms or steps (`core.deciding.reproducible`) the first is chosen, except that the top arm is chosen when no arm
  has a positive value of information.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoestring.core.deciding.reproducible import find_best, find_best_of_rows, reaches
from shoestring.core.values.arrays import Floats, Indices, first_true
from shoestring.models.gp.acquisition import standard_expected_improvement


@dataclass(frozen=True, slots=True, eq=False)
class BestFutures:
    """Best future loss of each arm. Arrays are (..., n_arms); an arm that can take no step has mean inf, std 0, tau 0."""

    mean: Floats
    std: Floats
    tau: Indices


@dataclass(frozen=True, slots=True, eq=False)
class ActionValue:
    """Value of each arm: q and gain are (..., n_arms), inf and -inf for an arm that can take no step; top_arm is (...,)."""

    q: Floats
    gain: Floats
    top_arm: Indices


@dataclass(frozen=True, slots=True, eq=False)
class ValuePlan:
    """Values behind a decision, averaged over the parameter samples; arrays are (n_arms,)."""

    q: Floats
    gain: Floats
    mean: Floats  # expected best loss of each arm
    tau: Indices
    top_arm: int
    tau_star: int

    def choose_arm(self, rng: np.random.Generator, epsilon: float | None = None) -> int:
        """Return the arm to train for one step if the policy does not commit: eq. 5 (BHPT, epsilon None) or eq. 11 (BHPT-eps)."""
        if epsilon is not None and not 0.0 <= epsilon <= 1.0:
            raise ValueError(f"epsilon={epsilon} is a probability: 0 <= epsilon <= 1. The paper uses 0.5.")
        gain = self.gain
        if epsilon is not None:
            if rng.random() < epsilon:
                return self.top_arm
            gain = gain.copy()
            gain[self.top_arm] = -np.inf
        if not gain.max() > 0.0:
            return self.top_arm
        return find_best(gain, "highest")


def plan_values(mean: Floats, variance: Floats, trained: Indices, room: Indices) -> ValuePlan:
    """Return the values of all arms, from curves (n_samples, n_arms, n_steps) predicted at steps 1, 2, ...

    `trained` and `room` are (n_arms,): the steps that each arm has been trained, and how many more it can take.
    """
    if not (room > 0).any():
        raise ValueError(
            f"nothing to decide: room={room.tolist()} leaves no arm a step to take. Return Finish instead."
        )
    by_sample = find_best_futures(mean, variance, trained, room)
    value = value_actions(by_sample.mean, by_sample.std)
    averaged = mean.mean(axis=0)  # (n_arms, n_steps)
    if len(mean) == 1:  # the average of one sample is that sample
        of_average = BestFutures(by_sample.mean[0], by_sample.std[0], by_sample.tau[0])
    else:
        of_average = find_best_futures(averaged, variance[0], trained, room)
    top = find_best(of_average.mean, "lowest")
    return ValuePlan(
        q=value.q.mean(axis=0),
        gain=value.gain.mean(axis=0),
        mean=of_average.mean,
        tau=of_average.tau,
        top_arm=top,
        tau_star=count_steps_to_best(averaged[top, trained[top] : trained[top] + room[top]]),
    )


def find_best_futures(mean: Floats, variance: Floats, trained: Indices, room: Indices) -> BestFutures:
    """Return tau, mu and sigma within the horizon, from curves (..., n_arms, n_steps)."""
    step = np.arange(mean.shape[-1])
    begin, end = trained[:, None], (trained + room)[:, None]
    ahead = (step >= begin) & (step < end)  # (n_arms, n_steps)
    if np.isnan(mean[..., ahead]).any():
        raise ValueError(
            "mean is nan at a step still to come: `trained` must count all steps up to an arm's last loss."
        )
    at = find_best_of_rows(np.where(ahead, mean, np.inf), "lowest")[..., None]  # (..., n_arms, 1)
    live = ahead.any(axis=-1)
    mu = np.where(live, np.take_along_axis(mean, at, axis=-1)[..., 0], np.inf)
    sigma = np.where(live, np.sqrt(np.take_along_axis(variance, at, axis=-1)[..., 0]), 0.0)
    return BestFutures(mean=mu, std=sigma, tau=np.where(live, (at - begin)[..., 0] + 1, 0))


def value_actions(mean: Floats, std: Floats) -> ActionValue:
    """Return Q and the value of information of arms (..., n_arms) whose best future losses are N(mean, std^2).

    One expression covers both cases of the paper: E min(nu, ref) = min(mu, ref) - sigma h(-|ref - mu| / sigma), with
    h(s) = s Phi(s) + phi(s). The last term is the gain. Computed alone, it keeps its digits when all Q are nearly equal.
    """
    if np.isnan(mean).any() or not (std >= 0.0).all():
        raise ValueError("mean must not contain nan; std must not contain nan or a negative number.")
    top = find_best_of_rows(mean, "lowest")
    is_top = np.arange(mean.shape[-1]) == top[..., None]
    first = np.take_along_axis(mean, top[..., None], axis=-1)
    second = np.where(is_top, np.inf, mean).min(axis=-1, keepdims=True)
    ref = np.where(is_top, second, first)
    live = np.isfinite(mean)
    gap = np.where(live, np.abs(ref - np.where(live, mean, 0.0)), np.inf)
    # h is 0 in floating point below -39. The bound keeps -inf (a single arm, an arm without a step) from becoming nan.
    s = -np.minimum(gap / np.maximum(std, 1e-300), 40.0)
    gain = std * standard_expected_improvement(s)
    q = np.minimum(mean, ref) - gain
    return ActionValue(q=np.where(live, q, np.inf), gain=np.where(live, gain, -np.inf), top_arm=top)


def count_steps_to_best(curve: Floats) -> int:
    """Return the first step (1, 2, ...) at which the mean is smallest."""
    return int(first_true(reaches(-curve, -float(curve.min()), spread=float(np.ptp(curve))))) + 1
