"""Cross-validation in steps, which is what a trial of a `BudgetSearchCV` trains.

The value of a step is the mean score of the folds. A fold that is still being trained is counted as if its score were to grow as
much as those of the folds before it, so the values of a trial do not fall when it begins a fold. The estimators of a paused trial
stay in memory.
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
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone, is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.utils import _safe_indexing

from shoestring.core.space.space import Config
from shoestring.core.values.checks import to_number
from shoestring.core.values.text import count
from shoestring.integrations.sklearn.results import FoldResult, FoldResults, Scores, to_metrics
from shoestring.integrations.sklearn.rows import Rows, RowStore, key_of, make_rows, uses_global_generator
from shoestring.integrations.sklearn.stages import Stages, tree_parameter
from shoestring.runners.training.code import Context, Report

T = TypeVar("T")


@dataclass
class Fold:
    """A fold of a trial: its estimator while it is being trained, and its scores by share."""

    model: Any = None
    own_rows: Rows | None = None  # of transformers that cannot be shared
    curve: dict[int, float] = field(default_factory=dict)
    result: FoldResult | None = None


@dataclass
class Folds:
    """The data and settings of a cross-validation, and the results of the newest step."""

    estimator: Any
    X: Any
    y: Any
    splits: Sequence[tuple[Any, Any]]
    scorer: Callable[..., Any]
    stages: Stages
    decode: Callable[[Config], dict[str, Any]] = dict  # from a configuration of the ledger to parameters
    is_split: bool = False  # whether the transformers of a pipeline are fitted apart from its last step
    scores_last_step: bool = False  # whether the scorer may see that last step instead of the pipeline
    metric: str = "score"  # the metric that is optimised
    metrics: Sequence[str] = ("score",)
    fit_params: Mapping[str, Any] = field(default_factory=dict)
    score_params: Mapping[str, Any] = field(default_factory=dict)
    error_score: float | str = math.nan
    with_train_score: bool = False
    newest: FoldResults = field(default_factory=list)
    error: Exception | None = None  # the first error of an estimator
    is_stored: bool = False  # whether scores go into the ledger and models into checkpoints
    rows: RowStore = field(default_factory=RowStore)

    def __repr__(self) -> str:
        return f"Folds({self.estimator!r}, {len(self.splits)} splits, {self.stages.kind})"

    def describe(self) -> str:
        """Return a sentence that says how the estimator is trained."""
        last = self.estimator[-1] if self.is_split else self.estimator
        how = {
            "passes": f"by partial_fit, one fold after the other: {self.stages.amount} passes over each",
            "trees": f"with warm_start, one fold after the other: {self.stages.amount} trees or rounds of each",
            "folds": "completely in each step, on one fold after the other",
        }[self.stages.kind]
        sharing = "; transformers are fitted once for each fold and configuration" if self.is_split else ""
        return f"{type(last).__name__} is trained {how}, {count(len(self.stages.steps), 'step')} in all{sharing}"

    # a trial ---------------------------------------------------------------------------------------------------------

    def train(self, config: Config, context: Context) -> Iterator[Report]:
        """Train one trial, a step at a time; the results of the newest step are in `newest`."""
        whole = self.make(self.decode(config))
        transformers = whole[:-1] if self.is_split else None
        key = key_of(transformers)
        folds = [Fold() for _ in self.splits]
        if context.checkpoint is not None:
            folds = pickle.loads(context.checkpoint.read_bytes())  # written by `save` below
        for group, share in self.stages.steps[context.step :]:
            jobs = [
                (k, folds[k], share, whole, folds[k].own_rows if key is None else self.rows.get((k, key)))
                for k in group
            ]
            try:
                outcomes = self._run(jobs)
            except Exception as error:
                self.error = self.error or error
                raise
            for k, (fold, rows, failure) in zip(group, outcomes, strict=True):
                folds[k] = fold  # a copy, if another process trained it
                self.error = self.error or failure
                if rows is not None and key is None:
                    fold.own_rows = rows
                elif rows is not None:
                    self.rows.put((k, key), rows)
                if share == self.stages.shares:
                    fold.model = fold.own_rows = None
            self.newest = [fold.result for fold in folds]
            value = self._mean_score(folds)
            yield self._storable_report(value, folds) if self.is_stored else Report(value)

    def _run(self, jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
        if self.stages.jobs == 1:
            return [self._advance(*jobs[0])]
        advance, pid = delayed(_call_without_ctrl_c), os.getpid()
        return Parallel(n_jobs=self.stages.jobs)(advance(pid, self._advance, *job) for job in jobs)  # type: ignore[no-any-return]

    def _mean_score(self, folds: Sequence[Fold]) -> float:
        """Return the mean score of the folds; one that is still being trained is expected to grow as those before it did."""
        last = self.stages.shares
        complete = [fold.curve for fold in folds if last in fold.curve]
        scores = [curve[last] for curve in complete]
        for curve in (fold.curve for fold in folds if fold.curve and last not in fold.curve):
            share = max(curve)
            growth = [other[last] - other[share] for other in complete]
            scores.append(curve[share] + (float(np.mean(growth)) if growth else 0.0))
        return float(np.mean(scores))

    def _storable_report(self, value: float, folds: list[Fold]) -> Report:
        """Return a report whose checkpoint holds the models and whose metrics hold the scores of every fold."""

        def save(path: Path) -> None:
            path.write_bytes(pickle.dumps(folds))

        if uses_global_generator(self.estimator):
            save.resume = "inexact"  # type: ignore[attr-defined]
        return Report(value, save=save, metrics=to_metrics([fold.result for fold in folds]))

    def make(self, params: Mapping[str, Any]) -> Any:
        return clone(self.estimator).set_params(**clone(dict(params), safe=False))

    # a fold ----------------------------------------------------------------------------------------------------------

    def _advance(
        self, number: int, fold: Fold, share: int, whole: Any, rows: Rows | None
    ) -> tuple[Fold, Rows | None, Exception | None]:
        """Train a fold up to a share; return it, the rows if they were made here, and the error if it failed."""
        train, test = self.splits[number]
        began, made, failure = time.perf_counter(), None, None
        try:
            if rows is None:
                params = self._rows_of(self._params_of(whole)[0], train)
                transformers = whole[:-1] if self.is_split else None
                rows = made = make_rows(whole, transformers, self.X, self.y, self.splits[number], params)
            if fold.model is None:
                fold.model = clone(whole[-1] if self.is_split else whole)
            fit_params = self._rows_of(self._params_of(whole)[1], train)
            self._fit(fold.model, rows.train_x, rows.train_y, share, fit_params)
            fitted_at = time.perf_counter()
            fitted = self._join(whole, rows.transformers, fold.model) if self.is_split else fold.model
            scored = fold.model if self.scores_last_step else fitted
            test_x = rows.test_x if scored is fold.model else _safe_indexing(self.X, test)
            scores = self._score(scored, test_x, rows.test_y, test)
            scored_at = time.perf_counter()
            train_scores: Scores = {}
            if self.with_train_score:
                train_x = rows.train_x if fitted is fold.model else _safe_indexing(self.X, train)
                train_scores = self._score(fitted, train_x, rows.train_y, train)
            result = FoldResult(scores, train_scores, fitted_at - began, scored_at - fitted_at)
        except Exception as error:
            if isinstance(self.error_score, str) or math.isnan(self.error_score):
                raise
            failure = error
            warnings.warn(
                f"a fold failed and gets the score {self.error_score}: {error}", FitFailedWarning, stacklevel=2
            )
            scores = dict.fromkeys(self.metrics, float(self.error_score))
            result = FoldResult(scores, scores if self.with_train_score else {}, time.perf_counter() - began, 0.0)
        fold.result = result if fold.result is None else result.after(fold.result)
        fold.curve[share] = result.scores[self.metric]
        return fold, made, failure

    def _fit(self, model: Any, X: Any, y: Any, share: int, params: Mapping[str, Any]) -> None:
        """Train a model on these rows, from the share before up to this one."""
        data = (X,) if y is None else (X, y)
        kind, amount = self.stages.kind, self.stages.amount_at(share)
        if kind == "passes":
            self._pass_over(model, data, range(self.stages.amount_at(share - 1), amount), params)
            return
        if kind == "trees":
            model.set_params(warm_start=True, **{tree_parameter(model) or "": amount})
        model.fit(*data, **params)

    def _pass_over(self, model: Any, data: tuple[Any, ...], passes: range, params: Mapping[str, Any]) -> None:
        for number in passes:
            classes = {"classes": np.unique(self.y)} if number == 0 and is_classifier(model) else {}
            model.partial_fit(*data, **classes, **params)

    def _join(self, whole: Any, transformers: Any, model: Any) -> Any:
        """Return the fitted pipeline of fitted transformers and a model."""
        pipeline = copy(whole)
        pipeline.steps = [*transformers.steps, (whole.steps[-1][0], model)]
        return pipeline

    def _score(self, model: Any, X: Any, y: Any, rows: Any) -> Scores:
        data = (X,) if y is None else (X, y)
        score = self.scorer(model, *data, **self._rows_of(self.score_params, rows))
        by_metric = dict(score) if isinstance(score, Mapping) else {"score": score}
        return {name: _to_float(name, value) for name, value in by_metric.items()}

    # arguments of fit ------------------------------------------------------------------------------------------------

    def _params_of(self, whole: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the arguments of `fit` for the transformers and for the last step (without transformers: for the estimator)."""
        if not self.is_split:
            return {}, self.fit_params
        prefix = f"{whole.steps[-1][0]}__"
        last = {name.removeprefix(prefix): value for name, value in self.fit_params.items() if name.startswith(prefix)}
        return {name: value for name, value in self.fit_params.items() if not name.startswith(prefix)}, last

    def _rows_of(self, params: Mapping[str, Any], rows: Any) -> dict[str, Any]:
        """Return arguments of `fit` or of the scorer; one that has as many rows as X is reduced to these rows."""
        n = len(self.X) if not hasattr(self.X, "shape") else self.X.shape[0]
        has_rows = {name: np.ndim(value) > 0 and np.shape(value)[0] == n for name, value in params.items()}
        return {name: _safe_indexing(value, rows) if has_rows[name] else value for name, value in params.items()}

    # the best configuration ------------------------------------------------------------------------------------------

    def fit_on_all_rows(self, params: Mapping[str, Any], amount: int) -> Any:
        """Return the estimator with these parameters, trained on all rows for this number of passes or trees."""
        whole = self.make(params)
        data = (self.X,) if self.y is None else (self.X, self.y)
        if self.stages.kind == "passes":
            for_transformers, for_model = self._params_of(whole)
            if not self.is_split:
                self._pass_over(whole, data, range(amount), for_model)
                return whole
            transformers, model = whole[:-1], whole[-1]
            transformed = transformers.fit_transform(*data, **for_transformers)
            self._pass_over(model, (transformed, *data[1:]), range(amount), for_model)
            return self._join(whole, transformers, model)
        if self.stages.kind == "trees":
            grown = whole[-1] if self.is_split else whole
            grown.set_params(**{tree_parameter(grown) or "": amount})
        return whole.fit(*data, **self.fit_params)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the transformed rows, which a job gets as an argument."""
        return {**self.__dict__, "rows": RowStore()}


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


def _to_float(name: str, value: Any) -> float:
    try:
        return to_number(value)
    except TypeError:
        raise ValueError(f"scoring must return a number, got {value!r} for {name}") from None
