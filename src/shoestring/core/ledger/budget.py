"""Budgets and prices: what the user can spend, and in which unit.

    Budget("400 epochs")                       steps of training, counted exactly
    Budget("20 trials"), Budget("20 calls")    the same, where the training code is a function that returns one value
    Budget("2h"), Budget("1h 30m"), "90 s"     worker time: two workers for one hour spend two hours
    Budget("$20 at 2.50/h")                    worker time at a rate per worker
    Budget("$20 at 2.50/h per machine")        the rate is for all workers together, shared evenly

A budget is always the total of the study, never an addition.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from shoestring.core.values.checks import is_finite, is_number, to_plain
from shoestring.errors import BudgetError, show_argument

Unit = Literal["epochs", "seconds", "dollars"]
_NUMBER = r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)"
_EPOCHS = re.compile(rf"{_NUMBER} *(?:epochs?|steps?|(trials?|calls?))")
_DOLLARS = re.compile(rf"\$ *{_NUMBER} +at +\$? *{_NUMBER} */ *h(?:ou)?r?( +per +machine)?")
_DURATION = re.compile(rf"{_NUMBER} *(days?|d|hours?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z]) *")
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_MAX_DECIMALS = 8  # decimals of an amount in dollars
MAX_SECONDS = 1e12  # largest cost of one step, thirty thousand years: sums of such costs are finite
_EXAMPLES = 'write "400 epochs", "2h", "90s" or "$20 at 2.50/h"'


class PricedSeconds(float):
    """Seconds of a worker, with the price of a second as a multiple of the budget's rate."""

    price_factor: float

    def __new__(cls, seconds: float, price_factor: float = 1.0) -> PricedSeconds:
        self = super().__new__(cls, seconds)
        self.price_factor = price_factor
        return self


def price_of(seconds: float) -> float:
    """Return the price factor of these seconds; 1 for a plain number."""
    return seconds.price_factor if isinstance(seconds, PricedSeconds) else 1.0


class Budget:
    """The budget of a whole study.

    `str(budget)` is stored in the ledger; it is the same for equal budgets, such as "120m" and "2h", or "9 calls" and "9 trials".

    Parameters
    ----------
    text : str or Budget
        For example "400 epochs", "2h", "1h 30m", "90s" or "$20 at 2.50/h". The units of time are d, h, m and s. "2.50/h" is
        the price of one worker for an hour; with "2.50/h per machine" it is the price of all workers together. "20 trials" or
        "20 calls" is for training code that is a function: it has one step, so this is the same amount as "20 epochs".

    Attributes
    ----------
    unit : {"epochs", "seconds", "dollars"}
        What the budget counts.
    total : float
        The amount, in this unit.
    counts_trials : bool
        Whether an epoch is called a trial, because each trial has one step.
    usd_per_hour : float or None
        The rate of a budget in dollars.
    per_machine : bool
        Whether the rate is for all workers together, because they share one machine. Otherwise it is for each worker.

    Raises
    ------
    BudgetError
        If the text cannot be read, or the amount is not above 0 and finite.
    """

    __slots__ = ("counts_trials", "per_machine", "total", "unit", "usd_per_hour")

    def __init__(self, text: str | Budget) -> None:
        text = str(text).strip().lower()
        self.usd_per_hour: float | None = None
        self.per_machine = self.counts_trials = False
        self.unit: Unit
        if found := _EPOCHS.fullmatch(text):
            self.unit, self.total, self.counts_trials = "epochs", float(found[1]), bool(found[2])
            if not self.total.is_integer():
                raise BudgetError(f"the budget {text!r} must be a whole number of {self._noun}s; {_EXAMPLES}")
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
            raise BudgetError(f"the budget {text!r} must be above 0 and finite; {_EXAMPLES}")

    @property
    def _noun(self) -> str:
        return "trial" if self.counts_trials else "epoch"

    def require_fit(self, max_steps: int, validate_epochs: float) -> None:
        """Raise BudgetError if this budget counts trials, but the price of a trial is not 1.

        Parameters
        ----------
        max_steps : int
            The number of steps of a full training.
        validate_epochs : float
            The price of one validation pass, in epochs.
        """
        if not self.counts_trials:
            return
        if max_steps > 1:
            raise BudgetError(
                f"the budget {str(self)!r} is for functions that return one value, but a full training has {max_steps} steps: "
                f'write "{self.total * max_steps:.0f} epochs", which would pay for {self.total:.0f} full trainings'
            )
        if validate_epochs:
            raise BudgetError(
                f"the budget {str(self)!r} counts trials, but each also pays {validate_epochs:g} epochs for its "
                f'validation: write "{self.total:.0f} epochs"'
            )

    def per_second(self, workers: int) -> float:
        """Return what one second of a worker costs in this budget's unit.

        Parameters
        ----------
        workers : int
            Number of workers that share the rate of a machine.

        Returns
        -------
        float
            The price; 0 for a budget in epochs.
        """
        if self.unit == "epochs":
            return 0.0
        if self.usd_per_hour is None:
            return 1.0
        return self.usd_per_hour / 3600.0 / (workers if self.per_machine else 1)

    def show(self, amount: float) -> str:
        """Return an amount of this budget as text: 37 epochs, 1h 02m, $3.20, $0.0031.

        Parameters
        ----------
        amount : float
            The amount, in the budget's unit.

        Returns
        -------
        str
            The amount with its unit.
        """
        if self.unit == "epochs":
            return f"{amount:g} {self._noun}{'' if amount == 1 else 's'}"
        return _show_dollars(amount) if self.unit == "dollars" else show_seconds(amount)

    def __str__(self) -> str:
        if self.unit == "epochs":
            return f"{self.total:.0f} {self._noun}s"
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
    """What a budget in epochs is charged in addition to steps. Budgets of time and money are charged for measured time.

    Parameters
    ----------
    validate_epochs : float
        The price of one validation pass, in epochs.

    Raises
    ------
    BudgetError
        If the price is not a finite number, 0 or more.
    """

    validate_epochs: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.validate_epochs, int | float) or not 0 <= self.validate_epochs < math.inf:
            raise BudgetError(
                f"the price of a validation pass, {self.validate_epochs!r} epochs, must be a finite number, 0 or more"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the prices as a dict that JSON can store.

        Returns
        -------
        dict of str to float
            The arguments of `Prices`.
        """
        return {"validate_epochs": self.validate_epochs}


def parse_duration_s(text: str, what: str = "duration", shown: str | None = None) -> float:
    """Return the seconds in "2h", "1h 30m", "90s" or "1.5 hours"; a number without a unit is an error.

    Messages call it `shown`, or else `what` with the text.
    """
    text = text.strip().lower()
    shown = shown or f"the {what} {text!r}"
    position, total = 0, 0.0
    while position < len(text):
        found = _DURATION.match(text, position)
        if not found and re.fullmatch(_NUMBER, text):
            raise BudgetError(f"{shown} cannot be read: the unit is missing: {_name_units(text, what)}")
        if not found:
            raise BudgetError(f"{shown} cannot be read: {_EXAMPLES if what == 'budget' else 'write 2h or 90s'}")
        total += float(found[1]) * _SECONDS[found[2][0]]
        position = found.end()
    if position == 0:
        raise BudgetError(f"the {what} is empty: {_EXAMPLES}")
    return total


def _name_units(number: str, what: str) -> str:
    """Return what may be written in place of a number without a unit."""
    if what == "budget":
        return f'write "{number} epochs", "{number}s" or "${number} at 2.50/h"'
    return f'write "{number}s", "{number}m" or "{number}h"'


def _show_dollars(amount: float) -> str:
    """Return an amount in dollars with two decimals; below one cent, with two significant digits."""
    decimals = 2 if not 0 < amount < 0.01 else min(1 - math.floor(math.log10(amount)), _MAX_DECIMALS)
    return f"${amount:.{decimals}f}"


def read_duration_s(value: str | float | None, what: str) -> float | None:
    """Return the seconds that a text or a number means; None stays None."""
    if value is None or isinstance(value, str):
        return None if value is None else parse_duration_s(value, what, show_argument(what, value))
    seconds = to_plain(value)
    if not (is_number(seconds) and is_finite(seconds)):
        raise BudgetError(f"{show_argument(what, value)} must be a number of seconds, or text such as '2h' or '90s'")
    return float(seconds)


def show_seconds(seconds: float) -> str:
    """Return a duration as text: 20 ms, 3.1 s, 2m 05s, 1h 02m."""
    if seconds < 0.995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {rest:02d}s"
