"""TV-GP-UCB: the drifting Gaussian process of CE-GP-UCB, with a validation pass in every round.

Bogunovic, Scarlett, Cevher, "Time-Varying Gaussian Process Bandit Optimization", AISTATS 2016, arXiv:1601.06650,
Algorithm 2. Symbols and settings as in ce_gp_ucb.py; `query="bernoulli"` is the baseline of arXiv:2101.06590 that
validates at random.

Departs from the paper: beta_t = 0.8 ln 4t instead of its bound, which is far too cautious in practice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shoestring.policies.online.ce_gp_ucb import CEGPUCB


@dataclass(frozen=True, slots=True, kw_only=True)
class TVGPUCB(CEGPUCB):
    name: ClassVar[str] = "tv_gp_ucb"
    query: str = "always"
