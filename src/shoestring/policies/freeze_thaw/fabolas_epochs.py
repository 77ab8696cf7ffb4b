"""Fabolas on epochs: buy the run and the length that tell most, for their price, about which full run is best.

Klein et al., "Fast Bayesian Optimization of Machine Learning Hyperparameters on Large Datasets", arXiv:1605.07079, with the
number of epochs in place of the size of the data set, as Lu, Chiang, Sha, arXiv:1902.00532, Appendix E, adapt it.

    paper   here              meaning                                                            unit
    s       step / max_steps  length of training, an input of the surrogate like any other       —
    c       lacking           price: the steps that a run still lacks to that length             steps
    P_min   —                 probability of each representative to be best when fully trained   —
    —       lengths           lengths that can be asked for, as shares of a full training        —

Departs from the paper: the surrogate is a product of a kernel on configs and one on length, fitted to the loss at the end
of each order; candidates are a fixed set of arms, of which the `representatives` of largest expected improvement at full
length are looked at. The price is linear in steps and known, not a second process. The first three arms are bought at the
smallest length. Information is counted over draws (`models.gp.information_gain`). It does not know the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.core.deciding.comparison import compare_scores, find_runner_up
from shoestring.core.deciding.decision import Decision, Memo
from shoestring.core.deciding.prediction import Believed, BelievedCurve, put_first
from shoestring.core.deciding.reproducible import NAT, find_best, sort_best_first
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.encoding import Encoding
from shoestring.core.values.arrays import Floats, Indices
from shoestring.core.values.checks import require_whole
from shoestring.errors import PolicyError
from shoestring.models.gp.acquisition import log_expected_improvement
from shoestring.models.gp.fit import carry_gp
from shoestring.models.gp.information_gain import information_gain
from shoestring.models.gp.kernels import Block, Kernel
from shoestring.models.gp.posterior import GP
from shoestring.models.loss_scaling import Scaling, fit_scaling
from shoestring.policies.freeze_thaw.arms import (
    REFITS,
    ArmsView,
    ArmTable,
    Reach,
    buy_steps,
    measure_reach,
    settle_without_choice,
)

_FIRST_ARMS = 3  # fewer losses say nothing of length-scales


@dataclass(frozen=True, slots=True, kw_only=True)
class FabolasEpochs:
    name: ClassVar[str] = "fabolas_epochs"
    arms: int | None = None
    lengths: Sequence[float] = (0.125, 0.25, 0.5, 1.0)
    representatives: int = 20
    fantasies: int = 5

    def __post_init__(self) -> None:
        require_whole(self, "arms", 1, "there is nothing to choose among", "Try 100.", optional=True)
        if not self.lengths or not all(0.0 < share <= 1.0 for share in self.lengths):
            raise PolicyError(
                f"FabolasEpochs(lengths={list(self.lengths)}) must be shares of a full training, above 0 and up to 1. "
                "Try 0.125, 0.25, 0.5, 1."
            )
        require_whole(self, "representatives", 1, "there is nothing to tell apart", "Try 20.")
        require_whole(self, "fantasies", 1, "a gain is an expectation over imagined losses", "Try 5.")

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        arms = ledger.view(ArmsView(self.arms))
        reach = measure_reach(ledger, arms)
        if (settled := settle_without_choice(ledger, arms, reach)) is not None:
            return settled
        lengths = sorted({max(1, round(share * ledger.max_steps)) for share in self.lengths})
        begun = ~np.isnan(arms.losses).all(axis=1)
        fresh = np.flatnonzero((reach.room > 0) & (arms.trained == 0))
        if len(fresh) and begun.sum() < _FIRST_ARMS:
            steps = min(lengths[0], int(reach.room[fresh[0]]))
            return buy_steps(ledger, arms, int(fresh[0]), steps, why={"first": True}, memo=ledger.memo)
        scale = fit_scaling(arms.losses, ~np.isnan(arms.losses))
        gp, memo = _fit_surrogate(ledger, arms, scale, ledger.memo)
        pairs = self._list_pairs(gp, scale, arms, reach, lengths)
        full = _encode(arms, np.unique(pairs[:, 0]), ledger.max_steps)
        n = len(full)
        mean, cov = gp.predict_joint(np.vstack([full, _encode(arms, pairs[:, 0], pairs[:, 1])]))
        variance = np.diagonal(cov)[n:] + gp.noise_variance
        gains = information_gain(mean[:n], cov[:n, :n], cov[:n, n:], variance, rng, self.fantasies)
        lacking = pairs[:, 1] - arms.trained[pairs[:, 0]]
        scores = gains / lacking
        chosen = find_best(scores, "highest")
        arm = int(pairs[chosen, 0])
        name, others = "information about which run is best (nats per step)", pairs[:, 0] != arm
        why = {
            **compare_scores(name, "highest", scores, chosen, lambda i: arms.say(int(pairs[i, 0])), rivals=others),
            "arm": arm,
            "information": float(gains[chosen]),
            "information_per_step": float(scores[chosen]),
            "mu": arms.sign * float(scale.undo(mean[n + chosen])),
        }
        return buy_steps(ledger, arms, arm, int(lacking[chosen]), why=why, memo=memo)

    def believe(self, ledger: Ledger, order: Order) -> Believed | None:
        """The curves of the arm bought and of those that look best at full length."""
        if not order.why.get("compared"):
            return None
        arms, sign = ledger.view(ArmsView(self.arms)), ledger.opened.sign
        scale = fit_scaling(arms.losses, ~np.isnan(arms.losses))
        gp, _ = _fit_surrogate(ledger, arms, scale, order.memo)
        ranked = _rank(gp, scale, arms, measure_reach(ledger, arms))
        told = []
        for arm in put_first(ranked, int(str(order.why["arm"])), find_runner_up(order.why, ranked, arms.say)):
            steps = np.arange(arms.trained[arm] + 1, ledger.max_steps + 1)
            mean, variance = gp.predict(_encode(arms, np.full(len(steps), arm), steps))
            quantile = scale.quantile_of(mean, np.sqrt(variance + gp.noise_variance))
            told.append(BelievedCurve.of(arms.trial_of[arm], arms.configs[arm], steps, quantile, sign))
        return Believed(told)

    def _list_pairs(self, gp: GP, scale: Scaling, arms: ArmTable, reach: Reach, lengths: list[int]) -> Indices:
        """(n, 2) arms and lengths that can be bought, of the arms that look best at full length."""
        found = []
        for arm in _rank(gp, scale, arms, reach)[: self.representatives]:
            end = int(arms.trained[arm] + reach.room[arm])
            longer = {min(length, end) for length in lengths if length > arms.trained[arm]} or {end}
            found += [(int(arm), length) for length in sorted(longer)]
        return np.array(found)


def _rank(gp: GP, scale: Scaling, arms: ArmTable, reach: Reach) -> Indices:
    """The arms that can be bought, by their expected improvement at full length."""
    free = np.flatnonzero(reach.room)
    mean, variance = gp.predict(_encode(arms, free, arms.losses.shape[1]))
    best = float(np.nanmin(scale.apply(arms.losses)[~np.isnan(arms.losses)]))
    return free[sort_best_first(log_expected_improvement(mean, np.sqrt(variance), best), "highest", spread=NAT)]


def _fit_surrogate(ledger: Ledger, arms: ArmTable, scale: Scaling, memo: Memo) -> tuple[GP, Memo]:
    """A process fitted to the last loss of each order; its parameters are refreshed by the number of receipts."""
    ends = {(arms.arm_of_trial[order.trial], order.until) for order in ledger.orders}
    ends |= {(arm, int(n)) for arm, n in enumerate(arms.trained)}  # where a run was cut short or diverged
    seen = np.array(sorted((a, t) for a, t in ends if 0 < t <= arms.trained[a] and not np.isnan(arms.losses[a, t - 1])))
    x = _encode(arms, seen[:, 0], seen[:, 1])
    y = scale.apply(arms.losses[seen[:, 0], seen[:, 1] - 1])
    return carry_gp(_make_kernel(arms.encoding), x, y, memo, REFITS.check_due(memo, ledger.books.receipts))


def _encode(arms: ArmTable, which: Indices, steps: Indices | int) -> Floats:
    """Inputs (n, columns) of the surrogate: columns of the arms, constants, and the share of a full training."""
    features = arms.encoding.features(arms.points.take(which))
    share = np.broadcast_to(np.asarray(steps) / arms.losses.shape[1], len(which))
    return np.column_stack([features, np.zeros((len(which), _count_constants(arms.encoding))), share])


def _make_kernel(encoding: Encoding) -> Kernel:
    """Options of a choice and switches are equal or not, by one length-scale; numbers and the length are near or far."""
    length = encoding.n_columns + _count_constants(encoding)
    constants = range(encoding.n_columns, length)
    blocks = (
        Block("hamming", (*encoding.option_columns, *encoding.activity_columns, *constants), tied=True),
        Block("matern52", encoding.number_columns),
        Block("matern52", (length,)),
    )
    return Kernel(tuple(block for block in blocks if block.dims))


def _count_constants(encoding: Encoding) -> int:
    """A switch also for each parameter that is always on: two columns per parameter, whatever its kind.

    They change no distance. But length-scales are expected to grow with the number of columns (`models.gp.fit`), and with
    fewer of them the fit to a handful of losses, and so what is bought, would be another.
    """
    return max(0, encoding.space.dims - len(encoding.activity_columns))
