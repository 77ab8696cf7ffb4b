"""Baselines that are CE-GP-UCB with other settings: TV-GP-UCB, GP-UCB for one run, and R-GP-UCB.

All validate every round by default. Their symbols and settings are those of ce_gp_ucb.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from shoestring.models.online.query_rules import reset_block
from shoestring.policies.online.ce_gp_ucb import DriftPolicy, find_forgetting_rate
from shoestring.policies.online.drift_model import DriftView
from shoestring.policy import Ledger, Memo, require_whole, require_within


@dataclass(frozen=True, slots=True, kw_only=True)
class TVGPUCB(DriftPolicy):
    """TV-GP-UCB: the drifting Gaussian process of CE-GP-UCB, with a validation pass in every round.

    Bogunovic, Scarlett, Cevher, "Time-Varying Gaussian Process Bandit Optimization", AISTATS 2016, arXiv:1601.06650,
    Algorithm 2. With `query="bernoulli"` it is the baseline of arXiv:2101.06590 that validates at random.

    Differences from the paper: beta_t = 0.8 ln 4t instead of its bound, which is far too cautious in practice.
    """

    name: ClassVar[str] = "tv_gp_ucb"
    query: str = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUCBBandit(DriftPolicy):
    """GP-UCB: the configuration with the largest upper confidence bound; old results count as much as new ones.

    Srinivas, Krause, Kakade, Seeger, "Gaussian Process Optimization in the Bandit Setting", ICML 2010, arXiv:0912.3995,
    Algorithm 1; here a policy for one run, as the baseline of arXiv:2101.06590.

    Differences from the paper: beta_t = 0.8 ln 4t instead of its bound.
    """

    name: ClassVar[str] = "gp_ucb_bandit"
    query: str = "always"
    forgetting_rate: float | Literal["by_rounds"] | None = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RGPUCB(DriftPolicy):
    """R-GP-UCB: a Gaussian process of a function that does not change, and that is reset every `block` rounds.

    Bogunovic, Scarlett, Cevher, "Time-Varying Gaussian Process Bandit Optimization", AISTATS 2016, arXiv:1601.06650,
    Algorithm 1.

        paper   here               meaning                                                         unit
        N       block              rounds after which all observations are dropped                 rounds
        eps     forgetting_rate    drift from which the block is computed if `block` is None       —

    Differences from the paper: `block=None` is min(T, 12 eps^(-1/4)) rounds. The round in beta_t continues through resets. A
    model that was just reset validates, whatever the query rule is. The drift cannot be learned here.
    """

    name: ClassVar[str] = "r_gp_ucb"
    query: str = "always"
    forgetting_rate: float | Literal["by_rounds"] | None = 0.01
    block: int | None = None

    def __post_init__(self) -> None:
        DriftPolicy.__post_init__(self)
        if self.forgetting_rate != "by_rounds":
            require_within(
                self, "forgetting_rate", 0.0, 1.0, "a model that is reset cannot learn the drift", "Try 0.01."
            )
        require_whole(self, "block", 1, "it is a number of rounds", "Try 30, or None.", optional=True)

    def _learn(self, ledger: Ledger) -> tuple[DriftView, Memo]:
        assert self.forgetting_rate is not None
        block = self.block or reset_block(
            find_forgetting_rate(self.forgetting_rate, ledger.max_steps), ledger.max_steps
        )
        view, memo = DriftPolicy._learn(replace(self, forgetting_rate=0.0), ledger)
        return replace(view, block=block), memo
