"""The default: a model of what the study has seen chooses new configurations, and sequential halving decides how far they go.

    trials of several steps   `sequential_halving`, whose newcomers are chosen by `guide`
    trials of one step        `cost_aware_ei`: all trials are new ones, and their values are final

Both choose by expected improvement traded against the predicted price. A decision of `cost_aware_ei` takes some tens of
milliseconds, so it is used while decisions have stayed within their limit (`newcomers`). Beyond it, the quicker guide chooses
several trials at once, and where trials are quicker than that too, they are drawn evenly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from shoestring.policies.cost_aware.cost_aware_ei import (
    CostAwareEI,
)  # at the start, so that no budget pays for the import
from shoestring.policies.halving.newcomers import Source, is_space_narrow, is_thinking_affordable
from shoestring.policies.halving.sequential_halving import SequentialHalving
from shoestring.policy import Decision, Labels, Ledger, Order, Prediction, Train, WhyText

_ONE_STEP = CostAwareEI()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidedHalving(SequentialHalving):
    newcomers: Source = "guided"  # new configurations are chosen by a model of what was seen, or "drawn" evenly
    name: ClassVar[str] = "guided_halving"
    why_labels: ClassVar[Labels] = {**CostAwareEI.why_labels, **SequentialHalving.why_labels}

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if ledger.max_steps > 1 or self.newcomers == "drawn":
            return SequentialHalving.decide(self, ledger, rng)
        if is_space_narrow(ledger) and is_thinking_affordable(ledger):
            return _ONE_STEP.decide(ledger, rng)
        decision = SequentialHalving.decide(self, ledger, rng)
        if not isinstance(decision, Train):
            return decision
        fitted = {name: numbers for name, numbers in ledger.memo.items() if not name.startswith("guide_")}
        return replace(decision, memo={**fitted, **decision.memo})

    @staticmethod
    def describe_why(order: Order) -> WhyText:
        return SequentialHalving.describe_why(order) if "arm" in order.why else CostAwareEI.describe_why(order)

    def predict(self, ledger: Ledger, order: Order) -> Prediction | None:
        """Return the predicted values of the new configuration and of its best competitors."""
        return _ONE_STEP.predict(ledger, order) or SequentialHalving.predict(self, ledger, order)
