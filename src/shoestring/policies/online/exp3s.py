"""EXP3.S: exponential weights that always leak a little to every arm, so that the best arm may change.

Auer, Cesa-Bianchi, Freund, Schapire, "The Nonstochastic Multiarmed Bandit Problem", SIAM J. Comput. 32, 2002, Sect. 8.

    paper   here       meaning                                                      unit
    gamma   mixing     share of rounds played uniformly                             —
    alpha   sharing    share of all weight that flows to each arm; None: 1 / T      —

Departs from the paper: gains, clipped to ±clip, are moved to [0, 1]; values are taken as they are. Weights change only in
validated rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shoestring.core.arrays import Floats
from shoestring.core.settings import require_share, require_within
from shoestring.models.online.bandits import exp3s, exp3s_update
from shoestring.policies.online.bandit import BanditArms, BanditState, OnlineBandit


@dataclass(frozen=True, slots=True)
class WeightedArms(BanditArms):
    """View: the arms and what was observed of each, folded into weights as well."""

    mixing: float
    sharing: float | None

    def credit(self, state: BanditState, arm: int, reward: float) -> None:
        BanditArms.credit(self, state, arm, reward)
        clip = self.run.clip
        if self.run.reward == "gain" and clip is not None:
            reward = (reward + clip) / (2.0 * clip)  # EXP3.S is made for [0, 1]
        sharing = 1.0 / state.run.opened.max_steps if self.sharing is None else self.sharing
        state.weights = exp3s_update(state.weights, arm, reward, mixing=self.mixing, sharing=sharing)


@dataclass(frozen=True, slots=True, kw_only=True)
class EXP3S(OnlineBandit):
    name: ClassVar[str] = "exp3s"
    mixing: float = 0.1
    sharing: float | None = None

    def __post_init__(self) -> None:
        OnlineBandit.__post_init__(self)
        because = "it is the share of rounds played uniformly, and no arm may have probability 0"
        require_share(self, "mixing", because, "Try 0.1.", may_be_zero=False)
        because, remedy = "it is a share of all weight", "Leave it out for one over the rounds."
        require_within(self, "sharing", 0.0, 1.0, because, remedy, optional=True)

    @property
    def arms_view(self) -> BanditArms:
        return WeightedArms(self.run_view, self.most_arms, self.mixing, self.sharing)

    def _weigh(self, state: BanditState) -> Floats:
        return exp3s(state.weights, self.mixing)
