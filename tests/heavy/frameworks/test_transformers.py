"""Hugging Face's Trainer: frozen and thawed every two steps in a fresh process, the run is the whole run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers_code as code

from shoestring.errors import RunnerError
from shoestring.runners.training.code import Live
from shoestring.testing.resuming import check_resuming, train_in_one_piece, train_in_pieces

HERE = f"{Path(__file__).parent}/transformers_code.py"
CONFIGS = {"an epoch a step": {}, "five of eight batches a step": {"every": 5}, "two loading processes": {"workers": 2}}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_freezing_and_thawing_changes_nothing(config: dict[str, Any], tmp_path: Path) -> None:
    steps = 4 if config else code.EPOCHS  # one cut, or two: every process takes a while to import its framework
    whole = code.whole_run(config)[:steps]
    assert train_in_one_piece(f"{HERE}:train", config, steps) == whole
    assert train_in_pieces(f"{HERE}:train", config, steps, 2, tmp_path) == whole


def test_the_check_accepts_the_right_recipe(tmp_path: Path) -> None:
    assert check_resuming(f"{HERE}:train", {}, tmp_path).facts["same"]


def test_the_check_catches_the_wrong_recipe(tmp_path: Path) -> None:
    assert not check_resuming(f"{HERE}:train_from_weights_alone", {}, tmp_path).facts["same"]


def test_a_thawed_trial_that_would_start_anew_says_so(tmp_path: Path) -> None:
    live = Live(code.train, {})
    live.advance({}, 6, True)
    live.save(tmp_path / "saved")
    live.close()
    thawed = Live(code.train_that_forgets_the_checkpoint, {}, 1, tmp_path / "saved")
    with pytest.raises(RunnerError, match="resume_from_checkpoint=checkpoint_of"):
        thawed.advance({}, 6, True)


def test_an_epoch_is_evaluated_only_where_that_was_bought() -> None:
    live = Live(code.train, {})
    results = [live.advance({}, 6, validate) for validate in (True, False, True)]
    live.close()
    assert [result.value is None for result in results] == [False, True, False]
    assert ["eval_samples_per_second" in result.metrics for result in results] == [True, False, True]
    assert "eval_loss" not in results[0].metrics
