"""Losses to the scale of a model and back; diverged losses, and losses that do not vary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.models.loss_scaling import fit_scaling

NAN = np.nan


@examples(20, thorough=60)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1e-9, 1.0, 1e12]),
    st.sampled_from([-2.0, 0.0, 5.0]),
    st.booleans(),
)
def test_scaling_standardises_and_can_be_undone(seed: int, size: float, shift: float, log: bool) -> None:
    rng = np.random.default_rng(seed)
    losses = size * (shift + rng.random((4, 6)))
    reported = rng.random((4, 6)) < 0.7
    reported[0, :2] = True
    scale = fit_scaling(losses, reported, log=log)
    z = scale.apply(losses)[reported]
    assert z.mean() == pytest.approx(0.0, abs=1e-8)
    assert z.std() == pytest.approx(1.0, rel=1e-8)
    reported_losses = losses[reported]
    assert (np.diff(z[np.argsort(reported_losses)]) >= 0.0).all()
    expected = np.minimum(reported_losses, scale.undo(np.array((scale.fence - scale.centre) / scale.scale)))
    if log and shift < 0.0:  # the smallest loss is the floor itself: it comes back as the next one
        expected = np.maximum(expected, np.sort(reported_losses)[1])
    np.testing.assert_allclose(scale.undo(z), expected, rtol=1e-6, atol=1e-7 * size)


@pytest.mark.parametrize("diverged", [np.inf, -np.inf, NAN, 1e200, 1e30])
@pytest.mark.parametrize("log", [False, True])
def test_diverged_losses_are_bad_and_leave_the_scale_alone(diverged: float, log: bool) -> None:
    rng = np.random.default_rng(0)
    curves = 0.2 + 2.0 / (1.0 + np.arange(8)) + 0.1 * rng.random((6, 8))
    reported = np.ones_like(curves, dtype=bool)
    with_divergence = curves.copy()
    with_divergence[2, 5:] = diverged
    z, plain = (
        fit_scaling(with_divergence, reported, log=log).apply(with_divergence),
        fit_scaling(curves, reported, log=log).apply(curves),
    )
    assert np.isfinite(z).all()
    assert (z[2, 5:] >= np.delete(z, 2, axis=0).max() - 1e-12).all()
    assert np.ptp(np.delete(z, 2, axis=0)) > 0.2 * np.ptp(np.delete(plain, 2, axis=0))


def test_one_good_arm_with_most_losses_leaves_the_others_below_the_fence() -> None:
    losses = np.full((6, 100), NAN)
    losses[0] = np.linspace(2.3, 0.3, 100)
    losses[0, 10:] = np.linspace(0.301, 0.3, 90)
    losses[1:, 0] = [2.3, 2.31, 2.2, 3.0, 5.0]
    reported = ~np.isnan(losses)
    scale = fit_scaling(losses, reported)
    np.testing.assert_allclose(scale.undo(scale.apply(losses))[reported], losses[reported], rtol=1e-12)


def test_logs_separate_losses_over_decades() -> None:
    losses = np.array([[1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5]])
    z = fit_scaling(losses, np.ones_like(losses, dtype=bool), log=True).apply(losses)
    np.testing.assert_allclose(np.diff(z[0]), np.diff(z[0])[0], rtol=1e-9)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    "losses", [[[0.3]], [[0.3, 0.3]], [[0.0, 0.0]], [[-1.0, -1.0]], [[NAN]], [[np.inf, NAN]], [[0.1, np.inf]]]
)
def test_losses_that_do_not_vary_scale_to_zero(losses: list[list[float]], log: bool) -> None:
    table = np.array(losses)
    z = fit_scaling(table, np.ones_like(table, dtype=bool), log=log).apply(table)
    np.testing.assert_array_equal(z, np.zeros_like(table))


def test_nothing_reported_scales_by_one() -> None:
    scale = fit_scaling(np.full((2, 3), NAN), np.zeros((2, 3), dtype=bool))
    assert (scale.centre, scale.scale) == (0.0, 1.0)
    with pytest.raises(ValueError, match="the same"):
        fit_scaling(np.zeros((2, 3)), np.zeros((2, 2), dtype=bool))
