"""Data sets, pipelines and searches of `python -m benchmarks sklearn_search`.

    pipeline   estimator                                  what BudgetSearchCV does
    network    StandardScaler, then MLPClassifier         partial_fit, three passes over one fold in a step
    boosting   HistGradientBoostingClassifier             warm_start, five rounds of one fold in a step
    kernel     StandardScaler, then SVC                   one fit of a fold in a step

All searches get the same space, written with `scipy.stats`, and five folds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import loguniform, randint, uniform
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import HalvingRandomSearchCV, RandomizedSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from shoestring.integrations.sklearn import BudgetSearchCV

DATA = ("digits", "phoneme", "satellite_landsat", "spambase", "vehicle")
PIPELINES = ("network", "boosting", "kernel")
FOLDS = 5


def load(name: str, folder: Path) -> tuple[Any, Any]:
    """Return the rows and classes of a data set: scikit-learn's digits, or a file of the folder `ml_datasets`."""
    if name == "digits":
        rows, classes = load_digits(return_X_y=True)
        return rows, classes
    with np.load(folder / "ml_datasets" / f"{name}.npz") as stored:
        return stored["X"].astype(float), stored["y"]


def make_pipe(name: str) -> tuple[Any, dict[str, Any]]:
    """Return an estimator and its space."""
    if name == "network":
        space: dict[str, Any] = {
            "learning_rate_init": loguniform(1e-4, 1e-1),
            "alpha": loguniform(1e-6, 1.0),
            "batch_size": [16, 32, 64, 128, 256],
            "activation": ["relu", "tanh"],
            "hidden_layer_sizes": [(32,), (64,), (32, 32)],
        }
        model = MLPClassifier(max_iter=27, random_state=0)  # as many passes as BudgetSearchCV makes
        return make_pipeline(StandardScaler(), model), {f"mlpclassifier__{key}": of for key, of in space.items()}
    if name == "boosting":
        space = {
            "learning_rate": loguniform(1e-2, 1.0),
            "max_leaf_nodes": randint(4, 64),
            "min_samples_leaf": randint(2, 100),
            "l2_regularization": loguniform(1e-4, 1e2),
            "max_features": uniform(0.2, 0.8),
        }
        return HistGradientBoostingClassifier(max_iter=45, early_stopping=False, random_state=0), space
    space = {"svc__C": loguniform(1e-2, 1e3), "svc__gamma": loguniform(1e-5, 1e1)}
    return make_pipeline(StandardScaler(), SVC()), space


def random_search(pipe: str, candidates: int, seed: int) -> Any:
    estimator, space = make_pipe(pipe)
    return RandomizedSearchCV(estimator, space, n_iter=candidates, cv=FOLDS, random_state=seed, refit=False)


def halving_search(pipe: str, candidates: int, seed: int) -> Any:
    """Return a halving search over rows, its default resource, whose last round uses all of them."""
    estimator, space = make_pipe(pipe)
    return HalvingRandomSearchCV(
        estimator,
        space,
        n_candidates=candidates,
        min_resources="exhaust",
        cv=FOLDS,
        random_state=seed,
        refit=False,
    )


def budget_search(pipe: str, seconds: float, seed: int, **options: Any) -> Any:
    estimator, space = make_pipe(pipe)
    return BudgetSearchCV(estimator, space, f"{seconds}s", cv=FOLDS, random_state=seed, **options)


PEERS = {"RandomizedSearchCV": random_search, "HalvingRandomSearchCV": halving_search}
