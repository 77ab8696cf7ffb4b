"""Log EI and its gradients, compared with 80-digit arithmetic."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from thoroughness import examples

from shoestring.models.gp import acquisition as aq
from shoestring.models.gp.kernels import Kernel
from shoestring.models.gp.posterior import condition

Array = NDArray[np.float64]

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803")
Z = [8.0, 2.0, 0.5, 0.25, -0.25, -0.9999, -1.0001, -3.0, -12.0, -29.9, -30.1, -100.0, -999.0, -1001.0, -1e4]


def exact(z: float) -> tuple[Decimal, Decimal, Decimal]:
    """Return (log h, Phi / h, phi / h) for h = phi + z Phi, by the continued fraction of Mills' ratio with 80 digits."""
    with localcontext() as context:
        context.prec = 80
        t = abs(Decimal(z))
        below = t
        for k in range(20_000, 0, -1):
            below = t + k / below
        mills = 1 / below
        log_pdf = -t * t / 2 - (2 * PI).ln() / 2
        bracket = 1 - t * mills  # h(-t) / phi(t)
        if z < 0:
            return log_pdf + bracket.ln(), mills / bracket, 1 / bracket
        pdf = log_pdf.exp()
        h = t + pdf * bracket  # h(t) = t + h(-t)
        return h.ln(), (1 - mills * pdf) / h, pdf / h


@pytest.mark.parametrize("z", Z)
def test_log_ei_and_its_gradient_to_all_digits(z: float) -> None:
    want_log, want_cdf, want_pdf = (float(v) for v in exact(z))
    got = aq.log_expected_improvement(np.array([0.0]), np.array([1.0]), z)
    np.testing.assert_allclose(got, want_log, rtol=1e-13, atol=1e-12)
    # one input moves the mean, the other the variance: d log EI / d mu = -Phi / h, d log EI / d sigma = phi / h at sigma 1
    value, gradient = aq.log_expected_improvement_gradient(
        np.array([0.0]), np.array([1.0]), np.array([[1.0, 0.0]]), np.array([[0.0, 2.0]]), z
    )
    np.testing.assert_allclose(value, want_log, rtol=1e-13, atol=1e-12)
    np.testing.assert_allclose(gradient[0], [-want_cdf, want_pdf], rtol=1e-11)


def test_leading_tail_term() -> None:
    z = -1e4
    got = aq.log_expected_improvement(np.array([0.0]), np.array([1.0]), z)[0]
    first_terms = -0.5 * z * z - 0.5 * math.log(2 * math.pi) - 2 * math.log(-z) + math.log1p(-3 / z**2)
    np.testing.assert_allclose(got, first_terms, rtol=1e-15)
    assert np.exp(got) == 0.0  # which is why everything is compared in logs


@examples(20, thorough=60)
@given(st.floats(-50, 50), st.floats(1e-3, 1e3), st.floats(-50, 50), st.floats(1e-6, 1e6))
def test_ei_is_bounded_and_scales_with_the_unit(mean: float, std: float, f_min: float, unit: float) -> None:
    at = np.array([mean, mean, mean + 0.1 * std])
    log_ei = aq.log_expected_improvement(at, np.array([std, 1.1 * std, std]), f_min)
    assert np.all(np.isfinite(log_ei))
    assert log_ei[1] >= log_ei[0] - 1e-14 * abs(log_ei[0])  # more uncertain is never worse, up to the last digit
    assert log_ei[0] > log_ei[2]  # a larger mean is
    assert np.exp(log_ei[0]) >= max(0.0, f_min - mean) * (1 - 1e-12)  # Jensen
    moved = aq.log_expected_improvement(unit * at[:1], np.array([unit * std]), unit * f_min)
    np.testing.assert_allclose(moved - math.log(unit), log_ei[:1], rtol=1e-9, atol=1e-9)


def test_without_uncertainty_ei_is_the_improvement() -> None:
    mean, std = np.array([1.0, 2.0, 3.0, 1.0]), np.array([0.0, 0.0, 0.0, 1e-200])
    assert aq.log_expected_improvement(mean, std, 2.0).tolist() == [0.0, -np.inf, -np.inf, 0.0]
    assert aq.log_expected_improvement(np.empty(0), np.empty(0), 0.0).shape == (0,)


def test_log_ei_gradient_through_a_gp() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((12, 3))
    y = np.sin(4 * x[:, 0]) + x[:, 1]
    gp = condition(Kernel.ard("matern52", 3), np.array([0.0, -0.7, -0.2, 0.3, -6.0]), x, y)
    x_new = rng.random((5, 3))
    f_min = float(gp.predict_observed().min()) - 2.0  # deep in the tail for some

    def log_ei(at: Array) -> Array:
        mean, variance = gp.predict(at)
        return aq.log_expected_improvement(mean, np.sqrt(variance), f_min)

    value, gradient = aq.log_expected_improvement_gradient(*gp.predict_with_gradient(x_new), f_min)
    np.testing.assert_allclose(value, log_ei(x_new), rtol=1e-9)
    for j in range(3):
        h = 1e-6 * np.eye(3)[j]
        np.testing.assert_allclose(gradient[:, j], (log_ei(x_new + h) - log_ei(x_new - h)) / 2e-6, rtol=1e-5)
