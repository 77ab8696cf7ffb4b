"""Other libraries with one interface: a function from past points and losses to the next point.

    sklearn GP    GaussianProcessRegressor (Matérn 5/2, one length-scale per dimension, noise), fitted at each decision,
                  starting from its last optimum; EI on 2250 random points, then L-BFGS-B with numerical gradients
    Optuna TPE    TPESampler with its defaults
    Optuna GP     GPSampler with its defaults, except for the number of initial trials
    BoTorch       SingleTaskGP fitted by fit_gpytorch_mll, LogExpectedImprovement, optimize_acqf: 512 raw samples, 10 restarts

The last two need torch. A mixed grid is a box of integers, some of them categories. Optuna gets them as categories; the others
see categories one-hot encoded and the rest as coordinates in the cube. On such a grid scikit-learn's method takes the best of its
random points, and BoTorch the best of all points not tried yet (optimize_acqf_discrete).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from shoestring.models.gp.acquisition import log_expected_improvement

Array = NDArray[np.float64]
Decide = Callable[[Array, Array], Array]  # past (n, d) and (n,) -> next point of the cube, (d,)


@dataclass(frozen=True)
class Grid:
    """The number of values per dimension (0: continuous), and whether they are categories. Values are at cell centres."""

    levels: tuple[int, ...]
    is_category: tuple[bool, ...]

    @classmethod
    def box(cls, dims: int) -> Grid:
        return cls((0,) * dims, (False,) * dims)

    def cells(self, point: Array) -> list[float]:
        """Return the index of each value; continuous values are unchanged."""
        return [min(int(u * n), n - 1) if n else float(u) for u, n in zip(point.tolist(), self.levels, strict=True)]

    def centres(self, cells: list[float]) -> Array:
        return np.array([(c + 0.5) / n if n else c for c, n in zip(cells, self.levels, strict=True)])

    def points(self) -> Array:
        """Return all points, (n, d), of a grid without continuous dimensions."""
        return np.array(list(product(*[(np.arange(n) + 0.5) / n for n in self.levels])))

    def code(self, points: Array) -> Array:
        """Return (n, columns) features with one column per category."""
        columns = []
        for j, (n, is_category) in enumerate(zip(self.levels, self.is_category, strict=True)):
            if is_category:
                columns += [(np.floor(points[:, j] * n) == k).astype(float) for k in range(n)]
            else:
                columns.append(points[:, j])
        return np.column_stack(columns)

    def decode(self, row: Array) -> Array:
        """Return the nearest point of the grid for one row of features."""
        point, at = [], 0
        for n, is_category in zip(self.levels, self.is_category, strict=True):
            width = n if is_category else 1
            value = (float(np.argmax(row[at : at + n])) + 0.5) / n if is_category else float(row[at])
            point.append((min(int(value * n), n - 1) + 0.5) / n if n else value)
            at += width
        return np.array(point)


def sklearn_gp(grid: Grid, seed: int) -> Decide:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    warnings.simplefilter("ignore", ConvergenceWarning)
    dims = grid.code(np.zeros((1, len(grid.levels)))).shape[1]
    kernel = [ConstantKernel(1.0) * Matern(np.full(dims, 0.5), (5e-3, 200.0), nu=2.5) + WhiteKernel(1e-3, (1e-8, 10.0))]
    rng = np.random.default_rng(seed)

    def decide(x: Array, y: Array) -> Array:
        coded = grid.code(x)
        gp = GaussianProcessRegressor(kernel[0], normalize_y=True).fit(coded, y)
        kernel[0] = gp.kernel_
        f_min = float(gp.predict(coded).min())

        def negative(points: Array) -> Array:
            mean, std = gp.predict(np.atleast_2d(points), return_std=True)
            return -log_expected_improvement(mean, np.maximum(std, 1e-9), f_min)

        pool = grid.code(rng.random((2250, len(grid.levels))))
        start = pool[np.argmin(negative(pool))]
        if all(grid.levels):
            return grid.decode(start)
        found = minimize(lambda p: float(negative(p)[0]), start, method="L-BFGS-B", bounds=[(0, 1)] * dims)
        return grid.decode(np.asarray(found.x))

    return decide


def _optuna(grid: Grid, sampler: Any) -> Decide:
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=sampler)

    def distribution(n: int, is_category: bool) -> Any:
        if is_category:
            return CategoricalDistribution([f"{k}" for k in range(n)])
        return IntDistribution(0, n - 1) if n else FloatDistribution(0.0, 1.0)

    kinds = list(zip(grid.levels, grid.is_category, strict=True))
    distributions = {f"x{j}": distribution(*kind) for j, kind in enumerate(kinds)}
    reported = [0]

    def decide(x: Array, y: Array) -> Array:
        for row, value in zip(x[reported[0] :], y[reported[0] :], strict=True):
            params = {f"x{j}": str(cell) if kinds[j][1] else cell for j, cell in enumerate(grid.cells(row))}
            study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=float(value)))
        reported[0] = len(y)
        trial = study.ask(distributions)
        study.tell(trial, state=optuna.trial.TrialState.FAIL)  # its value is added with the past of the next decision
        cells = [trial.params[f"x{j}"] for j in range(len(kinds))]
        return grid.centres([float(c) for c in cells])

    return decide


def optuna_tpe(grid: Grid, seed: int) -> Decide:
    import optuna

    return _optuna(grid, optuna.samplers.TPESampler(seed=seed))


def optuna_gp(grid: Grid, seed: int) -> Decide:
    import optuna
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    return _optuna(grid, optuna.samplers.GPSampler(seed=seed, n_startup_trials=5))


def botorch_gp(grid: Grid, seed: int) -> Decide:
    import torch
    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf, optimize_acqf_discrete
    from gpytorch.mlls import ExactMarginalLogLikelihood

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    every_point = torch.from_numpy(grid.code(grid.points())) if all(grid.levels) else None

    def decide(x: Array, y: Array) -> Array:
        inputs = torch.from_numpy(grid.code(x))
        outputs = torch.from_numpy(-y[:, None])
        model = SingleTaskGP(inputs, outputs)  # standardises its outputs
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        bounds = torch.stack([torch.zeros(inputs.shape[1]), torch.ones(inputs.shape[1])]).double()
        rule = LogExpectedImprovement(model, best_f=outputs.max())
        if all(grid.levels):
            point, _ = optimize_acqf_discrete(rule, q=1, choices=every_point, X_avoid=inputs)
        else:
            point, _ = optimize_acqf(rule, bounds, q=1, num_restarts=10, raw_samples=512)
        return grid.decode(point[0].detach().numpy())

    return decide


PEERS: dict[str, Callable[[Grid, int], Decide]] = {
    "sklearn GP": sklearn_gp,
    "optuna TPE": optuna_tpe,
    "optuna GP": optuna_gp,
    "botorch": botorch_gp,
}
