"""Budgets and prices: what the user can spend, and in which coin.

    Budget("400 epochs")                       steps of training; exact to the last one
    Budget("2h"), Budget("1h 30m"), "90 s"     worker time: two workers for one hour spend two hours
    Budget("$20 at 2.50/h")                    worker time at a rate for each worker
    Budget("$20 at 2.50/h per machine")        the rate pays for all workers together, shared evenly

A budget is always the total of the study, never "more".
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from shoestring.core.values.checks import is_finite, is_number, to_plain
from shoestring.errors import BudgetError

Unit = Literal["epochs", "seconds", "dollars"]
_NUMBER = r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)"
_EPOCHS = re.compile(rf"{_NUMBER} *(?:epochs?|steps?)")
_DOLLARS = re.compile(rf"\$ *{_NUMBER} +at +\$? *{_NUMBER} */ *h(?:ou)?r?( +per +machine)?")
_DURATION = re.compile(rf"{_NUMBER} *(days?|d|hours?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z]) *")
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_MOST_DECIMALS = 8  # of a dollar
MOST_SECONDS = 1e12  # of one cost: thirty thousand years, and a sum of these is still a number
_EXAMPLES = 'write "400 epochs", "2h", "90s" or "$20 at 2.50/h"'


class PricedSeconds(float):
    """Seconds of a worker, and how many times the budget's rate each of them costs."""

    price_factor: float

    def __new__(cls, seconds: float, price_factor: float = 1.0) -> PricedSeconds:
        made = super().__new__(cls, seconds)
        made.price_factor = price_factor
        return made


def price_of(seconds: float) -> float:
    return seconds.price_factor if isinstance(seconds, PricedSeconds) else 1.0


class Budget:
    """The total of a study. Equal budgets have equal text; `str(budget)` is what the ledger keeps."""

    __slots__ = ("per_machine", "total", "unit", "usd_per_hour")

    def __init__(self, text: str | Budget) -> None:
        text = str(text).strip().lower()
        self.usd_per_hour: float | None = None
        self.per_machine = False
        self.unit: Unit
        if found := _EPOCHS.fullmatch(text):
            self.unit, self.total = "epochs", float(found[1])
            if not self.total.is_integer():
                raise BudgetError(f"the budget {text!r} must be a whole number of epochs; {_EXAMPLES}")
        elif found := _DOLLARS.fullmatch(text):
            self.unit, self.total, self.usd_per_hour = "dollars", float(found[1]), float(found[2])
            self.per_machine = bool(found[3])
            if not (0 < self.usd_per_hour < math.inf):
                raise BudgetError(
                    f"the budget {text!r} has the rate {self.usd_per_hour:g}/h, which must be above 0 and finite; {_EXAMPLES}"
                )
        elif text.startswith("$"):
            raise BudgetError(f"the budget {text!r} lacks its rate: write what an hour costs, as in '$20 at 2.50/h'")
        else:
            self.unit, self.total = "seconds", parse_duration_s(text, "budget")
        if not (0 < self.total < math.inf):
            raise BudgetError(f"the budget {text!r} buys nothing: it must be above 0, and finite; {_EXAMPLES}")

    def per_second(self, workers: int) -> float:
        """What one worker-second costs in this budget's unit (0 for epochs)."""
        if self.unit == "epochs":
            return 0.0
        if self.usd_per_hour is None:
            return 1.0
        return self.usd_per_hour / 3600.0 / (workers if self.per_machine else 1)

    def show(self, amount: float) -> str:
        """An amount in words: 37 epochs, 1h 02m, $3.20, $0.0031."""
        if self.unit == "epochs":
            return f"{amount:g} epoch{'' if amount == 1 else 's'}"
        return _show_dollars(amount) if self.unit == "dollars" else show_seconds(amount)

    def __str__(self) -> str:
        if self.unit == "epochs":
            return f"{self.total:.0f} epochs"
        if self.unit == "seconds":
            return f"{self.total!r}s"
        return f"${self.total!r} at {self.usd_per_hour!r}/h" + (" per machine" if self.per_machine else "")

    def __repr__(self) -> str:
        return f"Budget({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Budget) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


@dataclass(frozen=True, slots=True)
class Prices:
    """What is charged to an epoch budget beside the steps themselves; time and money are measured, not listed."""

    validate_epochs: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.validate_epochs, int | float) or not 0 <= self.validate_epochs < math.inf:
            raise BudgetError(
                f"the price of a validation pass, {self.validate_epochs!r} epochs, must be a finite number, 0 or more"
            )

    def to_dict(self) -> dict[str, Any]:
        return {"validate_epochs": self.validate_epochs}


def parse_duration_s(text: str, what: str = "duration") -> float:
    """Seconds in "2h", "1h 30m", "90s", "1.5 hours"; a bare number is refused, since its unit would be a guess."""
    text = text.strip().lower()
    position, total = 0, 0.0
    while position < len(text):
        found = _DURATION.match(text, position)
        if not found:
            raise BudgetError(
                f"the {what} {text!r} cannot be read: {_EXAMPLES if what == 'budget' else 'write 2h or 90s'}"
            )
        total += float(found[1]) * _SECONDS[found[2][0]]
        position = found.end()
    if position == 0:
        raise BudgetError(f"the {what} is empty: {_EXAMPLES}")
    return total


def _show_dollars(amount: float) -> str:
    """In cents; below one cent with the two digits that count."""
    decimals = 2 if not 0 < amount < 0.01 else min(1 - math.floor(math.log10(amount)), _MOST_DECIMALS)
    return f"${amount:.{decimals}f}"


def read_duration_s(value: str | float | None, what: str) -> float | None:
    """Seconds, from text or from a number of them; None stays None."""
    if value is None or isinstance(value, str):
        return None if value is None else parse_duration_s(value, what)
    seconds = to_plain(value)
    if not (is_number(seconds) and is_finite(seconds)):
        raise BudgetError(f"{what}={value!r} must be a number of seconds, or text as '2h' or '90s'")
    return float(seconds)


def show_seconds(seconds: float) -> str:
    if seconds < 0.995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {rest:02d}s"
