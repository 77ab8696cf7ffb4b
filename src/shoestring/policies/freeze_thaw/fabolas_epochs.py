"""Fabolas on epochs: buy the run and the length that tell most, for their price, about which full run is best.

Klein et al., "Fast Bayesian Optimization of Machine Learning Hyperparameters on Large Datasets", arXiv:1605.07079, with the
number of epochs in place of the size of the data set, as Lu, Chiang, Sha, arXiv:1902.00532, Appendix E, adapt it.

    paper   here              meaning                                                            unit
    s       step / max_steps  length of training, an input of the surrogate like any other       —
    c       steps             price: the steps that a run still lacks to that length             steps
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

from shoestring.core.decision import Decision, Memo
from shoestring.core.ledger import Ledger
from shoestring.core.parameters import Choice
from shoestring.core.settings import require_whole
from shoestring.errors import PolicyError
from shoestring.models.gp.acquisition import log_expected_improvement
from shoestring.models.gp.fit import carry_gp
from shoestring.models.gp.information_gain import information_gain
from shoestring.models.gp.kernels import Block, Kernel
from shoestring.models.gp.posterior import GP
from shoestring.models.loss_scaling import Scaling, scaling
from shoestring.policies.freeze_thaw.arms import Arms, ArmsView, Choices, Floats, choices, forced, step_of
from shoestring.policies.freeze_thaw.curve_belief import REFITS

_FIRST_ARMS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FabolasEpochs:
    name: ClassVar[str] = "fabolas_epochs"
    arms: int | None = None
    lengths: Sequence[float] = (0.125, 0.25, 0.5, 1.0)
    representatives: int = 20
    fantasies: int = 5

    def __post_init__(self) -> None:
        if self.arms is not None:
            require_whole(self, "arms", 1, "there is nothing to choose among", "Try 100.")
        if not self.lengths or not all(0.0 < share <= 1.0 for share in self.lengths):
            raise PolicyError(
                f"FabolasEpochs(lengths={list(self.lengths)}) must be shares of a full training, above 0 and up to 1. "
                "Try 0.125, 0.25, 0.5, 1."
            )
        require_whole(self, "representatives", 1, "there is nothing to tell apart", "Try 20.")
        require_whole(self, "fantasies", 1, "a gain is an expectation over imagined losses", "Try 5.")

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        arms = ledger.view(ArmsView(self.arms))
        now = choices(ledger, arms)
        if (answer := forced(ledger, arms, now)) is not None:
            return answer
        ends = sorted({max(1, round(share * ledger.max_steps)) for share in self.lengths})
        begun = ~np.isnan(arms.losses).all(axis=1)
        fresh = np.flatnonzero((now.room > 0) & (arms.trained == 0))
        if len(fresh) and begun.sum() < _FIRST_ARMS:
            steps = min(ends[0], int(now.room[fresh[0]]))
            return step_of(ledger, arms, int(fresh[0]), why={"first": True}, memo=ledger.memo, steps=steps)
        gp, scale, memo = self._surrogate(ledger, arms)
        pairs = self._pairs(gp, scale, arms, now, ends)
        full = arms_at(arms, np.unique(pairs[:, 0]), ledger.max_steps, ledger.max_steps)
        asked = arms_at(arms, pairs[:, 0], pairs[:, 1], ledger.max_steps)
        n = len(full)
        mean, cov = gp.predict_joint(np.vstack([full, asked]))
        variance = np.diagonal(cov)[n:] + gp.noise_variance
        gains = information_gain(mean[:n], cov[:n, :n], cov[:n, n:], variance, rng, self.fantasies)
        lacking = pairs[:, 1] - arms.trained[pairs[:, 0]]
        chosen = int(np.argmax(gains / lacking))
        arm = int(pairs[chosen, 0])
        return step_of(
            ledger,
            arms,
            arm,
            why={
                "arm": arm,
                "information": float(gains[chosen]),
                "information_per_step": float(gains[chosen] / lacking[chosen]),
                "mu": arms.sign * float(scale.undo(mean[n + chosen])),
            },
            memo=memo,
            steps=int(lacking[chosen]),
        )

    def _surrogate(self, ledger: Ledger, arms: Arms) -> tuple[GP, Scaling, Memo]:
        """A process fitted to the last loss of each order; its parameters are refreshed by the number of receipts."""
        scale = scaling(arms.losses, ~np.isnan(arms.losses))
        ends = {(arms.arm_of_trial[o.trial], o.until) for o in ledger.orders}
        ends |= {(arm, int(n)) for arm, n in enumerate(arms.trained)}  # where a run was cut short or diverged
        seen = np.array(
            sorted((a, t) for a, t in ends if 0 < t <= arms.trained[a] and not np.isnan(arms.losses[a, t - 1]))
        )
        x = arms_at(arms, seen[:, 0], seen[:, 1], ledger.max_steps)
        y = scale.apply(arms.losses[seen[:, 0], seen[:, 1] - 1])
        memo = ledger.memo
        gp, memo = carry_gp(_kernel(arms), x, y, memo, REFITS.look(memo, ledger.books.receipts))
        return gp, scale, memo

    def _pairs(self, gp: GP, scale: Scaling, arms: Arms, now: Choices, ends: list[int]) -> np.ndarray:
        """(n, 2) arms and lengths that can be bought, of the arms that look best at full length."""
        max_steps = arms.losses.shape[1]
        free = np.flatnonzero(now.room)
        mean, variance = gp.predict(arms_at(arms, free, max_steps, max_steps))
        best = float(np.nanmin(scale.apply(arms.losses)[~np.isnan(arms.losses)]))
        ranked = free[np.argsort(-log_expected_improvement(mean, np.sqrt(variance), best), kind="stable")]
        found = []
        for arm in ranked[: self.representatives]:
            reach = int(arms.trained[arm] + now.room[arm])
            longer = {min(end, reach) for end in ends if end > arms.trained[arm]} or {reach}
            found += [(int(arm), end) for end in sorted(longer)]
        return np.array(found)


def arms_at(arms: Arms, which: np.ndarray, steps: np.ndarray | int, max_steps: int) -> Floats:
    """Inputs (n, d + 1) of the surrogate: coordinates of the arms, and the share of a full training."""
    share = np.broadcast_to(np.asarray(steps) / max_steps, len(which))
    return np.column_stack([arms.coordinates()[which], share])


def _kernel(arms: Arms) -> Kernel:
    """Options of a choice and switches are equal or not; numbers and the length are near or far."""
    space, d = arms.space, arms.space.dims
    choice = [j for j, name in enumerate(space.cube_names) if isinstance(space.parameters[name], Choice)]
    number = tuple(j for j in range(d) if j not in choice)
    blocks = [
        Block("hamming", (*choice, *range(d, 2 * d)), tied=True),
        Block("matern52", number),
        Block("matern52", (2 * d,)),
    ]
    return Kernel(tuple(block for block in blocks if block.dims))
