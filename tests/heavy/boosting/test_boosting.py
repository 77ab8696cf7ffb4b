"""Boosting: resuming in fresh processes changes nothing, and the resume check finds plain continuation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boosting_code as code
import pytest

from shoestring.runners.training.code import LiveTrial
from shoestring.testing.resuming import check_resuming, train_in_one_piece, train_in_pieces

HERE = f"{Path(__file__).parent}/boosting_code.py"
CASES = [
    ("light", {}),
    ("light", {"boosting": "dart"}),
    ("extreme", {}),
    ("extreme", {"booster": "dart", "rate_drop": 0.3}),
    ("cat", {}),
    ("cat", {"boosting_type": "Ordered"}),
    ("cat_words", {}),
]


@pytest.mark.parametrize(("name", "config"), CASES)
def test_resuming_changes_nothing(name: str, config: dict[str, Any], tmp_path: Path) -> None:
    whole = train_in_one_piece(f"{HERE}:{name}", config, code.STEPS)
    assert len(set(whole)) == code.STEPS
    assert train_in_pieces(f"{HERE}:{name}", config, code.STEPS, 2, tmp_path) == whole


@pytest.mark.parametrize("name", ["light", "extreme", "cat"])
def test_the_resume_check_accepts_correct_code(name: str, tmp_path: Path) -> None:
    assert check_resuming(f"{HERE}:{name}", {}, tmp_path).facts["same"]


@pytest.mark.parametrize("name", ["light_continued", "extreme_continued", "cat_continued"])
def test_the_resume_check_finds_plain_continuation(name: str, tmp_path: Path) -> None:
    assert not check_resuming(f"{HERE}:{name}", {}, tmp_path).facts["same"]


@pytest.mark.parametrize("name", ["light", "extreme", "cat"])
def test_every_step_adds_its_rounds(name: str, tmp_path: Path) -> None:
    live = LiveTrial(getattr(code, name), {})
    for _ in range(3):
        live.advance({}, 3, True)
    model: Any = live._save.args[0]  # type: ignore[union-attr]
    trees = {"light": "num_trees", "extreme": "num_boosted_rounds", "cat": "get_tree_leaf_counts"}[name]
    grown = getattr(model, trees)()
    assert (grown if isinstance(grown, int) else len(grown)) == 15
    live.close()
