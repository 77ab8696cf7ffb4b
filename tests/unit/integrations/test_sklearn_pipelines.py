"""A pipeline in a `BudgetSearchCV`: its last step is trained in steps, its transformers are fitted once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from shoestring import Float, Int
from shoestring.integrations.sklearn import BudgetSearchCV
from shoestring.integrations.sklearn import rows as rows_module

X, Y = load_digits(n_class=4, return_X_y=True)
X, Y = X[:300], Y[:300]
ALPHA = {"model__alpha": Float(1e-6, 1e-1, log=True)}


class Counted(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A scaler that counts its fits."""

    fits = 0
    weights: Any = None

    def __init__(self, factor: float = 1.0, random_state: Any = 0) -> None:
        self.factor, self.random_state = factor, random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Counted:
        Counted.fits += 1
        Counted.weights = sample_weight
        self.mean_ = X.mean(axis=0)
        return self

    def transform(self, X: Any) -> Any:
        return self.factor * (X - self.mean_) / 16


@pytest.fixture(autouse=True)
def _no_fits_yet() -> None:
    Counted.fits = 0


def pipeline(model: Any = None, **options: Any) -> Pipeline:
    return Pipeline(
        [("scale", Counted(**options)), ("model", SGDClassifier(random_state=0) if model is None else model)]
    )


def search(estimator: Any, space: Any = ALPHA, budget: str = "60 epochs", **options: Any) -> BudgetSearchCV:
    return BudgetSearchCV(estimator, space, budget, **{"cv": 3, "max_steps": 4, "random_state": 0, **options})


@pytest.mark.parametrize(
    ("model", "space", "kind"),
    [
        (SGDClassifier(random_state=0), ALPHA, "passes"),
        (ExtraTreesClassifier(8, random_state=0), {"model__max_depth": Int(1, 6)}, "trees"),
        (ExtraTreesClassifier(8, random_state=0), {"model__n_estimators": Int(1, 6)}, "folds"),
        (SVC(), {"model__C": [0.1, 1.0, 10.0]}, "folds"),
    ],
)
def test_the_last_step_decides_and_transformers_are_fitted_once_per_fold(model: Any, space: Any, kind: str) -> None:
    found = search(pipeline(model), space, "40 epochs").fit(X, Y)
    assert found.steps_ == kind
    folds = 3 if max(found.cv_results_["n_steps"]) == found.study_.ledger.max_steps else 2
    assert Counted.fits == folds + 1, "each fold once, for all configurations, and all rows in the end"
    assert found.score(X, Y) > 0.9
    assert type(found.best_estimator_) is Pipeline


def test_configurations_with_other_transformers_have_their_own() -> None:
    found = search(pipeline(), {"scale__factor": [0.5, 1.0], **ALPHA}, "30 epochs", refit=False).fit(X, Y)
    complete = {params["scale__factor"] for params in found.cv_results_["params"]}
    assert complete == {0.5, 1.0}
    assert 2 <= Counted.fits <= 6


def test_transformers_without_a_seed_are_not_shared() -> None:
    found = search(pipeline(random_state=None), ALPHA, "30 epochs", refit=False).fit(X, Y)
    assert Counted.fits >= len(found.cv_results_["params"]) > 3


def test_a_search_in_steps_scores_like_a_grid_search_of_whole_pipelines() -> None:
    model = pipeline(ExtraTreesClassifier(8, random_state=0))
    for scoring in (
        "accuracy",
        lambda fitted, X, y: float(fitted.named_steps["model"].score(fitted[:-1].transform(X), y)),
    ):
        found = search(model, {"model__max_depth": [5]}, "12 epochs", scoring=scoring, return_train_score=True).fit(
            X, Y
        )
        grid = GridSearchCV(
            clone(model).set_params(model__n_estimators=found.best_steps_),
            {"model__max_depth": [5]},
            cv=3,
            scoring=scoring,
            return_train_score=True,
        ).fit(X, Y)
        for column in [f"split{fold}_{part}_score" for fold in range(3) for part in ("test", "train")]:
            assert found.cv_results_[column] == pytest.approx(grid.cv_results_[column])
        assert np.array_equal(found.predict(X), grid.predict(X))


def test_arguments_of_fit_reach_their_steps() -> None:
    weights = np.linspace(0.1, 1.0, len(X))
    folds = StratifiedKFold(3)
    found = search(pipeline(), {"model__alpha": [1e-3]}, "12 epochs", cv=folds, refit=False)
    found.fit(X, Y, scale__sample_weight=weights, model__sample_weight=weights)
    last_rows = list(folds.split(X, Y))[-1][0]
    assert np.array_equal(Counted.weights, weights[last_rows])
    own = SGDClassifier(alpha=1e-3, random_state=0)
    scaler = Counted().fit(X[last_rows])
    for step in range(found.best_steps_):
        first = {} if step else {"classes": np.unique(Y)}
        own.partial_fit(scaler.transform(X[last_rows]), Y[last_rows], sample_weight=weights[last_rows], **first)
    test_rows = list(folds.split(X, Y))[-1][1]
    assert found.cv_results_["split2_test_score"][0] == own.score(scaler.transform(X[test_rows]), Y[test_rows])


def test_a_pipeline_whose_last_step_is_searched_is_fitted_as_a_whole() -> None:
    models = [SVC(), SGDClassifier(random_state=0)]
    found = search(pipeline(), {"model": models}, "6 epochs", refit=False).fit(X, Y)
    assert found.steps_ == "folds"
    assert Counted.fits == 6


def test_jobs_and_a_store_give_the_same_scores(tmp_path: Path) -> None:
    space = {"model__alpha": [1e-5, 1e-3]}
    plain = search(pipeline(), space, "24 epochs").fit(X, Y)
    jobs = search(pipeline(), space, "24 epochs", n_jobs=2).fit(X, Y)
    options = {"store": f"{tmp_path}/s.db"}
    search(pipeline(), space, "7 epochs", **options).fit(X, Y)
    stored = search(pipeline(), space, "24 epochs", **options).fit(X, Y)
    for other in (jobs, stored):
        assert other.cv_results_["mean_test_score"] == pytest.approx(plain.cv_results_["mean_test_score"])


def test_memory_for_transformed_rows_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    space = {"reduce__n_components": [2, 5, 10, 20], **ALPHA}
    estimator = Pipeline([("reduce", PCA(random_state=0)), ("model", SGDClassifier(random_state=0))])
    whole = search(estimator, space, "40 epochs").fit(X, Y)
    monkeypatch.setattr(rows_module, "_MAX_BYTES", 1)  # nothing but the newest rows stays in memory
    small = search(estimator, space, "40 epochs").fit(X, Y)
    assert list(small.cv_results_["mean_test_score"]) == list(whole.cv_results_["mean_test_score"])


def test_a_pipeline_with_a_memory_is_fitted_too(tmp_path: Path) -> None:
    estimator = Pipeline(pipeline().steps, memory=str(tmp_path))
    found = search(estimator, {"model__alpha": [1e-3]}, "12 epochs").fit(X, Y)
    assert np.array_equal(
        found.predict(X), search(pipeline(), {"model__alpha": [1e-3]}, "12 epochs").fit(X, Y).predict(X)
    )


def test_verbose_says_how_the_pipeline_is_trained(capfd: pytest.CaptureFixture[str]) -> None:
    search(pipeline(), verbose=1).fit(X, Y)
    shown = capfd.readouterr().err
    assert (
        "SGDClassifier is trained by partial_fit, one fold after the other: 4 passes over each, 12 steps in all"
        in shown
    )
    assert "transformers are fitted once for each fold and configuration" in shown
    assert "best" in shown
    search(Pipeline([("scale", StandardScaler()), ("model", SVC())]), {"model__C": [1.0]}, verbose=0).fit(X, Y)
    assert capfd.readouterr().err == ""
