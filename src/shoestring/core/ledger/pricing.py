"""Pricing: from a decision to an order. Is it allowed, what may it cost, and how much of it can be paid?

What is spent, what open orders may still cost and what this order may cost (its reserve) must together stay within the
budget. An order that does not fit is shortened to the steps that do.

- In epochs the reserve is exact.
- In seconds and dollars the policy may give a reserve. Without it, the reserve is the number of steps to run times the 90 %
  quantile of the trial's own step costs, or of all step costs if it has none. Before any step was paid the reserve is 0, and
  only the runner holds the budget limit.

Steps are counted from the step that the trial can continue from: steps whose state was lost must be trained again.

A resume check trains one more step of a trial in a copy that starts from scratch, in a new process where there are processes.
It is made once per study, and only if it costs at most 1 % of the budget.
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

_ROUNDING = 1e-12  # of the budget: a smaller rest is a rounding error; without a price it would pay for steps for ever
_CHECK_SHARE = 0.01  # of the budget: the most that a resume check may cost


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
        The runner's clock.
    thinking_s : float
        Seconds that the policy thought about it; the order is charged for them.
    check_start_s : float, optional
        Seconds until a copy of a trial is ready to start, if the training code can save, so that the order may check
        resuming. None: it cannot save.

    Returns
    -------
    Order or None
        The order; None if nothing of it can be paid.

    Raises
    ------
    DecisionError
        If no ledger could accept the decision: a mistake of the policy.
    SpaceError
        If its config is outside the search space.
    """
    trial = _require_allowed(ledger, decision)
    config = decision.config if trial and decision.config is trial.config else ledger.space.validate(decision.config)
    seen, resumable_step, limit = (
        (trial.steps, trial.resumable_step, trial.limit) if trial else (0, 0, ledger.max_steps)
    )
    until = min(int(decision.until), limit)
    if ledger.budget.unit == "epochs":
        until, reserve = _fit_epochs(ledger, decision, seen, until)
    else:
        until, reserve = _fit_time(ledger, decision, trial, resumable_step, until, thinking_s)
    if until <= seen:
        return None
    check_price = None if check_start_s is None else _check_price(ledger, check_start_s)
    check = check_price is not None and _check_is_due(ledger, until - resumable_step, reserve, check_price)
    expected = decision.expected_cost
    if expected is None and not math.isnan(step_price := ledger.step_price(decision.trial)):
        expected = step_price * (until - (seen if ledger.budget.unit == "epochs" else resumable_step))
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
    """Return whether any order could be paid, however small; if not, the policy need not be called.

    The smallest order is one step without validation, or a moment of time. `thinking_s`: seconds that it must pay for besides.
    """
    state = ledger.state
    if state.budget.unit == "epochs":
        validations = state.validations + state.validations_due
        return state.steps + state.steps_due + 1 + validations * state.validate_epochs <= state.budget.total
    return _room(ledger, thinking_s) > 0


def _room(ledger: Ledger, thinking_s: float) -> float:
    """Return the time or money that is neither spent nor reserved, less the decision time that the next order must pay for."""
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


def _check_is_due(ledger: Ledger, steps: int, reserve: float, price: float) -> bool:
    """Return whether this order should check resuming: none was made, two steps to compare, cheap, and affordable."""
    if ledger.state.check_ordered or steps < 2:
        return False
    is_cheap = price <= _CHECK_SHARE * ledger.budget.total  # false for NaN: the price is not known yet
    return is_cheap and ledger.left >= reserve + 2 * price  # 2: room for rounding


def _check_price(ledger: Ledger, start_s: float) -> float:
    """Return the price of a copy that starts its process (`start_s`), sets up and trains one step."""
    if ledger.budget.unit == "epochs":
        return 1.0
    state = ledger.state
    rate = state.budget.per_second(state.workers)
    return max(ledger.step_price(), state.max_start_s * rate) + start_s * rate


def _fit_epochs(ledger: Ledger, decision: Train, seen: int, until: int) -> tuple[int, float]:
    """Return the last step that the uncommitted epochs can pay for, and the exact price up to it."""
    state, listed = ledger.state, ledger.opened.prices.validate_epochs
    steps_committed = state.steps + state.steps_due
    validations_committed = state.validations + state.validations_due

    def fits(n: int) -> bool:
        validations = n if decision.validate == "each" else int(decision.validate == "last")
        return steps_committed + n + (validations_committed + validations) * listed <= state.budget.total

    # Start from the answer up to rounding, then correct it with the very sums that the budget is checked with.
    room = state.budget.total - steps_committed - validations_committed * listed
    n = max(0, min(until - seen, math.floor(room / (1 + (listed if decision.validate == "each" else 0.0))) + 1))
    while n > 0 and not fits(n):
        n -= 1
    validations = n if decision.validate == "each" else int(decision.validate == "last")
    return seen + n, n + validations * listed


def _fit_time(
    ledger: Ledger, decision: Train, trial: Trial | None, resumable_step: int, until: int, thinking_s: float
) -> tuple[int, float]:
    """Return the last step that the free time or money can pay for, and the reserve up to it; step 0 if none."""
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
