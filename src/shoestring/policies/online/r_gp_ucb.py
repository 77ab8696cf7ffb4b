"""R-GP-UCB: a Gaussian process that believes in a function at rest, and forgets everything once in a while.

Bogunovic, Scarlett, Cevher, "Time-Varying Gaussian Process Bandit Optimization", AISTATS 2016, arXiv:1601.06650,
Algorithm 1.

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
from shoestring.errors import PolicyError
from shoestring.models.online.query_rules import reset_block
from shoestring.policies.online.belief import Belief
from shoestring.policies.online.ce_gp_ucb import CEGPUCB


@dataclass(frozen=True, slots=True, kw_only=True)
class RGPUCB(CEGPUCB):
    name: ClassVar[str] = "r_gp_ucb"
    query: str = "always"
    block: int | None = None

    def __post_init__(self) -> None:
        CEGPUCB.__post_init__(self)
        if self.forgetting_rate is None:
            raise PolicyError("RGPUCB(forgetting_rate=None) has no drift to learn: give a rate or a block of rounds.")
        if self.block is not None and not (isinstance(self.block, int) and self.block >= 1):
            raise PolicyError(f"RGPUCB(block={self.block!r}) must be a whole number of rounds, 1 or more, or None.")

    def _belief(self, ledger: Ledger) -> tuple[Belief, Memo]:
        assert self.forgetting_rate is not None
        block = self.block or reset_block(self.forgetting_rate, ledger.max_steps)
        return replace(self._view(0.0), block=block), NO_MEMO
