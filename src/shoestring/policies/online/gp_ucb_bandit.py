"""GP-UCB: the config of greatest upper confidence bound, under a Gaussian process that never forgets.

Srinivas, Krause, Kakade, Seeger, "Gaussian Process Optimization in the Bandit Setting", ICML 2010, arXiv:0912.3995,
Algorithm 1; here a policy for one run, as the baseline of arXiv:2101.06590. Symbols and settings as in ce_gp_ucb.py.

Departs from the paper: beta_t = 0.8 ln 4t instead of its bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shoestring.policies.online.ce_gp_ucb import CEGPUCB


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUCBBandit(CEGPUCB):
    name: ClassVar[str] = "gp_ucb_bandit"
    query: str = "always"
    forgetting_rate: float | None = 0.0
