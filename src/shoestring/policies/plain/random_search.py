"""Random search: new configurations, each trained to its end, until the budget is spent.

Bergstra and Bengio, "Random Search for Hyper-Parameter Optimization", JMLR 13, 2012.

Differences from the paper: configurations are quasi-random, which covers the space more evenly than independent draws. The last
trial is interrupted by the budget limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.policy import Decision, Finish, Labels, Ledger, find_untried_config, start_trial


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomSearch:
    name: ClassVar[str] = "random_search"
    why_labels: ClassVar[Labels] = {}

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        config = find_untried_config(ledger)
        if config is None:
            return Finish("every config of the space was trained to its end")
        return start_trial(ledger, config, ledger.max_steps)
