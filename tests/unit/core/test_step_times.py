from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.ledger.running_totals import StepTimes, upper_quantile

SECONDS = st.lists(st.floats(0, 1e6) | st.sampled_from([0.0, 1.0]), max_size=60)


@given(SECONDS, SECONDS)
def test_the_quantile_is_that_of_the_sorted_list(first: list[float], later: list[float]) -> None:
    times = StepTimes(first)
    for count, seconds in enumerate(later):
        assert times.most == upper_quantile(sorted(first + later[:count]))
        times.add(seconds)
    assert (times.most, len(times)) == (upper_quantile(sorted(first + later)), len(first + later))
    assert times.ascending() == sorted(first + later)
    assert times == StepTimes(first + later)
    assert times != StepTimes([*first, *later, 2e6])


def test_nine_in_ten_did_not_exceed_it() -> None:
    assert StepTimes(range(1, 11)).most == 9
    assert StepTimes(range(1, 12)).most == 10
    assert StepTimes().most == 0.0
