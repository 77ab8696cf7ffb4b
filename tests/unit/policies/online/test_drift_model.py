"""The kernel on configs and on points of the cube, and which spaces are scored config by config."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import StudyDefinition
from shoestring.core.space.encoding import Encoding
from shoestring.core.space.parameters import Choice, Constant, Float, Int
from shoestring.core.space.space import Config, Space
from shoestring.models.online.parameter_fit import DriftParameters
from shoestring.policies.online.drift_model import CubeKernel, CubeSurrogate, DriftView, FiniteSurrogate
from shoestring.policies.online.online_run import RunView

MIXED = Space(
    {
        "lr": Float(1e-4, 1.0, log=True),
        "depth": Int(1, 9),
        "optimizer": Choice(["sgd", "adam", "lion"]),
        "momentum": Float(0.0, 0.99, when={"optimizer": "sgd"}),
        "batch": Constant(32),
    }
)
OPTIMIZER, MOMENTUM = (MIXED.cube_names.index(name) for name in ("optimizer", "momentum"))
VIEW = DriftView(RunView(), kernel="matern52", lengthscale=0.3, parameters=DriftParameters(0.01, math.inf, 1.7, 0.01))


def cube_kernel(space: Space) -> CubeKernel:
    encoding = Encoding(space)
    return CubeKernel(encoding, *VIEW.kernel_on(encoding))


def make_surrogate(space: Space) -> FiniteSurrogate | CubeSurrogate:
    definition = StudyDefinition(
        space=space, budget=Budget("9 epochs"), policy="ce_gp_ucb", settings={}, seed=0, max_steps=9
    )
    return VIEW.start(definition).surrogate


def test_kernel_on_the_cube_equals_kernel_on_configs() -> None:
    configs: list[Config] = [
        {"lr": 0.01, "depth": 5, "optimizer": "adam", "batch": 32},
        {"lr": 0.01, "depth": 2, "optimizer": "sgd", "momentum": 0.9, "batch": 32},
    ]
    cube = np.array([MIXED.to_cube(config) for config in configs])
    k = cube_kernel(MIXED)(cube, cube)[0]
    np.testing.assert_allclose(k, 1.7 * VIEW.prior_correlation(MIXED, configs), rtol=1e-12)


@examples(20, thorough=60)
@given(st.integers(0, 2**32 - 1))
def test_gradient_equals_finite_differences(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kernel = cube_kernel(MIXED)
    x, z = rng.random((1, 4)), rng.random((3, 4))
    k, gradient = kernel(x, z)
    assert k.shape == (1, 3)
    assert (k <= 1.7 + 1e-12).all()
    for j in set(range(4)) - {OPTIMIZER}:
        step = np.zeros((1, 4))
        step[0, j] = 1e-6
        numeric = (kernel(x + step, z)[0] - kernel(x - step, z)[0]) / 2e-6
        np.testing.assert_allclose(gradient[:, :, j], numeric, rtol=1e-4, atol=1e-7)
    assert (gradient[:, :, OPTIMIZER] == 0.0).all()
    if "momentum" not in MIXED.from_cube(x[0]):
        assert (gradient[:, :, MOMENTUM] == 0.0).all()


def test_integers_are_not_rounded_on_the_cube() -> None:
    kernel = cube_kernel(Space({"n": Int(1, 2)}))
    near, elsewhere = kernel(np.array([[0.1], [0.2]]), np.array([[0.4]]))[0]
    assert near < elsewhere


def test_inactive_options_are_equal_to_each_other_and_to_no_option() -> None:
    space = Space(
        {"c": Choice(["a", "b", "e"]), "d": Choice(["p", "q", "r"], when={"c": ["a", "b"]}), "x": Float(0, 1)}
    )
    absent, other, present = {"c": "e", "x": 0.5}, {"c": "a", "d": "p", "x": 0.5}, {"c": "a", "d": "q", "x": 0.5}
    k = VIEW.prior_correlation(space, [absent, other, present])
    assert k[0, 1] == k[0, 2]


def test_different_options_are_nearly_unrelated() -> None:
    space = Space({"mode": Choice(["train", "tune"])})
    assert VIEW.prior_correlation(space, [{"mode": "train"}, {"mode": "tune"}])[0, 1] < 0.01


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (Space.from_configs([{"x": 0.1}, {"x": 0.2}]), FiniteSurrogate),
        (Space({"n": Int(1, 2000)}), FiniteSurrogate),
        (Space({"n": Int(1, 2001)}), CubeSurrogate),
        (MIXED, CubeSurrogate),
    ],
)
def test_small_finite_spaces_are_scored_config_by_config(space: Space, kind: type) -> None:
    assert isinstance(make_surrogate(space), kind)


def test_a_space_with_one_config_has_no_competitor() -> None:
    proposal = make_surrogate(Space({"batch": Constant(32)})).propose("ucb", 1.0, np.random.default_rng(0))
    assert (proposal.config, proposal.chosen, proposal.competitors.size) == ({"batch": 32}, 0, 0)


def test_all_other_options_compete() -> None:
    proposal = make_surrogate(Space({"mode": Choice(["a", "b", "c"])})).propose("ucb", 1.0, np.random.default_rng(0))
    assert (proposal.chosen, proposal.competitors.tolist()) == (0, [1, 2])


@pytest.mark.parametrize(
    "space", [Space.from_configs([{"x": x / 8} for x in range(9)]), Space({"c": Choice(["a", "b", "c"])})]
)
def test_without_forgetting_both_time_kernels_agree_in_a_finite_space(space: Space) -> None:
    """A smooth time kernel of enormous length-scale is no drift at all, but it takes the other implementation."""
    configs = space.rows or tuple(space.grid(9))
    surrogates = []
    for length in (math.inf, 1e9):
        view = replace(VIEW, parameters=DriftParameters(0.0, length, 1.7, 0.01))
        definition = StudyDefinition(
            space=space, budget=Budget("9 epochs"), policy="ce_gp_ucb", settings={}, seed=0, max_steps=9
        )
        surrogates.append(view.start(definition).surrogate)
    for surrogate in surrogates:
        surrogate.observe(configs[1], 0.7)
        surrogate.gp.advance()
        surrogate.skip(configs[0])
        surrogate.gp.advance()
        surrogate.observe(configs[2], -1.2)
        surrogate.gp.advance()
    one, other = (
        surrogate.propose("ucb", 2.0, np.random.default_rng(0), with_covariance=True) for surrogate in surrogates
    )
    assert (one.config, one.competitors.tolist()) == (other.config, other.competitors.tolist())
    assert one.covariance is not None
    assert other.covariance is not None
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-7)
    np.testing.assert_allclose(one.variance, other.variance, atol=1e-7)
    np.testing.assert_allclose(one.covariance, other.covariance, atol=1e-7)
    assert surrogates[1].propose_best_mean().config == surrogates[0].propose_best_mean().config
