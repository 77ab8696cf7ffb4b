"""Will this run beat the best one? Eleven parametric learning curves, weighted and averaged over what the data allow.

Domhan, Springenberg and Hutter, "Speeding Up Automatic Hyperparameter Optimization of Deep Neural Networks by
Extrapolation of Learning Curves", IJCAI 2015 (no arXiv version known to us): the weighted sum of families and its
posterior by Markov chain Monte Carlo. The sampler is the stretch move of Goodman and Weare, "Ensemble samplers with
affine invariance", Comm. App. Math. Comp. Sci. 5 (2010), equations (7) and (9). A run is dropped when the probability
of ending above y* is below 0.05; here the caller compares.

    paper      here               meaning                                                  unit
    x, x_m     epochs, n_max      steps trained; full training                             steps
    y          1 - errors         accuracy after a step                                    in [0, 1]
    y*         incumbent_error    the best run's value, as an error                        error
    phi_k      FAMILIES[k]        one parametric curve                                     accuracy
    theta_k    theta              its parameters, in a box                                 -
    w_k        weight             its weight, in [0, 1]                                    -
    sigma      -                  deviation of an observation, sampled as a logarithm      accuracy
    f_comb     -                  sum over k of w_k phi_k(x)                               accuracy
    a, z       _STRETCH, stretch  largest stretch of a move; the one drawn                 -

Departs from the paper:
- Flat priors on boxes that make every family non-decreasing, so that the requirement f_comb(x_m) > f_comb(1) always
  holds; rates spread over decades have their logarithm in the box. To this end weibull, mmf and janoschek use the rise
  (a - b) in place of the start b. The sum must not end above 1.
- ilog2 divides by ln(x + 1): ln x is zero after the first step.
- Pr(y > y*) averages the normal tail of every sample instead of drawing one y from each: same mean, less noise.
- 100 walkers x 1000 moves, half of them discarded, against 250,000 moves: the estimate is good to about 0.05.
- `forecast_by_process` is a cheap substitute: the decaying-exponential process of `curve_paths`, in closed form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.special import ndtr

from shoestring.models.curve_paths import NOISE_VARIANCE, curve_posterior, fit_curve

Array = NDArray[np.float64]

_STRETCH = 2.0
_LOG_SIGMA = (np.log(1e-3), np.log(0.3))
_CANDIDATES = 256  # random points of a family's box, of which the best starts its least-squares fit
_SPREAD = 0.02  # of a box side: how far the walkers start from those fits


@dataclass(frozen=True, slots=True)
class CurveFamily:
    """A non-decreasing curve of the step number: `curve(epochs (n,), *parameters (m, 1))` gives (m, n)."""

    name: str
    curve: Callable[..., Array]
    low: tuple[float, ...]
    high: tuple[float, ...]


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


@dataclass(frozen=True, slots=True)
class FinalForecast:
    """What full training is expected to reach."""

    prob_better: float  # Pr(final error < incumbent_error)
    mean_error: float
    std_error: float


def forecast_by_families(
    errors: Array | Sequence[float],
    n_max: int,
    incumbent_error: float,
    rng: np.random.Generator,
    *,
    n_walkers: int = 100,
    n_moves: int = 1000,
) -> FinalForecast:
    """Forecast of the error after n_max steps from the errors after steps 1, 2, ...; about a second."""
    y = 1.0 - _checked(errors, n_max)  # (n,)
    epochs = np.append(np.arange(1.0, y.size + 1.0), float(n_max))  # (n + 1,): the data, then the end
    low, high = _box()
    if n_walkers < 2 * low.size:
        raise ValueError(f"n_walkers={n_walkers} must be at least {2 * low.size}, twice the number of parameters.")

    def log_density(points: Array) -> Array:  # (m, d) -> (m,)
        allowed = ((points >= low) & (points <= high)).all(axis=1)
        curve = _combined(epochs, np.clip(points, low, high))  # (m, n + 1)
        allowed &= curve[:, -1] <= 1.0
        log_sigma = points[:, -1]
        misfit = np.square(curve[:, :-1] - y).sum(axis=1)
        with np.errstate(over="ignore"):  # far below the box, where the point is refused anyway
            return np.where(allowed, -0.5 * misfit * np.exp(-2.0 * log_sigma) - y.size * log_sigma, -np.inf)

    start = _starting_walkers(y, epochs, n_walkers, low, high, rng)
    chain = stretch_sample(log_density, start, n_moves, rng, keep_every=10)  # (kept, walkers, d)
    points = chain[chain.shape[0] // 2 :].reshape(-1, low.size)
    final = 1.0 - _combined(epochs[-1:], points)[:, 0]  # (samples,)
    sigma = np.exp(points[:, -1])
    better = float(ndtr((incumbent_error - final) / sigma).mean())
    return FinalForecast(better, float(final.mean()), float(np.sqrt(final.var() + np.square(sigma).mean())))


def forecast_by_process(
    errors: Array | Sequence[float],
    n_max: int,
    incumbent_error: float,
    *,
    noise_variance: float = NOISE_VARIANCE,
    with_asymptote: bool = False,
) -> FinalForecast:
    """The same question to the Gaussian process of `curve_paths`: milliseconds, noise-free final error."""
    seen = _checked(errors, n_max)
    fit = fit_curve(seen, noise_variance=noise_variance, with_asymptote=with_asymptote)
    mean, cov = curve_posterior(seen, [n_max], fit)
    std = float(np.sqrt(max(cov[0, 0], 1e-12)))  # a variance lost in rounding must not divide by zero
    return FinalForecast(float(ndtr((incumbent_error - mean[0]) / std)), float(mean[0]), std)


def stretch_sample(
    log_density: Callable[[Array], Array],
    start: Array,
    n_moves: int,
    rng: np.random.Generator,
    *,
    keep_every: int = 1,
) -> Array:
    """Walkers (kept, walkers, d) of the affine-invariant ensemble sampler; `log_density` maps (m, d) to (m,).

    Each half of the ensemble moves along lines through random members of the other half, all at once: the halves keep
    the move reversible. Start from finite densities, with the walkers in general position: moves stay in their span.
    """
    walkers, d = start.shape
    if walkers < 4 or walkers % 2:
        raise ValueError(f"{walkers} walkers must be an even number from 4 on: the two halves move in turn.")
    half = walkers // 2
    point, log_p = start.copy(), log_density(start)
    if not np.isfinite(log_p).all():
        raise ValueError("start has a walker of zero density, which could never be judged. Start within the support.")
    kept = np.empty((n_moves // keep_every, walkers, d))
    for move in range(n_moves):
        for mine, others in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
            stretch = ((_STRETCH - 1.0) * rng.random(half) + 1.0) ** 2 / _STRETCH  # density ~ 1 / sqrt(z), eq. (9)
            partner = point[others][rng.integers(half, size=half)]
            proposal = partner + stretch[:, None] * (point[mine] - partner)  # eq. (7)
            proposed = log_density(proposal)
            log_ratio = (d - 1) * np.log(stretch) + proposed - log_p[mine]
            accept = np.log1p(-rng.random(half)) < log_ratio  # log1p: the argument is never log 0
            point[mine] = np.where(accept[:, None], proposal, point[mine])
            log_p[mine] = np.where(accept, proposed, log_p[mine])
        if (move + 1) % keep_every == 0:
            kept[move // keep_every] = point
    return kept


def _checked(errors: Array | Sequence[float], n_max: int) -> Array:
    seen = np.asarray(errors, dtype=np.float64)
    if seen.ndim != 1 or not 1 <= seen.size <= n_max:
        raise ValueError(f"errors of shape {seen.shape} must be one error a step, from 1 to n_max={n_max} of them.")
    if not np.isfinite(seen).all():
        raise ValueError(f"errors has a value that is not finite, {seen[~np.isfinite(seen)][0]}: the run diverged.")
    return seen


def _box() -> tuple[Array, Array]:
    """Bounds (d,) of a point: the parameters of every family in turn, the weights, log sigma."""
    ones = (1.0,) * len(FAMILIES)
    low = [*(v for family in FAMILIES for v in family.low), *(0.0 * v for v in ones), _LOG_SIGMA[0]]
    high = [*(v for family in FAMILIES for v in family.high), *ones, _LOG_SIGMA[1]]
    return np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)


def _combined(epochs: Array, points: Array) -> Array:
    """f_comb (m, n) of points (m, d) at epochs (n,)."""
    weights = points[:, -1 - len(FAMILIES) : -1]  # (m, families)
    total = np.zeros((points.shape[0], epochs.size))
    first = 0
    for k, family in enumerate(FAMILIES):
        theta = points[:, first : first + len(family.low)]
        first += len(family.low)
        total += weights[:, k : k + 1] * family.curve(epochs, *np.hsplit(theta, theta.shape[1]))
    return total


def _starting_walkers(
    y: Array, epochs: Array, n_walkers: int, low: Array, high: Array, rng: np.random.Generator
) -> Array:
    """Walkers (n_walkers, d) near the least-squares fit of each family, equal weights on those that end below 1."""
    centre: list[float] = []
    usable = []
    for family in FAMILIES:
        lower, upper = np.array(family.low, dtype=np.float64), np.array(family.high, dtype=np.float64)
        candidates = rng.uniform(lower, upper, (_CANDIDATES, lower.size))
        misfit = np.square(family.curve(epochs[:-1], *np.hsplit(candidates, lower.size)) - y).sum(axis=1)

        def residual(theta: Array, curve: Callable[..., Array] = family.curve) -> Array:
            return np.asarray(curve(epochs[:-1], *theta) - y)

        theta = least_squares(residual, candidates[misfit.argmin()], bounds=(lower, upper), max_nfev=50).x
        centre.extend(theta)
        usable.append(float(family.curve(epochs[-1:], *theta)[0] <= 1.0))
    weights = np.array(usable) / sum(usable)  # most families end below 1 by their box, so the sum is never 0
    middle = np.array([*centre, *weights, 0.0])
    spread = _SPREAD * (high - low)
    walkers = np.clip(middle + spread * rng.standard_normal((n_walkers, middle.size)), low, high)
    misfit = np.square(_combined(epochs[:-1], walkers) - y).mean(axis=1)
    walkers[:, -1] = np.clip(0.5 * np.log(misfit), *_LOG_SIGMA)
    # A walker whose curve ends above 1 gives way: its weights shrink until it does not.
    final = _combined(epochs[-1:], walkers)[:, 0]
    walkers[:, -1 - len(FAMILIES) : -1] /= np.maximum(final / 0.999, 1.0)[:, None]
    return walkers
