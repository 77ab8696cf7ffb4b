"""scikit-learn in steps: resuming changes nothing, with sampled rows and columns and without a seed."""

from __future__ import annotations

from pathlib import Path

import estimators
import pytest
from thoroughness import repetitions

from shoestring import Context
from shoestring.errors import RunnerError
from shoestring.integrations.sklearn import partial_fit_steps, warm_start_steps
from shoestring.runners.training.code import LiveTrial
from shoestring.testing.resuming import check_resuming, train_in_one_piece, train_in_pieces

CODE_FILE = f"{Path(__file__).parent}/estimators.py"
NAMES = [*estimators.BY_PASSES, *estimators.BY_TREES]


@pytest.mark.parametrize("name", NAMES)
def test_resuming_changes_nothing(name: str, tmp_path: Path) -> None:
    config = {"name": name}
    whole = train_in_one_piece(f"{CODE_FILE}:train", config, estimators.STEPS)
    assert len(set(whole)) == estimators.STEPS
    values = []
    checkpoint = None
    for step in range(estimators.STEPS):
        live = LiveTrial(estimators.train, config, step, checkpoint)
        values.append(live.advance(config, estimators.STEPS, True).value)
        checkpoint = tmp_path / str(step)
        live.save(checkpoint)
        live.close()
    assert values == whole


IN_FRESH_PROCESSES = [
    "sgd without a seed",
    "forest without a seed",
    "perceptrons without a seed",
    "boosting",
]  # the first two cover both kinds of steps


@pytest.mark.slow
@pytest.mark.repeated
@pytest.mark.parametrize("name", IN_FRESH_PROCESSES[: repetitions(2, thorough=4)])
def test_resuming_in_a_fresh_process_changes_nothing(name: str, tmp_path: Path) -> None:
    whole = train_in_one_piece(f"{CODE_FILE}:train", {"name": name}, estimators.STEPS)
    assert train_in_pieces(f"{CODE_FILE}:train", {"name": name}, estimators.STEPS, 2, tmp_path) == whole


@pytest.mark.parametrize("wrong", ["train_from_coefficients", "train_without_random_state"])
def test_the_resume_check_finds_wrong_code(wrong: str, tmp_path: Path) -> None:
    assert not check_resuming(f"{CODE_FILE}:{wrong}", {}, tmp_path).facts["same"]


def test_the_resume_check_accepts_correct_code(tmp_path: Path) -> None:
    for name in ("sgd", "forest"):
        assert check_resuming(f"{CODE_FILE}:train", {"name": name}, tmp_path / name).facts["same"]


def test_an_estimator_without_the_method_is_an_error() -> None:
    from sklearn.linear_model import Ridge
    from sklearn.svm import SVC

    context = Context(config={})
    with pytest.raises(RunnerError, match="SVC has no partial_fit: use warm_start_steps"):
        partial_fit_steps(SVC(), estimators.X, estimators.Y, estimators.loss, context)
    with pytest.raises(RunnerError, match="Ridge cannot grow with warm_start: use partial_fit_steps"):
        warm_start_steps(Ridge(), estimators.X, estimators.Y, estimators.loss, context)


def test_a_step_is_validated_only_if_it_needs_a_value() -> None:
    live = LiveTrial(estimators.train, {"name": "sgd"})
    assert live.advance({"name": "sgd"}, 2, False).value is None
    assert live.advance({"name": "sgd"}, 2, True).value is not None
    live.close()
