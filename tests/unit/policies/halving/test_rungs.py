"""What a promotion records about the trials of its rung."""

from __future__ import annotations

from shoestring.policies.halving.rungs import compare_race


def test_a_promotion_records_rank_and_last_promoted_score() -> None:
    why = compare_race(3, -1.0, 45, 2, -0.9, -0.8, (-0.7, 11))
    assert why == {
        "compared": 45,
        "score_name": "value after step 3",
        "best_is": "highest",
        "score": 0.9,
        "runner_up": 11,
        "runner_up_score": 0.7,
        "rank": 2,
        "last_kept_score": 0.8,
    }
    assert "runner_up" not in compare_race(3, 1.0, 2, 0, 0.1, 0.2, None)
