"""Which rows a model is fitted to: all of them, or those of trials spread over the study."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shoestring.models.gp.fit import pick_rows_to_fit


@given(st.lists(st.integers(1, 7), min_size=1, max_size=60), st.integers(7, 100), st.randoms(use_true_random=False))
def test_trials_come_whole_and_as_many_as_fit(sizes: list[int], at_most: int, random: object) -> None:
    owners = [trial for trial, size in enumerate(sizes) for _ in range(size)]
    random.shuffle(owners)  # type: ignore[attr-defined]
    rows = pick_rows_to_fit(owners, at_most)
    assert rows == sorted(set(rows))
    assert len(rows) <= max(at_most, len(owners) if len(owners) <= at_most else 0)
    taken = {owners[row] for row in rows}
    assert len(rows) == sum(sizes[trial] for trial in taken)  # whole
    if len(owners) <= at_most:
        assert rows == list(range(len(owners)))
    else:
        assert len(sizes) - 1 in taken  # the newest
        assert len(rows) >= at_most // max(sizes)


def test_they_are_spread_over_the_study() -> None:
    owners = np.repeat(np.arange(100), 4).tolist()
    taken = sorted({owners[row] for row in pick_rows_to_fit(owners, 50)})
    assert taken[0] == 0
    assert taken[-1] == 99
    assert len(taken) == 12
    assert max(np.diff(taken)) - min(np.diff(taken)) <= 1
