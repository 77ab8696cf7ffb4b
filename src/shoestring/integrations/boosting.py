"""Boosting in steps: each step adds some rounds to the model of the step before.

A booster that is simply continued does not know the state of its random generators. It would sample rows, columns and dropped
trees differently from a run without a pause. Here the seed of a step is its number, so a step depends only on the model before
it, and gives the same result whether the trial was paused or not. The training differs from one long `train` call, but it is
equally good and always the same.

A `parameters` argument may be a function of the step, counted from 1: for a learning rate that falls over the `max_steps` of the
study, or for a configuration that changes during the training.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from shoestring.integrations.optional import import_optional
from shoestring.runners.training.code import Context, Report

__all__ = ["catboost_steps", "lightgbm_steps", "xgboost_steps"]
Model = TypeVar("Model")
Parameters = Mapping[str, Any] | Callable[[int], Mapping[str, Any]]  # or a function of the step, counted from 1
_XGBOOST_FILE = "booster.ubj"  # the ending selects the format


def _grow_in_steps(
    grow: Callable[[Model | None, int], Model],
    loss: Callable[[Model], float],
    write: Callable[[Model, Path], Any],
    read: Callable[[Path], Model],
    context: Context,
) -> Iterator[Report]:
    """Yield one report per step, without end. `grow(model, step)` returns the next model; `model` is None at step 1."""
    model = None if context.checkpoint is None else read(context.checkpoint)
    step = context.step
    while True:
        step += 1
        model = grow(model, step)
        yield Report(loss(model) if context.should_validate else None, save=partial(write, model))


def _parameters_at(parameters: Parameters, step: int, **defaults: Any) -> dict[str, Any]:
    """Return the parameters of a step; those of the user replace the defaults."""
    own = parameters(step) if callable(parameters) else parameters
    return {**defaults, **own}


def xgboost_steps(
    parameters: Parameters, data: Any, loss: Callable[[Any], float], context: Context, *, rounds: int = 10
) -> Iterator[Report]:
    """Train XGBoost in steps of `rounds` boosting rounds.

    Parameters
    ----------
    parameters : mapping or callable
        Parameters of XGBoost, or a function of the step that returns them.
    data : xgboost.DMatrix
        The training rows.
    loss : callable
        `loss(booster)` returns the value of a step.
    context : Context
        The second argument of the training code.
    rounds : int, default 10
        The rounds that a step adds.

    Returns
    -------
    iterator of Report
        One report for each step, without end.

    Raises
    ------
    MissingExtra
        If XGBoost is not installed.

    Examples
    --------
    A generator that reports the validation loss after every ten rounds:

        def train(config, context):
            data, valid = xgboost.DMatrix(X, y), xgboost.DMatrix(VALID_X)
            parameters = {"objective": "binary:logistic", "subsample": 0.7, **config}
            loss = lambda booster: log_loss(VALID_Y, booster.predict(valid))
            yield from xgboost_steps(parameters, data, loss, context, rounds=10)
    """
    xgboost = import_optional("xgboost_steps", "xgboost", "xgboost")

    def grow(booster: Any, step: int) -> Any:
        return xgboost.train(_parameters_at(parameters, step, seed=step), data, rounds, xgb_model=booster)

    def write(booster: Any, path: Path) -> None:
        path.mkdir(parents=True)
        booster.save_model(path / _XGBOOST_FILE)

    return _grow_in_steps(grow, loss, write, lambda path: xgboost.Booster(model_file=path / _XGBOOST_FILE), context)


def lightgbm_steps(
    parameters: Parameters, data: Any, loss: Callable[[Any], float], context: Context, *, rounds: int = 10
) -> Iterator[Report]:
    """Train LightGBM in steps of `rounds` boosting rounds.

    Parameters
    ----------
    parameters : mapping or callable
        Parameters of LightGBM, or a function of the step that returns them.
    data : lightgbm.Dataset
        The training rows; create it with `free_raw_data=False`, because each step reads them again.
    loss : callable
        `loss(booster)` returns the value of a step.
    context : Context
        The second argument of the training code.
    rounds : int, default 10
        The rounds that a step adds.

    Returns
    -------
    iterator of Report
        One report for each step, without end.

    Raises
    ------
    MissingExtra
        If LightGBM is not installed.

    Examples
    --------
    A generator that reports the validation loss after every ten rounds:

        def train(config, context):
            data = lightgbm.Dataset(X, y, free_raw_data=False)
            parameters = {"objective": "binary", "bagging_fraction": 0.7, "bagging_freq": 1, **config}
            loss = lambda booster: log_loss(VALID_Y, booster.predict(VALID_X))
            yield from lightgbm_steps(parameters, data, loss, context, rounds=10)
    """
    lightgbm = import_optional("lightgbm_steps", "lightgbm", "lightgbm")

    def grow(booster: Any, step: int) -> Any:
        # By default LightGBM times two ways to build histograms and takes the faster one; they round differently.
        step_parameters = _parameters_at(
            parameters, step, seed=step, deterministic=True, force_col_wise=True, verbose=-1
        )
        return lightgbm.train(step_parameters, data, rounds, init_model=booster)

    def write(booster: Any, path: Path) -> None:
        booster.save_model(str(path))

    return _grow_in_steps(grow, loss, write, lambda path: lightgbm.Booster(model_file=str(path)), context)


def catboost_steps(
    parameters: Parameters, data: Any, loss: Callable[[Any], float], context: Context, *, rounds: int = 10
) -> Iterator[Report]:
    """Train CatBoost in steps of `rounds` boosting rounds.

    Parameters
    ----------
    parameters : mapping or callable
        Parameters of CatBoost, or a function of the step that returns them.
    data : catboost.Pool
        The training rows, or another first argument of CatBoost's `fit`.
    loss : callable
        `loss(model)` returns the value of a step.
    context : Context
        The second argument of the training code.
    rounds : int, default 10
        The rounds that a step adds.

    Returns
    -------
    iterator of Report
        One report for each step, without end.

    Raises
    ------
    MissingExtra
        If CatBoost is not installed.

    Notes
    -----
    A model that was just trained continues differently from the same model read from a file, because it keeps more than it
    saves. Every step therefore starts from the saved form.

    Examples
    --------
    A generator that reports the validation loss after every ten rounds:

        def train(config, context):
            data = catboost.Pool(X, y, cat_features=[0, 3])
            parameters = {"loss_function": "Logloss", "rsm": 0.7, **config}
            loss = lambda model: log_loss(VALID_Y, model.predict(VALID_X, prediction_type="Probability"))
            yield from catboost_steps(parameters, data, loss, context, rounds=10)
    """
    catboost = import_optional("catboost_steps", "catboost", "catboost")

    def read(path: Path) -> Any:
        return catboost.CatBoost().load_model(str(path))

    def write(model: Any, path: Path) -> None:
        model.save_model(str(path))

    def grow(model: Any, step: int) -> Any:
        step_parameters = _parameters_at(parameters, step, random_seed=step, verbose=False, allow_writing_files=False)
        grown = catboost.CatBoost({**step_parameters, "iterations": rounds})
        grown.fit(data, init_model=model)
        with tempfile.TemporaryDirectory() as folder:
            write(grown, Path(folder) / "model.cbm")
            return read(Path(folder) / "model.cbm")

    return _grow_in_steps(grow, loss, write, read, context)
