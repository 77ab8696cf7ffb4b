"""Objectives as users of Optuna write them; they run under `study.optimize` too, and worker processes import this file."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits, load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.svm import SVC

IRIS_X, IRIS_Y = load_iris(return_X_y=True)
X, Y = load_digits(return_X_y=True)
X_TRAIN, X_VALID, Y_TRAIN, Y_VALID = train_test_split(X / 16, Y, random_state=0)


def choose_classifier(trial: Any) -> float:
    """Two kinds of classifiers, each with its own parameters: maximize the accuracy."""
    kind = trial.suggest_categorical("classifier", ["svc", "forest"])
    model: Any
    if kind == "svc":
        c = trial.suggest_float("svc_c", 1e-3, 1e3, log=True)
        kernel = trial.suggest_categorical("kernel", ["rbf", "poly"])
        degree = trial.suggest_int("degree", 2, 4) if kernel == "poly" else 3
        model = SVC(C=c, kernel=kernel, degree=degree, gamma="auto")
    else:
        depth = trial.suggest_int("max_depth", 2, 32, log=True)
        model = RandomForestClassifier(max_depth=depth, n_estimators=3, random_state=0)
    return float(cross_val_score(model, IRIS_X, IRIS_Y, cv=3).mean())


def train_in_passes(trial: Any) -> float:
    """A classifier that reports after each pass over the rows, and asks whether to be pruned: minimize the error."""
    alpha = trial.suggest_float("alpha", 1e-7, 1e-1, log=True)
    eta0 = trial.suggest_float("eta0", 1e-4, 10.0, log=True)
    model = SGDClassifier(alpha=alpha, eta0=eta0, learning_rate="constant", random_state=0)
    error = 1.0
    for step in range(8):
        model.partial_fit(X_TRAIN, Y_TRAIN, classes=np.unique(Y))
        error = 1.0 - model.score(X_VALID, Y_VALID)
        trial.report(error, step)
        if trial.should_prune():
            import optuna

            raise optuna.TrialPruned()
    return error
