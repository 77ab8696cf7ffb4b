"""Which paused curve gets the next step: the value of an arm is the best loss to expect if its future were known.

Lu, Chiang, Sha, "Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532, eq. 5-8, 10, 11 and Algorithm 1.

    paper      here           meaning                                                                 unit
    n_k        trained        steps already spent on arm k                                            steps
    r          —              steps still to spend, the one now decided included: B - n + 1           steps
    h_k        room           steps arm k can still take: min(r, length of a curve - n_k)             steps
    nu_r^k     —              best loss of arm k in its next h_k steps, taken as one Gaussian         loss
    tau_k      tau            steps from now to the smallest predicted mean                           steps
    mu, sigma  mean, std      mean and standard deviation of the curve at that step                   loss
    c_hat      top_arm        arm of smallest mu                                                      —
    Q          q              E min(nu_a, best mu of the other arms); smaller is better               loss
    VoI        gain           min(mu_1st, best_loss) - Q, the value of information                    loss
    tau*       tau_star       tau of the top arm; the policy commits once it is r or more             steps
    eps        epsilon        probability of the top arm in BHPT-eps                                  —
    zeta       best_loss      smallest loss seen so far (not in the paper's Q, so not by default)     loss

Departs from the paper: r counts the step being decided (with r = B - n the last step has no horizon); the top arm is taken
with probability epsilon, as the text says, not 1 - epsilon as eq. 11 does (the same at 0.5); eq. 7's first term is mu_1st,
which Appendix B misprints. With several parameter samples Q is averaged, each sample with its own top arm, and the top arm
and tau* come from the averaged mean curves. Of equal arms or steps (`core.choosing`) the first is taken, except that when no
arm has anything to tell the top arm is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from shoestring.core.deciding.reproducible import find_best, find_best_of_rows, reaches
from shoestring.core.values.arrays import Floats, Indices, first_true


@dataclass(frozen=True, slots=True, eq=False)
class BestFutures:
    """Best future of each arm. Arrays are (..., n_arms); an arm that can take no step has mean inf, std 0, tau 0."""

    mean: Floats
    std: Floats
    tau: Indices


@dataclass(frozen=True, slots=True, eq=False)
class ActionValue:
    """q and gain are (..., n_arms), inf and -inf for an arm that is out; top_arm is (...,)."""

    q: Floats
    gain: Floats
    top_arm: Indices


@dataclass(frozen=True, slots=True, eq=False)
class ValuePlan:
    """What a decision rests on, averaged over the parameter samples; arrays are (n_arms,)."""

    q: Floats
    gain: Floats
    mean: Floats  # expected best of each arm
    tau: Indices
    top_arm: int
    tau_star: int

    def choose_arm(self, rng: np.random.Generator, epsilon: float | None = None) -> int:
        """The arm to run for one step, unless the policy commits: eq. 5 (BHPT, epsilon None) or eq. 11 (BHPT-eps)."""
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


def plan_values(
    mean: Floats,
    variance: Floats,
    trained: Indices,
    room: Indices,
    tolerance: float = 0.0,
    best_loss: float = math.inf,
) -> ValuePlan:
    """Everything a choice needs, from curves (n_samples, n_arms, n_steps) predicted at steps 1, 2, ...

    trained and room are (n_arms,): the steps that each arm has taken, and how many more it can take.
    """
    if not (room > 0).any():
        raise ValueError(f"nothing to decide: room={room.tolist()} leaves no arm a step to take. Finish instead.")
    each = find_best_futures(mean, variance, trained, room)
    value = value_actions(each.mean, each.std, best_loss)
    averaged = mean.mean(axis=0)  # (n_arms, n_steps)
    if len(mean) == 1:  # its averaged curves are its own: no second look
        together = BestFutures(each.mean[0], each.std[0], each.tau[0])
    else:
        together = find_best_futures(averaged, variance[0], trained, room)
    top = find_best(together.mean, "lowest")
    return ValuePlan(
        q=value.q.mean(axis=0),
        gain=value.gain.mean(axis=0),
        mean=together.mean,
        tau=together.tau,
        top_arm=top,
        tau_star=count_steps_to_best(averaged[top, trained[top] : trained[top] + room[top]], tolerance),
    )


def find_best_futures(mean: Floats, variance: Floats, trained: Indices, room: Indices) -> BestFutures:
    """tau, mu, sigma within the horizon, from curves (..., n_arms, n_steps)."""
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


def value_actions(mean: Floats, std: Floats, best_loss: float = math.inf) -> ActionValue:
    """Q and the value of information of arms (..., n_arms) whose best futures are N(mean, std^2).

    One expression serves both cases of the paper: E min(nu, ref) = min(mu, ref) - sigma h(-|ref - mu| / sigma), with
    h(s) = s Phi(s) + phi(s). The last term is the gain; taken alone it keeps its digits when all Q are nearly equal.
    """
    if np.isnan(mean).any() or not (std >= 0.0).all():
        raise ValueError("mean must hold no nan, std no nan and nothing below 0.")
    top = find_best_of_rows(mean, "lowest")
    is_top = np.arange(mean.shape[-1]) == top[..., None]
    first = np.take_along_axis(mean, top[..., None], axis=-1)
    second = np.where(is_top, np.inf, mean).min(axis=-1, keepdims=True)
    ref = np.minimum(np.where(is_top, second, first), best_loss)
    live = np.isfinite(mean)
    gap = np.where(live, np.abs(ref - np.where(live, mean, 0.0)), np.inf)
    # h is 0 in floating point below -39; the bound keeps -inf (a lone arm, an arm that is out) from becoming nan
    s = -np.minimum(gap / np.maximum(std, 1e-300), 40.0)
    gain = std * np.maximum(s * ndtr(s) + np.exp(-0.5 * s**2) / math.sqrt(2.0 * math.pi), 0.0)
    q = np.minimum(mean, ref) - gain
    return ActionValue(q=np.where(live, q, np.inf), gain=np.where(live, gain, -np.inf), top_arm=top)


def count_steps_to_best(curve: Floats, tolerance: float = 0.0) -> int:
    """First step (1, 2, ...) whose mean is within `tolerance * (first mean - smallest mean)` of the smallest."""
    if not 0.0 <= tolerance < 1.0:
        raise ValueError(f"tolerance={tolerance} is a share of the progress to come: 0 <= tolerance < 1. Try 0.05.")
    smallest = float(curve.min())
    enough = smallest + tolerance * (float(curve[0]) - smallest)
    return int(first_true(reaches(-curve, -enough, spread=float(np.ptp(curve))))) + 1
