"""scikit-learn in steps: the same, frozen or not, with rows and columns sampled and with no seed given."""

from __future__ import annotations

from pathlib import Path

import estimators
import pytest
from thoroughness import repetitions

from shoestring import Context
from shoestring.errors import RunnerError
from shoestring.integrations.sklearn.estimator_steps import partial_fit_steps, warm_start_steps
from shoestring.runners.training.code import Live
from shoestring.testing.resuming import check_resuming, train_in_one_piece, train_in_pieces

HERE = f"{Path(__file__).parent}/estimators.py"
NAMES = [*estimators.BY_PASSES, *estimators.BY_TREES]


@pytest.mark.parametrize("name", NAMES)
def test_freezing_and_thawing_changes_nothing(name: str, tmp_path: Path) -> None:
    config = {"name": name}
    whole = train_in_one_piece(f"{HERE}:train", config, estimators.STEPS)
    assert len(set(whole)) == estimators.STEPS
    pieces = []
    checkpoint = None
    for step in range(estimators.STEPS):
        live = Live(estimators.train, config, step, checkpoint)
        pieces.append(live.advance(config, estimators.STEPS, True).value)
        checkpoint = tmp_path / str(step)
        live.save(checkpoint)
        live.close()
    assert pieces == whole


FRESH = ["sgd without a seed", "forest without a seed", "perceptrons without a seed", "boosting"]  # both recipes first


@pytest.mark.slow
@pytest.mark.repeated
@pytest.mark.parametrize("name", FRESH[: repetitions(2, thorough=4)])
def test_nor_does_a_fresh_process(name: str, tmp_path: Path) -> None:
    whole = train_in_one_piece(f"{HERE}:train", {"name": name}, estimators.STEPS)
    assert train_in_pieces(f"{HERE}:train", {"name": name}, estimators.STEPS, 2, tmp_path) == whole


@pytest.mark.parametrize("wrong", ["train_anew", "train_forgetful"])
def test_the_check_catches_the_wrong_recipe(wrong: str, tmp_path: Path) -> None:
    assert not check_resuming(f"{HERE}:{wrong}", {}, tmp_path).facts["same"]


def test_the_check_accepts_the_right_ones(tmp_path: Path) -> None:
    for name in ("sgd", "forest"):
        assert check_resuming(f"{HERE}:train", {"name": name}, tmp_path / name).facts["same"]


def test_an_estimator_that_cannot_is_told_what_can() -> None:
    from sklearn.linear_model import Ridge
    from sklearn.svm import SVC

    context = Context(config={})
    with pytest.raises(RunnerError, match="SVC has no partial_fit: use warm_start_steps"):
        partial_fit_steps(SVC(), estimators.X, estimators.Y, estimators.loss, context)
    with pytest.raises(RunnerError, match="Ridge cannot grow with warm_start: use partial_fit_steps"):
        warm_start_steps(Ridge(), estimators.X, estimators.Y, estimators.loss, context)


def test_a_step_is_not_validated_where_that_was_not_bought() -> None:
    live = Live(estimators.train, {"name": "sgd"})
    assert live.advance({"name": "sgd"}, 2, False).value is None
    assert live.advance({"name": "sgd"}, 2, True).value is not None
    live.close()
