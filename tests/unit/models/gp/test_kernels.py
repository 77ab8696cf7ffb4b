"""Kernels, compared with scalar formulas, finite differences and scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.gaussian_process.kernels import RBF, Matern
from thoroughness import examples

from shoestring.models.gp.kernels import Block, Family, Kernel

Array = NDArray[np.float64]

MIXED = Kernel(
    (
        Block("matern52", (0, 2)),
        Block("hamming", (1, 4)),
        Block("se", (3,)),
        Block("matern32", (5, 6), tied=True),
    )
)
MIXED_THETA = np.array([0.4, -0.5, 0.2, 0.1, -0.3, -0.9, 0.25])
KERNELS: list[tuple[Kernel, Array]] = [
    (Kernel.ard("se", 3), np.array([0.3, -0.4, 0.1, 0.9])),
    (Kernel.ard("matern32", 3), np.array([-0.3, -0.4, 0.1, 0.9])),
    (Kernel.ard("matern52", 3), np.array([0.0, -1.4, 0.1, 0.9])),
    (Kernel((Block("matern52", (2, 0, 1), tied=True),)), np.array([0.7, -0.8])),
    (MIXED, MIXED_THETA),
]


def points(kernel: Kernel, n: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    x = rng.random((n, kernel.n_dims))
    for block in kernel.blocks:
        if block.family == "hamming":
            x[:, list(block.dims)] = rng.integers(0, 3, (n, len(block.dims)))
    return x


def scalar_kernel(kernel: Kernel, theta: Array, a: Array, b: Array) -> float:
    """Return the covariance of one pair of points by the definition."""
    value, position = math.exp(theta[0]), 1
    for block in kernel.blocks:
        r2 = 0.0
        for i, j in enumerate(block.dims):
            length = math.exp(theta[position if block.tied else position + i])
            distance = float(a[j] != b[j]) if block.family == "hamming" else a[j] - b[j]
            r2 += (distance / length) ** 2
        position += 1 if block.tied else len(block.dims)
        r = math.sqrt(r2)
        if block.family in ("se", "hamming"):
            value *= math.exp(-r2 / 2)
        elif block.family == "matern32":
            value *= (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r)
        else:
            value *= (1 + math.sqrt(5) * r + 5 * r2 / 3) * math.exp(-math.sqrt(5) * r)
    return value


@pytest.mark.parametrize(("kernel", "theta"), KERNELS)
def test_matrix_is_the_definition(kernel: Kernel, theta: Array) -> None:
    x, z = points(kernel, 6), points(kernel, 4, seed=1)
    want = [[scalar_kernel(kernel, theta, a, b) for b in z] for a in x]
    np.testing.assert_allclose(kernel.matrix(theta, x, z), want, rtol=1e-13)
    np.testing.assert_allclose(kernel.diag(theta, 6), [scalar_kernel(kernel, theta, a, a) for a in x], rtol=1e-15)


@pytest.mark.parametrize(("kernel", "theta"), KERNELS)
def test_pairs_are_the_lower_triangle_of_the_matrix(kernel: Kernel, theta: Array) -> None:
    x = points(kernel, 7)
    pairs = kernel.pairs(x)
    k, _ = kernel.pair_values(theta, pairs)
    np.testing.assert_allclose(k, kernel.matrix(theta, x, x)[np.tril_indices(7, -1)], rtol=1e-13)


@pytest.mark.parametrize(("kernel", "theta"), KERNELS)
def test_parameter_gradients_by_differences(kernel: Kernel, theta: Array) -> None:
    pairs = kernel.pairs(points(kernel, 7))
    v = np.random.default_rng(2).standard_normal(pairs.rows.size)
    _, pullback = kernel.pair_values(theta, pairs)
    step = 1e-6 * np.eye(theta.size)
    want = [
        v @ (kernel.pair_values(theta + h, pairs)[0] - kernel.pair_values(theta - h, pairs)[0]) / 2e-6 for h in step
    ]
    np.testing.assert_allclose(pullback(v), want, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("kernel", "theta"), KERNELS)
def test_input_gradients_by_differences(kernel: Kernel, theta: Array) -> None:
    x, z = points(kernel, 3), points(kernel, 5, seed=1)
    k, gradient = kernel.matrix_with_gradient(theta, x, z)
    np.testing.assert_allclose(k, kernel.matrix(theta, x, z), rtol=1e-14)
    categories = {j for block in kernel.blocks if block.family == "hamming" for j in block.dims}
    for j in range(kernel.n_dims):
        if j in categories:
            assert not gradient[:, :, j].any()
            continue
        h = 1e-6 * np.eye(kernel.n_dims)[j]
        want = (kernel.matrix(theta, x + h, z) - kernel.matrix(theta, x - h, z)) / 2e-6
        np.testing.assert_allclose(gradient[:, :, j], want, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("family", ["se", "matern32", "matern52"])
def test_gradients_at_coinciding_points_are_finite(family: Family) -> None:
    kernel, theta = Kernel.ard(family, 2), np.zeros(3)
    x = np.array([[0.5, 0.5], [0.5, 0.5]])
    k, pullback = kernel.pair_values(theta, kernel.pairs(x))
    assert k.tolist() == [1.0]
    assert pullback(np.ones(1)).tolist() == [1.0, 0.0, 0.0]
    assert not kernel.matrix_with_gradient(theta, x, x)[1].any()


def test_agrees_with_scikit_learn() -> None:
    x, z = points(KERNELS[0][0], 8), points(KERNELS[0][0], 5, seed=1)
    theta = np.array([0.0, -0.4, 0.1, 0.9])
    lengths = np.exp(theta[1:])
    for family, reference in (
        ("se", RBF(lengths)),
        ("matern32", Matern(lengths, nu=1.5)),
        ("matern52", Matern(lengths, nu=2.5)),
    ):
        np.testing.assert_allclose(Kernel.ard(family, 3).matrix(theta, x, z), reference(x, z), rtol=1e-12)  # type: ignore[arg-type]


def test_hamming_is_se_on_a_one_hot_code_with_shared_length() -> None:
    values = np.array([0, 2, 1, 2, 0])
    theta = np.array([0.2, -0.3])
    one_hot = np.eye(3)[values] / math.sqrt(2)
    tied = Kernel((Block("se", (0, 1, 2), tied=True),)).matrix(theta, one_hot, one_hot)
    column = values[:, None].astype(float)
    np.testing.assert_allclose(Kernel.ard("hamming", 1).matrix(theta, column, column), tied, rtol=1e-14)


@examples(14, thorough=40)
@given(st.integers(1, 12), st.integers(0, 10**6), st.floats(-3, 2))
def test_matrices_are_positive_semidefinite(n: int, seed: int, log_length: float) -> None:
    x = points(MIXED, n, seed)
    theta = np.full(MIXED.n_parameters, log_length)
    k = MIXED.matrix(theta, x, x)
    assert np.array_equal(k, k.T)
    assert np.linalg.eigvalsh(k).min() >= -1e-12 * n * math.exp(log_length)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ((), "exactly one block"),
        ((Block("se", (0, 1)), Block("se", (1,))), "exactly one block"),
        ((Block("se", (1,)),), "exactly one block"),
        ((Block("rbf", (0,)),), "unknown: use one of se"),  # type: ignore[arg-type]
    ],
)
def test_impossible_kernels_are_errors(blocks: tuple[Block, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Kernel(blocks)
