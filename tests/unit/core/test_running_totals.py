"""Exact totals equal the sum of their parts, rounded once; the running quantile equals that of the sorted list."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.ledger.running_totals import StepTimes, to_exact, to_float, upper_quantile
from shoestring.runners.runner import RunningSteps

NUMBERS = st.floats(-1e12, 1e12) | st.sampled_from([0.1, 1e-300, 5e-324, -0.0, 1e300])


@given(st.lists(NUMBERS, max_size=30))
def test_a_total_is_rounded_once(numbers: list[float]) -> None:
    assert to_float(sum(map(to_exact, numbers))) == math.fsum(numbers)


@given(st.lists(NUMBERS, max_size=30), st.lists(NUMBERS, max_size=30))
def test_subtracting_a_part_again_leaves_no_rounding_error(parts: list[float], others: list[float]) -> None:
    total = sum(map(to_exact, parts + others)) - sum(map(to_exact, others))
    assert to_float(total) == math.fsum(parts)


def test_the_cutoff_of_running_steps_is_when_they_have_used_what_is_left() -> None:
    chance, running, factors = random.Random(0), RunningSteps(), dict[int, float]()
    for number_of_turn in range(500):
        number = chance.randrange(20)
        if number in running and chance.random() < 0.5:
            running.end(number)
            del factors[number]
        else:
            factors[number] = chance.choice([0.3, 1.0, 2.5])
            running.begin(number, number_of_turn * 0.1, factors[number])
        if running:
            assert running.cutoff(7.0, priced=False) == (7.0 + math.fsum(running.values())) / len(running)
            t = running.cutoff(7.0, priced=True)
            used = math.fsum(factors[number] * (t - since) for number, since in running.items())
            assert math.isclose(used, 7.0, abs_tol=1e-6)
    assert len(running) > 3


SECONDS = st.lists(st.floats(0, 1e6) | st.sampled_from([0.0, 1.0]), max_size=60)


@given(SECONDS, SECONDS)
def test_the_quantile_equals_that_of_the_sorted_list(first: list[float], later: list[float]) -> None:
    times = StepTimes(first)
    for count, seconds in enumerate(later):
        assert times.upper_quantile == upper_quantile(sorted(first + later[:count]))
        times.add(seconds)
    assert (times.upper_quantile, len(times)) == (upper_quantile(sorted(first + later)), len(first + later))
    assert times.ascending() == sorted(first + later)
    assert times == StepTimes(first + later)
    assert times != StepTimes([*first, *later, 2e6])


def test_90_percent_of_the_steps_do_not_exceed_the_quantile() -> None:
    assert StepTimes(range(1, 11)).upper_quantile == 9
    assert StepTimes(range(1, 12)).upper_quantile == 10
    assert StepTimes().upper_quantile == 0.0
