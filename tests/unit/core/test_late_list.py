"""A list whose beginning is fetched late is a list in all else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.ledger.lazy_list import LateList

BOUNDS = st.one_of(st.none(), st.integers(-12, 12))


@given(
    early=st.integers(0, 6),
    late=st.integers(0, 6),
    start=BOUNDS,
    stop=BOUNDS,
    step=st.sampled_from([None, 1, 2, -1, -3]),
)
def test_a_slice_is_that_of_a_list(early: int, late: int, start: int, stop: int, step: int) -> None:
    numbers = list(range(early + late))
    made = LateList(early, lambda: numbers[:early])
    for number in numbers[early:]:
        made.append(number)
    assert len(made) == len(numbers)
    assert made[start:stop:step] == numbers[start:stop:step]
    assert made == numbers
    assert list(made) == numbers


@given(early=st.integers(0, 5), late=st.integers(0, 5), place=st.integers(-12, 12))
def test_an_item_is_that_of_a_list(early: int, late: int, place: int) -> None:
    numbers = list(range(early + late))
    made = LateList(early, lambda: numbers[:early])
    for number in numbers[early:]:
        made.append(number)
    if -len(numbers) <= place < len(numbers):
        assert made[place] == numbers[place]
    else:
        with pytest.raises(IndexError):
            made[place]


def test_nothing_is_fetched_before_it_is_asked_for_and_only_once() -> None:
    fetched: list[int] = []

    def fetch() -> list[int]:
        fetched.append(1)
        return [0, 1, 2]

    made = LateList(3, fetch)
    made.append(3)
    made.append(4)
    assert (len(made), made[-1], made[3], made[3:], made[10:], made.pop()) == (5, 4, 3, [3, 4], [], 4)
    assert fetched == []
    assert (made[0], made[2], made[1:]) == (0, 2, [1, 2, 3])
    assert fetched == [1]
