"""scikit-learn estimators in steps: a pass of `partial_fit`, or some more trees with `warm_start`.

    def train(config, context):
        model = SGDClassifier(loss="log_loss", random_state=0, **config)
        yield from partial_fit_steps(model, X, y, lambda m: 1 - m.score(VALID_X, VALID_Y), context, classes=range(10))

    def train(config, context):
        model = RandomForestClassifier(max_features=0.5, random_state=0, **config)
        yield from warm_start_steps(model, X, y, lambda m: 1 - m.score(VALID_X, VALID_Y), context, more=10)

A step is the same step, frozen or not. `partial_fit` of an estimator is not always a piece of its `fit`: `MLPClassifier`
shuffles each pass anew from its `random_state`, so many passes are another run than one long fit.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shoestring.errors import RunnerError
from shoestring.integrations.stepping import Steps, stepwise
from shoestring.runners.training.code import Context, Report

_FILE = "estimator.pickle"
_COUNTS = ("n_estimators", "max_iter")  # what grows with warm_start: trees, or rounds of histogram boosting


def partial_fit_steps(
    model: Any, X: Any, y: Any, loss: Callable[[Any], float], context: Context, **options: Any
) -> Iterator[Report]:
    """Steps of one pass over the rows; options, as `classes`, are those of the first `partial_fit`."""

    def advance(fitted: Any, step: int) -> None:
        fitted.partial_fit(X, y, **(options if step == 1 else {}))

    if not hasattr(model, "partial_fit"):
        raise RunnerError(f"{type(model).__name__} has no partial_fit: use warm_start_steps, or train it in one step")
    return _steps(model, advance, loss, context)


def warm_start_steps(
    model: Any, X: Any, y: Any, loss: Callable[[Any], float], context: Context, *, more: int = 10
) -> Iterator[Report]:
    """Steps of `more` trees (or rounds) each, for forests, bagging and boosting that take `warm_start`."""
    count = next((name for name in _COUNTS if name in model.get_params()), None)
    if count is None or "warm_start" not in model.get_params():
        raise RunnerError(f"{type(model).__name__} cannot grow with warm_start: use partial_fit_steps, or one step")

    def advance(fitted: Any, step: int) -> None:
        fitted.set_params(warm_start=True, **{count: more * step}).fit(X, y)

    return _steps(model, advance, loss, context)


def _steps(
    model: Any, advance: Callable[[Any, int], None], loss: Callable[[Any], float], context: Context
) -> Iterator[Report]:
    def fit(steps: Steps) -> None:
        fitted = model
        if steps.checkpoint is not None:
            fitted = pickle.loads((steps.checkpoint / _FILE).read_bytes())  # our own checkpoint
        steps.restore_random()  # an estimator without a random_state draws from NumPy's global generator

        def save(folder: Path) -> None:
            (folder / _FILE).write_bytes(pickle.dumps(fitted))

        step = steps.done
        while True:
            step += 1
            advance(fitted, step)
            steps.report(loss(fitted) if steps.should_validate else None, save)

    return stepwise(fit, context)
