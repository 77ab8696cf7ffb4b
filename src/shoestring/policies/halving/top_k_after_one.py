"""One step each for as many trials as half the budget buys, then everything to the best, and to the next best after it.

The simplest rule that knows its budget. It is strong when the first step already tells good from bad, and poor when
curves cross later.

When a trial is at its end the next best goes on; when all are at their end, new ones are opened. With a larger budget
the share for first steps grows too, so more trials are opened.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.core.deciding.decision import Decision, Train, Wait, Why
from shoestring.core.deciding.policy import fresh_config, nothing_to_buy, train_best_unfinished, train_new
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config
from shoestring.core.values.checks import require_between


@dataclass(frozen=True, slots=True, kw_only=True)
class TopKAfterOne:
    first_share: float = 0.5  # of the budget, for first steps
    name: ClassVar[str] = "top_k_after_one"

    def __post_init__(self) -> None:
        because = "it is the share of the budget that buys first steps, and the rest trains the best"
        require_between(self, "first_share", 0.0, 1.0, because, "Try 0.5.")

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if ledger.queue or not ledger.trials or self._buys_first_steps(ledger):
            config = fresh_config(ledger)
            if config is not None:
                return self._open(ledger, config)
        trials = ledger.trials
        if any(trials[open_order.order.trial].steps == 0 for open_order in ledger.open_orders.values()):
            return Wait()  # the best is not known before all have shown their first loss
        if ledger.max_steps > 1 and (order := train_best_unfinished(ledger, "the best goes on")):
            return order
        config = fresh_config(ledger)
        return nothing_to_buy(ledger) if config is None else self._open(ledger, config)

    def _open(self, ledger: Ledger, config: Config) -> Train:
        why: Why = {"stage": "first steps", "arm": len(ledger.trials)}
        return train_new(ledger, config, until=1, why=why)

    def _buys_first_steps(self, ledger: Ledger) -> bool:
        share = self.first_share * ledger.budget.total
        committed = ledger.spent + ledger.reserved
        if committed >= share:
            return False
        price = ledger.step_price()
        return math.isnan(price) or committed + price <= share
