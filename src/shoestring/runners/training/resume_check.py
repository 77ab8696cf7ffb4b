"""The resume check: does a trial that was saved and loaded continue as if it had never been paused?

Training code often gets this wrong. So one step of a trial is trained twice: by the live trial, and by a copy loaded from the
checkpoint of the step before. If the two report different values, something is missing from the checkpoint (the state of the
optimiser, the random generators, the position in the data), and every decision to pause and resume a trial is based on wrong
values.

All seconds from the start of the check to its end are charged to the study: saving, starting a process, imports, the step.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from shoestring.core.ledger.entries import Note, Order
from shoestring.core.ledger.notes import ResumeCheck
from shoestring.runners.training.random_state import RandomState

# Rounding changes the last digits of a value; a missing optimiser state changes the first ones.
_RELATIVE_TOLERANCE = 1e-6
_ABSOLUTE_TOLERANCE = 1e-12  # for values that are 0 up to rounding


def note_check(
    order: Order,
    step: int,
    continued: float | None,
    resumed: float | None,
    seconds: float,
    *,
    exact: bool = True,
    price_factor: float = 1.0,
) -> Note:
    """Return a note of the check's result; `exact=False`: the training code declares that it cannot resume exactly."""
    if continued is None or resumed is None:
        same = continued is resumed
    else:
        both_nan = math.isnan(continued) and math.isnan(resumed)
        same = both_nan or math.isclose(continued, resumed, rel_tol=_RELATIVE_TOLERANCE, abs_tol=_ABSOLUTE_TOLERANCE)
    return _note(order, step, seconds, continued, resumed, same, exact=exact, price_factor=price_factor)


def note_unfinished_check(order: Order, step: int, seconds: float, price_factor: float = 1.0) -> Note:
    """Return a note of a check that cost time although the step to compare with was never finished."""
    return _note(order, step, seconds, None, None, None, price_factor=price_factor)


def _note(
    order: Order,
    step: int,
    seconds: float,
    continued: float | None,
    resumed: float | None,
    same: bool | None,
    *,
    exact: bool = True,
    price_factor: float = 1.0,
) -> Note:
    check = ResumeCheck(
        order=order.number,
        trial=order.trial,
        step=step,
        seconds=max(0.0, seconds),
        continued=continued,
        resumed=resumed,
        same=same,
        price_factor=price_factor,
        declared="" if exact else "inexact",
    )
    return check.to_note()


@contextlib.contextmanager
def preserve_random_state() -> Iterator[None]:
    """Restore the global random generators afterwards, so that the check does not change the trial itself."""
    before = RandomState.take()
    try:
        yield
    finally:
        before.restore()
