"""Lightning: frozen and thawed every two epochs in a fresh process, the run is the whole run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning_code as code
import pytest
import torch

from shoestring import Float, tune
from shoestring.errors import RunnerError
from shoestring.runners.training.code import Live
from shoestring.testing.resuming import check_resuming, train_in_one_piece, train_in_pieces

HERE = f"{Path(__file__).parent}/lightning_code.py"
CONFIGS: dict[str, dict[str, Any]] = {
    "schedule by step": {},
    "by epoch": {"interval": "epoch"},
    "plateau": {"interval": "plateau"},
    "weights made late": {"late": True},
    "two loading processes": {"workers": 2},
}
if torch.cuda.is_available():
    CONFIGS |= {"on a GPU": {"accelerator": "gpu"}, "on a GPU, plateau": {"accelerator": "gpu", "interval": "plateau"}}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_freezing_and_thawing_changes_nothing(config: dict[str, Any], tmp_path: Path) -> None:
    steps = 4 if config else code.EPOCHS  # one cut, or two: every process takes a while to import its framework
    whole = code.whole_run(config)[:steps]
    assert train_in_one_piece(f"{HERE}:train", config, steps) == whole
    assert train_in_pieces(f"{HERE}:train", config, steps, 2, tmp_path) == whole


def test_the_check_accepts_the_right_recipe(tmp_path: Path) -> None:
    assert check_resuming(f"{HERE}:train", {}, tmp_path).facts["same"]


def test_it_goes_by_its_older_name_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`import pytorch_lightning` has classes of its own, which `lightning` does not know."""
    whole = train_in_one_piece(f"{HERE}:train", {}, 4)
    monkeypatch.setenv("LIGHTNING", "pytorch_lightning")  # for the processes that the pieces are trained in
    assert train_in_pieces(f"{HERE}:train", {}, 4, 2, tmp_path) == whole


@pytest.mark.parametrize("wrong", ["train_without_random", "train_from_weights_alone"])
def test_the_check_catches_the_wrong_recipe(wrong: str, tmp_path: Path) -> None:
    assert not check_resuming(f"{HERE}:{wrong}", {}, tmp_path).facts["same"]


def test_a_thawed_trial_that_would_start_anew_says_so(tmp_path: Path) -> None:
    note = check_resuming(f"{HERE}:train_that_forgets_the_checkpoint", {}, tmp_path)
    assert (note.facts["resumed"], note.facts["same"]) == (None, False)
    live = Live(code.train_that_forgets_the_checkpoint, {}, 1, tmp_path / "checkpoints" / "trial-0000" / "step-000001")
    with pytest.raises(RunnerError, match="ckpt_path=checkpoint_of"):
        live.advance({}, 2, True)


def test_an_unknown_metric_is_told_with_the_known_ones() -> None:
    live = Live(code.train, {"monitor": "val_los"})
    with pytest.raises(RunnerError, match=r"no 'val_los' among what was logged. Did you mean 'val_loss'"):
        live.advance({"monitor": "val_los"}, 2, True)


# a run whose hyperparameters change while it trains ----------------------------------------------------------------------


def test_an_epoch_is_validated_only_where_that_was_bought() -> None:
    code.NETS.clear()
    live = Live(code.train, {"lr": 0.01})
    results = [live.advance({"lr": 0.01}, 4, validate) for validate in (True, False, False, True)]
    live.close()
    assert [result.value is None for result in results] == [False, True, True, False]
    assert [result.metrics for result in results] == [{"val_rows": 200.0}, {}, {}, {"val_rows": 200.0}]
    assert code.NETS[0].validated == 2 + 1  # and one batch of the check before training


def test_a_study_tunes_one_run_while_it_trains_and_validates_only_when_unsure() -> None:
    code.NETS.clear()
    space = {"lr": Float(1e-3, 1e-1, log=True)}
    told: dict[str, Any] = {"policy": "ce_gp_ucb", "settings": {"n_starts": 2, "kappa": 0.3}, "seed": 1}
    study = tune(code.train_online, space, f"{code.EPOCHS} epochs", max_steps=code.EPOCHS, **told)
    (trial,) = study.trials
    bought = [value for value in trial.values if value is not None]
    assert trial.steps == code.EPOCHS
    assert 2 <= len(bought) < code.EPOCHS
    assert code.NETS[0].validated == len(bought) + 1  # and one batch of the check before training
    configs = [order.config["lr"] for order in study.ledger.orders for _ in range(order.until)]
    assert set(code.NETS[0].applied) == set(configs) - {configs[0]}
    assert len(set(configs)) > 1


def test_a_new_config_is_applied_before_its_first_epoch(tmp_path: Path) -> None:
    code.NETS.clear()
    live = Live(code.train_online, {"lr": 0.01})
    for lr in (0.01, 0.01, 0.002):
        live.advance({"lr": lr}, 4, True)
    assert code.NETS[0].applied == [0.002]
    live.save(tmp_path / "saved")
    whole = live.advance({"lr": 0.002}, 4, True).value
    live.close()
    thawed = Live(code.train_online, {"lr": 0.002}, 3, tmp_path / "saved")
    assert thawed.advance({"lr": 0.002}, 4, True).value == whole
    thawed.close()
