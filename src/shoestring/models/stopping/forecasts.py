"""Forecast of the error at full training from the beginning of a learning curve.

Domhan, Springenberg and Hutter, "Speeding Up Automatic Hyperparameter Optimization of Deep Neural Networks by
Extrapolation of Learning Curves", IJCAI 2015 (no arXiv version known to us). A training is stopped when the probability of
ending above y* is below 0.05; here the caller makes that comparison.

    paper      here               meaning                                                  unit
    x_m        n_max              full training                                            steps
    y          1 - errors         accuracy after a step                                    in [0, 1]
    y*         incumbent_error    the best value of the others, as an error                error

Differences from the paper:
- Pr(y > y*) averages the normal tail of every sample instead of drawing one y from each: same mean, less noise.
- `forecast_by_process` is a cheap substitute: the process of `curve_paths`, in closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from shoestring.core.values.arrays import Floats
from shoestring.models.stopping.curve_families import FAMILIES, CurveFamily, scatter_walkers
from shoestring.models.stopping.curve_paths import curve_posterior, fit_curve


@dataclass(frozen=True, slots=True)
class FinalForecast:
    """Forecast of the error at full training."""

    prob_better: float  # Pr(final error < incumbent_error)
    mean_error: float
    std_error: float


def forecast_by_families(
    errors: Floats | Sequence[float],
    n_max: int,
    incumbent_error: float,
    rng: np.random.Generator,
    *,
    n_walkers: int = 64,
    n_sweeps: int = 150,
    families: Sequence[CurveFamily] = FAMILIES,
) -> FinalForecast:
    """Return the forecast of the error after n_max steps from the errors after steps 1, 2, ..., in about half a second.

    The first half of the sweeps is discarded; each later one gives n_walkers samples.
    """
    y = 1.0 - _require_curve_up_to(errors, n_max)  # (n,)
    if n_walkers < 10 or n_walkers % 2 or n_sweeps < 2:
        raise ValueError(f"n_walkers={n_walkers} must be even and at least 10, n_sweeps={n_sweeps} at least 2.")
    steps = np.append(np.arange(1.0, y.size + 1.0), float(n_max))  # (n + 1,): the data, then the end
    walkers = scatter_walkers(y, steps, n_walkers, families, rng)
    finals, log_sigmas = [], []
    for sweep in range(n_sweeps):
        for k, family in enumerate(families):
            walkers.move_family(k, family, rng)
        walkers.draw_weights(rng)
        walkers.move_sigma(rng)
        if sweep >= n_sweeps // 2:
            finals.append(1.0 - walkers.weighted_sum()[:, -1])
            log_sigmas.append(walkers.log_sigma.copy())
    final, sigma = np.concatenate(finals), np.exp(np.concatenate(log_sigmas))  # (samples,)
    better = float(ndtr((incumbent_error - final) / sigma).mean())
    return FinalForecast(better, float(final.mean()), float(np.sqrt(final.var() + np.square(sigma).mean())))


def forecast_by_process(errors: Floats | Sequence[float], n_max: int, incumbent_error: float) -> FinalForecast:
    """Return the forecast by the Gaussian process of `curve_paths`, in milliseconds; the final error is without noise."""
    seen = _require_curve_up_to(errors, n_max)
    mean, cov = curve_posterior(seen, [n_max], fit_curve(seen))
    std = float(np.sqrt(max(cov[0, 0], 1e-12)))  # a variance lost in rounding must not divide by zero
    return FinalForecast(float(ndtr((incumbent_error - mean[0]) / std)), float(mean[0]), std)


def _require_curve_up_to(errors: Floats | Sequence[float], n_max: int) -> Floats:
    seen = np.asarray(errors, dtype=np.float64)
    if seen.ndim != 1 or not 1 <= seen.size <= n_max:
        raise ValueError(f"errors of shape {seen.shape} must be one error per step, from 1 to n_max={n_max} of them.")
    if not np.isfinite(seen).all():
        raise ValueError(
            f"errors has a value that is not finite, {seen[~np.isfinite(seen)][0]}: the training diverged."
        )
    return seen
