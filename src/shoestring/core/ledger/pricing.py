"""From a decision to an order: is it allowed, what may it cost, how much of it can be paid?

spent + reserves of open orders + the reserve of this order must stay within the budget; an order that does not fit is
shortened to the steps that do. In epochs a reserve is exact. In seconds and dollars it is the policy's, or else the 90 %
quantile of the trial's own step costs, or of all steps', times the steps to run; before any step was paid for it is 0 and
the runner holds the wall. A resume check is one more step of a trial that starts anew, in a process that starts anew where
there are processes; it is made once, and only where all of that costs at most 1 % of the budget. Steps are counted from
what the trial still holds: a lost state must be trained again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.running_totals import upper_quantile
from shoestring.core.ledger.state import Trial
from shoestring.errors import DecisionError

if TYPE_CHECKING:
    from shoestring.core.ledger.ledger import Ledger

_ROUNDING = 1e-12  # of the budget: what sums of seconds leave over is no money; without a price it would buy for ever
_CHECK_SHARE = 0.01  # of the budget: a check must not be felt


def price(
    ledger: Ledger, decision: Train, *, at: float, thinking_s: float, check_start_s: float | None
) -> Order | None:
    trial = _require_allowed(ledger, decision)
    config = decision.config if trial and decision.config is trial.config else ledger.space.validate(decision.config)
    seen, held, limit = (trial.steps, trial.held, trial.limit) if trial else (0, 0, ledger.max_steps)
    until = min(int(decision.until), limit)
    if ledger.budget.unit == "epochs":
        until, reserve = _fit_epochs(ledger, decision, seen, until)
    else:
        until, reserve = _fit_time(ledger, decision, trial, held, until, thinking_s)
    if until <= seen:
        return None
    check_price = None if check_start_s is None else _check_price(ledger, check_start_s)
    check = check_price is not None and _check_is_due(ledger, until - held, reserve, check_price)
    expected = decision.expected_cost
    if expected is None and not math.isnan(step_price := ledger.step_price(decision.trial)):
        expected = step_price * (until - (seen if ledger.budget.unit == "epochs" else held))
    return Order(
        number=len(ledger.orders),
        trial=int(decision.trial),
        config=config,
        until=until,
        validate=decision.validate,
        expected_cost=expected,
        reserve=reserve + (check_price if check and check_price else 0.0),
        check=check,
        why=decision.why,
        memo=decision.memo,
        thinking_s=thinking_s,
        at=at,
    )


def can_pay(ledger: Ledger, thinking_s: float) -> bool:
    """Whether any order at all could be paid: one step without validation, or a moment of time."""
    books = ledger.books
    if books.budget.unit == "epochs":
        validations = books.validations + books.validations_due
        return books.steps + books.steps_due + 1 + validations * books.validate_epochs <= books.budget.total
    return _room(ledger, thinking_s) > 0


def _room(ledger: Ledger, thinking_s: float) -> float:
    """Time or money that is neither spent nor reserved, less the thinking that the next order must carry."""
    books = ledger.books
    return books.budget.total - books.spent - books.reserved - thinking_s * books.budget.per_second(books.workers)


def _require_allowed(ledger: Ledger, decision: Train) -> Trial | None:
    """The trial that is meant, None for a new one; a decision that no ledger could take is the policy's mistake."""
    trials = ledger.trials
    if decision.validate not in ("each", "last", "none"):
        raise DecisionError(f"Train(validate={decision.validate!r}) must be 'each', 'last' or 'none'")
    if not _is_integer(decision.until) or decision.until < 1:
        raise DecisionError(f"Train(until={decision.until!r}) must be a whole number of steps, 1 or more")
    if decision.trial == len(trials):
        return None
    if not 0 <= decision.trial < len(trials):
        raise DecisionError(
            f"Train(trial={decision.trial}) is unknown: {len(trials)} trials exist, the next new one is {len(trials)}"
        )
    trial = trials[decision.trial]
    if trial.open_order is not None:
        raise DecisionError(
            f"Train(trial={trial.number}) is still being trained by order {trial.open_order}: wait for it"
        )
    if decision.until <= trial.steps:
        raise DecisionError(
            f"Train(trial={trial.number}, until={decision.until}) buys nothing: {trial.steps} steps are trained"
        )
    if trial.steps >= trial.limit:
        raise DecisionError(
            f"Train(trial={trial.number}, until={decision.until}) is beyond its end at step {trial.limit}"
        )
    return trial


def _is_integer(number: object) -> bool:
    return hasattr(number, "__index__") and not isinstance(number, bool)  # NumPy's integers too


def _check_is_due(ledger: Ledger, steps: int, reserve: float, price: float) -> bool:
    """Whether this order should test resuming: never tested, two steps to compare, cheap, and affordable."""
    if ledger.books.check_ordered or steps < 2:
        return False
    cheap = price <= _CHECK_SHARE * ledger.budget.total  # nan, a price not known yet, is not
    return cheap and ledger.left >= reserve + 2 * price  # one to spare: rounding


def _check_price(ledger: Ledger, start_s: float) -> float:
    """Of a copy that starts (`start_s`: its process alone), sets up and trains one step."""
    if ledger.budget.unit == "epochs":
        return 1.0
    books = ledger.books
    rate = books.budget.per_second(books.workers)
    return max(ledger.step_price(), books.dearest_start_s * rate) + start_s * rate


def _fit_epochs(ledger: Ledger, decision: Train, seen: int, until: int) -> tuple[int, float]:
    """The furthest step that the uncommitted epochs pay for, and its exact price."""
    books, listed = ledger.books, ledger.opened.prices.validate_epochs
    steps_committed = books.steps + books.steps_due
    validations_committed = books.validations + books.validations_due

    def fits(n: int) -> bool:
        validations = n if decision.validate == "each" else int(decision.validate == "last")
        return steps_committed + n + (validations_committed + validations) * listed <= books.budget.total

    # Start from the answer up to rounding, then settle it with the very sums that the wall is checked with.
    room = books.budget.total - steps_committed - validations_committed * listed
    n = max(0, min(until - seen, math.floor(room / (1 + (listed if decision.validate == "each" else 0.0))) + 1))
    while n > 0 and not fits(n):
        n -= 1
    validations = n if decision.validate == "each" else int(decision.validate == "last")
    return seen + n, n + validations * listed


def _fit_time(
    ledger: Ledger, decision: Train, trial: Trial | None, held: int, until: int, thinking_s: float
) -> tuple[int, float]:
    books = ledger.books
    rate = books.budget.per_second(books.workers)
    room = _room(ledger, thinking_s)
    if decision.reserve is not None:
        if not (0 <= decision.reserve < math.inf):
            raise DecisionError(f"Train(reserve={decision.reserve!r}) must be a number, 0 or more")
        per_step = decision.reserve / (until - held)
    else:
        own = trial.step_costs if trial else []
        per_step = (upper_quantile(sorted(own)) if own else books.step_costs.most) * rate
    if room <= _ROUNDING * books.budget.total:
        return 0, 0.0
    affordable = until - held if per_step * (until - held) <= room else int(room / per_step)
    return held + affordable, per_step * affordable
