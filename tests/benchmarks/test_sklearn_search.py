"""The comparison of `BudgetSearchCV` with scikit-learn's searches: its figures, its clock, its page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import sklearn_search
from benchmarks.sklearn_search import OURS, tasks


def run(method: str, split: int, accuracy: float, data: str = "a") -> dict[str, Any]:
    facts = {"data": data, "pipeline": "p", "split": split, "search_s": 2.0, "configurations": 3}
    return {**facts, "method": method, "accuracy": accuracy}


RUNS = [
    {"data": "a", "pipeline": "p", "split": 1000, "candidates": {"x": 3}},
    *(run(OURS, split, 0.9) for split in range(2)),
    *(run("x", split, accuracy) for split, accuracy in enumerate((0.8, 0.9))),
    run("x", 2, 0.1),  # without a partner: not counted
]


def test_differences_are_paired_by_split() -> None:
    (row,) = sklearn_search.compare(RUNS, "x")
    assert (row["difference"], row["error"]) == (
        pytest.approx(0.05),
        pytest.approx(np.std([0.1, 0.0], ddof=1) / 2**0.5),
    )


def test_a_peer_that_is_better_beyond_the_interval_fails_the_benchmark() -> None:
    assert sklearn_search.judge(RUNS)["ok"]
    worse = [run(OURS, split, 0.7 + 0.001 * split) for split in range(3)] + [run("x", split, 0.9) for split in range(3)]
    found = sklearn_search.judge(worse)
    assert not found["ok"]
    assert found["measured"] == pytest.approx(-0.199)


def test_a_budget_in_seconds_is_one_of_processor_time() -> None:
    wall = time.perf_counter
    with sklearn_search.processor_clock():
        assert time.perf_counter is time.monotonic is time.process_time
        before = time.perf_counter()
        time.sleep(0.2)  # costs no processor time
        assert time.perf_counter() - before < 0.1
    assert time.perf_counter is wall


@pytest.mark.parametrize("pipe", tasks.PIPELINES)
def test_all_searches_accept_the_same_space_and_ours_trains_as_the_table_says(pipe: str) -> None:
    generator = np.random.default_rng(0)
    y = np.arange(400) % 2
    X = generator.normal(size=(400, 3)) + y[:, None]
    found = tasks.budget_search(pipe, 0.5, 0).fit(X, y)
    assert found.steps_ == {"network": "passes", "boosting": "trees", "kernel": "folds"}[pipe]
    assert set(found.best_params_) == set(tasks.random_search(pipe, 1, 0).param_distributions)


def test_the_page_shows_the_stored_runs() -> None:
    page = (Path(sklearn_search.__file__).parent / "README.md").read_text("utf-8")
    assert sklearn_search.describe(sklearn_search.read_runs(sklearn_search.RUNS)) in page
