"""R-GP-UCB: a Gaussian process that takes the function to be at rest, and forgets everything once in a while.

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

from shoestring.core.decision import NO_MEMO, Memo
from shoestring.core.ledger import Ledger
from shoestring.core.settings import require_whole, require_within
from shoestring.models.online.query_rules import reset_block
from shoestring.policies.online.belief import DriftView
from shoestring.policies.online.ce_gp_ucb import CEGPUCB


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
