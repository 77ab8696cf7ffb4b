"""The settings that all online policies share: rewards, when to validate, and how much validation may cost.

`query` is the rule that decides whether a round is validated: "always", "bernoulli" (with `query_probability`), or a rule of
the method. Two limits apply to every rule. The user sets `validate_at_most`: a share of the training cost ("20%"), a number of
passes ("30 passes") or a duration ("10m"). The budget is the other limit: a pass must leave enough for the remaining rounds. The
price of a pass is the mean of those so far, so the first pass is always within the user's limit. If passes have no price and
take no measurable time, as in training code that is a generator, a share is a share of the rounds.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from shoestring.core.ledger.budget import parse_duration_s
from shoestring.errors import BudgetError, PolicyError
from shoestring.policies.online.online_run import RUN, RunView
from shoestring.policy import Labels, Ledger, Order, WhyText, require_between, require_one_of, require_within

ROUND_LABELS = {
    "query": "rule that decided whether to validate",
    "query_probability": "probability of a validation (probability)",
    "round": "round (number)",
}
_QUERY_REASONS = {  # by the rule in `why`
    "first": "because nothing was observed yet",
    "always": "because every round is",
    "bernoulli": "by chance",
    "queued": "because you asked for this configuration",
    "stretch": "because too many rounds in a row were not",
    "share": "because enough of the rounds so far were",
    "cap": "because the limit on validation is reached",
    "budget": "because the remaining rounds need the rest of the budget",
}


def describe_query(order: Order, reason: str = "") -> WhyText:
    """Return the clause that says whether a round is validated, and why; `reason` is for rules of a single method."""
    if "query" not in order.why:
        return WhyText()
    rule = str(order.why["query"])
    reason = reason or _QUERY_REASONS.get(rule, f"by the rule {rule}")
    return WhyText(clauses=(f"{'not ' if order.validate == 'none' else ''}validated, {reason}",))


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlinePolicy:
    """Base class of all online policies; a subclass adds its own settings and `decide`."""

    name: ClassVar[str]
    why_labels: ClassVar[Labels] = ROUND_LABELS
    queries: ClassVar[tuple[str, ...]] = ("always", "bernoulli")

    query: str = "always"
    query_probability: float = 0.5
    reward: str = "gain"
    unit: float | None = None
    clip: float | None = 2.0
    validate_at_most: str | None = None

    def __post_init__(self) -> None:
        require_one_of(self, "query", self.queries)
        require_within(self, "query_probability", 0.0, 1.0, "it is a probability", "For 30 of 100 rounds, 0.3.")
        require_one_of(self, "reward", ("gain", "value"))
        require_between(
            self, "unit", 0.0, math.inf, "rewards are divided by it", "Try 0.01 for accuracies, or None.", optional=True
        )
        require_between(
            self, "clip", 0.0, math.inf, "rewards are clipped to it", "Try 2, or None for no clipping.", optional=True
        )
        try:
            ValidationCap.read(self.validate_at_most)
        except BudgetError:
            raise PolicyError(
                f"{self.name}(validate_at_most={self.validate_at_most!r}) must be a share of the training "
                "cost, a number of passes or a duration: write '20%', '30 passes' or '10m'."
            ) from None

    @staticmethod
    def describe_why(order: Order) -> WhyText:
        return describe_query(order)

    @property
    def run_view(self) -> RunView:
        return RunView(self.reward, self.unit, self.clip)

    def find_validation_limit(self, ledger: Ledger) -> str:
        """Return the limit that forbids validating the next round, "cap" (the user's) or "budget", or "" if none does."""
        prices = RoundPrices.of(ledger)
        if not ValidationCap.read(self.validate_at_most).allows(ledger, prices):
            return "cap"
        return "" if _leaves_enough(ledger, prices) else "budget"


class RoundPrices(NamedTuple):
    """Costs of training and of validation so far, and of one more round and one more pass.

    The unit is the epoch if the budget is in epochs and a pass has a price in epochs, else the second.
    """

    training: float
    validation: float
    one_round: float
    one_pass: float

    @classmethod
    def of(cls, ledger: Ledger) -> RoundPrices:
        state, listed = ledger.state, ledger.definition.prices.validate_epochs
        if ledger.budget.unit == "epochs" and listed > 0.0:
            return cls(float(state.steps), state.validations * listed, 1.0, listed)
        training, validation, rounds = state.by_kind["train"], state.by_kind["validate"], _rounds_done(ledger)
        one_round = training / rounds if rounds else 0.0
        one_pass = validation / state.validations if state.validations else 0.0
        return cls(training, validation, one_round, one_pass)


def _leaves_enough(ledger: Ledger, prices: RoundPrices) -> bool:
    """Return whether one more pass leaves enough for all remaining rounds.

    If the budget was never enough for all rounds, the pass must leave enough for the next one.
    """
    rate = ledger.budget.per_second(ledger.state.workers)
    if ledger.budget.unit == "epochs":
        if ledger.definition.prices.validate_epochs == 0.0:
            return True  # passes cost nothing
        rate = 1.0
    one_round, one_pass = rate * prices.one_round, rate * prices.one_pass
    can_finish = ledger.budget.total >= ledger.max_steps * one_round
    rounds_ahead = ledger.max_steps - _rounds_done(ledger) if can_finish else 1
    return ledger.left >= rounds_ahead * one_round + one_pass


def _rounds_done(ledger: Ledger) -> int:
    return ledger.trials[RUN].steps if ledger.trials else 0


@dataclass(frozen=True, slots=True)
class ValidationCap:
    """The user's limit on validation; at most one of these is given."""

    share: float | None = None  # share of the training cost
    passes: int | None = None
    seconds: float | None = None

    @classmethod
    def read(cls, text: str | None) -> ValidationCap:
        """Return the limit that the user wrote; None is no limit."""
        if text is None:
            return cls()
        words = str(text).strip().lower()
        if share := re.fullmatch(r"(\d+(?:\.\d*)?)\s*%", words):
            return cls(share=float(share[1]) / 100.0)
        if passes := re.fullmatch(r"([1-9]\d*)\s*pass(?:es)?", words):
            return cls(passes=int(passes[1]))
        return cls(seconds=parse_duration_s(words))

    def allows(self, ledger: Ledger, prices: RoundPrices) -> bool:
        """Return whether one more pass is within the limit."""
        passes = ledger.state.validations
        if not passes:
            return True
        if self.share is not None and prices.validation == 0.0:
            return passes + 1 <= self.share * (_rounds_done(ledger) + 1)
        if self.share is not None:
            return prices.validation + prices.one_pass <= self.share * (prices.training + prices.one_round)
        if self.passes is not None:
            return passes + 1 <= self.passes
        return self.seconds is None or ledger.state.by_kind["validate"] * (1.0 + 1.0 / passes) <= self.seconds
