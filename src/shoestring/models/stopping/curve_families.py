"""Eleven parametric learning curves, each non-decreasing within a box of its parameters.

Domhan, Springenberg and Hutter, "Speeding Up Automatic Hyperparameter Optimization of Deep Neural Networks by
Extrapolation of Learning Curves", IJCAI 2015 (no arXiv version known to us). `family_sampler` weighs and averages
them.

    paper      here               meaning                                                  unit
    x          epochs             steps trained                                            steps
    phi_k      CurveFamily        one parametric curve                                     accuracy
    theta_k    theta              its parameters, in a box                                 -

Departs from the paper:
- Boxes make every family non-decreasing, so that the requirement f_comb(x_m) > f_comb(1) always holds; rates spread over
  decades have their logarithm in the box. To this end weibull, mmf and janoschek use the rise (a - b) in place of the
  start b.
- ilog2 divides by ln(x + 1): ln x is zero after the first step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shoestring.core.arrays import Floats


@dataclass(frozen=True, slots=True)
class CurveFamily:
    """A curve of the step number that is non-decreasing within the box of its parameters."""

    name: str
    curve: Callable[..., Floats]  # of the step number and each parameter
    low: tuple[float, ...]
    high: tuple[float, ...]

    def at(self, epochs: Floats, theta: Floats) -> Floats:
        """Curves (m, n) of parameters (m, p) at epochs (n,)."""
        return np.asarray(self.curve(epochs, *theta.T[:, :, None]))


FAMILIES = (
    CurveFamily("vapor_pressure", lambda x, a, b, c: np.exp(a + b / x + c * np.log(x)), (-5, -10, 0), (0, 0, 1)),
    CurveFamily("ilog2", lambda x, c, a: c - a / np.log1p(x), (0, 0), (1, 2)),
    CurveFamily(
        "weibull",
        lambda x, a, rise, log_k, d: a - rise * np.exp(-((np.exp(log_k) * x) ** d)),
        (0, 0, -7, 0.05),
        (1, 1, 3, 3),
    ),
    CurveFamily("pow3", lambda x, c, a, al: c - a * x**-al, (0, 0, 0.01), (1, 1, 3)),
    CurveFamily(
        "pow4", lambda x, c, log_a, b, al: c - (np.exp(log_a) * x + b) ** -al, (0, -5, 0.1, 0.01), (1, 5, 50, 3)
    ),
    CurveFamily(
        "mmf", lambda x, a, rise, log_k, d: a - rise / (1 + (np.exp(log_k) * x) ** d), (0, 0, -7, 0.05), (1, 1, 3, 5)
    ),
    CurveFamily(
        "janoschek",
        lambda x, a, rise, log_k, d: a - rise * np.exp(-np.exp(log_k) * x**d),
        (0, 0, -12, 0.05),
        (1, 1, 3, 3),
    ),
    CurveFamily("loglog_linear", lambda x, a, b: np.log(a * np.log(x) + b), (0, 0.5), (1, 2.8)),
    CurveFamily("log_power", lambda x, a, b, c: a / (1 + np.exp(c * (np.log(x) - b))), (0, -5, -5), (1, 7, 0)),
    CurveFamily(
        "exp4", lambda x, c, log_a, al, b: c - np.exp(-np.exp(log_a) * x**al + b), (0, -9, 0.05, -5), (1, 3, 2, 3)
    ),
    CurveFamily("hill3", lambda x, th, log_k, eta: th / (1 + (np.exp(log_k) / x) ** eta), (0, -5, 0.05), (1, 7, 5)),
)
