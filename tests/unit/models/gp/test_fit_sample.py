"""The rows that a model is fitted to: all of them, or those of trials spread over the study."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shoestring.models.gp.fit import pick_rows_to_fit


@given(st.lists(st.integers(1, 7), min_size=1, max_size=60), st.integers(7, 100), st.randoms(use_true_random=False))
def test_all_rows_of_a_trial_are_used_and_as_many_trials_as_fit(sizes: list[int], at_most: int, random: object) -> None:
    owners = [trial for trial, size in enumerate(sizes) for _ in range(size)]
    random.shuffle(owners)  # type: ignore[attr-defined]
    rows = pick_rows_to_fit(owners, at_most)
    assert rows == sorted(set(rows))
    assert len(rows) <= max(at_most, len(owners) if len(owners) <= at_most else 0)
    chosen = {owners[row] for row in rows}
    assert len(rows) == sum(sizes[trial] for trial in chosen)  # whole
    if len(owners) <= at_most:
        assert rows == list(range(len(owners)))
    else:
        assert len(sizes) - 1 in chosen  # the newest
        assert len(rows) >= at_most // max(sizes)


def test_the_trials_are_spread_over_the_study() -> None:
    owners = np.repeat(np.arange(100), 4).tolist()
    chosen = sorted({owners[row] for row in pick_rows_to_fit(owners, 50)})
    assert chosen[0] == 0
    assert chosen[-1] == 99
    assert len(chosen) == 12
    assert max(np.diff(chosen)) - min(np.diff(chosen)) <= 1
