"""`BudgetSearchCV` accepts the spaces of scikit-learn's searches, and gives the user's own objects back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_iris
from sklearn.feature_selection import SelectKBest, f_classif, mutual_info_classif
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC

from shoestring import Choice, Float, Int
from shoestring.errors import SpaceError, StudyError
from shoestring.integrations.sklearn import BudgetSearchCV
from shoestring.integrations.sklearn.spaces import to_search_space

X, Y = load_iris(return_X_y=True)
PIPELINE = Pipeline(
    [("scale", StandardScaler()), ("select", SelectKBest()), ("model", LogisticRegression(max_iter=300))]
)
SCALERS = [StandardScaler(), MinMaxScaler(), "passthrough", None]
OBJECTS: dict[str, Any] = {
    "scale": SCALERS,
    "select__score_func": [f_classif, mutual_info_classif],
    "select__k": np.array([1, 2, "all"], object),
}


def search(estimator: Any, space: Any, budget: str = "12 epochs", **options: Any) -> BudgetSearchCV:
    return BudgetSearchCV(estimator, space, budget, **{"cv": 3, "random_state": 0, **options})


# options -----------------------------------------------------------------------------------------------------------------


def test_objects_are_options_and_come_back_as_they_are() -> None:
    found = search(PIPELINE, OBJECTS, "30 epochs").fit(X, Y)
    for params in found.cv_results_["params"]:
        assert any(params["scale"] is scaler for scaler in SCALERS)
        assert params["select__score_func"] in OBJECTS["select__score_func"]
        assert params["select__k"] in (1, 2, "all")
    assert any(found.best_params_["scale"] is scaler for scaler in SCALERS)
    assert not hasattr(SCALERS[0], "mean_"), "the estimators are cloned before they are fitted"
    assert found.cv_results_["param_scale"][found.best_index_] is found.best_params_["scale"]
    stored = [str(trial.config["scale"]) for trial in found.study_.trials]
    assert set(stored) <= {
        "0: StandardScaler StandardScaler()",
        "1: MinMaxScaler MinMaxScaler()",
        "2: str 'passthrough'",
        "3: NoneType None",
    }


def test_tuples_stay_tuples_and_numpy_numbers_stay_numpy_numbers() -> None:
    space: dict[str, Any] = {"hidden_layer_sizes": [(2,), (3, 2)], "alpha": np.logspace(-4, -1, 4)}
    found = search(MLPClassifier(random_state=0), space, "8 epochs", max_steps=2).fit(X, Y)
    assert {type(params["hidden_layer_sizes"]) for params in found.cv_results_["params"]} == {tuple}
    assert {type(params["alpha"]) for params in found.cv_results_["params"]} == {np.float64}
    assert found.best_estimator_.hidden_layer_sizes == found.best_params_["hidden_layer_sizes"]
    assert found.study_.trials[0].config["alpha"] in [float(a) for a in space["alpha"]]  # numbers need no text


def test_a_list_may_hold_equal_options_and_options_that_only_look_equal() -> None:
    space = to_search_space({"x": [1, True, 1.0, 1, float("nan"), "1"]})
    choice = space.space.parameters["x"]
    assert isinstance(choice, Choice)
    decoded = [space.decode({"x": option})["x"] for option in choice.options]
    assert [repr(option) for option in decoded] == ["1", "True", "1.0", "1", "nan", "'1'"]


def test_a_changed_list_is_an_error_that_says_what_differs(tmp_path: Path) -> None:
    store = f"{tmp_path}/s.db"
    search(PIPELINE, OBJECTS, "4 epochs", store=store).fit(X, Y)
    again = search(
        PIPELINE, {**OBJECTS, "scale": [StandardScaler(), MinMaxScaler(), "passthrough", None]}, "6 epochs", store=store
    )
    assert again.fit(X, Y).study_.spent == 6, "equal objects are the same options"
    changed = {**OBJECTS, "scale": [StandardScaler(with_mean=False), *SCALERS[1:]]}
    with pytest.raises(StudyError, match=r"scale.*StandardScaler\(with_mean=False\)"):
        search(PIPELINE, changed, "6 epochs", store=store).fit(X, Y)


def test_texts_of_options_have_no_addresses_and_show_differences_beyond_their_length() -> None:
    one, other = (to_search_space({"x": [np.array([0] * 999 + [last]), max]}).space.parameters["x"] for last in (1, 2))
    assert isinstance(one, Choice)
    assert one.options[1] == "1: builtin_function_or_method <built-in function max>"
    long = [to_search_space({"x": ["a" * 999 + end, ()]}).space.parameters["x"] for end in "bc"]
    assert long[0] != long[1]
    assert to_search_space({"x": [lambda: 1, ()]}).space == to_search_space({"x": [lambda: 1, ()]}).space
    assert other


# distributions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("distribution", "parameter"),
    [
        (stats.loguniform(1e-3, 10.0), Float(1e-3, 10.0, log=True)),
        (stats.uniform(2.0, 3.0), Float(2.0, 5.0)),
        (stats.randint(1, 8), Int(1, 7)),
    ],
)
def test_known_distributions_become_ranges(distribution: Any, parameter: Any) -> None:
    space = to_search_space({"x": distribution})
    assert space.space.parameters["x"] == parameter
    assert space.decode({"x": 3}) == {"x": 3}


@pytest.mark.parametrize(
    "distribution", [stats.norm(3.0, 2.0), stats.expon(scale=0.1), stats.poisson(4.0), stats.beta(2, 5)]
)
def test_other_distributions_are_searched_by_their_quantiles(distribution: Any) -> None:
    space = to_search_space({"x": distribution})
    assert space.space.parameters["x"] == Float(0.001, 0.999)
    assert [space.decode({"x": u})["x"] for u in (0.001, 0.5, 0.999)] == list(distribution.ppf([0.001, 0.5, 0.999]))
    assert type(space.decode({"x": 0.5})["x"]) is (int if hasattr(distribution.dist, "pmf") else float)


def test_options_are_drawn_from_an_object_that_only_draws() -> None:
    class Odd:
        def rvs(self, random_state: Any = None) -> tuple[int, ...]:
            return (2 * int(random_state.randint(1000)) + 1,)

    space = to_search_space({"x": Odd()})
    assert space.space == to_search_space({"x": Odd()}).space
    drawn = [space.decode({"x": option})["x"] for option in space.space.parameters["x"].options]  # type: ignore[union-attr]
    assert len(drawn) == 100
    assert all(isinstance(value, tuple) and value[0] % 2 for value in drawn)


def test_distributions_reach_the_estimator() -> None:
    space = {
        "C": stats.loguniform(1e-2, 1e2),
        "degree": stats.randint(1, 4),
        "coef0": stats.norm(0.0, 1.0),
        "kernel": ["poly"],
    }
    found = search(SVC(), space).fit(X, Y)
    assert {name: type(value) for name, value in found.best_params_.items()} == {
        "C": float,
        "degree": int,
        "coef0": float,
        "kernel": str,
    }
    RandomizedSearchCV(SVC(), space, n_iter=1, cv=3).fit(X, Y)  # it is a space of scikit-learn's too


# lists of dicts ----------------------------------------------------------------------------------------------------------


def test_each_configuration_is_of_one_dict_of_a_list() -> None:
    models = [SVC(), LogisticRegression(max_iter=300)]
    space = [
        {"model": models[:1], "model__gamma": [0.1, 1.0], "model__C": stats.loguniform(0.1, 10.0)},
        {"model": models[1:], "model__C": [1.0, 2.0]},
    ]
    found = search(Pipeline([("scale", StandardScaler()), ("model", SVC())]), space, "30 epochs").fit(X, Y)
    names = {type(params["model"]): set(params) for params in found.cv_results_["params"]}
    assert names == {SVC: {"model", "model__gamma", "model__C"}, LogisticRegression: {"model", "model__C"}}
    assert all(any(params["model"] is model for model in models) for params in found.cv_results_["params"])
    masked = found.cv_results_["param_model__gamma"]
    assert list(masked.mask) == ["model__gamma" not in params for params in found.cv_results_["params"]]


def test_conditions_hold_within_a_dict_of_a_list() -> None:
    kernel = {"kernel": Choice(["rbf", "poly"]), "degree": Int(2, 4, when={"kernel": "poly"})}
    space = to_search_space([kernel, {"kernel": ["linear"]}])
    configs = [space.space.from_cube(point) for point in np.random.default_rng(0).random((30, space.space.dims))]
    seen = {params["kernel"]: "degree" in params for params in map(space.decode, configs)}
    assert seen == {"rbf": False, "poly": True, "linear": False}


# errors ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Ce", "nothing__C"])
def test_an_unknown_parameter_raises_the_error_of_scikit_learn_before_training(name: str) -> None:
    class Counting(SVC):  # type: ignore[misc]
        fits = 0

        def fit(self, *data: Any) -> Any:
            Counting.fits += 1
            return super().fit(*data)

    space = {"gamma": [1.0], name: [1.0, 2.0]}
    with pytest.raises(ValueError, match="Invalid parameter") as theirs:
        GridSearchCV(Counting(), space, cv=3, error_score="raise").fit(X, Y)
    with pytest.raises(ValueError, match="Invalid parameter") as ours:
        search(Counting(), space).fit(X, Y)
    assert str(ours.value) == str(theirs.value)
    assert Counting.fits == 0


def test_what_is_no_space_is_an_error() -> None:
    for space in (["C"], "C", [], np.ones(3)):
        with pytest.raises(SpaceError):
            search(SVC(), space).fit(X, Y)
    with pytest.raises(SpaceError, match="2 dimensions"):
        search(SVC(), {"C": np.ones((2, 2))}).fit(X, Y)
