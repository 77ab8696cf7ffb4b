"""Does a trial that was saved and loaded go on as if it had never been frozen? Users get this wrong; so we try it out.

One step of a trial is trained twice: by the live trial, and by a copy loaded from the checkpoint of the step before. If
the two report different values, something is missing from the checkpoint (the optimiser's state, the random
generators, the position in the data), and every decision to freeze and thaw rests on sand.

All seconds from the moment it begins to its end are the check's: saving for it, starting a process, imports, the step.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from shoestring.core.ledger.entries import Note, Order
from shoestring.runners.runner import say_price
from shoestring.runners.training.random_state import RandomState

_RELATIVE = 1e-6  # arithmetic in another order may move the last digits; a forgotten optimiser moves the first ones


def note_check(
    order: Order,
    step: int,
    went_on: float | None,
    resumed: float | None,
    seconds: float,
    *,
    exact: bool = True,
    price_factor: float = 1.0,
) -> Note:
    """What the check found; `exact=False`: the training code declares that it cannot be resumed exactly."""
    if went_on is None or resumed is None:
        same = went_on is resumed
    else:
        both_nan = math.isnan(went_on) and math.isnan(resumed)
        same = both_nan or math.isclose(went_on, resumed, rel_tol=_RELATIVE, abs_tol=1e-12)
    return _note(order, step, seconds, went_on, resumed, same, exact=exact, price_factor=price_factor)


def note_unfinished_check(order: Order, step: int, seconds: float, price_factor: float = 1.0) -> Note:
    """The check took its time, but the step it was to be compared with was never finished."""
    return _note(order, step, seconds, None, None, None, price_factor=price_factor)


def _note(
    order: Order,
    step: int,
    seconds: float,
    went_on: float | None,
    resumed: float | None,
    same: bool | None,
    *,
    exact: bool = True,
    price_factor: float = 1.0,
) -> Note:
    facts = {"order": order.number, "trial": order.trial, "step": step, "seconds": max(0.0, seconds)}
    declared = say_price(price_factor) | ({} if exact else {"declared": "inexact"})
    return Note(topic="check", facts={**facts, "went_on": went_on, "resumed": resumed, "same": same, **declared})


@contextlib.contextmanager
def preserve_random_state() -> Iterator[None]:
    """Put the global random generators back, so that trying resuming out does not change the trial itself."""
    before = RandomState.take()
    try:
        yield
    finally:
        before.put_back()
