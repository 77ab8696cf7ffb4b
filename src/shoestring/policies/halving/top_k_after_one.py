"""Spend half of the budget on the first steps of new trials; then train the best trial to its end, then the next best.

This is the simplest rule that knows its budget. It is strong when the first step already separates good from bad trials, and
weak when curves cross later.

When all trials are at their end, new ones are started. With a larger budget the share for first steps grows too, so more trials
are started.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.policy import (
    Config,
    Decision,
    Labels,
    Ledger,
    Train,
    Wait,
    Why,
    find_untried_config,
    nothing_to_train,
    require_between,
    start_trial,
    train_best_unfinished,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopKAfterOne:
    first_share: float = 0.5  # share of the budget for first steps
    name: ClassVar[str] = "top_k_after_one"
    why_labels: ClassVar[Labels] = {"arm": "place in the order of configurations (number, from 0)"}

    def __post_init__(self) -> None:
        because = "it is the share of the budget for first steps, and the rest trains the best"
        require_between(self, "first_share", 0.0, 1.0, because, "Try 0.5.")

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if ledger.queue or not ledger.trials or self._pays_for_first_step(ledger):
            config = find_untried_config(ledger)
            if config is not None:
                return self._open(ledger, config)
        trials = ledger.trials
        if any(trials[open_order.order.trial].steps == 0 for open_order in ledger.open_orders.values()):
            return Wait()  # the best is unknown until all trials have their first loss
        if ledger.max_steps > 1 and (order := train_best_unfinished(ledger, "the best trial is trained further")):
            return order
        config = find_untried_config(ledger)
        return nothing_to_train(ledger) if config is None else self._open(ledger, config)

    def _open(self, ledger: Ledger, config: Config) -> Train:
        """Return the order for the first step of a new trial."""
        why: Why = {"stage": "first steps", "arm": len(ledger.trials)}
        return start_trial(ledger, config, until=1, why=why)

    def _pays_for_first_step(self, ledger: Ledger) -> bool:
        share = self.first_share * ledger.budget.total
        committed = ledger.spent + ledger.reserved
        if committed >= share:
            return False
        price = ledger.step_price()
        return math.isnan(price) or committed + price <= share
