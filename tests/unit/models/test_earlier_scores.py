"""The weights of earlier studies, and the Gaussian process of what they leave unexplained."""

from __future__ import annotations

import numpy as np
import pytest

from shoestring.core.values.arrays import Floats
from shoestring.models.earlier_scores import (
    NOISE,
    PRIOR_VARIANCE,
    PRIOR_WEIGHT,
    InformedGP,
    weigh_earlier_studies,
)
from shoestring.models.gp.kernels import Block, Kernel
from shoestring.models.gp.posterior import condition

KERNEL = Kernel((Block("matern52", (0,)),))
THETA = np.log([1.0, 0.3, 0.01])


class Sloping:
    """An expectation that rises along the only column."""

    def mean(self, x: Floats) -> Floats:
        return 2.0 * x[:, 0]

    def mean_with_gradient(self, x: Floats) -> tuple[Floats, Floats]:
        return self.mean(x), np.full_like(x, 2.0)


@pytest.mark.parametrize("scores", [[], [0.3]])
def test_before_two_results_the_weights_share_the_prior(scores: list[float]) -> None:
    weights = weigh_earlier_studies(np.array(scores), np.zeros((len(scores), 4)))
    np.testing.assert_allclose(weights, PRIOR_WEIGHT / 4)


def test_the_weights_are_the_most_probable_ones() -> None:
    rng = np.random.default_rng(1)
    earlier, scores = rng.standard_normal((9, 2)), rng.standard_normal(9)

    def penalty(weights: Floats, intercept: float) -> float:
        rest = scores - intercept - earlier @ weights
        prior = weights - PRIOR_WEIGHT / 2
        return float(rest @ rest / NOISE + prior @ prior * 2 / PRIOR_VARIANCE)

    # Slow and obvious: the best of a fine grid, with the intercept that is best for these weights.
    axis = np.linspace(-0.5, 1.0, 151)
    grid = [np.array([a, b]) for a in axis for b in axis]
    best = min(grid, key=lambda weights: penalty(weights, float(np.mean(scores - earlier @ weights))))
    np.testing.assert_allclose(weigh_earlier_studies(scores, earlier), np.maximum(best, 0.0), atol=0.006)


def test_a_good_study_is_believed_and_an_opposite_one_is_forgotten() -> None:
    scores = np.array([-1.5, -0.5, 0.0, 0.5, 1.5])
    assert weigh_earlier_studies(scores, 0.5 * scores[:, None])[0] > PRIOR_WEIGHT
    assert weigh_earlier_studies(scores, -scores[:, None])[0] == 0.0


def test_an_equal_offset_of_all_predictions_changes_nothing() -> None:
    scores, earlier = np.array([-1.0, 0.2, 0.8]), np.array([[-0.9], [0.1], [0.5]])
    np.testing.assert_allclose(
        weigh_earlier_studies(scores, earlier - 3.0), weigh_earlier_studies(scores, earlier), rtol=1e-12
    )


def test_the_posterior_is_that_of_the_rest_plus_the_expectation() -> None:
    x, y, new = np.array([[0.1], [0.7]]), np.array([0.5, 1.0]), np.array([[0.0], [0.3], [0.9]])
    rest = condition(KERNEL, THETA, x, y - 2.0 * x[:, 0])
    informed = InformedGP(KERNEL, Sloping(), rest)
    mean, variance = informed.predict(new)
    np.testing.assert_allclose(mean, rest.predict(new)[0] + 2.0 * new[:, 0])
    np.testing.assert_allclose(variance, rest.predict(new)[1])
    np.testing.assert_allclose(informed.predict_observed(), informed.predict(x)[0], atol=1e-9)


def test_the_gradient_is_that_of_the_prediction() -> None:
    x, new, step = np.array([[0.1], [0.7]]), np.array([[0.3]]), 1e-6
    informed = InformedGP(KERNEL, Sloping(), condition(KERNEL, THETA, x, np.array([0.5, -1.0])))
    mean, variance, d_mean, d_variance = informed.predict_with_gradient(new)
    above, below = informed.predict(new + step), informed.predict(new - step)
    np.testing.assert_allclose(mean, informed.predict(new)[0])
    np.testing.assert_allclose(variance, informed.predict(new)[1])
    np.testing.assert_allclose(d_mean[0], (above[0] - below[0]) / (2 * step), rtol=1e-5)
    np.testing.assert_allclose(d_variance[0], (above[1] - below[1]) / (2 * step), rtol=1e-4)


def test_without_observations_only_the_expectation_is_known() -> None:
    new = np.array([[0.2], [0.6]])
    informed = InformedGP(KERNEL, Sloping())
    np.testing.assert_array_equal(informed.predict(new)[0], 2.0 * new[:, 0])
    np.testing.assert_array_equal(informed.predict(new)[1], [1.0, 1.0])
    mean, variance, d_mean, d_variance = informed.predict_with_gradient(new)
    np.testing.assert_array_equal(mean, 2.0 * new[:, 0])
    np.testing.assert_array_equal(variance, [1.0, 1.0])
    np.testing.assert_array_equal(d_mean, [[2.0], [2.0]])
    np.testing.assert_array_equal(d_variance, [[0.0], [0.0]])
    assert informed.predict_observed().size == 0


@pytest.mark.parametrize("observed", [0, 2])
def test_a_believed_value_changes_no_mean_and_narrows_the_prediction(observed: int) -> None:
    x, new = np.array([[0.1], [0.7]])[:observed], np.array([[0.4]])
    rest = condition(KERNEL, THETA, x, np.array([0.5, -1.0])) if observed else None
    before = InformedGP(KERNEL, Sloping(), rest)
    after = before.append_predicted(new)
    np.testing.assert_allclose(after.predict(new)[0], before.predict(new)[0], atol=0.05)
    assert after.predict(new)[1] < 0.2 * before.predict(new)[1]
