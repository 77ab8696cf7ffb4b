"""Train scikit-learn estimators in steps: a step is a pass of `partial_fit`, or some more trees with `warm_start`.

    def train(config, context):
        model = SGDClassifier(loss="log_loss", random_state=0, **config)
        yield from partial_fit_steps(model, X, y, lambda m: 1 - m.score(VALID_X, VALID_Y), context, classes=range(10))

    def train(config, context):
        model = RandomForestClassifier(max_features=0.5, random_state=0, **config)
        yield from warm_start_steps(model, X, y, lambda m: 1 - m.score(VALID_X, VALID_Y), context, increment=10)

A step gives the same result whether the trial was paused before it or not. Passes of `partial_fit` are not always equal to one
long `fit`: `MLPClassifier` begins the shuffling of each pass from its `random_state` again.
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
_COUNTS = ("n_estimators", "max_iter")  # counts of trees, or of iterations of histogram boosting


def partial_fit_steps(
    model: Any, X: Any, y: Any, loss: Callable[[Any], float], context: Context, **options: Any
) -> Iterator[Report]:
    """Train an estimator with `partial_fit`, one pass over the rows in each step.

    Parameters
    ----------
    model : estimator
        An estimator with `partial_fit`.
    X, y : array-like
        The training rows and their targets.
    loss : callable
        `loss(model)` returns the value of a step.
    context : Context
        The second argument of the training code.
    **options
        Options of the first `partial_fit`, such as `classes`.

    Returns
    -------
    iterator of Report
        One report for each step, without end.

    Raises
    ------
    RunnerError
        If the estimator has no `partial_fit`.
    """

    def advance(fitted: Any, step: int) -> None:
        fitted.partial_fit(X, y, **(options if step == 1 else {}))

    if not hasattr(model, "partial_fit"):
        raise RunnerError(f"{type(model).__name__} has no partial_fit: use warm_start_steps, or train it in one step")
    return _steps(model, advance, loss, context)


def warm_start_steps(
    model: Any, X: Any, y: Any, loss: Callable[[Any], float], context: Context, *, increment: int = 10
) -> Iterator[Report]:
    """Train a forest, bagging or boosting with `warm_start`, some more trees (or iterations) in each step.

    Parameters
    ----------
    model : estimator
        An estimator with `warm_start` and `n_estimators` or `max_iter`.
    X, y : array-like
        The training rows and their targets.
    loss : callable
        `loss(model)` returns the value of a step.
    context : Context
        The second argument of the training code.
    increment : int, default 10
        The number of trees or iterations that a step adds.

    Returns
    -------
    iterator of Report
        One report for each step, without end.

    Raises
    ------
    RunnerError
        If the estimator cannot grow with `warm_start`.
    """
    count = next((name for name in _COUNTS if name in model.get_params()), None)
    if count is None or "warm_start" not in model.get_params():
        raise RunnerError(
            f"{type(model).__name__} cannot grow with warm_start: use partial_fit_steps, or train it in one step"
        )

    def advance(fitted: Any, step: int) -> None:
        fitted.set_params(warm_start=True, **{count: increment * step}).fit(X, y)

    return _steps(model, advance, loss, context)


def _steps(
    model: Any, advance: Callable[[Any, int], None], loss: Callable[[Any], float], context: Context
) -> Iterator[Report]:
    def fit(steps: Steps) -> None:
        fitted = model
        if steps.checkpoint is not None:
            fitted = pickle.loads((steps.checkpoint / _FILE).read_bytes())  # written by `save` below
        steps.restore_random()  # an estimator without a random_state draws from NumPy's global generator

        def save(folder: Path) -> None:
            (folder / _FILE).write_bytes(pickle.dumps(fitted))

        step = steps.done
        while True:
            step += 1
            advance(fitted, step)
            steps.report(loss(fitted) if steps.should_validate else None, save)

    return stepwise(fit, context)
