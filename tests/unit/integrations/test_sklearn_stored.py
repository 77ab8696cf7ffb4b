"""A search in a store continues where it stopped, and metadata reaches the objects that request it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, LeaveOneOut
from sklearn.svm import SVC

from shoestring import Float, Int
from shoestring.errors import StudyError
from shoestring.integrations.sklearn import BudgetSearchCV

X, Y = load_iris(return_X_y=True)
X, Y = X[::3], Y[::3]
WEIGHTS = np.linspace(0.1, 1.0, len(X))
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "folds": (SVC(), {"C": Float(0.01, 10.0, log=True)}),
    "passes": (SGDClassifier(random_state=0), {"alpha": Float(1e-5, 1e-1, log=True)}),
    "trees": (RandomForestClassifier(n_estimators=4, random_state=0), {"max_depth": Int(1, 5)}),
}


def search(kind: str, budget: str, store: str | None, **options: Any) -> BudgetSearchCV:
    estimator, space = KINDS[kind]
    return BudgetSearchCV(
        estimator, space, budget, store=store, **{"cv": 3, "max_steps": 4, "random_state": 0, **options}
    )


def table_without_times(found: BudgetSearchCV) -> dict[str, str]:
    """Return the columns as text, because nan (a fold that was not fitted) does not equal itself."""
    return {name: repr(list(column)) for name, column in found.cv_results_.items() if not name.endswith("_time")}


# in a store --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_raised_budget_continues_and_a_finished_search_is_read_back(kind: str, tmp_path: Path) -> None:
    part = search(kind, "5 epochs", f"{tmp_path}/s.db").fit(X, Y)
    assert part.study_.spent == 5
    continued = search(kind, "14 epochs", f"{tmp_path}/s.db").fit(X, Y)
    assert continued.study_.spent == 14
    assert {trial.number for trial in part.study_.trials} < {trial.number for trial in continued.study_.trials}
    repeated = search(kind, "14 epochs", f"{tmp_path}/s.db").fit(X, Y)
    assert table_without_times(repeated) == table_without_times(continued), (
        "the budget is spent, so all results come from the ledger"
    )
    assert list(repeated.cv_results_["mean_fit_time"]) == list(continued.cv_results_["mean_fit_time"])
    assert np.array_equal(repeated.predict(X), continued.predict(X))


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_search_equals_an_uninterrupted_one(kind: str, tmp_path: Path) -> None:
    class Interrupts(BaseException):
        pass

    calls = []

    def scoring(model: Any, X: Any, y: Any) -> float:
        calls.append(1)
        if len(calls) == 12:
            raise Interrupts
        return float(accuracy_score(y, model.predict(X)))

    whole = search(kind, "14 epochs", None, scoring=lambda m, X, y: float(accuracy_score(y, m.predict(X)))).fit(X, Y)
    interrupted = search(kind, "14 epochs", f"{tmp_path}/s.db", scoring=scoring)
    with pytest.raises(Interrupts):
        interrupted.fit(X, Y)
    interrupted.fit(X, Y)
    assert interrupted.study_.spent == 14
    assert table_without_times(interrupted) == table_without_times(whole)


def test_train_scores_and_several_metrics_are_read_back(tmp_path: Path) -> None:
    options: dict[str, Any] = {"scoring": ["accuracy", "neg_log_loss"], "refit": "accuracy", "return_train_score": True}
    found = search("trees", "6 epochs", f"{tmp_path}/s.db", **options).fit(X, Y)
    again = search("trees", "6 epochs", f"{tmp_path}/s.db", **options).fit(X, Y)
    assert table_without_times(again) == table_without_times(found)
    assert "split2_train_neg_log_loss" in again.cv_results_


def test_a_stored_search_keeps_its_seed(tmp_path: Path) -> None:
    first = search("folds", "4 epochs", f"{tmp_path}/s.db", random_state=None).fit(X, Y)
    second = search("folds", "8 epochs", f"{tmp_path}/s.db", random_state=None).fit(X, Y)
    assert second.study_.ledger.definition.seed == first.study_.ledger.definition.seed


def test_different_rows_folds_or_estimators_are_an_error(tmp_path: Path) -> None:
    store = f"{tmp_path}/s.db"
    search("folds", "4 epochs", store).fit(X, Y)
    for other, rows in (
        (search("folds", "5 epochs", store), slice(1, None)),
        (search("folds", "5 epochs", store, cv=KFold(3, shuffle=True)), slice(None)),
        (
            BudgetSearchCV(SVC(kernel="linear"), KINDS["folds"][1], "5 epochs", cv=3, random_state=0, store=store),
            slice(None),
        ),
    ):
        with pytest.raises(StudyError, match="had other rows or folds, or another estimator: give another name"):
            other.fit(X[rows], Y[rows])
    assert search("folds", "4 epochs", store, name="another", cv=4).fit(X, Y).study_.name == "another"
    assert search("folds", "4 epochs", store).fit(X, Y).study_.spent == 4, "the stored search must not change"


def test_too_many_folds_for_a_store_are_an_error_before_training(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="50 folds have 150 scores and times, and a store keeps 100"):
        search("folds", "4 epochs", f"{tmp_path}/s.db", cv=LeaveOneOut()).fit(X, Y)


# metadata ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


class WeightedRegression(LogisticRegression):  # type: ignore[misc]
    """Remembers the weights that it was fitted with."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        self.weights_ = sample_weight
        return super().fit(X, y, sample_weight)


SPACE = {"C": Float(0.01, 10.0, log=True)}


@pytest.mark.usefixtures("routing")
def test_metadata_is_routed_as_in_a_grid_search() -> None:
    weighted = make_scorer(accuracy_score).set_score_request(sample_weight=True)
    model = WeightedRegression(max_iter=500).set_fit_request(sample_weight=False)
    groups = np.arange(len(X)) % 4
    options: dict[str, Any] = {"cv": GroupKFold(4), "scoring": weighted}
    ours = BudgetSearchCV(model, SPACE, "12 epochs", random_state=0, **options)
    ours.fit(X, Y, sample_weight=WEIGHTS, groups=groups)
    grid = GridSearchCV(model, {"C": [ours.best_params_["C"]]}, **options).fit(
        X, Y, sample_weight=WEIGHTS, groups=groups
    )
    for fold in range(4):
        scores = ours.cv_results_[f"split{fold}_test_score"]
        assert scores[ours.best_index_] == grid.cv_results_[f"split{fold}_test_score"][0]
    assert ours.best_estimator_.weights_ is None
    assert ours.score(X, Y, sample_weight=WEIGHTS) == grid.score(X, Y, sample_weight=WEIGHTS)
    model = model.set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
    plain = BudgetSearchCV(model, SPACE, "3 epochs", cv=3, random_state=0)
    assert np.array_equal(plain.fit(X, Y, sample_weight=WEIGHTS).best_estimator_.weights_, WEIGHTS)


@pytest.mark.usefixtures("routing")
def test_metadata_that_is_not_requested_is_an_error_as_in_a_grid_search() -> None:
    for one in (
        BudgetSearchCV(WeightedRegression(), SPACE, "3 epochs", cv=3),
        GridSearchCV(WeightedRegression(), {"C": [1.0]}, cv=3),
    ):
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            one.fit(X, Y, sample_weight=WEIGHTS)


def test_without_routing_weights_go_to_estimator_and_scorer_as_in_a_grid_search() -> None:
    options: dict[str, Any] = {"cv": 3, "scoring": "accuracy"}
    ours = BudgetSearchCV(WeightedRegression(max_iter=500), SPACE, "6 epochs", random_state=0, **options)
    ours.fit(X, Y, sample_weight=WEIGHTS)
    grid = GridSearchCV(WeightedRegression(max_iter=500), {"C": [ours.best_params_["C"]]}, **options).fit(
        X, Y, sample_weight=WEIGHTS
    )
    assert ours.best_score_ == pytest.approx(grid.best_score_, abs=1e-12)
    with pytest.raises(ValueError, match="only with metadata routing"):
        ours.score(X, Y, sample_weight=WEIGHTS)
    with pytest.warns(UserWarning, match="takes no sample_weight"):
        BudgetSearchCV(
            WeightedRegression(max_iter=500),
            SPACE,
            "3 epochs",
            cv=3,
            scoring=lambda model, X, y: float(model.score(X, y)),
        ).fit(X, Y, sample_weight=WEIGHTS)
