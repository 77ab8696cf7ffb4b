"""Random search: new configs, each trained to its end, until the budget is spent.

Bergstra and Bengio, "Random Search for Hyper-Parameter Optimization", JMLR 13, 2012.

Departs from the paper: configs are quasi-random, which covers the space more evenly than independent draws. The last run
is cut short at the wall.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.core.deciding.decision import Decision, Finish
from shoestring.core.deciding.policy import fresh_config, train_new
from shoestring.core.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomSearch:
    name: ClassVar[str] = "random_search"

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        config = fresh_config(ledger)
        if config is None:
            return Finish("every config of the space was trained to its end")
        return train_new(ledger, config, ledger.max_steps)
