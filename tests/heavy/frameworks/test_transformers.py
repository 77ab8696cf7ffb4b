"""Hugging Face's Trainer: a run that is paused every two steps and resumed in a fresh process equals the run without a pause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers_code as code

from shoestring.errors import RunnerError
from shoestring.runners.training.code import LiveTrial
from shoestring.testing.resuming import check_resuming, train_in_one_piece, train_in_pieces

HERE = f"{Path(__file__).parent}/transformers_code.py"
CONFIGS = {
    "steps of an epoch": {},
    "steps of five of eight batches": {"every": 5},
    "two loading processes": {"workers": 2},
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_resuming_changes_nothing(config: dict[str, Any], tmp_path: Path) -> None:
    steps = 4 if config else code.EPOCHS  # one pause or two; every process needs a while to import its framework
    whole = code.whole_run(config)[:steps]
    assert train_in_one_piece(f"{HERE}:train", config, steps) == whole
    assert train_in_pieces(f"{HERE}:train", config, steps, 2, tmp_path) == whole


def test_the_resume_check_accepts_correct_code(tmp_path: Path) -> None:
    assert check_resuming(f"{HERE}:train", {}, tmp_path).facts["same"]


def test_the_resume_check_finds_wrong_code(tmp_path: Path) -> None:
    assert not check_resuming(f"{HERE}:train_from_weights_only", {}, tmp_path).facts["same"]


def test_a_resumed_trial_that_would_start_from_nothing_is_an_error(tmp_path: Path) -> None:
    live = LiveTrial(code.train, {})
    live.advance({}, 6, True)
    live.save(tmp_path / "saved")
    live.close()
    resumed = LiveTrial(code.train_without_checkpoint, {}, 1, tmp_path / "saved")
    with pytest.raises(RunnerError, match="resume_from_checkpoint=checkpoint_of"):
        resumed.advance({}, 6, True)


def test_an_epoch_is_evaluated_only_if_it_needs_a_value() -> None:
    live = LiveTrial(code.train, {})
    results = [live.advance({}, 6, validate) for validate in (True, False, True)]
    live.close()
    assert [result.value is None for result in results] == [False, True, False]
    assert ["eval_samples_per_second" in result.metrics for result in results] == [True, False, True]
    assert "eval_loss" not in results[0].metrics
