"""Texts of others: bounded where they are stored, escaped where they are shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring import Choice, Constant, Float, Space
from shoestring.core.ledger.entries import Cost, Order
from shoestring.core.values.text import MOST_BYTES, bounded, count, printable, rule_of_name
from shoestring.errors import SpaceError
from shoestring.runners.runner import write_broken_receipt

HOSTILE = "\x1b[2J\x07\r\x00\x9b\u202e\x7f"


def test_a_long_text_keeps_its_head_and_its_tail_and_says_what_was_cut() -> None:
    text = "Traceback:\n" + "x" * 20_000 + "\nValueError: at the end"
    kept = bounded(text)
    assert len(kept.encode()) <= MOST_BYTES
    assert kept.startswith("Traceback:\n")
    assert kept.endswith("\nValueError: at the end")
    assert f"… ({20_000 - kept.count('x'):,} more characters cut)" in kept


@given(st.text(min_size=0, max_size=40), st.integers(1, 600))
def test_no_text_is_longer_than_the_bound_and_short_ones_stay(text: str, times: int) -> None:
    whole = text * times
    kept = bounded(whole)
    size = len(whole.encode(errors="surrogatepass"))
    assert len(kept.encode(errors="surrogatepass")) <= MOST_BYTES
    assert (kept == whole) == (size <= MOST_BYTES)


def test_a_failure_is_stored_bounded() -> None:
    order = Order(number=0, trial=0, config={}, until=1)
    receipt = write_broken_receipt(order, 1, "failed", "y" * 1_000_000, Cost(), at=0.0, saved=0)
    assert len(receipt.text) <= MOST_BYTES


def test_a_cost_without_end_is_clipped() -> None:
    order = Order(number=0, trial=0, config={}, until=1)
    costs = Cost(train=1e308, setup=float("inf"), validate=float("nan"))
    receipt = write_broken_receipt(order, 1, "failed", "", costs, at=0.0, saved=0)
    assert receipt.cost == Cost(train=1e12, setup=1e12, validate=0.0)


def test_nothing_that_acts_on_a_terminal_is_left() -> None:
    shown = printable(f"a{HOSTILE}b\nc\td")
    assert shown == r"a\x1b[2J\x07\r\x00\x9b\u202e\x7fb\nc\td"
    assert printable("a\x1bb\nc\td\r", lines=True) == "a\\x1bb\nc\td\\r"
    assert printable("höher ▁▂ 日本") == "höher ▁▂ 日本"


@given(st.text())
def test_what_is_printable_is_printable(text: str) -> None:
    assert printable(text).isprintable()


@pytest.mark.parametrize("name", ["", 3, None, "x" * 201, "a\x1b", "a\nb", "a\u202eb"])
def test_names_of_studies_are_short_and_can_be_seen(name: object) -> None:
    problem = rule_of_name(name)
    assert problem is not None
    assert problem.isprintable()
    assert rule_of_name("x" * 200) is None


def test_options_and_names_too_long_to_be_stored_with_every_order_are_refused() -> None:
    for parameter in (Choice(["a", "b" * 5000]), Constant("c" * 5000), Constant(["c"] * 5000)):
        with pytest.raises(SpaceError, match=r"long, above 4,096: use a short name"):
            Space({"x": parameter})
    with pytest.raises(SpaceError, match="has 300 characters"):
        Space({"x" * 300: Float(0, 1)})


def test_one_of_a_thing_is_not_many() -> None:
    assert [count(number, "trial") for number in (0, 1, 2)] == ["0 trials", "1 trial", "2 trials"]
