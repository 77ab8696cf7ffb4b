"""Budgets are read back as they were written, and invalid text gives an error of shoestring."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.ledger.budget import Budget, Prices, parse_duration_s, show_seconds
from shoestring.errors import BudgetError

positive = st.integers(1, 0x7FEFFFFFFFFFFFFF).map(lambda b: struct.unpack("<d", struct.pack("<Q", b))[0])


@examples(60, thorough=500)
@given(positive, positive, st.booleans(), st.integers(1, 64))
def test_every_budget_in_time_or_dollars_is_read_back_exactly(
    amount: float, rate: float, per_machine: bool, workers: int
) -> None:
    tail = " per machine" if per_machine else ""
    for text in (f"{amount!r}s", f"${amount!r} at {rate!r}/h{tail}"):
        budget = Budget(text)
        again = Budget(str(budget))
        assert (again, hash(again), str(again)) == (budget, hash(budget), str(budget))
        assert (again.total, again.usd_per_hour, again.per_machine) == (amount, budget.usd_per_hour, budget.per_machine)
        assert again.per_second(workers) == budget.per_second(workers) >= 0.0


@examples(50, thorough=300)
@given(st.integers(1, 10**15))
def test_every_whole_number_of_epochs_is_read_back(count: int) -> None:
    budget = Budget(f"{count} epochs")
    assert budget.total == count
    assert Budget(str(budget)) == budget
    assert budget.per_second(3) == 0.0


junk = st.one_of(
    st.text(alphabet="0123456789.e+-$/ athepocsmin", max_size=12),
    st.text(max_size=8),
    st.none(),
    st.integers(),
    st.floats(),
    st.lists(st.integers(), max_size=2),
    st.binary(max_size=4),
)


@examples(150, thorough=1500)
@given(junk)
def test_invalid_text_gives_only_budget_errors(text: Any) -> None:
    budget, refused = build(Budget, text)
    if budget is None:
        assert "\n" not in refused
        assert "write" in refused  # the remedy
    else:
        assert Budget(str(budget)) == budget
        assert 0 < budget.total < float("inf")
        assert budget.show(budget.total)
    prices, refused = build(Prices, text)
    assert repr(text) in refused if prices is None else prices.validate_epochs >= 0


def build(kind: Callable[[Any], Any], text: Any) -> tuple[Any, str]:
    """Return the result, or the text of the error."""
    try:
        return kind(text), ""
    except BudgetError as error:
        return None, str(error)


@examples(50, thorough=300)
@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59), st.sampled_from(["", " "]))
def test_durations_add_up(hours: int, minutes: int, seconds: int, gap: str) -> None:
    text = gap.join([f"{hours}h", f"{minutes}m", f"{seconds}s"])
    assert parse_duration_s(text) == hours * 3600 + minutes * 60 + seconds


@given(st.floats(0, 1e9))
def test_shown_durations_are_never_empty_and_never_have_60(seconds: float) -> None:
    shown = show_seconds(seconds)
    assert "60.0" not in shown
    assert "60s" not in shown
    assert "60m" not in shown
