"""`BudgetSearchCV`: a hyperparameter search with scikit-learn's conventions that ends when its budget is spent.

A search that is stored can be continued by another process. The metrics of each receipt hold the scores of every fold, and the
checkpoint of a paused trial holds its models. A fingerprint in the ledger shows whether the rows, the folds and the estimator
are still the same.
"""

from __future__ import annotations

import math
import pickle
import time
import warnings
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import astuple
from typing import Any, get_args

import joblib
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, indexable

from shoestring import policies
from shoestring.core.ledger.entries import Entry, Receipt
from shoestring.core.ledger.failures import describe_failure
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Space
from shoestring.core.values.credentials import hide_credentials
from shoestring.core.values.text import count
from shoestring.errors import BudgetError, StudyError, one_line
from shoestring.integrations.sklearn.folds import Folds
from shoestring.integrations.sklearn.results import (
    ConfigScores,
    FoldResult,
    best_row,
    read_results,
    score_config,
    table_of,
    to_metrics,
)
from shoestring.integrations.sklearn.routing import is_routing_enabled, make_router, route_fit, route_score
from shoestring.integrations.sklearn.rows import can_split
from shoestring.integrations.sklearn.spaces import SearchSpace, to_search_space
from shoestring.integrations.sklearn.stages import Stages, StepKind, find_step_kind, tree_parameter
from shoestring.reports.progress import print_line
from shoestring.runners.make import has_code_changed
from shoestring.runners.training.code import MAX_METRICS
from shoestring.stores.addresses import open_store
from shoestring.study.run_study import RunOptions, StudyRun, warn_of_notes
from shoestring.study.study import Study

_MAX_LIVE_TRIALS = 1000  # trials whose models are kept in memory


def _delegate(name: str) -> Any:
    """Return a method that calls the method of the best estimator; it exists only if the estimator has it."""

    def has_method(self: Any) -> bool:
        getattr(self.best_estimator_ if hasattr(self, "best_estimator_") else self.estimator, name)
        return True

    def call(self: Any, X: Any) -> Any:
        return getattr(self._fitted_best_estimator(), name)(X)

    call.__name__ = name
    call.__doc__ = f"""Call `{name}` of `best_estimator_`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        array
            What the estimator returns.
        """
    return available_if(has_method)(call)


class BudgetSearchCV(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Search hyperparameters by cross-validation until a budget is spent.

    Estimators with `partial_fit`, and forests or boosting with `warm_start`, are trained in steps, one fold after the other, so
    that poor configurations are paused early in their first fold. For all other estimators a step is a full fit on one fold, and
    poor configurations are left after a few folds. Of a pipeline the last estimator decides; its transformers are fitted once for
    each fold and configuration, and configurations with equal transformers share them. The final fit on all rows comes after the
    search; it is not charged to the budget.

    Parameters
    ----------
    estimator : estimator
        The estimator whose parameters are searched.
    space : Space or dict or list of dict
        The search space, or what `GridSearchCV` and `RandomizedSearchCV` accept: a dict of lists, arrays and distributions of
        `scipy.stats`, or a list of such dicts. Options may be any objects; `best_params_` holds these very objects.
    budget : str, default "60s"
        Seconds or minutes ("60s", "5m"), or a number of steps ("200 epochs"). One epoch pays for one step of one
        configuration, whatever the kind of step: see `steps`.
    scoring, n_jobs, refit, cv, return_train_score
        As for `GridSearchCV`. `n_jobs` is the number of folds that are fitted at the same time. A budget in seconds is
        charged the time that passes on the clock, not the sum of the jobs' times.
    error_score : "raise" or float, default nan
        The score of a fold that fails. With nan the configuration fails, and a warning says how many did. With another number
        the search uses this score and goes on. With "raise" it stops with the error.
    steps : {"auto", "passes", "trees", "folds"}, default "auto"
        What a step is, and so what one epoch pays for. "passes": some passes of `partial_fit` over the training rows of a fold.
        "trees": some of the trees (or rounds) of a fold. "folds": a full fit on a fold. With `n_jobs`, a step trains that many
        folds at the same time. "auto" chooses trees or passes where the estimator supports them, else folds.
    max_steps : int, optional
        How far a fold is trained: with "passes" the number of passes (27), in at most nine steps; with "trees" the number of
        steps (5) in which the trees of the estimator are grown. With "folds" it is not used.
    policy : str or Policy, optional
        The policy that decides what to train next; by default that of `tune`.
    random_state : int or RandomState or None, default None
        The seed of the search.
    store : str, optional
        A file such as "search.db", or the address of another store, in which the search is saved. The same `fit` continues it
        later. None: the search is only in memory.
    name : str, default "search"
        The name of the search in the store.
    verbose : int, default 0
        Above 0, say how the estimator is trained and show progress.

    Attributes
    ----------
    best_params_ : dict
        The best configuration.
    best_score_ : float
        Its mean score over the folds.
    best_index_ : int
        Its row in `cv_results_`.
    best_steps_ : int
        The number of passes or trees with which it was best; `best_estimator_` is trained for as many. With steps of folds, the
        number of folds that were fitted.
    steps_ : {"passes", "trees", "folds"}
        What a step was; see `steps`.
    best_estimator_ : estimator
        The best configuration, fitted on all rows; only with `refit`.
    refit_time_ : float
        The seconds of this final fit.
    cv_results_ : dict
        As in `GridSearchCV`, one row for each configuration with a score, and `n_steps` for its steps. Folds that were not
        trained to the end are nan, except the first fold of a configuration that has no other.
    scorer_, n_splits_, multimetric_
        As in `GridSearchCV`.
    study_ : Study
        The study with every step that was trained.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import SGDClassifier
    >>> from shoestring import Float
    >>> from shoestring.integrations.sklearn import BudgetSearchCV
    >>> X, y = load_iris(return_X_y=True)
    >>> space = {"alpha": Float(1e-6, 1e-1, log=True)}
    >>> search = BudgetSearchCV(SGDClassifier(random_state=0), space, budget="60 epochs", random_state=0).fit(X, y)
    >>> sorted(search.best_params_)
    ['alpha']
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
        verbose: int = 0,
    ) -> None:
        self.estimator, self.space, self.budget = estimator, space, budget
        self.scoring, self.n_jobs, self.refit, self.cv = scoring, n_jobs, refit, cv
        self.error_score, self.return_train_score = error_score, return_train_score
        self.steps, self.max_steps, self.policy, self.random_state = steps, max_steps, policy, random_state
        self.store, self.name, self.verbose = store, name, verbose

    # searching -------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, **params: Any) -> BudgetSearchCV:
        """Search until the budget is spent, then fit the best configuration on all rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The rows.
        y : array-like, optional
            The targets.
        **params
            `groups`, `sample_weight` and other metadata, which go to the splitter, the estimator and the scorer as in
            `GridSearchCV`; with metadata routing, to those that request them.

        Returns
        -------
        BudgetSearchCV
            The fitted search itself.

        Raises
        ------
        BudgetError
            If the budget was spent before any configuration had a score.
        StudyError
            If the store holds a different search under this name.
        KeyboardInterrupt
            At the second Ctrl-C, or at the first one if no configuration has a score yet. Otherwise the first one finishes the
            step and ends the search as if its budget were spent, with `study_.ending.reason == "stopped"`.
        """
        X, y = indexable(X, y)
        space = to_search_space(self.space)
        space.check_names(self.estimator)
        folds = self._make_folds(X, y, params, space)
        self.steps_ = folds.stages.kind
        if self.verbose:
            print_line(folds.describe())
        rows = self._search(folds, space.space)
        self.scorer_ = folds.scorer
        self.n_splits_ = len(folds.splits)
        self.multimetric_ = rows[0].metrics != ["score"]
        self.cv_results_ = table_of(rows, folds.metric, with_train_score=self.return_train_score)
        if self.refit is False and self.multimetric_:
            return self
        self._choose_best(rows, folds)
        if self.refit is not False:
            self._refit(folds)
        return self

    def _make_scorer(self) -> Any:
        return self.scoring if callable(self.scoring) else check_scoring(self.estimator, scoring=self.scoring)

    def _make_folds(self, X: Any, y: Any, params: Mapping[str, Any], space: SearchSpace) -> Folds:
        scorer = self._make_scorer()
        has_several_metrics = isinstance(self.scoring, list | tuple | set | dict)
        names_metric = isinstance(self.refit, str) and self.refit in list(self.scoring) if has_several_metrics else True
        if not names_metric and self.refit is not False and not callable(self.refit):
            raise ValueError(f"refit={self.refit!r} must name one of the metrics {list(self.scoring)}, or be False")
        metric = (
            self.refit if isinstance(self.refit, str) else next(iter(self.scoring)) if has_several_metrics else "score"
        )
        routed = route_fit(self, scorer, params)
        splits = list(check_cv(self.cv, y, classifier=is_classifier(self.estimator)).split(X, y, **routed.split))
        is_split = can_split(self.estimator, space.names.values()) and not (routed.fit and is_routing_enabled())
        return Folds(
            self.estimator,
            X,
            y,
            splits,
            scorer,
            self._plan_stages(space, len(splits), is_split),
            decode=space.decode,
            is_split=is_split,
            scores_last_step=_is_named(self.scoring),
            metric=metric,
            metrics=list(self.scoring) if has_several_metrics else [metric],
            fit_params=routed.fit,
            score_params=routed.score,
            error_score=self.error_score,
            with_train_score=self.return_train_score,
            is_stored=self.store is not None,
        )

    def _plan_stages(self, space: SearchSpace, splits: int, is_split: bool) -> Stages:
        """Return the steps of a full training; `is_split` says whether only the last step of a pipeline is trained in them."""
        last = self.estimator[-1] if is_split else self.estimator
        prefix = f"{self.estimator.steps[-1][0]}__" if is_split else ""
        names: dict[str, list[Any]] = {}  # the searched parameters of `last`, with their options
        for key, name in space.names.items():
            if name.startswith(prefix):
                options = getattr(space.space.parameters[key], "options", ())
                names.setdefault(name.removeprefix(prefix), []).extend(options)
        if self.steps not in ("auto", *get_args(StepKind)):
            raise ValueError(f"steps={self.steps!r} must be 'auto', 'passes', 'trees' or 'folds'")
        kind: Any = find_step_kind(last, names) if self.steps == "auto" else self.steps
        lacks = {"passes": not hasattr(last, "partial_fit"), "trees": tree_parameter(last) in (None, *names)}
        if lacks.get(kind):
            raise ValueError(
                f"steps={kind!r} is not possible for {type(last).__name__} and this space: use steps='auto'"
            )
        return Stages.plan(kind, last, splits, min(joblib.effective_n_jobs(self.n_jobs), splits), self.max_steps)

    def _begin(self, folds: Folds, space: Space) -> Study:
        """Begin the study of this search, or continue the one in the store."""
        needs_seed = self.store is None or self.random_state is not None  # otherwise a stored study keeps its own seed
        return Study.begin(
            space,
            self.budget,
            name=self.name,
            store=self.store,
            max_steps=len(folds.stages.steps),
            direction="max",
            policy=self.policy,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)) if needs_seed else None,
            target=None if self.store is None else _describe_target(folds, self.store, self.name),
        )

    def _search(self, folds: Folds, space: Space) -> list[ConfigScores]:
        """Spend the budget, and return one row for each configuration with a score, in the order of the trials."""
        self.study_ = self._begin(folds, space)
        results = read_results(self.study_.ledger, len(folds.splits))

        def observe(ledger: Ledger, entry: Entry | None) -> None:
            if isinstance(entry, Receipt) and entry.is_finished:
                results.setdefault(entry.trial, {}).setdefault(entry.step, folds.newest)

        raises = self.error_score == "raise"
        options = RunOptions(
            live=_MAX_LIVE_TRIALS,
            progress=bool(self.verbose),
            observe=observe,
            should_stop=lambda: raises and folds.error is not None,
        )
        run = StudyRun(self.study_, folds.train, options)
        with run.stop_on_ctrl_c(), run.view:
            ending = run.spend(observer=None if self.verbose else warn_of_notes)
        if run.signals:
            self._describe_stop()
            if self.study_.best is None:
                raise KeyboardInterrupt  # there is no configuration to return
        if folds.error is not None and (raises or self.study_.best is None):
            raise folds.error
        trials = [trial for trial in self.study_.trials if trial.best_step]
        if not trials:
            raise BudgetError(
                f"no configuration has a score: {ending.text or ending.reason}; raise budget={self.budget!r}"
            )
        failures = [trial.failure for trial in self.study_.trials if trial.failure]
        if failures:
            warnings.warn(
                f"{len(failures)} of {count(len(self.study_.trials), 'configuration')} failed and have no row in cv_results_; "
                f"the first error: {one_line(describe_failure(failures[0]))}",
                FitFailedWarning,
                stacklevel=4,
            )
        return [
            score_config(folds.decode(trial.config), folds.stages, results[trial.number], folds.metric)
            for trial in trials
        ]

    def _describe_stop(self) -> None:
        """Print, after Ctrl-C, what `fit` does now and how the search continues."""
        is_fitted = self.refit is not False and self.study_.best is not None
        now = "; fitting its best configuration on all rows (Ctrl-C stops that too)" if is_fitted else ""
        how = (
            "it is only in memory: pass store='file.db' to continue a search later"
            if self.store is None
            else f"the same fit continues it from {self.store!r}"
        )
        budget = self.study_.ledger.budget
        spent = f"{budget.show(self.study_.spent)} of {budget.show(budget.total)}"
        print_line(f"the search was stopped by Ctrl-C: spent {spent}; {how}{now}")

    def _choose_best(self, rows: list[ConfigScores], folds: Folds) -> None:
        if callable(self.refit):
            self.best_index_ = int(self.refit(self.cv_results_))
        else:
            self.best_index_ = best_row(self.cv_results_, folds.metric)
            self.best_score_ = float(self.cv_results_[f"mean_test_{folds.metric}"][self.best_index_])
        self.best_params_, self.best_steps_ = rows[self.best_index_].params, rows[self.best_index_].amount

    def _refit(self, folds: Folds) -> None:
        """Fit the best configuration on all rows, for the number of passes or trees that was best."""
        began = time.perf_counter()
        self.best_estimator_ = folds.fit_on_all_rows(self.best_params_, self.best_steps_)
        self.refit_time_ = time.perf_counter() - began
        if hasattr(self.best_estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.best_estimator_.feature_names_in_

    # the best estimator ----------------------------------------------------------------------------------------------

    @property
    def classes_(self) -> Any:
        """The classes of the best estimator."""
        return self._fitted_best_estimator().classes_

    @property
    def n_features_in_(self) -> int:
        """The number of features that the search was fitted with."""
        try:
            return int(self._fitted_best_estimator().n_features_in_)
        except NotFittedError as error:
            raise AttributeError(f"{type(self).__name__} has no n_features_in_ before it is fitted") from error

    def score(self, X: Any, y: Any = None, **params: Any) -> float:
        """Return the score of the best estimator, by the metric that the search optimised.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The rows.
        y : array-like, optional
            The targets.
        **params
            Metadata for the scorer; only with metadata routing.

        Returns
        -------
        float
            The score.
        """
        data = (X,) if y is None else (X, y)
        score = self.scorer_(self._fitted_best_estimator(), *data, **route_score(self, params))
        return float(score[self.refit] if isinstance(score, Mapping) else score)

    predict = _delegate("predict")
    predict_proba = _delegate("predict_proba")
    predict_log_proba = _delegate("predict_log_proba")
    decision_function = _delegate("decision_function")
    score_samples = _delegate("score_samples")
    transform = _delegate("transform")
    inverse_transform = _delegate("inverse_transform")

    def _fitted_best_estimator(self) -> Any:
        check_is_fitted(self)
        if not hasattr(self, "best_estimator_"):
            raise AttributeError(
                "there is no best_estimator_ with refit=False: fit one with best_params_, or set refit"
            )
        return self.best_estimator_

    def get_metadata_routing(self) -> Any:
        """Return the estimator, the scorer and the splitter for scikit-learn's metadata routing.

        Returns
        -------
        MetadataRouter
            The routing of this search.
        """
        return make_router(self, self.estimator, self._make_scorer(), self.cv)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "cv_results_")

    def __sklearn_tags__(self) -> Any:
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type, tags.array_api_support = own.estimator_type, own.array_api_support
        tags.classifier_tags, tags.regressor_tags = deepcopy(own.classifier_tags), deepcopy(own.regressor_tags)
        tags.input_tags.pairwise, tags.input_tags.sparse = own.input_tags.pairwise, own.input_tags.sparse
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the study, whose ledger may be in a database."""
        return {name: value for name, value in super().__getstate__().items() if name != "study_"}


def _is_named(scoring: Any) -> bool:
    """Return whether all scorers are scikit-learn's own, which use nothing but the predictions of what they score."""
    return scoring is None or isinstance(scoring, str) or (not isinstance(scoring, dict) and not callable(scoring))


def _describe_target(folds: Folds, store: str, name: str) -> dict[str, Any]:
    """Return the target of the study; raise a StudyError if the store holds a different search under this name."""
    scores = dict.fromkeys(folds.metrics, 0.0)
    count = len(
        to_metrics([FoldResult(scores, scores if folds.with_train_score else {}, 0.0, 0.0)] * len(folds.splits))
    )
    if count > MAX_METRICS:
        raise StudyError(
            f"the {len(folds.splits)} folds have {count} scores and times, and a store keeps {MAX_METRICS} of a step at most: "
            "use fewer folds or metrics, or leave store=… out"
        )
    target = {"name": f"BudgetSearchCV({type(folds.estimator).__name__})", "fingerprint": _fingerprint(folds)}
    stored = open_store(store).load(name)
    if stored is not None and has_code_changed(stored.definition.target, target):
        where = hide_credentials(str(store))
        raise StudyError(
            f"the search {name!r} in {where!r} had other rows or folds, or another estimator: give another name=… (a cv that "
            "shuffles needs a random_state)"
        )
    return target


def _fingerprint(folds: Folds) -> str:
    """Return a hash of all that the scores depend on."""
    try:
        estimator = joblib.hash(folds.estimator)
    except (pickle.PicklingError, AttributeError, TypeError):  # a part cannot be pickled, such as a lambda
        estimator = repr(type(folds.estimator))
    return str(joblib.hash([estimator, folds.X, folds.y, list(folds.splits), folds.metric, astuple(folds.stages)]))
