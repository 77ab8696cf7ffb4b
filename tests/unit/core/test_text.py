"""Texts of the user: shortened where they are stored, escaped where they are shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring import Choice, Constant, Float, Space
from shoestring.core.ledger.entries import Cost, Order
from shoestring.core.values.text import MAX_BYTES, count, find_problem_of_name, printable, shorten
from shoestring.errors import SpaceError
from shoestring.runners.runner import write_incomplete_receipt

HOSTILE = "\x1b[2J\x07\r\x00\x9b\u202e\x7f"


def test_a_long_text_keeps_its_head_and_tail_and_names_the_number_of_cut_characters() -> None:
    text = "Traceback:\n" + "x" * 20_000 + "\nValueError: at the end"
    short = shorten(text)
    assert len(short.encode()) <= MAX_BYTES
    assert short.startswith("Traceback:\n")
    assert short.endswith("\nValueError: at the end")
    assert f"… ({20_000 - short.count('x'):,} more characters cut)" in short


@given(st.text(min_size=0, max_size=40), st.integers(1, 600))
def test_only_long_texts_are_shortened(text: str, times: int) -> None:
    whole = text * times
    short = shorten(whole)
    size = len(whole.encode(errors="surrogatepass"))
    assert len(short.encode(errors="surrogatepass")) <= MAX_BYTES
    assert (short == whole) == (size <= MAX_BYTES)


def test_the_text_of_a_failure_is_shortened_when_it_is_stored() -> None:
    order = Order(number=0, trial=0, config={}, until=1)
    receipt = write_incomplete_receipt(order, 1, "failed", "y" * 1_000_000, Cost(), at=0.0, saved_step=0)
    assert len(receipt.text) <= MAX_BYTES


def test_an_infinite_cost_is_clipped() -> None:
    order = Order(number=0, trial=0, config={}, until=1)
    costs = Cost(train=1e308, setup=float("inf"), validate=float("nan"))
    receipt = write_incomplete_receipt(order, 1, "failed", "", costs, at=0.0, saved_step=0)
    assert receipt.cost == Cost(train=1e12, setup=1e12, validate=0.0)


def test_characters_that_control_a_terminal_are_escaped() -> None:
    shown = printable(f"a{HOSTILE}b\nc\td")
    assert shown == r"a\x1b[2J\x07\r\x00\x9b\u202e\x7fb\nc\td"
    assert printable("a\x1bb\nc\td\r", lines=True) == "a\\x1bb\nc\td\\r"
    assert printable("höher ▁▂ 日本") == "höher ▁▂ 日本"


@given(st.text())
def test_the_result_is_printable(text: str) -> None:
    assert printable(text).isprintable()


@pytest.mark.parametrize("name", ["", 3, None, "x" * 201, "a\x1b", "a\nb", "a\u202eb"])
def test_names_that_are_too_long_or_not_printable_are_refused(name: object) -> None:
    problem = find_problem_of_name(name)
    assert problem is not None
    assert problem.isprintable()
    assert find_problem_of_name("x" * 200) is None


def test_options_and_names_that_are_too_long_are_refused() -> None:
    for parameter in (Choice(["a", "b" * 5000]), Constant("c" * 5000), Constant(["c"] * 5000)):
        with pytest.raises(SpaceError, match=r"long, above 4,096: use a short name"):
            Space({"x": parameter})
    with pytest.raises(SpaceError, match="has 300 characters"):
        Space({"x" * 300: Float(0, 1)})


def test_the_noun_agrees_with_the_number() -> None:
    assert [count(number, "trial") for number in (0, 1, 2)] == ["0 trials", "1 trial", "2 trials"]
