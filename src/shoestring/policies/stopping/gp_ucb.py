"""GP-UCB: train the config whose loss could be lowest, every run in full.

Srinivas, Krause, Kakade and Seeger, "Gaussian Process Optimization in the Bandit Setting: No Regret and Experimental
Design", arXiv:0912.3995, Algorithm 1; the baseline of BO-BOS. The surrogate, the bound, their symbols and departures are those
of `surrogate` and `search`; the settings those of `ucb_policy`.

Departs from the paper: the multiplier of the deviation is by default that of the authors of BO-BOS, `0.2 (d + 1) ln(2 t)`, so
that the two can be compared; "theory" is the paper's for a finite set of configs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shoestring.policies.stopping.ucb_policy import UcbPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUCB(UcbPolicy):
    name: ClassVar[str] = "gp_ucb"
