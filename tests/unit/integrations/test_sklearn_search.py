"""`BudgetSearchCV`: scikit-learn's conventions, training in steps, and the estimator's own errors."""

from __future__ import annotations

import pickle
import signal
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning, NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold, ShuffleSplit, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

from shoestring import Choice, Float, Int, Space
from shoestring.errors import BudgetError, SpaceError
from shoestring.integrations.sklearn import BudgetSearchCV
from shoestring.integrations.sklearn.stages import find_step_kind

X, Y = load_iris(return_X_y=True)
LOG_C = {"C": Float(0.01, 10.0, log=True)}
ALPHA = {"alpha": Float(1e-5, 1e-1, log=True)}


def search(estimator: Any = None, space: Any = LOG_C, budget: str = "12 epochs", **options: Any) -> BudgetSearchCV:
    return BudgetSearchCV(
        SVC() if estimator is None else estimator, space, budget, **{"cv": 3, "random_state": 0, **options}
    )


# scikit-learn's own checks -----------------------------------------------------------------------------------------------

CHECKED = {
    "folds": (Ridge(), {"alpha": Float(0.1, 10.0, log=True)}, {"alpha": [0.1, 1.0]}),
    "passes": (SGDClassifier(random_state=0), ALPHA, {"alpha": [1e-4, 1e-2]}),
    "trees": (RandomForestClassifier(n_estimators=2, random_state=0), {"max_depth": Int(1, 3)}, {"max_depth": [1, 2]}),
    "classifier": (LogisticRegression(), LOG_C, {"C": [0.1, 1.0]}),
}


def failed_checks(one: Any) -> set[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(one, on_fail=None, on_skip=None)
    assert len(results) > 30
    return {result["check_name"] for result in results if result["status"] == "failed"}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKED)
def test_only_checks_fail_that_a_grid_search_fails_too(name: str) -> None:
    estimator, space, grid = CHECKED[name]
    ours = failed_checks(search(estimator, space, "3 epochs", cv=2, max_steps=2))
    if ours:  # for most estimators none fails, and the grid search need not be checked
        assert ours <= failed_checks(GridSearchCV(estimator, grid, cv=2))


# results ---------------------------------------------------------------------------------------------------


def test_the_results_have_the_columns_of_a_grid_search() -> None:
    found = search(return_train_score=True).fit(X, Y)
    grid = GridSearchCV(SVC(), {"C": [0.1, 1.0]}, cv=3, return_train_score=True).fit(X, Y)
    assert set(found.cv_results_) == {*grid.cv_results_, "n_steps"}
    lengths = {len(column) for column in found.cv_results_.values()}
    assert lengths == {len(found.study_.trials)}
    assert found.n_splits_ == 3


def test_the_best_row_has_rank_1_and_the_scores_of_cross_validation() -> None:
    found = search().fit(X, Y)
    table, best = found.cv_results_, found.best_index_
    assert table["rank_test_score"][best] == 1
    assert table["n_steps"][best] == 3, "a configuration with all folds ranks before the others"
    expected = cross_val_score(SVC(**found.best_params_), X, Y, cv=3)
    assert [table[f"split{fold}_test_score"][best] for fold in range(3)] == list(expected)
    assert found.best_score_ == pytest.approx(expected.mean())
    assert table["params"][best] == found.best_params_
    assert found.best_params_["C"] == found.best_estimator_.C
    assert found.score(X, Y) == found.best_estimator_.score(X, Y)
    assert list(found.classes_) == [0, 1, 2]


def test_the_same_seed_and_budget_give_the_same_search() -> None:
    one, other = search(budget="10 epochs").fit(X, Y), search(budget="10 epochs").fit(X, Y)
    assert one.study_.spent <= 10
    assert one.cv_results_["params"] == other.cv_results_["params"]
    assert search(budget="10 epochs", random_state=1).fit(X, Y).cv_results_["params"] != one.cv_results_["params"]


def test_a_budget_in_seconds() -> None:
    found = search(budget="1s").fit(X, Y)
    assert found.study_.ledger.budget.unit == "seconds"
    assert found.best_score_ > 0.8


def test_without_refit_there_are_results_but_no_predictions() -> None:
    found = search(refit=False).fit(X, Y)
    assert found.best_params_
    assert not hasattr(found, "best_estimator_")
    with pytest.raises(AttributeError, match="refit=False"):
        found.predict(X)


def test_a_new_search_is_not_fitted() -> None:
    with pytest.raises(NotFittedError):
        search().predict(X)
    assert not hasattr(search(), "n_features_in_")


def test_a_search_has_only_the_methods_of_its_estimator() -> None:
    assert hasattr(search(), "decision_function")
    assert not hasattr(search(GaussianNB(), {"var_smoothing": Float(1e-9, 1e-3, log=True)}), "decision_function")


def test_a_fitted_search_can_be_pickled_and_cloned() -> None:
    found = search().fit(X, Y)
    back = pickle.loads(pickle.dumps(found))
    assert list(back.predict(X)) == list(found.predict(X))
    assert clone(found).get_params()["budget"] == "12 epochs"


# steps -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "names", "kind"),
    [
        (SGDClassifier(), ["alpha"], "passes"),
        (SGDClassifier(), ["max_iter"], "folds"),
        (SGDClassifier(early_stopping=True), ["alpha"], "folds"),
        (MLPClassifier(), ["alpha"], "passes"),
        (MLPClassifier(solver="lbfgs"), ["alpha"], "folds"),
        (MLPClassifier(), {"solver": ["sgd", "adam"]}, "passes"),
        (MLPClassifier(), {"solver": ["adam", "lbfgs"]}, "folds"),
        (MLPClassifier(), {"solver": []}, "folds"),  # drawn from something without options
        (RandomForestClassifier(), ["max_depth"], "trees"),
        (RandomForestClassifier(), ["n_estimators"], "folds"),
        (HistGradientBoostingClassifier(), ["learning_rate"], "trees"),
        (GaussianNB(), ["var_smoothing"], "folds"),
        (LogisticRegression(), ["C"], "folds"),
        (SVC(), ["C"], "folds"),
    ],
)
def test_the_kind_of_steps_fits_the_estimator(estimator: Any, names: Any, kind: str) -> None:
    searched = names if isinstance(names, dict) else dict.fromkeys(names, ())
    assert find_step_kind(estimator, searched) == kind


def test_passes_equal_partial_fit_and_refit_uses_the_best_number() -> None:
    images, labels = load_digits(n_class=3, return_X_y=True)
    model = SGDClassifier(random_state=0)
    found = search(model, ALPHA, "60 epochs", cv=2, max_steps=9).fit(images, labels)
    own = clone(model).set_params(**found.best_params_)
    for step in range(found.best_steps_):
        own.partial_fit(images, labels, **({} if step else {"classes": np.unique(labels)}))
    assert np.array_equal(own.coef_, found.best_estimator_.coef_)
    assert len(set(found.cv_results_["n_steps"])) > 1, "some trials must be paused early"


def test_trees_grow_to_the_estimators_own_number() -> None:
    model = GradientBoostingClassifier(n_estimators=12, subsample=0.5, max_depth=2, random_state=0)
    found = search(model, {"learning_rate": Float(0.01, 0.5, log=True)}, "40 epochs", max_steps=4).fit(X, Y)
    assert found.best_estimator_.n_estimators_ == found.best_steps_
    assert found.best_steps_ in (3, 6, 9, 12)
    assert not found.best_estimator_.warm_start
    table = found.cv_results_
    best = found.best_index_
    assert table["n_steps"][best] == 12, "three folds in four steps each"
    model.set_params(n_estimators=found.best_steps_, **found.best_params_)
    assert [table[f"split{fold}_test_score"][best] for fold in range(3)] == pytest.approx(
        list(cross_val_score(model, X, Y, cv=3))
    )


def test_the_first_fold_is_trained_before_the_others() -> None:
    found = search(SGDClassifier(random_state=0), ALPHA, "40 epochs", max_steps=4).fit(X, Y)
    table = found.cv_results_
    for steps, *scores in zip(table["n_steps"], *(table[f"split{fold}_test_score"] for fold in range(3)), strict=True):
        complete = max(1, steps // 4)
        assert [not np.isnan(score) for score in scores] == [True] * complete + [False] * (3 - complete)
    assert min(table["n_steps"]) < 4 < max(table["n_steps"])
    assert table["n_steps"][found.best_index_] == max(table["n_steps"])


def test_a_fold_in_training_is_expected_to_grow_like_those_before() -> None:
    """Otherwise the value of a configuration would fall when it begins its next fold."""
    scores = iter([0.5, 0.9, 0.6, 0.8])
    model, space = SGDClassifier(random_state=0), {"alpha": [1e-4]}
    options = {"cv": 2, "max_steps": 2, "scoring": lambda model, X, y: next(scores)}
    found = search(model, space, "4 epochs", **options).fit(X, Y)
    assert found.study_.trials[0].values == pytest.approx([0.5, 0.9, (0.9 + 0.6 + 0.4) / 2, (0.9 + 0.8) / 2])
    assert found.best_score_ == pytest.approx(0.85)
    assert found.best_steps_ == 2


def test_the_best_number_of_passes_is_that_of_the_best_mean_score() -> None:
    scores = iter([0.9, 0.5, 0.8, 0.6])  # two folds after one and two passes: the model overfits
    model, space = SGDClassifier(random_state=0), {"alpha": [1e-4]}
    found = search(model, space, "4 epochs", cv=2, max_steps=2, scoring=lambda model, X, y: next(scores)).fit(X, Y)
    assert found.best_score_ == pytest.approx(0.85)
    assert found.best_steps_ == 1
    assert np.array_equal(
        found.best_estimator_.coef_, clone(model).set_params(alpha=1e-4).partial_fit(X, Y, classes=[0, 1, 2]).coef_
    )


def test_jobs_train_as_many_folds_in_a_step() -> None:
    space = {"alpha": [1e-4]}
    alone = search(SGDClassifier(random_state=0), space, "12 epochs", max_steps=4).fit(X, Y)
    together = search(SGDClassifier(random_state=0), space, "12 epochs", max_steps=4, n_jobs=2).fit(X, Y)
    assert (alone.study_.ledger.max_steps, together.study_.ledger.max_steps) == (12, 8)
    for fold in range(3):
        key = f"split{fold}_test_score"
        assert list(alone.cv_results_[key]) == list(together.cv_results_[key])
    assert search(n_jobs=2).fit(X, Y).study_.ledger.max_steps == 2


# arguments --------------------------------------------------------------------------------------------------------


def test_with_several_metrics_refit_must_name_one() -> None:
    scoring = ["accuracy", "neg_log_loss"]
    found = search(LogisticRegression(max_iter=500), scoring=scoring, refit="neg_log_loss").fit(X, Y)
    assert {"mean_test_accuracy", "rank_test_neg_log_loss"} <= set(found.cv_results_)
    assert found.best_score_ == max(found.cv_results_["mean_test_neg_log_loss"][found.cv_results_["n_steps"] == 3])
    assert found.multimetric_
    with pytest.raises(ValueError, match="refit=True must name one of the metrics"):
        search(scoring=scoring).fit(X, Y)
    chosen = search(LogisticRegression(max_iter=500), scoring=scoring, refit=lambda table: 1).fit(X, Y)
    assert chosen.best_params_ == chosen.cv_results_["params"][1]


def test_scoring_and_refit_may_be_functions() -> None:
    found = search(scoring=lambda model, X, y: -float(model.C), refit=lambda table: len(table["params"]) - 1).fit(X, Y)
    assert found.best_index_ == len(found.cv_results_["params"]) - 1
    with pytest.raises(ValueError, match="scoring must return a number, got 'good'"):
        search(scoring=lambda model, X, y: "good").fit(X, Y)


def test_weights_and_groups_are_split_with_their_rows() -> None:
    groups = np.arange(len(X)) % 5
    weights = np.linspace(0.1, 1.0, len(X))
    found = search(cv=GroupKFold(5), budget="15 epochs").fit(X, Y, groups=groups, sample_weight=weights)
    expected = SVC(**found.best_params_).fit(X, Y, sample_weight=weights)
    assert np.array_equal(found.decision_function(X), expected.decision_function(X))
    assert found.n_splits_ == 5


def test_a_splitter_without_a_seed_splits_once() -> None:
    found = search(LogisticRegression(max_iter=500), cv=ShuffleSplit(3)).fit(X, Y)
    assert not np.isnan(found.cv_results_["mean_test_score"]).any()


def test_pipelines_transformers_and_forms_of_a_space() -> None:
    pipeline = make_pipeline(StandardScaler(), SVC())
    for space in (
        {"svc__C": [0.1, 1.0, 10.0]},
        Space({"svc__C": Choice([0.1, 1.0, 10.0])}),
        {"svc__C": {"float": [1, 2]}},
    ):
        assert search(pipeline, space).fit(X, Y).best_params_.keys() == {"svc__C"}
    found = search(PCA(), {"n_components": Int(1, 3)}, scoring=None).fit(X)
    assert found.transform(X).shape[1] == found.best_params_["n_components"]
    with pytest.raises(SpaceError, match=r"\['C'\]"):
        search(space=["C"]).fit(X, Y)


# errors ------------------------------------------------------------------------------------------------------------------


class Fragile(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    def __init__(self, x: float = 0.0, limit: float = -1.0) -> None:
        self.x, self.limit = x, limit

    def fit(self, X: Any, y: Any) -> Fragile:
        if self.x > self.limit:
            raise ZeroDivisionError(f"x is over {self.limit}")
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: Any) -> Any:
        return np.zeros(len(X), dtype=int)


SPACE = {"x": Float(0.0, 1.0)}


@pytest.mark.parametrize("jobs", [1, 2])
def test_when_everything_fails_the_estimators_own_error_is_raised(jobs: int) -> None:
    with pytest.raises(ZeroDivisionError, match="x is over -1"):
        search(Fragile(), SPACE, "1 epochs", n_jobs=jobs).fit(X, Y)


def test_error_score_decides_about_a_configuration_that_fails() -> None:
    half = Fragile(limit=0.5)
    with pytest.warns(FitFailedWarning, match=r"configurations failed .* the first error: .*x is over 0.5"):
        found = search(half, SPACE, "30 epochs").fit(X, Y)
    assert found.best_params_["x"] <= 0.5
    assert all(params["x"] <= 0.5 for params in found.cv_results_["params"])
    with pytest.raises(ZeroDivisionError):
        search(half, SPACE, "30 epochs", error_score="raise").fit(X, Y)
    with pytest.warns(FitFailedWarning, match="gets the score -7"):
        counted = search(half, SPACE, "30 epochs", error_score=-7).fit(X, Y)
    assert counted.cv_results_["mean_test_score"].min() == -7


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
def test_a_failed_fold_gets_the_error_score_in_every_metric() -> None:
    metrics = ["accuracy", "balanced_accuracy"]
    options = {"scoring": metrics, "refit": "accuracy", "error_score": -7, "return_train_score": True}
    results = search(Fragile(limit=0.5), SPACE, "30 epochs", **options).fit(X, Y).cv_results_
    failed = [params["x"] > 0.5 for params in results["params"]]
    assert any(failed)
    for metric in metrics:
        for part in ("test", "train"):
            assert ((results[f"mean_{part}_{metric}"] == -7) == failed).all()


def test_a_search_without_any_score_is_an_error() -> None:
    with pytest.raises(BudgetError, match="no configuration has a score"):
        search(scoring=lambda model, X, y: float("nan"), budget="3 epochs").fit(X, Y)


def test_an_unknown_kind_of_steps_is_an_error() -> None:
    with pytest.raises(ValueError, match="steps='epochs' must be 'auto'"):
        search(steps="epochs").fit(X, Y)
    with pytest.raises(ValueError, match="steps='passes' is not possible for SVC"):
        search(steps="passes").fit(X, Y)


# Ctrl-C ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Handle Ctrl-C as in a terminal; a shell starts background processes with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


class Interrupted(MLPClassifier):  # type: ignore[misc]
    """A network in whose training Ctrl-C is pressed. scikit-learn's own code catches KeyboardInterrupt and ends early."""

    iterations = 0

    def _backprop(self, *arguments: Any) -> Any:
        Interrupted.iterations += 1
        if Interrupted.iterations == 110:
            signal.raise_signal(signal.SIGINT)
        return super()._backprop(*arguments)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_the_search_with_the_best_configuration_so_far(capfd: pytest.CaptureFixture[str]) -> None:
    Interrupted.iterations = 0
    network = Interrupted((4,), max_iter=20, n_iter_no_change=99, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = search(network, ALPHA, steps="folds").fit(X, Y)  # a step is 20 iterations
        whole = search(MLPClassifier((4,), max_iter=20, n_iter_no_change=99, random_state=0), ALPHA, steps="folds").fit(
            X, Y
        )
    assert found.study_.ending is not None
    assert found.study_.ending.reason == "stopped"
    assert 0 < found.study_.spent < 12
    assert found.best_estimator_.n_iter_ == 20
    for trial, other in zip(found.study_.trials, whole.study_.trials, strict=False):
        assert trial.values == other.values[: len(trial.values)]  # the interrupted fold was trained to its end
    assert "the search was stopped by Ctrl-C: spent" in capfd.readouterr().err


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_before_the_first_score_raises() -> None:
    class Pressed(SVC):  # type: ignore[misc]
        def fit(self, *data: Any) -> Any:
            signal.raise_signal(signal.SIGINT)
            raise ValueError("a process that it needs was interrupted too")

    with pytest.raises(KeyboardInterrupt):
        search(Pressed()).fit(X, Y)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_does_not_interrupt_the_folds_in_other_processes() -> None:
    """A terminal sends it to all processes, and an estimator that catches it there would get a worse score."""

    class Pressed(SVC):  # type: ignore[misc]
        is_spoiled = False

        def fit(self, *data: Any) -> Any:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                self.is_spoiled = True
            return super().fit(*data)

        def predict(self, rows: Any) -> Any:
            return 0 * super().predict(rows) if self.is_spoiled else super().predict(rows)

    found = search(Pressed(), budget="4 epochs", n_jobs=2, refit=False).fit(X, Y)
    assert found.best_score_ == search(budget="4 epochs", n_jobs=2).fit(X, Y).best_score_ > 0.9
