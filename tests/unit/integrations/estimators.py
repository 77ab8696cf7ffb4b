"""Estimators that sample rows and columns, trained in steps: correctly, and in ways that resume wrongly."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier

from shoestring import Context, Report
from shoestring.integrations.sklearn import partial_fit_steps, warm_start_steps

IMAGES, LABELS = load_digits(n_class=4, return_X_y=True)
X, Y, VALID_X, VALID_Y = IMAGES[:200] / 16, LABELS[:200], IMAGES[200:400] / 16, LABELS[200:400]
STEPS = 4
BY_PASSES = {
    "sgd": lambda: SGDClassifier(loss="log_loss", random_state=0),
    "sgd without a seed": lambda: SGDClassifier(loss="log_loss", average=True),
    "sgd with a generator": lambda: SGDClassifier(loss="log_loss", random_state=np.random.RandomState(3)),
    "perceptrons": lambda: MLPClassifier((8,), learning_rate_init=0.01, random_state=0),
    "perceptrons without a seed": lambda: MLPClassifier((8,), learning_rate_init=0.01),
}
BY_TREES = {
    "forest": lambda: RandomForestClassifier(max_features=0.4, max_samples=0.5, max_depth=4, random_state=0),
    "forest without a seed": lambda: RandomForestClassifier(max_features=0.4, max_samples=0.5, max_depth=4),
    "extra trees": lambda: ExtraTreesClassifier(bootstrap=True, max_features=0.4, max_depth=4, random_state=0),
    "bagging": lambda: BaggingClassifier(max_samples=0.5, max_features=0.4, random_state=0),
    "boosting": lambda: GradientBoostingClassifier(subsample=0.5, max_features=0.4, max_depth=2, random_state=0),
    "histograms": lambda: HistGradientBoostingClassifier(max_features=0.4, max_leaf_nodes=4, random_state=0),
}


def loss(model: Any) -> float:
    return float(log_loss(VALID_Y, model.predict_proba(VALID_X)))


def train(config: dict[str, Any], context: Context) -> Iterator[Report]:
    np.random.seed(1)
    if config["name"] in BY_PASSES:
        yield from partial_fit_steps(BY_PASSES[config["name"]](), X, Y, loss, context, classes=range(4))
    else:
        yield from warm_start_steps(BY_TREES[config["name"]](), X, Y, loss, context, increment=3)


def train_from_coefficients(config: dict[str, Any], context: Context) -> Iterator[Report]:
    """Resume from the coefficients only: the schedule of the learning rate starts again."""
    model = SGDClassifier(loss="log_loss", random_state=0).partial_fit(X[:4], Y[:4], classes=range(4))
    if context.checkpoint is not None:
        model.coef_, model.intercept_ = pickle.loads(context.checkpoint.read_bytes())

    def save(path: Path) -> None:
        path.write_bytes(pickle.dumps((model.coef_, model.intercept_)))

    while True:
        model.partial_fit(X, Y)
        yield Report(loss(model), save=save)


def train_without_random_state(config: dict[str, Any], context: Context) -> Iterator[Report]:
    """Grow a forest without a random_state: a resumed run samples other rows and columns than a run without a pause."""
    model = RandomForestClassifier(max_features=0.4, max_depth=4, warm_start=True)
    np.random.seed(1)
    if context.checkpoint is not None:
        model = pickle.loads(context.checkpoint.read_bytes())
    trees = 3 * context.step
    while True:
        trees += 3
        model.set_params(n_estimators=trees).fit(X, Y)
        yield Report(loss(model), save=lambda path: path.write_bytes(pickle.dumps(model)))
