"""Fabolas on epochs: choose the trial and the length with the most information per cost about which full trial is best.

Klein et al., "Fast Bayesian Optimization of Machine Learning Hyperparameters on Large Datasets", arXiv:1605.07079, with the
length of training in place of the size of the data set, as Lu, Chiang, Sha, arXiv:1902.00532, Appendix E, adapt it.

    paper   here              meaning                                                            unit
    s       step / max_steps  length of training, an input of the surrogate like any other       -
    c       missing           cost: the steps that a trial still needs to reach that length      steps
    P_min   -                 probability of each representative to be best when fully trained   -
    -       lengths           allowed lengths, as shares of a full training                      -

Differences from the paper: the surrogate is a product of a kernel on configurations and one on length, fitted to the loss at
the end of each order. Candidates are a fixed set of arms, of which the 20 with the largest expected improvement at full length
are compared. The cost is linear in steps and known, not a second process. The first three arms are trained to the smallest
length. Information is estimated by counting draws (`models.gp.information_gain`). The method does not know the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.core.deciding.comparison import find_runner_up
from shoestring.core.deciding.prediction import put_first
from shoestring.core.values.arrays import Floats, Indices
from shoestring.errors import PolicyError
from shoestring.models.gp.acquisition import log_expected_improvement
from shoestring.models.gp.fit import carry_gp
from shoestring.models.gp.information_gain import information_gain
from shoestring.models.gp.kernels import Block, Kernel
from shoestring.models.gp.posterior import GP
from shoestring.models.loss_scaling import Scaling, fit_scaling, normal_quantile
from shoestring.policies.freeze_thaw.arm_table import (
    ARM_LABELS,
    REFITS,
    ArmLimits,
    ArmsView,
    ArmTable,
    compute_limits,
    decide_without_choice,
    train_arm,
)
from shoestring.policy import (
    LOG_SPREAD,
    CurvePrediction,
    Decision,
    Encoding,
    Labels,
    Ledger,
    Memo,
    Order,
    Prediction,
    compare_scores,
    find_best,
    require_whole,
    sort_best_first,
)

_FIRST_ARMS = 3  # fewer losses have no information about length-scales
_REPRESENTATIVES = 20  # arms compared at full length
_FANTASIES = 5  # simulated losses of a candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class FabolasEpochs:
    name: ClassVar[str] = "fabolas_epochs"
    why_labels: ClassVar[Labels] = {
        **ARM_LABELS,
        "first": "whether it is one of the first trials, before there is a model",
        "information": "information about which trial is best (nats)",
        "information_per_step": "information per step (nats/step)",
        "mu": "mu, value expected at this length (value)",
    }
    arms: int | None = None
    lengths: Sequence[float] = (0.125, 0.25, 0.5, 1.0)

    def __post_init__(self) -> None:
        require_whole(self, "arms", 1, "there must be arms to choose from", "Try 100.", optional=True)
        shares = list(self.lengths) if isinstance(self.lengths, Sequence) else self.lengths
        if not isinstance(shares, list) or not shares or not all(0.0 < share <= 1.0 for share in shares):
            raise PolicyError(
                f"FabolasEpochs(lengths={shares}) must be shares of a full training, above 0 and up to 1. "
                "Try 0.125, 0.25, 0.5, 1."
            )

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        arms = ledger.view(ArmsView(self.arms))
        limits = compute_limits(ledger, arms)
        if (decision := decide_without_choice(ledger, arms, limits)) is not None:
            return decision
        lengths = sorted({max(1, round(share * ledger.max_steps)) for share in self.lengths})
        started = ~np.isnan(arms.losses).all(axis=1)
        fresh = np.flatnonzero((limits.room > 0) & (arms.trained == 0))
        if len(fresh) and started.sum() < _FIRST_ARMS:
            steps = min(lengths[0], int(limits.room[fresh[0]]))
            return train_arm(ledger, arms, int(fresh[0]), steps, why={"first": True}, memo=ledger.memo)
        scale = fit_scaling(arms.losses, ~np.isnan(arms.losses))
        gp, memo = _fit_surrogate(ledger, arms, scale, ledger.memo)
        pairs = self._list_pairs(gp, scale, arms, limits, lengths)
        full = _encode(arms, np.unique(pairs[:, 0]), ledger.max_steps)
        n = len(full)
        mean, cov = gp.predict_joint(np.vstack([full, _encode(arms, pairs[:, 0], pairs[:, 1])]))
        variance = np.diagonal(cov)[n:] + gp.noise_variance
        gains = information_gain(mean[:n], cov[:n, :n], cov[:n, n:], variance, rng, _FANTASIES)
        missing = pairs[:, 1] - arms.trained[pairs[:, 0]]
        scores = gains / missing
        chosen = find_best(scores, "highest")
        arm = int(pairs[chosen, 0])
        name, others = "information about which trial is best (nats per step)", pairs[:, 0] != arm
        why = {
            **compare_scores(
                name, "highest", scores, chosen, lambda i: arms.identify(int(pairs[i, 0])), competitors=others
            ),
            "arm": arm,
            "information": float(gains[chosen]),
            "information_per_step": float(scores[chosen]),
            "mu": arms.sign * float(scale.undo(mean[n + chosen])),
        }
        return train_arm(ledger, arms, arm, int(missing[chosen]), why=why, memo=memo)

    def predict(self, ledger: Ledger, order: Order) -> Prediction | None:
        """Return the predicted curves of the chosen arm and of the arms that are best at full length."""
        if not order.why.get("compared"):
            return None
        arms, sign = ledger.view(ArmsView(self.arms)), ledger.definition.sign
        scale = fit_scaling(arms.losses, ~np.isnan(arms.losses))
        gp, _ = _fit_surrogate(ledger, arms, scale, order.memo)
        ranked = _rank(gp, scale, arms, compute_limits(ledger, arms))
        curves = []
        for arm in put_first(ranked, int(str(order.why["arm"])), find_runner_up(order.why, ranked, arms.identify)):
            steps = np.arange(arms.trained[arm] + 1, ledger.max_steps + 1)
            mean, variance = gp.predict(_encode(arms, np.full(len(steps), arm), steps))
            quantile = normal_quantile(mean, np.sqrt(variance + gp.noise_variance), scale.undo)
            curves.append(CurvePrediction.of(arms.trial_of[arm], arms.configs[arm], steps, quantile, sign))
        return Prediction(curves)

    def _list_pairs(self, gp: GP, scale: Scaling, arms: ArmTable, limits: ArmLimits, lengths: list[int]) -> Indices:
        """Return pairs (n, 2) of an arm and an affordable length, for the arms that are best at full length."""
        found = []
        for arm in _rank(gp, scale, arms, limits)[:_REPRESENTATIVES]:
            end = int(arms.trained[arm] + limits.room[arm])
            longer = {min(length, end) for length in lengths if length > arms.trained[arm]} or {end}
            found += [(int(arm), length) for length in sorted(longer)]
        return np.array(found)


def _rank(gp: GP, scale: Scaling, arms: ArmTable, limits: ArmLimits) -> Indices:
    """Return the arms with room for a step, in the order of their expected improvement at full length."""
    free = np.flatnonzero(limits.room)
    mean, variance = gp.predict(_encode(arms, free, arms.losses.shape[1]))
    best = float(np.nanmin(scale.apply(arms.losses)[~np.isnan(arms.losses)]))
    return free[sort_best_first(log_expected_improvement(mean, np.sqrt(variance), best), "highest", spread=LOG_SPREAD)]


def _fit_surrogate(ledger: Ledger, arms: ArmTable, scale: Scaling, memo: Memo) -> tuple[GP, Memo]:
    """Return a Gaussian process fitted to the last loss of each order, and the next memo.

    The number of receipts determines when its parameters are fitted again.
    """
    ends = {(arms.arm_of_trial[order.trial], order.until) for order in ledger.orders}
    ends |= {(arm, int(n)) for arm, n in enumerate(arms.trained)}  # where a trial was interrupted or diverged
    seen = np.array(sorted((a, t) for a, t in ends if 0 < t <= arms.trained[a] and not np.isnan(arms.losses[a, t - 1])))
    x = _encode(arms, seen[:, 0], seen[:, 1])
    y = scale.apply(arms.losses[seen[:, 0], seen[:, 1] - 1])
    return carry_gp(_make_kernel(arms.encoding), x, y, memo, REFITS.check_fit(memo, ledger.state.receipts))


def _encode(arms: ArmTable, which: Indices, steps: Indices | int) -> Floats:
    """Return the inputs (n, columns) of the surrogate: features of the arms, constants, and the share of a full training."""
    features = arms.encoding.features(arms.points.take(which))
    share = np.broadcast_to(np.asarray(steps) / arms.losses.shape[1], len(which))
    return np.column_stack([features, np.zeros((len(which), _count_constants(arms.encoding))), share])


def _make_kernel(encoding: Encoding) -> Kernel:
    """Return a product kernel: Hamming for choices and switches with one length-scale, Matern for numbers and the length."""
    length = encoding.n_columns + _count_constants(encoding)
    constants = range(encoding.n_columns, length)
    blocks = (
        Block("hamming", (*encoding.option_columns, *encoding.activity_columns, *constants), tied=True),
        Block("matern52", encoding.number_columns),
        Block("matern52", (length,)),
    )
    return Kernel(tuple(block for block in blocks if block.dims))


def _count_constants(encoding: Encoding) -> int:
    """Return the number of constant columns: one for each parameter that is always active.

    With them every parameter has two columns. They change no distance, but the prior of the length-scales depends on the
    number of columns (`models.gp.fit`). Without them the fit to a few losses would differ, and with it the decisions.
    """
    return max(0, encoding.space.dims - len(encoding.activity_columns))
