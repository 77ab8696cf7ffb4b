"""What all online policies share: the settings of rewards and queries, and how much validation may be paid for.

`query` says when a round is validated: "always", "bernoulli" (with `query_probability`), or by a rule that a method adds.
Whatever it says, two walls stand behind it. `validate_at_most` is the user's: a share of the training cost ("20%"), a
number of passes ("30 passes") or a duration ("10m"). The budget is the other: a pass must not use up what the rounds still
to come need. A pass is priced at the mean of those bought so far, so the first one is always within the user's wall. Where
passes have no price and take no time that anybody measured, as in a generator, a share is one of the rounds.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from shoestring.core.ledger.budget import parse_duration_s
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.checks import require_between, require_one_of, require_within
from shoestring.errors import BudgetError, PolicyError
from shoestring.policies.online.online_run import RUN, RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlinePolicy:
    """Settings of every online policy; a method adds its own, and `decide`."""

    name: ClassVar[str]
    queries: ClassVar[tuple[str, ...]] = ("always", "bernoulli")

    query: str = "always"
    query_probability: float = 0.5
    reward: str = "gain"
    unit: float | None = None
    clip: float | None = 2.0
    validate_at_most: str | None = None

    def __post_init__(self) -> None:
        require_one_of(self, "query", self.queries)
        require_within(self, "query_probability", 0.0, 1.0, "it is a chance", "For 30 of 100 rounds, 0.3.")
        require_one_of(self, "reward", ("gain", "value"))
        require_between(
            self, "unit", 0.0, math.inf, "rewards are counted in it", "Try 0.01 for accuracies, or None.", optional=True
        )
        require_between(
            self, "clip", 0.0, math.inf, "rewards end there", "Try 2, or None for no clipping.", optional=True
        )
        try:
            ValidationCap.read(self.validate_at_most)
        except BudgetError:
            raise PolicyError(
                f"{type(self).__name__}(validate_at_most={self.validate_at_most!r}) must be a share of the training "
                "cost, a number of passes or a duration: write '20%', '30 passes' or '10m'."
            ) from None

    @property
    def run_view(self) -> RunView:
        return RunView(self.reward, self.unit, self.clip)

    def why_not_validate(self, ledger: Ledger) -> str:
        """The wall that keeps the coming round from being validated, "cap" or "budget"; "" when none does."""
        prices = RoundPrices.of(ledger)
        if not ValidationCap.read(self.validate_at_most).allows(ledger, prices):
            return "cap"
        return "" if _leaves_enough(ledger, prices) else "budget"


class RoundPrices(NamedTuple):
    """Training and validation so far, and one more of each: in epochs where a pass has a price in them, else in seconds."""

    training: float
    validation: float
    one_round: float
    one_pass: float

    @classmethod
    def of(cls, ledger: Ledger) -> RoundPrices:
        books, listed = ledger.books, ledger.opened.prices.validate_epochs
        if ledger.budget.unit == "epochs" and listed > 0.0:
            return cls(float(books.steps), books.validations * listed, 1.0, listed)
        training, validation, rounds = books.by_kind["train"], books.by_kind["validate"], _rounds_done(ledger)
        one_round = training / rounds if rounds else 0.0
        one_pass = validation / books.validations if books.validations else 0.0
        return cls(training, validation, one_round, one_pass)


def _leaves_enough(ledger: Ledger, prices: RoundPrices) -> bool:
    """Whether after one more pass the rounds to come can be paid; the next one alone if the budget was never enough for all."""
    rate = ledger.budget.per_second(ledger.books.workers)
    if ledger.budget.unit == "epochs":
        if ledger.opened.prices.validate_epochs == 0.0:
            return True  # passes are free
        rate = 1.0
    one_round, one_pass = rate * prices.one_round, rate * prices.one_pass
    can_finish = ledger.budget.total >= ledger.max_steps * one_round
    rounds_ahead = ledger.max_steps - _rounds_done(ledger) if can_finish else 1
    return ledger.left >= rounds_ahead * one_round + one_pass


def _rounds_done(ledger: Ledger) -> int:
    return ledger.trials[RUN].steps if ledger.trials else 0


@dataclass(frozen=True, slots=True)
class ValidationCap:
    """The most that validation may take; at most one of these is given."""

    share: float | None = None  # of the training cost
    passes: int | None = None
    seconds: float | None = None

    @classmethod
    def read(cls, text: str | None) -> ValidationCap:
        """From what the user wrote; None caps nothing."""
        if text is None:
            return cls()
        words = str(text).strip().lower()
        if share := re.fullmatch(r"(\d+(?:\.\d*)?)\s*%", words):
            return cls(share=float(share[1]) / 100.0)
        if passes := re.fullmatch(r"([1-9]\d*)\s*pass(?:es)?", words):
            return cls(passes=int(passes[1]))
        return cls(seconds=parse_duration_s(words))

    def allows(self, ledger: Ledger, prices: RoundPrices) -> bool:
        """Whether one more pass stays within it."""
        bought = ledger.books.validations
        if not bought:
            return True
        if self.share is not None and prices.validation == 0.0:
            return bought + 1 <= self.share * (_rounds_done(ledger) + 1)
        if self.share is not None:
            return prices.validation + prices.one_pass <= self.share * (prices.training + prices.one_round)
        if self.passes is not None:
            return bought + 1 <= self.passes
        return self.seconds is None or ledger.books.by_kind["validate"] * (1.0 + 1.0 / bought) <= self.seconds
