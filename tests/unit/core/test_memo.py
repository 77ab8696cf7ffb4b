"""When a fit is due again: by observations, never by decisions."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.deciding.memo import Lists, Refits, pick

rising = st.lists(st.integers(0, 200), min_size=1, max_size=40).map(sorted)


def fits(schedule: Refits, counts: list[int]) -> list[int]:
    """The counts at which a fit is made when decisions are asked for at these; the memo is all that is carried."""
    memo: dict[str, list[float]] = {}
    made = []
    for count in counts:
        fit = schedule.check_due(memo, count)
        memo = fit.marks
        if fit.is_due:
            made.append(count)
    return made


def test_often_at_first_then_every_few() -> None:
    assert fits(Refits(often=4, every=3), list(range(14))) == [1, 2, 3, 4, 7, 10, 13]
    assert fits(Refits(every=3), list(range(10))) == [1, 4, 7]
    assert fits(Refits(first=3, every=2), list(range(9))) == [3, 5, 7]


def test_a_growing_schedule_has_marks_of_its_own() -> None:
    schedule = Refits(first=8, growth=2.0)
    assert fits(schedule, list(range(70))) == [8, 16, 32, 64]
    assert fits(Refits(first=1, growth=1.1), list(range(14))) == [*range(1, 12), 13]
    assert schedule.check_due({}, 7).marks == {}
    late = schedule.check_due({}, 20)
    assert (late.is_due, late.marks) == (True, {"fitted_at": [16.0, 16.0]}), "as if it had been asked in time"


def test_after_growth_a_fit_starts_afresh() -> None:
    schedule, afresh = Refits(often=100, afresh=1.5), []
    memo: Lists = {}
    for count in range(1, 20):
        fit = schedule.check_due(memo, count)
        memo = fit.marks
        afresh += [count] if fit.is_afresh else []
    assert afresh == [1, 2, 3, 5, 8, 12, 18]
    assert memo == {"fitted_at": [19.0, 18.0]}


def test_memos_that_count_the_last_fit_alone_are_understood() -> None:
    assert not Refits(every=3).check_due({"fitted_at": [6.0]}, 8).is_due
    assert Refits(every=3).check_due({"fitted_at": [6.0]}, 9).is_due
    assert Refits(every=3, key="receipts").check_due({"receipts": [0.0]}, 1).is_due


@given(rising, st.integers(1, 20), st.integers(1, 9))
def test_asking_twice_at_one_count_changes_nothing(counts: list[int], often: int, every: int) -> None:
    for schedule in (Refits(often=often, every=every), Refits(first=every, growth=1.0 + often)):
        assert fits(schedule, counts) == fits(schedule, [count for count in counts for _ in range(2)])


@given(rising)
def test_never_more_than_the_schedule_allows_between_two_fits(counts: list[int]) -> None:
    made = fits(Refits(every=5), counts)
    assert all(later - earlier >= 5 for earlier, later in itertools.pairwise(made))
    waiting = [count for count in counts if count >= 1]
    assert made[:1] == waiting[:1]


def test_nothing_is_due_for_ever_without_a_rule() -> None:
    assert fits(Refits(), list(range(500))) == [1]
    assert Refits().every == math.inf


def test_pick_takes_what_is_there() -> None:
    assert pick({"a": (1.0,), "b": [2.0]}, ["b", "c"]) == {"b": [2.0]}
