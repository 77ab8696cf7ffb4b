"""The keys that record a comparison in the `why` of an order."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoestring.core.deciding.comparison import are_apart, compare, compare_losses, compare_scores


def test_the_runner_up_is_the_best_of_the_others() -> None:
    scores = np.array([0.2, 0.9, 0.7, -math.inf])
    assert compare_scores("gain", "highest", scores, 1, "abcd".__getitem__) == {
        "compared": 3,  # the candidate with -inf does not count
        "score_name": "gain",
        "best_is": "highest",
        "score": 0.9,
        "runner_up": "c",
        "runner_up_score": 0.7,
    }
    assert scores.tolist() == [0.2, 0.9, 0.7, -math.inf], "the policy's scores are not changed"


def test_low_scores_can_be_the_best() -> None:
    why = compare_scores("cost", "lowest", np.array([3.0, 1.0, 2.0, math.inf]), 1, int, in_unit=lambda cost: 10 * cost)
    assert (why["compared"], why["score"], why["runner_up"], why["runner_up_score"]) == (3, 10.0, 2, 20.0)


def test_a_runner_up_is_named_by_its_trial_or_its_config() -> None:
    scores = np.array([1.0, 2.0])
    assert compare_scores("gain", "highest", scores, 1, lambda i: 7)["runner_up"] == 7
    assert compare_scores("gain", "highest", scores, 1, lambda i: {"x": 0.5})["runner_up"] == '{"x":0.5}'


def test_without_another_candidate_there_is_no_runner_up() -> None:
    alone = {"compared": 1, "score_name": "gain", "best_is": "highest", "score": 1.0}
    assert compare_scores("gain", "highest", np.array([1.0]), 0, int) == alone
    near = compare_scores("gain", "highest", np.array([1.0, 0.9]), 0, int, competitors=np.array([True, False]))
    assert near == alone | {"compared": 2}
    assert compare("gain", "highest", 1, 1.0) == alone


@pytest.mark.parametrize(
    ("sign", "best_is", "score", "runner_up_score"), [(1.0, "lowest", 3, 4), (-1.0, "highest", -3, -4)]
)
def test_losses_are_shown_as_values(sign: float, best_is: str, score: float, runner_up_score: float) -> None:
    why = compare_losses("end", np.array([2.0, 1.0]), 1, int, sign=sign, undo=lambda scaled: scaled + 2.0)
    assert (why["best_is"], why["score"], why["runner_up_score"]) == (best_is, score, runner_up_score)


def test_nearly_equal_points_count_as_one_candidate() -> None:
    cube = np.array([[0.5, 0.5], [0.505, 0.495], [0.5, 0.6]])
    assert are_apart(cube, 0).tolist() == [False, False, True]
