"""An objective written for Optuna, tuned under a budget. Nothing in it was changed, and Optuna need not be installed."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

from shoestring import tune_objective

X, Y = load_digits(return_X_y=True)
X_TRAIN, X_VALID, Y_TRAIN, Y_VALID = train_test_split(X / 16, Y, random_state=0)


def objective(trial):
    schedule = trial.suggest_categorical("learning_rate", ["constant", "invscaling"])
    model = SGDClassifier(
        alpha=trial.suggest_float("alpha", 1e-7, 1e-1, log=True),
        eta0=trial.suggest_float("eta0", 1e-4, 10.0, log=True),
        learning_rate=schedule,
        power_t=trial.suggest_float("power_t", 0.1, 0.9) if schedule == "invscaling" else 0.5,
        random_state=0,
    )
    for step in range(20):
        model.partial_fit(X_TRAIN, Y_TRAIN, classes=np.unique(Y))
        error = 1 - model.score(X_VALID, Y_VALID)
        trial.report(error, step)
        if trial.should_prune():
            import optuna

            raise optuna.TrialPruned()
    return error


if __name__ == "__main__":
    study = tune_objective(objective, budget="200 epochs", max_steps=20, seed=0)
    complete = sum(trial.steps == 20 for trial in study.trials)
    print(f"{len(study.trials)} configurations, {complete} of them trained to the end")
    print(f"error {study.best.value:.3f} after {study.best.step} steps with {study.best.config}")
