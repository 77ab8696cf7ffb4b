"""The cheap space-filling choice against its description, step by step."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shoestring.models.cost_aware.initial_design import cheap_and_far


@given(st.integers(0, 10**6), st.integers(1, 30))
def test_the_costliest_and_the_closest_go_in_turn(seed: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    x, tried, log_cost = rng.random((m, 2)), rng.random((3, 2)), rng.normal(size=m)
    left = list(range(m))
    while len(left) > 1:
        if (m - len(left)) % 2 == 0:
            left.remove(max(left, key=lambda i: log_cost[i]))
        else:
            left.remove(min(left, key=lambda i: float(np.linalg.norm(tried - x[i], axis=1).min())))
    assert cheap_and_far(x, tried, log_cost) == left[0]
