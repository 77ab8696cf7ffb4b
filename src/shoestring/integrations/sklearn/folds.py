"""Cross-validation in steps: what one trial of a `BudgetSearchCV` trains, and the scores that it leaves behind.

    passes   a step is a pass of `partial_fit` over the training rows of every fold
    trees    a step is a share of the trees of every fold's ensemble, grown with `warm_start`
    folds    a step is a fold (or as many as there are jobs), fitted and scored once

The value of a step is the mean score of the folds seen so far. Estimators stay in memory between the steps: a frozen trial is
one that nobody advances.

Who gets what of the metadata that is passed to `fit` and `score`: the estimator, the scorer, the splitter.

With `sklearn.set_config(enable_metadata_routing=True)` each of them says what it wants. Without it scikit-learn's older rule
holds: `groups` are the splitter's, everything else is the estimator's, and weights are also those of a scorer that takes them.
"""

from __future__ import annotations

import inspect
import math
import pickle
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from joblib import Parallel, delayed
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.utils import _safe_indexing
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import _safe_split

from shoestring.core.space.space import Config
from shoestring.runners.training.code import Context, Report

Kind = Literal["passes", "trees", "folds"]
Scores = Mapping[str, float]  # by name of the metric; a single one is "score"


@dataclass(frozen=True)
class FoldResult:
    """What a fold gave so far."""

    scores: Scores
    train_scores: Scores
    fit_s: float
    score_s: float


FoldResults = list[FoldResult | None]  # None: a fold that was not seen


@dataclass
class Folds:
    """All that a trial needs, and what its newest step gave. `kind` and `steps` say how a full training is cut."""

    estimator: Any
    X: Any
    y: Any
    splits: Sequence[tuple[Any, Any]]
    scorer: Callable[..., Any]
    kind: Kind
    steps: int
    metric: str = "score"  # of several, the one that is searched for
    metrics: Sequence[str] = ("score",)
    fit_params: Mapping[str, Any] = field(default_factory=dict)
    score_params: Mapping[str, Any] = field(default_factory=dict)
    jobs: int = 1
    error_score: float | str = math.nan
    with_train_score: bool = False
    newest: FoldResults = field(default_factory=list)
    error: Exception | None = None  # the first one of an estimator
    is_stored: bool = False  # what a step leaves behind goes into the ledger and into checkpoints

    def __repr__(self) -> str:
        return f"Folds({self.estimator!r}, {len(self.splits)} splits, {self.kind})"

    def train(self, config: Config, context: Context) -> Iterator[Report]:
        """The steps of one trial; what the newest gave, fold by fold, is in `newest`."""
        models = [self.make(config) for _ in self.splits]
        results: FoldResults = [None] * len(self.splits)
        trees = _tree_count(models[0])
        if context.checkpoint is not None:
            models, results = pickle.loads(context.checkpoint.read_bytes())  # our own
        for step in range(context.step + 1, self.steps + 1):
            folds = self._folds_of(step)
            fits = [self._fit_of(models[fold], trees, step) for fold in folds]
            try:
                parts = zip(folds, fits, strict=True)
                done = Parallel(n_jobs=self.jobs)(delayed(self._advance)(models[k], k, fit) for k, fit in parts)
            except Exception as error:
                self.error = self.error or error
                raise
            for fold, (model, result, failure) in zip(folds, done, strict=True):
                models[fold] = model  # another process gives back another object
                results[fold] = _add_times(results[fold], result)
                self.error = self.error or failure
            self.newest = list(results)
            value = float(np.mean([result.scores[self.metric] for result in results if result is not None]))
            yield self._keep(value, models, list(results)) if self.is_stored else Report(value)

    def _keep(self, value: float, models: list[Any], results: FoldResults) -> Report:
        """The models lie in a checkpoint, the scores of every fold in the metrics of the receipt."""

        def save(path: Path) -> None:
            path.write_bytes(pickle.dumps((models, results)))

        if _draws_freely(self.estimator):
            save.resume = "inexact"  # type: ignore[attr-defined]
        return Report(value, save=save, metrics=to_metrics(results))

    def make(self, config: Config) -> Any:
        return clone(self.estimator).set_params(**clone(dict(config), safe=False))

    def fit_whole(self, config: Config, steps: int) -> Any:
        """The estimator of a config on all rows, trained for so many steps."""
        model = self.make(config)
        given = (self.X,) if self.y is None else (self.X, self.y)
        if self.kind == "passes":
            for step in range(1, steps + 1):
                self._fit_of(model, 0, step)(*given, **self.fit_params)
            return model
        if self.kind == "trees":
            model.set_params(**{tree_parameter(model) or "": self._trees_at(_tree_count(model), steps)})
        return model.fit(*given, **self.fit_params)

    def _folds_of(self, step: int) -> range:
        every = range(len(self.splits))
        a_step = math.ceil(len(every) / self.steps)
        return every[(step - 1) * a_step : step * a_step] if self.kind == "folds" else every

    def _trees_at(self, trees: int, step: int) -> int:
        return max(step, round(trees * step / self.steps))

    def _fit_of(self, model: Any, trees: int, step: int) -> Callable[..., Any]:
        """How this step trains a fold's model: a function of its rows."""
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
            given = (train_x,) if train_y is None else (train_x, train_y)
            fit(*given, **self._rows_of(self.fit_params, train))
            fitted = time.perf_counter()
            scores = self._score(model, test_x, test_y, test)
            scored = time.perf_counter()
            on_train = self._score(model, train_x, train_y, train) if self.with_train_score else {}
            return model, FoldResult(scores, on_train, fitted - began, scored - fitted), None
        except Exception as error:
            if isinstance(self.error_score, str) or math.isnan(self.error_score):
                raise
            warnings.warn(
                f"a fold failed and gets the score {self.error_score}: {error}", FitFailedWarning, stacklevel=2
            )
            failed = {self.metric: self.error_score}
            return model, FoldResult(failed, failed, time.perf_counter() - began, 0.0), error

    def _score(self, model: Any, X: Any, y: Any, rows: Any) -> Scores:
        given = (X,) if y is None else (X, y)
        score = self.scorer(model, *given, **self._rows_of(self.score_params, rows))
        named = dict(score) if isinstance(score, Mapping) else {"score": score}
        return {name: _number(name, value) for name, value in named.items()}

    def _rows_of(self, params: Mapping[str, Any], rows: Any) -> dict[str, Any]:
        """Of what was passed to `fit`, these rows, where it has as many rows as X."""
        n = len(self.X) if not hasattr(self.X, "shape") else self.X.shape[0]
        has_rows = {name: np.ndim(value) > 0 and np.shape(value)[0] == n for name, value in params.items()}
        return {name: _safe_indexing(value, rows) if has_rows[name] else value for name, value in params.items()}


def to_metrics(results: FoldResults) -> dict[str, float]:
    """The results of a step, as its receipt keeps them."""
    told: dict[str, float] = {}
    for fold, result in enumerate(results):
        if result is not None:
            told |= {f"split{fold}_test_{name}": score for name, score in result.scores.items()}
            told |= {f"split{fold}_train_{name}": score for name, score in result.train_scores.items()}
            told |= {f"split{fold}_fit_s": result.fit_s, f"split{fold}_score_s": result.score_s}
    return told


def kind_of(estimator: Any, names: Any) -> Kind:
    """How this estimator can be trained in steps when these parameters are searched."""
    known = estimator.get_params(deep=False)
    if tree_parameter(estimator) not in (None, *names) and "warm_start" in known:
        return "trees"
    if hasattr(estimator, "partial_fit") and "max_iter" in known and "max_iter" not in names:
        return (
            "folds" if known.get("early_stopping") or known.get("solver") == "lbfgs" or "solver" in names else "passes"
        )
    return "folds"


def tree_parameter(estimator: Any) -> str | None:
    """What counts the trees (or rounds) of an ensemble that grows; None where there is nothing of the kind."""
    known = estimator.get_params(deep=False)
    if "n_estimators" in known:
        return "n_estimators"
    return "max_iter" if {"max_iter", "max_leaf_nodes"} <= set(known) else None


def _draws_freely(estimator: Any) -> bool:
    """Whether it draws from NumPy's global generator, which all trials of a search share: then no thaw is exact."""
    known = estimator.get_params(deep=True)
    return any(value is None for name, value in known.items() if name.split("__")[-1] == "random_state")


def _tree_count(estimator: Any) -> int:
    name = tree_parameter(estimator)
    return int(estimator.get_params(deep=False)[name]) if name else 0


def _add_times(before: FoldResult | None, now: FoldResult) -> FoldResult:
    if before is None:
        return now
    return FoldResult(now.scores, now.train_scores, before.fit_s + now.fit_s, before.score_s + now.score_s)


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"scoring must return a number, got {value!r} for {name}") from None


@dataclass(frozen=True)
class Routed:
    """By name, for each who gets some."""

    fit: Mapping[str, Any]  # of the estimator; its `partial_fit` gets the same
    split: Mapping[str, Any]
    score: Mapping[str, Any]


def make_router(owner: Any, estimator: Any, scorer: Any, splitter: Any) -> Any:
    """What a search tells scikit-learn about those behind it."""
    router = MetadataRouter(owner=owner)
    router.add(estimator=estimator, method_mapping=MethodMapping().add(caller="fit", callee="fit"))
    scored = MethodMapping().add(caller="score", callee="score").add(caller="fit", callee="score")
    router.add(scorer=scorer, method_mapping=scored)
    router.add(splitter=splitter, method_mapping=MethodMapping().add(caller="fit", callee="split"))
    return router


def route_fit(search: Any, scorer: Any, given: Mapping[str, Any]) -> Routed:
    """What was passed to `fit`; None is nothing."""
    params = {name: value for name, value in given.items() if value is not None}
    if _is_routed():
        routed = process_routing(search, "fit", **params)
        return Routed(routed.estimator.fit, routed.splitter.split, routed.scorer.score)
    groups = params.pop("groups", None)
    weights = {name: params[name] for name in ("sample_weight",) if name in params and _takes_weights(scorer)}
    return Routed(params, {"groups": groups}, weights)


def route_score(search: Any, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was passed to `score`."""
    if _is_routed():
        return process_routing(search, "score", **given).scorer.score  # type: ignore[no-any-return]
    if given:
        raise ValueError(
            f"score() is not passed {sorted(given)} without metadata routing: sklearn.set_config(enable_metadata_routing=True)"
        )
    return {}


def _is_routed() -> bool:
    return bool(get_config()["enable_metadata_routing"])


def _takes_weights(scorer: Any) -> bool:
    asked = getattr(scorer, "_accept_sample_weight", None)  # scikit-learn's own scorers know it, from 1.7 on
    told = {} if asked is not None else inspect.signature(scorer).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in told.values()):
        return False  # nobody knows: before 1.7 weights were not passed
    takes = asked() if asked is not None else "sample_weight" in told
    if not takes:
        warnings.warn(f"the scoring {scorer} takes no sample_weight: all rows count alike in the scores", stacklevel=4)
    return bool(takes)
