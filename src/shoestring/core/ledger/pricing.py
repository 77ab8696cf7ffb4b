"""Turn a decision into an order: check that it is allowed, compute what it may cost, and shorten it to what can be paid.

What was spent, what open orders may still cost and what this order may cost (its reserve) must together not exceed the
budget. An order that does not fit is shortened to the steps that do.

- In epochs the reserve is exact.
- In seconds and dollars the policy may give a reserve. Without it, the reserve is the number of steps to run times the 90 %
  quantile of the trial's own step costs, or of all step costs if it has none. Before any step was paid the reserve is 0, and
  only the runner enforces the budget limit.

In seconds and dollars, steps are counted from the step from which the trial can continue: steps whose state was lost must be
trained again.

A resume check trains one step of a trial a second time, in a copy that is loaded from a checkpoint. Runners that train in other
processes start a new process for the copy. One check is made per study, and only if it costs at most 1 % of the budget.
"""

from __future__ import annotations

import math

from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.running_totals import upper_quantile
from shoestring.core.ledger.state import Trial
from shoestring.core.values.text import count
from shoestring.errors import DecisionError

# A remainder below this share of the budget is a rounding error and pays for nothing. Otherwise it would pay for steps without
# end while their price is not known and counts as 0.
_ROUNDING = 1e-12
_CHECK_SHARE = 0.01  # the largest share of the budget that a resume check may cost


def place_order(
    ledger: Ledger,
    decision: Train,
    *,
    at: float = 0.0,
    thinking_s: float = 0.0,
    check_start_s: float | None = None,
) -> Order | None:
    """Return the order that a decision becomes: checked, priced, and shortened to what can be paid.

    Parameters
    ----------
    ledger : Ledger
        The study.
    decision : Train
        What the policy wants to train.
    at : float
        The time on the runner's clock.
    thinking_s : float
        Seconds that the decision took; the order is charged for them.
    check_start_s : float, optional
        Seconds until a copy of a trial can begin a step, so that the order may include a resume check. None if the training
        code cannot save.

    Returns
    -------
    Order or None
        The order; None if not even one of its steps can be paid.

    Raises
    ------
    DecisionError
        If the decision is not allowed: a mistake in the policy.
    SpaceError
        If its config is not in the search space.
    """
    trial = _require_allowed(ledger, decision)
    config = decision.config if trial and decision.config is trial.config else ledger.space.validate(decision.config)
    steps, resumable_step = (trial.steps, trial.resumable_step) if trial else (0, 0)
    until = min(int(decision.until), trial.limit if trial else ledger.max_steps)
    if ledger.budget.unit == "epochs":
        until, reserve = _fit_epochs(ledger, decision, steps, until)
    else:
        until, reserve = _fit_time(ledger, decision, trial, resumable_step, until, thinking_s)
    if until <= steps:
        return None
    check_price = None if check_start_s is None else _price_of_check(ledger, check_start_s)
    check = check_price is not None and _is_check_due(ledger, until - resumable_step, reserve, check_price)
    expected = decision.expected_cost
    if expected is None and not math.isnan(step_price := ledger.step_price(decision.trial)):
        expected = step_price * (until - (steps if ledger.budget.unit == "epochs" else resumable_step))
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


def can_afford_order(ledger: Ledger, thinking_s: float = 0.0) -> bool:
    """Return whether the smallest possible order could be paid; if not, the policy need not be called.

    The smallest order is one step without validation, or any amount of time or money. `thinking_s` are seconds of decisions
    for which the order must pay too.
    """
    state = ledger.state
    if state.budget.unit == "epochs":
        validations = state.validations + state.validations_due
        return state.steps + state.steps_due + 1 + validations * state.validate_epochs <= state.budget.total
    return _room(ledger, thinking_s) > 0


def _room(ledger: Ledger, thinking_s: float) -> float:
    """Return the time or money that is neither spent nor reserved, minus `thinking_s`, for which the next order must pay."""
    state = ledger.state
    return state.budget.total - state.spent - state.reserved - thinking_s * state.budget.per_second(state.workers)


def _require_allowed(ledger: Ledger, decision: Train) -> Trial | None:
    """Return the decision's trial, None for a new one; raise DecisionError if the decision can never be carried out."""
    trials = ledger.trials
    if decision.validate not in ("each", "last", "none"):
        raise DecisionError(f"Train(validate={decision.validate!r}) must be 'each', 'last' or 'none'")
    if not _is_integer(decision.until) or decision.until < 1:
        raise DecisionError(f"Train(until={decision.until!r}) must be a whole number of steps, 1 or more")
    if decision.trial == len(trials):
        return None
    if not 0 <= decision.trial < len(trials):
        raise DecisionError(
            f"Train(trial={decision.trial}) is unknown: the study has {count(len(trials), 'trial')}, "
            f"the next new one is {len(trials)}"
        )
    trial = trials[decision.trial]
    if trial.open_order is not None:
        raise DecisionError(
            f"Train(trial={trial.number}) is still being trained by order {trial.open_order}: wait for it"
        )
    if decision.until <= trial.steps:
        raise DecisionError(
            f"Train(trial={trial.number}, until={decision.until}) trains nothing: step {trial.steps} is reached already"
        )
    if trial.steps >= trial.limit:
        raise DecisionError(
            f"Train(trial={trial.number}, until={decision.until}) is beyond its end at step {trial.limit}"
        )
    return trial


def _is_integer(number: object) -> bool:
    return hasattr(number, "__index__") and not isinstance(number, bool)  # NumPy's integers too


def _is_check_due(ledger: Ledger, steps: int, reserve: float, price: float) -> bool:
    """Return whether this order should include a resume check.

    It should if no check was ordered before, the order trains at least two steps, and the check is cheap and can be paid.
    """
    if ledger.state.check_ordered or steps < 2:
        return False
    is_cheap = price <= _CHECK_SHARE * ledger.budget.total  # false for NaN: the price is not known yet
    return is_cheap and ledger.left >= reserve + 2 * price  # twice the price, to be safe against rounding


def _price_of_check(ledger: Ledger, start_s: float) -> float:
    """Return the price of a resume check: starting the copy (`start_s`), setup, and one step."""
    if ledger.budget.unit == "epochs":
        return 1.0
    state = ledger.state
    rate = state.budget.per_second(state.workers)
    return max(ledger.step_price(), state.max_start_s * rate) + start_s * rate


def _fit_epochs(ledger: Ledger, decision: Train, steps: int, until: int) -> tuple[int, float]:
    """Return the last step that the remaining epochs can pay for, and the exact price of the steps after `steps` up to it."""
    state, validation_price = ledger.state, ledger.definition.prices.validate_epochs
    steps_committed = state.steps + state.steps_due
    validations_committed = state.validations + state.validations_due

    def fits(n: int) -> bool:
        validations = n if decision.validate == "each" else int(decision.validate == "last")
        return steps_committed + n + (validations_committed + validations) * validation_price <= state.budget.total

    # This is right up to rounding; the loop then corrects it with the same sums with which the budget is checked.
    room = state.budget.total - steps_committed - validations_committed * validation_price
    price = 1 + (validation_price if decision.validate == "each" else 0.0)
    n = max(0, min(until - steps, math.floor(room / price) + 1))
    while n > 0 and not fits(n):
        n -= 1
    validations = n if decision.validate == "each" else int(decision.validate == "last")
    return steps + n, n + validations * validation_price


def _fit_time(
    ledger: Ledger, decision: Train, trial: Trial | None, resumable_step: int, until: int, thinking_s: float
) -> tuple[int, float]:
    """Return the last step that the remaining time or money can pay for, and the reserve up to it; step 0 if nothing remains."""
    state = ledger.state
    rate = state.budget.per_second(state.workers)
    room = _room(ledger, thinking_s)
    if decision.reserve is not None:
        if not (0 <= decision.reserve < math.inf):
            raise DecisionError(f"Train(reserve={decision.reserve!r}) must be a number, 0 or more")
        per_step = decision.reserve / (until - resumable_step)
    else:
        own = trial.step_costs if trial else []
        per_step = (upper_quantile(sorted(own)) if own else state.step_costs.upper_quantile) * rate
    if room <= _ROUNDING * state.budget.total:
        return 0, 0.0
    affordable = until - resumable_step if per_step * (until - resumable_step) <= room else int(room / per_step)
    return resumable_step + affordable, per_step * affordable
