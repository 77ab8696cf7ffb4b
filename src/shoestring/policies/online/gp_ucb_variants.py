"""TV-GP-UCB: the drifting Gaussian process of CE-GP-UCB, with a validation pass in every round.

Bogunovic, Scarlett, Cevher, "Time-Varying Gaussian Process Bandit Optimization", AISTATS 2016, arXiv:1601.06650,
Algorithm 2. Symbols and settings as in ce_gp_ucb.py; `query="bernoulli"` is the baseline of arXiv:2101.06590 that
validates at random.

Departs from the paper: beta_t = 0.8 ln 4t instead of its bound, which is far too cautious in practice.

GP-UCB: the config of greatest upper confidence bound, under a Gaussian process that never forgets.

Srinivas, Krause, Kakade, Seeger, "Gaussian Process Optimization in the Bandit Setting", ICML 2010, arXiv:0912.3995,
Algorithm 1; here a policy for one run, as the baseline of arXiv:2101.06590. Symbols and settings as in ce_gp_ucb.py.

Departs from the paper: beta_t = 0.8 ln 4t instead of its bound.

R-GP-UCB: a Gaussian process that takes the function to be at rest, and forgets everything once in a while.

Bogunovic, Scarlett, Cevher, "Time-Varying Gaussian Process Bandit Optimization", AISTATS 2016, arXiv:1601.06650,
Algorithm 1. Symbols and settings as in ce_gp_ucb.py, and:

    paper   here               meaning                                                      unit
    N       block              rounds after which all observations are dropped              rounds
    eps     forgetting_rate    drift that the block is made for when `block` is None        —

Departs from the paper: `block=None` takes min(T, 12 eps^(-1/4)) rounds. The round in beta_t counts on through resets. A
model that has just been reset asks, whatever the query rule: it has nothing to be sure of. A learned drift has no use here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from shoestring.core.deciding.decision import NO_MEMO, Memo
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.checks import require_whole, require_within
from shoestring.models.online.query_rules import reset_block
from shoestring.policies.online.ce_gp_ucb import CEGPUCB
from shoestring.policies.online.drift_model import DriftView


@dataclass(frozen=True, slots=True, kw_only=True)
class TVGPUCB(CEGPUCB):
    name: ClassVar[str] = "tv_gp_ucb"
    query: str = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUCBBandit(CEGPUCB):
    name: ClassVar[str] = "gp_ucb_bandit"
    query: str = "always"
    forgetting_rate: float | None = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RGPUCB(CEGPUCB):
    name: ClassVar[str] = "r_gp_ucb"
    query: str = "always"
    block: int | None = None

    def __post_init__(self) -> None:
        CEGPUCB.__post_init__(self)
        require_within(self, "forgetting_rate", 0.0, 1.0, "a model that resets learns no drift", "Try 0.01.")
        require_whole(self, "block", 1, "it is a number of rounds", "Try 30, or None.", optional=True)

    def _learn(self, ledger: Ledger) -> tuple[DriftView, Memo]:
        assert self.forgetting_rate is not None
        block = self.block or reset_block(self.forgetting_rate, ledger.max_steps)
        return replace(self._view(0.0), block=block), NO_MEMO
