"""When a fit is due depends on the number of observations, never on the number of decisions."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.deciding.memo import Lists, Refits, pick

rising = st.lists(st.integers(0, 200), min_size=1, max_size=40).map(sorted)


def fits(schedule: Refits, counts: list[int]) -> list[int]:
    """Return the counts at which a fit is made, for decisions at these counts that share nothing but the memo."""
    memo: dict[str, list[float]] = {}
    fitted = []
    for count in counts:
        fit = schedule.check_fit(memo, count)
        memo = fit.marks
        if fit.is_due:
            fitted.append(count)
    return fitted


def test_fits_are_frequent_at_first_and_then_at_fixed_intervals() -> None:
    assert fits(Refits(dense_until=4, every=3), list(range(14))) == [1, 2, 3, 4, 7, 10, 13]
    assert fits(Refits(every=3), list(range(10))) == [1, 4, 7]
    assert fits(Refits(first=3, every=2), list(range(9))) == [3, 5, 7]


def test_a_growing_schedule_has_fixed_marks() -> None:
    schedule = Refits(first=8, growth=2.0)
    assert fits(schedule, list(range(70))) == [8, 16, 32, 64]
    assert fits(Refits(first=1, growth=1.1), list(range(14))) == [*range(1, 12), 13]
    assert schedule.check_fit({}, 7).marks == {}
    late = schedule.check_fit({}, 20)
    assert (late.is_due, late.marks) == (True, {"fitted_at": [16.0, 16.0]}), "as if it had been called at 16"


def test_after_enough_growth_a_fit_restarts() -> None:
    schedule, restarts = Refits(dense_until=100, restart_growth=1.5), []
    memo: Lists = {}
    for count in range(1, 20):
        fit = schedule.check_fit(memo, count)
        memo = fit.marks
        restarts += [count] if fit.is_restart else []
    assert restarts == [1, 2, 3, 5, 8, 12, 18]
    assert memo == {"fitted_at": [19.0, 18.0]}


def test_memos_with_one_number_are_understood() -> None:
    assert not Refits(every=3).check_fit({"fitted_at": [6.0]}, 8).is_due
    assert Refits(every=3).check_fit({"fitted_at": [6.0]}, 9).is_due
    assert Refits(every=3, key="receipts").check_fit({"receipts": [0.0]}, 1).is_due


@given(rising, st.integers(1, 20), st.integers(1, 9))
def test_two_calls_at_one_count_change_nothing(counts: list[int], dense_until: int, every: int) -> None:
    for schedule in (Refits(dense_until=dense_until, every=every), Refits(first=every, growth=1.0 + dense_until)):
        assert fits(schedule, counts) == fits(schedule, [count for count in counts for _ in range(2)])


@given(rising)
def test_two_fits_are_at_least_the_interval_apart(counts: list[int]) -> None:
    fitted = fits(Refits(every=5), counts)
    assert all(later - earlier >= 5 for earlier, later in itertools.pairwise(fitted))
    counts_from_1 = [count for count in counts if count >= 1]
    assert fitted[:1] == counts_from_1[:1]


def test_without_a_rule_only_the_first_fit_is_due() -> None:
    assert fits(Refits(), list(range(500))) == [1]
    assert Refits().every == math.inf


def test_pick_returns_the_lists_that_exist() -> None:
    assert pick({"a": (1.0,), "b": [2.0]}, ["b", "c"]) == {"b": [2.0]}
