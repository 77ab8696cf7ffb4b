"""Cross-validation in steps, which is what a trial of a `BudgetSearchCV` trains.

    passes   a step is a pass of `partial_fit` over the training rows of every fold
    trees    a step is a share of the trees of every fold's ensemble, grown with `warm_start`
    folds    a step is a fold (or as many folds as there are jobs), fitted and scored once

The value of a step is the mean score of the folds that were fitted so far. The estimators of a paused trial stay in memory.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone, is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import _safe_split

from shoestring.core.space.space import Config
from shoestring.core.values.checks import to_number
from shoestring.integrations.sklearn.results import FoldResult, FoldResults, Scores, to_metrics
from shoestring.runners.training.code import Context, Report

StepKind = Literal["passes", "trees", "folds"]
T = TypeVar("T")


@dataclass
class Folds:
    """The data and settings of a cross-validation, and the results of the newest step."""

    estimator: Any
    X: Any
    y: Any
    splits: Sequence[tuple[Any, Any]]
    scorer: Callable[..., Any]
    kind: StepKind
    steps: int  # steps of a full training
    metric: str = "score"  # the metric that is optimised
    metrics: Sequence[str] = ("score",)
    fit_params: Mapping[str, Any] = field(default_factory=dict)
    score_params: Mapping[str, Any] = field(default_factory=dict)
    jobs: int = 1
    error_score: float | str = math.nan
    with_train_score: bool = False
    newest: FoldResults = field(default_factory=list)
    error: Exception | None = None  # the first error of an estimator
    is_stored: bool = False  # whether scores go into the ledger and models into checkpoints

    def __repr__(self) -> str:
        return f"Folds({self.estimator!r}, {len(self.splits)} splits, {self.kind})"

    def train(self, config: Config, context: Context) -> Iterator[Report]:
        """Train one trial, a step at a time; the results of the newest step are in `newest`."""
        models = [self.make(config) for _ in self.splits]
        results: FoldResults = [None] * len(self.splits)
        trees = _tree_count(models[0])
        if context.checkpoint is not None:
            models, results = pickle.loads(context.checkpoint.read_bytes())  # written by `save` below
        for step in range(context.step + 1, self.steps + 1):
            folds = self._folds_of_step(step)
            fits = [self._fit_method(models[fold], trees, step) for fold in folds]
            try:
                parts = zip(folds, fits, strict=True)
                advance, pid = delayed(_call_without_ctrl_c), os.getpid()
                outcomes = Parallel(n_jobs=self.jobs)(
                    advance(pid, self._advance, models[k], k, fit) for k, fit in parts
                )
            except Exception as error:
                self.error = self.error or error
                raise
            for fold, (model, result, failure) in zip(folds, outcomes, strict=True):
                models[fold] = model  # a copy, if another process trained it
                results[fold] = _add_times(results[fold], result)
                self.error = self.error or failure
            self.newest = list(results)
            value = float(np.mean([result.scores[self.metric] for result in results if result is not None]))
            yield self._storable_report(value, models, list(results)) if self.is_stored else Report(value)

    def _storable_report(self, value: float, models: list[Any], results: FoldResults) -> Report:
        """Return a report whose checkpoint holds the models and whose metrics hold the scores of every fold."""

        def save(path: Path) -> None:
            path.write_bytes(pickle.dumps((models, results)))

        if _uses_global_generator(self.estimator):
            save.resume = "inexact"  # type: ignore[attr-defined]
        return Report(value, save=save, metrics=to_metrics(results))

    def make(self, config: Config) -> Any:
        return clone(self.estimator).set_params(**clone(dict(config), safe=False))

    def fit_on_all_rows(self, config: Config, steps: int) -> Any:
        """Return the estimator of a configuration, trained on all rows for `steps` steps."""
        model = self.make(config)
        data = (self.X,) if self.y is None else (self.X, self.y)
        if self.kind == "passes":
            for step in range(1, steps + 1):
                self._fit_method(model, 0, step)(*data, **self.fit_params)
            return model
        if self.kind == "trees":
            model.set_params(**{tree_parameter(model) or "": self._trees_at(_tree_count(model), steps)})
        return model.fit(*data, **self.fit_params)

    def _folds_of_step(self, step: int) -> range:
        all_folds = range(len(self.splits))
        per_step = math.ceil(len(all_folds) / self.steps)
        return all_folds[(step - 1) * per_step : step * per_step] if self.kind == "folds" else all_folds

    def _trees_at(self, trees: int, step: int) -> int:
        return max(step, round(trees * step / self.steps))

    def _fit_method(self, model: Any, trees: int, step: int) -> Callable[..., Any]:
        """Return the method that trains a fold's model on its rows in this step."""
        if self.kind == "folds":
            return model.fit  # type: ignore[no-any-return]
        if self.kind == "trees":
            count = {tree_parameter(model) or "": self._trees_at(trees, step)}
            return model.set_params(warm_start=True, **count).fit  # type: ignore[no-any-return]
        classes = {"classes": np.unique(self.y)} if is_classifier(model) and step == 1 else {}
        return partial(model.partial_fit, **classes)

    def _advance(self, model: Any, fold: int, fit: Callable[..., Any]) -> tuple[Any, FoldResult, Exception | None]:
        train, test = self.splits[fold]
        train_x, train_y = _safe_split(model, self.X, self.y, train)
        test_x, test_y = _safe_split(model, self.X, self.y, test, train)
        began = time.perf_counter()
        try:
            data = (train_x,) if train_y is None else (train_x, train_y)
            fit(*data, **self._rows_of(self.fit_params, train))
            fit_end = time.perf_counter()
            scores = self._score(model, test_x, test_y, test)
            score_end = time.perf_counter()
            train_scores = self._score(model, train_x, train_y, train) if self.with_train_score else {}
            return model, FoldResult(scores, train_scores, fit_end - began, score_end - fit_end), None
        except Exception as error:
            if isinstance(self.error_score, str) or math.isnan(self.error_score):
                raise
            warnings.warn(
                f"a fold failed and gets the score {self.error_score}: {error}", FitFailedWarning, stacklevel=2
            )
            scores = dict.fromkeys(self.metrics, self.error_score)
            train_scores = scores if self.with_train_score else {}
            return model, FoldResult(scores, train_scores, time.perf_counter() - began, 0.0), error

    def _score(self, model: Any, X: Any, y: Any, rows: Any) -> Scores:
        data = (X,) if y is None else (X, y)
        score = self.scorer(model, *data, **self._rows_of(self.score_params, rows))
        by_metric = dict(score) if isinstance(score, Mapping) else {"score": score}
        return {name: _to_float(name, value) for name, value in by_metric.items()}

    def _rows_of(self, params: Mapping[str, Any], rows: Any) -> dict[str, Any]:
        """Return arguments of `fit` or of the scorer; one that has as many rows as X is reduced to these rows."""
        n = len(self.X) if not hasattr(self.X, "shape") else self.X.shape[0]
        has_rows = {name: np.ndim(value) > 0 and np.shape(value)[0] == n for name, value in params.items()}
        return {name: _safe_indexing(value, rows) if has_rows[name] else value for name, value in params.items()}


def _call_without_ctrl_c(pid: int, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function; in another process than `pid` it is not interrupted by Ctrl-C, which a terminal sends to all of them.

    Some estimators catch KeyboardInterrupt and end early. The configuration would then get the score of a shorter training.
    """
    if os.getpid() == pid or threading.current_thread() is not threading.main_thread():
        return function(*arguments)
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return function(*arguments)
    finally:
        signal.signal(signal.SIGINT, former)


def step_kind_of(estimator: Any, names: Any) -> StepKind:
    """Return how this estimator can be trained in steps while the parameters `names` are searched."""
    params = estimator.get_params(deep=False)
    if tree_parameter(estimator) not in (None, *names) and "warm_start" in params:
        return "trees"
    if hasattr(estimator, "partial_fit") and "max_iter" in params and "max_iter" not in names:
        return (
            "folds"
            if params.get("early_stopping") or params.get("solver") == "lbfgs" or "solver" in names
            else "passes"
        )
    return "folds"


def tree_parameter(estimator: Any) -> str | None:
    """Return the parameter that counts the trees (or rounds) of an ensemble, or None if there is none."""
    params = estimator.get_params(deep=False)
    if "n_estimators" in params:
        return "n_estimators"
    return "max_iter" if {"max_iter", "max_leaf_nodes"} <= set(params) else None


def _uses_global_generator(estimator: Any) -> bool:
    """Return whether the estimator draws from NumPy's global generator, which trials share: resuming cannot be exact then."""
    params = estimator.get_params(deep=True)
    return any(value is None for name, value in params.items() if name.split("__")[-1] == "random_state")


def _tree_count(estimator: Any) -> int:
    name = tree_parameter(estimator)
    return int(estimator.get_params(deep=False)[name]) if name else 0


def _add_times(before: FoldResult | None, now: FoldResult) -> FoldResult:
    if before is None:
        return now
    return FoldResult(now.scores, now.train_scores, before.fit_s + now.fit_s, before.score_s + now.score_s)


def _to_float(name: str, value: Any) -> float:
    try:
        return to_number(value)
    except TypeError:
        raise ValueError(f"scoring must return a number, got {value!r} for {name}") from None
