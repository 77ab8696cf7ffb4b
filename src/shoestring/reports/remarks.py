"""Remarks about a run that is over: what the user would want to know without asking. None: nothing to say."""

from __future__ import annotations

from shoestring.core.ledger import Ledger

_MUCH_THINKING = 0.25  # of all seconds charged


def say_unspent(ledger: Ledger, why: str) -> str | None:
    """The policy has ended the run, and another step could have been paid."""
    left, step = ledger.left, ledger.step_price()
    if left <= 0 or left < step:  # nan, before the first step, is no price: then nothing was spent
        return None
    budget = ledger.budget
    reason = why or "it sees nothing more worth buying"
    return (
        f"{ledger.books.policy} ended with {budget.show(left)} of {budget.show(budget.total)} unspent: {reason}; "
        "widen the space or choose another policy to spend it, or leave it"
    )


def say_thinking(ledger: Ledger) -> str | None:
    """The policy's own time took a large part of what was charged."""
    books = ledger.books
    thinking_s = books.by_kind["thinking"]
    if books.budget.unit == "epochs" or thinking_s <= _MUCH_THINKING * books.seconds:
        return None
    show, rate = books.budget.show, books.budget.per_second(books.workers)
    return (
        f"{books.policy} spent {show(thinking_s * rate)} of {show(books.spent)} on thinking, not on training: "
        "let a step be more training, or choose a policy that thinks less, as random_search or sequential_halving"
    )
