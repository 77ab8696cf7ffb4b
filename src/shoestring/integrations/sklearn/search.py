"""`BudgetSearchCV`: a hyperparameter search with scikit-learn's conventions that ends when its budget is spent.

    search = BudgetSearchCV(SGDClassifier(), {"alpha": Float(1e-6, 1e-1, log=True)}, budget="60s")
    search.fit(X, y)
    search.best_params_, search.best_score_, search.predict(X_new)

The budget pays for the search; the refit on all rows comes after it. Estimators with `partial_fit` and forests or boosting with
`warm_start` are trained in steps, and bad configs are left behind early; all others are cut by folds.

A search that is kept in a store: what its ledger and its checkpoints must hold so that another process can go on with it.

The scores of every fold lie in the metrics of a receipt, so the table of results can be written from the ledger alone. The
models of a frozen trial lie in its checkpoint. Whether rows, folds and estimator are still those of the search, a fingerprint
says.

`cv_results_` of a search: a column for each parameter, split and metric, one row for each config that has a score.
"""

from __future__ import annotations

import math
import pickle
import re
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from shoestring import policies
from shoestring.core.ledger.entries import Entry, Note, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice
from shoestring.core.space.space import Space
from shoestring.errors import BudgetError, MissingExtra, StudyError
from shoestring.integrations.sklearn.folds import FoldResult, FoldResults, Folds, to_metrics
from shoestring.reports.text import warning_of
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.local.local_runner import Local
from shoestring.runners.make import has_code_changed
from shoestring.runners.training.code import MOST_METRICS
from shoestring.stores.addresses import open_store
from shoestring.study.study import Study

try:
    from joblib import effective_n_jobs
    from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier
    from sklearn.exceptions import NotFittedError
    from sklearn.metrics import check_scoring
    from sklearn.model_selection import check_cv
    from sklearn.utils import check_random_state, get_tags
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.validation import check_is_fitted, indexable

    from shoestring.integrations.sklearn.folds import Folds, Kind, kind_of, make_router, route_fit, route_score
except ModuleNotFoundError:
    raise MissingExtra("BudgetSearchCV", "sklearn", "sklearn") from None

_MOST_LIVE = 1000  # trials whose models are kept in memory
_STEPS = {"passes": 27, "trees": 9}  # of a full training, unless told otherwise


def _delegate(name: str) -> Any:
    """A method of the best estimator; there only where the estimator has it, with its own error where not."""

    def has(self: Any) -> bool:
        getattr(self.best_estimator_ if hasattr(self, "best_estimator_") else self.estimator, name)
        return True

    def call(self: Any, X: Any) -> Any:
        return getattr(self._best(), name)(X)

    call.__name__, call.__doc__ = name, f"`{name}` of the best estimator."
    return available_if(has)(call)


class BudgetSearchCV(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Search `space` with `estimator` until `budget` is spent ("60s", "5m", or "200 epochs": so many steps).

    `space`: a Space, or a dict of parameters; a list is a choice. `steps`: how a training is cut, "passes", "trees" or "folds";
    "auto" takes the first that the estimator can. `max_steps`: how many passes, or shares of the trees, a full training has.
    `store`, `name`: where the search is kept ("search.db") and under which name; the same `fit` again goes on with it.
    `n_jobs`: folds fitted at the same time. `error_score`: "raise", or a score for folds that fail; nan: the config fails. The
    others are those of `GridSearchCV`.

    After `fit`: best_params_, best_score_, best_index_, best_steps_, best_estimator_ (with `refit`), refit_time_, cv_results_
    (with `n_steps` for each config), scorer_, n_splits_, multimetric_, and study_, with all that was bought.
    """

    def __init__(
        self,
        estimator: Any,
        space: Any,
        budget: Any = "60s",
        *,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        error_score: Any = math.nan,
        return_train_score: bool = False,
        steps: str = "auto",
        max_steps: int | None = None,
        policy: Any = policies.DEFAULT,
        random_state: Any = None,
        store: str | None = None,
        name: str = "search",
    ) -> None:
        self.estimator, self.space, self.budget = estimator, space, budget
        self.scoring, self.n_jobs, self.refit, self.cv = scoring, n_jobs, refit, cv
        self.error_score, self.return_train_score = error_score, return_train_score
        self.steps, self.max_steps, self.policy, self.random_state = steps, max_steps, policy, random_state
        self.store, self.name = store, name

    # searching -------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, **params: Any) -> BudgetSearchCV:
        """Search, then fit the best on all rows. `params`, as `groups` and `sample_weight`, go with their rows to those who
        take them: splitter, estimator, scorer (scikit-learn's metadata routing, where it is enabled).
        """
        X, y = indexable(X, y)
        space = to_space(self.space)
        folds = self._folds(X, y, params, space)
        rows = self._search(folds, space)
        self.scorer_ = folds.scorer
        self.n_splits_ = len(folds.splits)
        self.multimetric_ = rows[0].metrics != ["score"]
        self.cv_results_ = table_of(rows, folds.metric, with_train_score=self.return_train_score)
        if self.refit is False and self.multimetric_:
            return self
        self._choose(rows, folds)
        if self.refit is not False:
            self._refit(folds)
        return self

    def _scorer(self) -> Any:
        return self.scoring if callable(self.scoring) else check_scoring(self.estimator, scoring=self.scoring)

    def _folds(self, X: Any, y: Any, params: Mapping[str, Any], space: Space) -> Folds:
        scorer = self._scorer()
        several = isinstance(self.scoring, list | tuple | set | dict)
        if (
            several
            and not (isinstance(self.refit, str) and self.refit in list(self.scoring))
            and self.refit is not False
        ):
            raise ValueError(f"refit={self.refit!r} must name one of the metrics {list(self.scoring)}, or be False")
        routed = route_fit(self, scorer, params)
        splits = list(check_cv(self.cv, y, classifier=is_classifier(self.estimator)).split(X, y, **routed.split))
        kind: Any = kind_of(self.estimator, space.parameters) if self.steps == "auto" else self.steps
        if kind not in ("passes", "trees", "folds"):
            raise ValueError(f"steps={self.steps!r} must be 'auto', 'passes', 'trees' or 'folds'")
        jobs = effective_n_jobs(self.n_jobs)
        return Folds(
            self.estimator,
            X,
            y,
            splits,
            scorer,
            kind,
            _step_count(kind, self.max_steps, len(splits), jobs),
            metric=(self.refit or next(iter(self.scoring))) if several else "score",
            metrics=list(self.scoring) if several else ["score"],
            fit_params=routed.fit,
            score_params=routed.score,
            jobs=min(jobs, len(splits)),
            error_score=self.error_score,
            with_train_score=self.return_train_score,
            is_stored=self.store is not None,
        )

    def _begin(self, folds: Folds, space: Space) -> Study:
        """The study of this search; one that is in the store already goes on."""
        is_drawn = self.store is None or self.random_state is not None  # else a study that is there keeps its own seed
        return Study.begin(
            space,
            self.budget,
            name=self.name,
            store=self.store,
            max_steps=folds.steps,
            direction="max",
            policy=self.policy,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)) if is_drawn else None,
            target=None if self.store is None else recognise(folds, self.store, self.name),
        )

    def _search(self, folds: Folds, space: Space) -> list[ConfigScores]:
        """Spend the budget; one row for each config with a score, as it was bought."""
        self.study_ = self._begin(folds, space)
        seen = read_results(self.study_.ledger, len(folds.splits))

        def observe(ledger: Ledger, entry: Entry | None) -> None:
            if isinstance(entry, Receipt) and entry.is_finished:
                seen.setdefault(entry.trial, {}).setdefault(entry.step, folds.newest)
            elif isinstance(entry, Note) and (text := warning_of(entry)):
                warnings.warn(text, stacklevel=2)

        with tempfile.TemporaryDirectory() as folder:  # without a store, what is frozen stays in memory
            kept = Path(folder) if self.store is None else self.study_.checkpoints
            runner = Local(folds.train, Checkpoints(kept), live=_MOST_LIVE)
            raises = self.error_score == "raise"
            ending = self.study_.run(runner, should_stop=lambda: raises and folds.error is not None, observe=observe)
        if folds.error is not None and (raises or self.study_.best is None):
            raise folds.error
        trials = [trial for trial in self.study_.trials if trial.best_step]
        if not trials:
            raise BudgetError(f"no config has a score: {ending.text or ending.reason}; raise budget={self.budget!r}")
        by_folds = folds.kind == "folds"
        chosen = [(trial, trial.steps if by_folds else trial.best_step) for trial in trials]
        return [ConfigScores(dict(trial.config), step, seen[trial.number][step]) for trial, step in chosen]

    def _choose(self, rows: list[ConfigScores], folds: Folds) -> None:
        if callable(self.refit):
            self.best_index_ = int(self.refit(self.cv_results_))
        else:
            self.best_index_ = best_row(self.cv_results_, folds.metric)
            self.best_score_ = float(self.cv_results_[f"mean_test_{folds.metric}"][self.best_index_])
        self.best_params_, self.best_steps_ = rows[self.best_index_].config, rows[self.best_index_].steps

    def _refit(self, folds: Folds) -> None:
        """On all rows, for as many passes or trees as were best."""
        began = time.perf_counter()
        self.best_estimator_ = folds.fit_whole(self.best_params_, self.best_steps_)
        self.refit_time_ = time.perf_counter() - began
        if hasattr(self.best_estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.best_estimator_.feature_names_in_

    # the best estimator answers --------------------------------------------------------------------------------------

    @property
    def classes_(self) -> Any:
        return self._best().classes_

    @property
    def n_features_in_(self) -> int:
        try:
            return int(self._best().n_features_in_)
        except NotFittedError as error:
            raise AttributeError(f"{type(self).__name__} has no n_features_in_ before it is fitted") from error

    def score(self, X: Any, y: Any = None, **params: Any) -> float:
        """By the metric that was searched for; `params` are the scorer's, where metadata routing is enabled."""
        given = (X,) if y is None else (X, y)
        score = self.scorer_(self._best(), *given, **route_score(self, params))
        return float(score[self.refit] if isinstance(score, Mapping) else score)

    predict = _delegate("predict")
    predict_proba = _delegate("predict_proba")
    predict_log_proba = _delegate("predict_log_proba")
    decision_function = _delegate("decision_function")
    score_samples = _delegate("score_samples")
    transform = _delegate("transform")
    inverse_transform = _delegate("inverse_transform")

    def _best(self) -> Any:
        check_is_fitted(self)
        if not hasattr(self, "best_estimator_"):
            raise AttributeError(
                "there is no best_estimator_ with refit=False: fit one with best_params_, or set refit"
            )
        return self.best_estimator_

    def get_metadata_routing(self) -> Any:
        """For scikit-learn's metadata routing: who is behind this search."""
        return make_router(self, self.estimator, self._scorer(), self.cv)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "cv_results_")

    def __sklearn_tags__(self) -> Any:
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type, tags.array_api_support = own.estimator_type, own.array_api_support
        tags.classifier_tags, tags.regressor_tags = deepcopy(own.classifier_tags), deepcopy(own.regressor_tags)
        tags.input_tags.pairwise, tags.input_tags.sparse = own.input_tags.pairwise, own.input_tags.sparse
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """All but the study: a fitted search may be pickled, the place where its ledger lies may not."""
        return {name: value for name, value in super().__getstate__().items() if name != "study_"}


def to_space(space: Any) -> Space:
    """A Space from what searches take: one, its description, or a dict with lists of options."""
    if isinstance(space, Space) or not isinstance(space, Mapping):
        return space if isinstance(space, Space) else Space(space)
    plain = {name: Choice(list(told)) if isinstance(told, list | tuple) else told for name, told in space.items()}
    return Space.from_dict(plain)


def _step_count(kind: Kind, wanted: int | None, splits: int, jobs: int) -> int:
    if kind == "folds":
        return math.ceil(splits / min(jobs, splits))
    return wanted or _STEPS[kind]


_SPLIT = re.compile(r"split(\d+)_(test|train|fit_s|score_s)(?:_(.+))?")  # as to_metrics writes them


def recognise(folds: Folds, store: str, name: str) -> dict[str, Any]:
    """What the ledger says about what is trained; an error where the store has another search under this name."""
    scores = dict.fromkeys(folds.metrics, 0.0)
    numbers = len(
        to_metrics([FoldResult(scores, scores if folds.with_train_score else {}, 0.0, 0.0)] * len(folds.splits))
    )
    if numbers > MOST_METRICS:
        raise StudyError(
            f"the {len(folds.splits)} folds have {numbers} scores and times, and a store keeps {MOST_METRICS} with a step: "
            "take fewer folds or metrics, or leave store=… out"
        )
    target = {"name": f"BudgetSearchCV({type(folds.estimator).__name__})", "fingerprint": _fingerprint(folds)}
    before = open_store(store).load(name)
    if before is not None and has_code_changed(before.opened.target, target):
        raise StudyError(
            f"the search {name!r} in {store!r} had other rows or folds, or another estimator: give another name=… (folds that "
            "are shuffled need a cv with a random_state)"
        )
    return target


def _fingerprint(folds: Folds) -> str:
    """Scores of other rows or folds are no scores of this search."""
    try:
        estimator = joblib.hash(folds.estimator)
    except (pickle.PicklingError, AttributeError, TypeError):  # it holds what cannot be written down, as a lambda
        estimator = repr(type(folds.estimator))
    return str(joblib.hash([estimator, folds.X, folds.y, list(folds.splits), folds.metric, folds.kind]))


def read_results(ledger: Ledger, folds: int) -> dict[int, dict[int, FoldResults]]:
    """By trial and step, what earlier runs of the search have found."""
    found: dict[int, dict[int, FoldResults]] = {}
    for entry in ledger.entries():
        if isinstance(entry, Receipt) and entry.is_finished and entry.metrics:
            found.setdefault(entry.trial, {}).setdefault(entry.step, from_metrics(entry.metrics, folds))
    return found


def from_metrics(metrics: Mapping[str, float], folds: int) -> FoldResults:
    """The opposite of `to_metrics`."""
    by_fold: dict[int, dict[str, dict[str, float]]] = {}
    for word, value in metrics.items():
        if found := _SPLIT.fullmatch(word):
            by_fold.setdefault(int(found[1]), {}).setdefault(found[2], {})[found[3] or ""] = value
    results: FoldResults = [None] * folds
    for fold, told in by_fold.items():
        results[fold] = FoldResult(told["test"], told.get("train", {}), told["fit_s"][""], told["score_s"][""])
    return results


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ConfigScores:
    """A config, how far it was trained, and what its folds gave; None for folds that were not paid for."""

    config: dict[str, Any]
    steps: int
    folds: Sequence[FoldResult | None]

    @property
    def metrics(self) -> list[str]:
        return next(list(fold.scores) for fold in self.folds if fold is not None)


def table_of(rows: Sequence[ConfigScores], metric: str, *, with_train_score: bool) -> dict[str, Any]:
    """The table; ranks go by the mean of the folds seen, and configs that have seen all folds before those that have not."""
    table: dict[str, Any] = {}
    for name, attribute in (("fit_time", "fit_s"), ("score_time", "score_s")):
        times = np.array([[np.nan if fold is None else getattr(fold, attribute) for fold in row.folds] for row in rows])
        table |= {f"mean_{name}": np.nanmean(times, axis=1), f"std_{name}": np.nanstd(times, axis=1)}
    for name in sorted({name for row in rows for name in row.config}):
        column: Any = np.ma.MaskedArray(np.empty(len(rows), dtype=object), mask=True)
        for number, row in enumerate(rows):
            if name in row.config:
                column[number] = row.config[name]
        table[f"param_{name}"] = column
    table["params"] = [row.config for row in rows]
    table["n_steps"] = np.array([row.steps for row in rows])
    for name in rows[0].metrics:
        table |= _columns(_scores(rows, name, "scores"), f"test_{name}", with_rank=True)
        if with_train_score:
            table |= _columns(_scores(rows, name, "train_scores"), f"train_{name}", with_rank=False)
    return table


def best_row(table: dict[str, Any], metric: str) -> int:
    return int(np.argmin(table[f"rank_test_{metric}"]))


def _scores(rows: Sequence[ConfigScores], name: str, kind: str) -> Floats:
    """(rows, folds); nan where a fold was not seen."""
    return np.array([[np.nan if fold is None else getattr(fold, kind)[name] for fold in row.folds] for row in rows])


def _columns(scores: Floats, name: str, *, with_rank: bool) -> dict[str, Any]:
    columns: dict[str, Any] = {f"split{fold}_{name}": scores[:, fold] for fold in range(scores.shape[1])}
    means = np.nanmean(scores, axis=1)
    columns |= {f"mean_{name}": means, f"std_{name}": np.nanstd(scores, axis=1)}
    if with_rank:
        seen = np.sum(~np.isnan(scores), axis=1)
        keys = list(zip(-seen, -means, strict=True))  # equal keys share a rank, as in scikit-learn
        columns[f"rank_{name}"] = np.array([1 + sum(other < key for other in keys) for key in keys], dtype=np.int32)
    return columns
