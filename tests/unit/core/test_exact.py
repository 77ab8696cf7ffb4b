"""Exact sums: what adding all parts afresh would give, rounded once."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.ledger.running_totals import to_exact, to_float
from shoestring.runners.runner import RunningSteps

NUMBERS = st.floats(-1e12, 1e12) | st.sampled_from([0.1, 1e-300, 5e-324, -0.0, 1e300])


@given(st.lists(NUMBERS, max_size=30))
def test_a_sum_is_rounded_once(numbers: list[float]) -> None:
    assert to_float(sum(map(to_exact, numbers))) == math.fsum(numbers)


@given(st.lists(NUMBERS, max_size=30), st.lists(NUMBERS, max_size=30))
def test_what_is_taken_away_again_leaves_no_trace(stays: list[float], goes: list[float]) -> None:
    total = sum(map(to_exact, stays + goes)) - sum(map(to_exact, goes))
    assert to_float(total) == math.fsum(stays)


def test_running_steps_know_when_they_will_have_used_up_what_is_left() -> None:
    chance, running, factors = random.Random(0), RunningSteps(), dict[int, float]()
    for turn in range(500):
        number = chance.randrange(20)
        if number in running and chance.random() < 0.5:
            running.end(number)
            del factors[number]
        else:
            factors[number] = chance.choice([0.3, 1.0, 2.5])
            running.begin(number, turn * 0.1, factors[number])
        if running:
            assert running.wall(7.0, priced=False) == (7.0 + math.fsum(running.values())) / len(running)
            t = running.wall(7.0, priced=True)
            used = math.fsum(factors[number] * (t - since) for number, since in running.items())
            assert math.isclose(used, 7.0, abs_tol=1e-6)
    assert len(running) > 3
