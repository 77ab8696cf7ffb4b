"""A lazy list behaves like a list; its first items are fetched once, when one of them is needed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.ledger.lazy_list import LazyList

BOUNDS = st.one_of(st.none(), st.integers(-12, 12))


@given(
    n_fetched=st.integers(0, 6),
    n_appended=st.integers(0, 6),
    start=BOUNDS,
    stop=BOUNDS,
    step=st.sampled_from([None, 1, 2, -1, -3]),
)
def test_slices_equal_those_of_a_list(n_fetched: int, n_appended: int, start: int, stop: int, step: int) -> None:
    numbers = list(range(n_fetched + n_appended))
    lazy = LazyList(n_fetched, lambda: numbers[:n_fetched])
    for number in numbers[n_fetched:]:
        lazy.append(number)
    assert len(lazy) == len(numbers)
    assert lazy[start:stop:step] == numbers[start:stop:step]
    assert lazy == numbers
    assert list(lazy) == numbers


@given(n_fetched=st.integers(0, 5), n_appended=st.integers(0, 5), index=st.integers(-12, 12))
def test_items_equal_those_of_a_list(n_fetched: int, n_appended: int, index: int) -> None:
    numbers = list(range(n_fetched + n_appended))
    lazy = LazyList(n_fetched, lambda: numbers[:n_fetched])
    for number in numbers[n_fetched:]:
        lazy.append(number)
    if -len(numbers) <= index < len(numbers):
        assert lazy[index] == numbers[index]
    else:
        with pytest.raises(IndexError):
            lazy[index]


def test_items_are_fetched_once_and_only_when_needed() -> None:
    fetched: list[int] = []

    def fetch() -> list[int]:
        fetched.append(1)
        return [0, 1, 2]

    lazy = LazyList(3, fetch)
    lazy.append(3)
    lazy.append(4)
    assert (len(lazy), lazy[-1], lazy[3], lazy[3:], lazy[10:], lazy.pop()) == (5, 4, 3, [3, 4], [], 4)
    assert fetched == []
    assert (lazy[0], lazy[2], lazy[1:]) == (0, 2, [1, 2, 3])
    assert fetched == [1]
