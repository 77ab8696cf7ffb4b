from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shoestring.models.thrift.features import Arms, features, is_in_race, rank_columns, rank_share, scale_of
from shoestring.models.thrift.shapes import FEATURES, STEPS


def arms(curves: list[list[float]], *, reach: int = 5, steps: int = 9) -> Arms:
    """Return arms with these curves; an empty curve is a candidate."""
    losses = np.zeros((len(curves), STEPS))
    for row, curve in zip(losses, curves, strict=True):
        row[: len(curve)] = curve
    n = np.array([len(curve) for curve in curves])
    k = len(curves)
    return Arms(losses, n, np.full(k, reach), np.ones(k), np.full((k, 16), -1.0), 20.0, steps)


def test_the_scale_has_the_best_at_0_and_a_typical_first_loss_at_1() -> None:
    scale = scale_of(arms([[3.0, 1.0], [2.0], [4.0], []]))
    assert (scale.best, scale.unit) == (1.0, 2.0)  # the median of three first losses is 3
    u = scale.to_u(np.array([1.0, 3.0, 0.9]))
    np.testing.assert_allclose(u[:2], [0.0, 1.0])
    assert u[2] < 0
    np.testing.assert_allclose(scale.best + scale.unit * scale.from_u(u), [1.0, 3.0, 0.9])


def test_equal_losses_have_a_scale() -> None:
    assert scale_of(arms([[2.0], [2.0]])).unit == 1.0
    assert (
        scale_of(arms([[2.0, 5.0], [2.0]])).unit == 3.0
    )  # no loss is below the first ones: losses above give the unit


def test_losses_in_another_unit_are_the_same_study() -> None:
    study = arms([[3.0, 1.0], [2.0, 1.5], [4.0], []])
    moved = replace(study, losses=study.losses * 1000 - 77)
    np.testing.assert_allclose(features(study, scale_of(study)), features(moved, scale_of(moved)), atol=1e-5)


def test_future_losses_do_not_change_features() -> None:
    study = arms([[3.0, 1.0], [2.0], []])
    ahead = study.losses.copy()
    ahead[:, 2:] = -99.0
    np.testing.assert_array_equal(
        features(study, scale_of(study)), features(replace(study, losses=ahead), scale_of(study))
    )


def test_all_features_are_finite_at_the_edges() -> None:
    study = arms([[1.0] * 9, [1e30, 1.0], [], []], reach=0)
    f = features(study, scale_of(study))
    assert f.shape == (4, FEATURES)
    assert np.isfinite(f).all()


def test_rank_share_is_the_share_that_was_no_better_at_the_same_step() -> None:
    study = arms([[3.0, 1.0], [2.0, 2.0], [4.0], []])
    np.testing.assert_allclose(rank_share(study), [1.0, 0.5, 1 / 3, 0.5])


def test_the_race_has_as_many_arms_as_halving_could_pay_for() -> None:
    """Of eight arms at step 2, a race of 4 costs 2 / 2 * 4 * 2 = 8 steps, and a race of 8 costs 24."""
    study = arms([[float(i), float(i)] for i in range(8)])
    share = rank_share(study)
    assert is_in_race(replace(study, left=24.0), share).all()
    assert is_in_race(replace(study, left=8.0), share).tolist() == [True] * 4 + [False] * 4
    assert is_in_race(replace(study, left=0.5), share).sum() == 2  # never fewer


def test_hyperparameters_enter_by_rank() -> None:
    x = rank_columns(np.array([[1e-4, 7.0], [1e-2, 7.0], [np.nan, 7.0], [1.0, 7.0]]), np.full(4, np.nan))
    np.testing.assert_allclose(x[:, 0], [0.0, 0.5, -1.0, 1.0])
    assert (x[:, 1:] == -1).all()  # the second never varies


def test_with_too_many_hyperparameters_those_correlated_with_the_losses_are_used() -> None:
    rng = np.random.default_rng(0)
    columns = rng.random((12, 20))
    share_better = np.where(np.arange(12) < 8, columns[:, 19] * 3 + 1, np.nan)
    x = rank_columns(columns, share_better)
    ranks = np.argsort(np.argsort(columns[:, 19])) / 11
    assert any(np.allclose(x[:, j], ranks) for j in range(16))
    without = rank_columns(columns, np.full(12, np.nan))
    assert not any(np.allclose(without[:, j], ranks) for j in range(16))


@pytest.mark.parametrize("important", [0, 3, 19])
def test_the_most_correlated_hyperparameter_comes_first(important: int) -> None:
    """The network hardly uses the last of its columns."""
    columns = np.random.default_rng(1).random((30, 20))
    x = rank_columns(columns, -columns[:, important])
    np.testing.assert_allclose(x[:, 0], np.argsort(np.argsort(columns[:, important])) / 29)
    few = rank_columns(columns[:, :4], -columns[:, 3])
    np.testing.assert_allclose(few[:, 3], np.argsort(np.argsort(columns[:, 3])) / 29, err_msg="a few stay as they are")
