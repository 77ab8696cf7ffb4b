"""Models that are really trained, on a real clock: every method gets the same seconds, its computing time included.

    source     table           what is trained, on data that scikit-learn contains
    mlp        digits          scikit-learn's perceptron of examples/digits.py, one epoch per step
    linear     digits          logistic regression by stochastic gradient descent, one epoch per step
    xgboost    breast_cancer   boosted trees, five rounds per step; also digits and diabetes
    networks   cnn             a small convolutional network in NumPy, one epoch per step (networks.py)
               transformer     a small transformer in NumPy, rows of pixels as tokens, one epoch per step

The value is the validation log loss (for diabetes: the root mean squared error). The true optimum is unknown: `LOWEST` has the
lowest loss that any run has reached. `race lowest` updates it from files of runs, so a later run can have a regret below 0;
the page uses the present values. A model that predicts the class frequencies has a regret of 1. A budget of 1 is `CURVE_S`
seconds; a step that ends later does not count. Paused trials stay in memory, where they can be copied and continue with other
hyperparameters, except those that define the shape of the model (`FIXED`).
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.race.copying import CopyingLocalRunner
from benchmarks.race.problems import Problem, Unit
from shoestring.core.ledger.entries import Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Space
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.runner import Runner

MAX_LIVE = 100_000  # paused trials in memory: all of them
CURVE_S = 3.0
LOWEST_FILE = Path(__file__).parent / "lowest.json"  # written by `race lowest`
LOWEST: dict[str, float] = {name: found["value"] for name, found in json.loads(LOWEST_FILE.read_text("utf-8")).items()}
_BOOSTING = {
    "eta": Float(0.005, 1.0, log=True),
    "max_depth": Int(1, 10),
    "subsample": Float(0.3, 1.0),
    "lambda": Float(1e-3, 1e2, log=True),
    "min_child_weight": Float(0.1, 20.0, log=True),
}
SPACES: dict[str, dict[str, Any]] = {
    "mlp/digits": {
        "lr": Float(1e-4, 1.0, log=True),
        "weight_decay": Float(1e-6, 1e-1, log=True),
        "units": Int(8, 256, log=True),
        "layers": Int(1, 3),
        "batch_size": Int(8, 256, log=True),
        "activation": Choice(["relu", "tanh"]),
        "solver": Choice(["adam", "sgd"]),
    },
    "linear/digits": {
        "lr": Float(1e-5, 1.0, log=True),
        "alpha": Float(1e-7, 1.0, log=True),
        "penalty": Choice(["l1", "l2", "elasticnet"]),
        "schedule": Choice(["constant", "invscaling", "adaptive"]),
    },
    "xgboost/breast_cancer": _BOOSTING,
    "xgboost/digits": _BOOSTING,
    "xgboost/diabetes": _BOOSTING,
    "networks/cnn": {
        "lr": Float(1e-4, 1.0, log=True),
        "momentum": Float(0.0, 0.98),
        "weight_decay": Float(1e-6, 1e-1, log=True),
        "batch_size": Int(8, 256, log=True),
        "filters": Int(2, 24, log=True),
    },
    "networks/transformer": {
        "lr": Float(1e-4, 1.0, log=True),
        "momentum": Float(0.0, 0.98),
        "weight_decay": Float(1e-6, 1e-1, log=True),
        "batch_size": Int(8, 256, log=True),
        "width": Int(4, 48, log=True),
    },
}
FIXED = frozenset(("units", "layers", "activation", "solver", "filters", "width"))
NAMES = [tuple(name.split("/")) for name in SPACES]
_STEPS = {"mlp": 40, "linear": 40, "xgboost": 40, "networks": 30}


@dataclass(frozen=True)
class TrainedProblem(Problem):
    name: str

    @cached_property
    def space(self) -> Space:
        return Space(SPACES[self.name])

    @property
    def max_steps(self) -> int:
        return _STEPS[self.name.partition("/")[0]]

    @cached_property
    def start(self) -> float:
        data = split(self.name.partition("/")[2])
        if data.classes == 0:
            return float(np.std(data.valid_y))
        shares = np.bincount(data.train_y, minlength=data.classes) / len(data.train_y)
        return float(-np.mean(np.log(shares[data.valid_y])))

    @property
    def worst(self) -> float:
        return self.start

    @property
    def fixed(self) -> frozenset[str]:
        return FIXED

    def curve_s(self) -> float:
        return CURVE_S

    def optimum(self, curves: float, unit: Unit) -> float:
        return LOWEST[self.name]

    def best(self, ledger: Ledger) -> float | None:
        """Return the lowest loss of the steps that ended in time; nothing in this process can interrupt the last step."""
        receipts = (entry for entry in ledger.entries() if isinstance(entry, Receipt) and entry.status == "ok")
        values = [one.value for one in receipts if one.value is not None and one.at <= ledger.budget.total]
        return min(values, default=None)

    def runner(self) -> Runner:
        _warm_up(self.name)
        folder = Path(tempfile.mkdtemp(prefix="race-"))  # stays empty: none of these models is saved to disk
        runner = CopyingLocalRunner(trainer(self.name), Checkpoints(folder), live=MAX_LIVE)
        folder.rmdir()
        return runner


def lowest_losses(runs: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the lowest loss of each task that any of these runs reached, and which run that was."""
    found: dict[str, dict[str, Any]] = {}
    for run in runs:
        name = f"{run['source']}/{run['table']}"
        if (
            run["suite"] != "trained"
            or run["best"] is None
            or run["best"] >= found.get(name, {}).get("value", math.inf)
        ):
            continue
        record = {
            "value": run["best"],
            "method": run["method"],
            "seconds": run["budget"] * CURVE_S,
            "seed": run["seed"],
        }
        found[name] = {**record, "at": run["at"]}
    return dict(sorted(found.items()))


def rescale_regret(run: dict[str, Any]) -> dict[str, Any]:
    """Return the run with its regret according to the present `LOWEST`."""
    if run["suite"] != "trained":
        return run
    least = LOWEST[f"{run['source']}/{run['table']}"]
    best = run["start"] if run["best"] is None else run["best"]
    return {**run, "regret": (best - least) / (run["start"] - least)}


def problem(table: str) -> TrainedProblem:
    return TrainedProblem(next(name for name in SPACES if name.partition("/")[2] == table or name == table))


@dataclass(frozen=True)
class Split:
    train_x: Any
    train_y: Any
    valid_x: Any
    valid_y: Any
    classes: int  # 0: regression

    def __deepcopy__(self, memo: Any) -> Split:
        return self  # a copied model learns from the same data


@cache
def split(table: str) -> Split:
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
    from sklearn.model_selection import train_test_split

    load = {"breast_cancer": load_breast_cancer, "diabetes": load_diabetes}.get(table, load_digits)
    x, y = load(return_X_y=True)
    x = x / 16.0 if load is load_digits else x
    classes = 0 if table == "diabetes" else int(y.max()) + 1
    train_x, valid_x, train_y, valid_y = train_test_split(x, y, test_size=0.4, random_state=0)
    return Split(train_x, train_y, valid_x, valid_y, classes)


def log_loss(probabilities: Any, labels: Any) -> float:
    """Return the log loss, or infinity if the weights have diverged."""
    own = probabilities[np.arange(len(labels)), labels]
    return float(-np.mean(np.log(np.clip(own, 1e-12, 1.0)))) if np.isfinite(own).all() else math.inf


@cache
def _warm_up(name: str) -> None:
    """Import packages and load data before the clock starts, so that the first step is not charged for it."""
    space = Space(SPACES[name])
    model = trainer(name)(space.from_cube(np.full(space.dims, 0.5)))
    model.step()
    model.validate()


def trainer(name: str) -> Callable[[dict[str, Any]], Any]:
    """Return a class whose objects train one configuration step by step."""
    kind, _, table = name.partition("/")
    if kind == "networks":
        from benchmarks.race import networks

        return {"cnn": networks.Convolutional, "transformer": networks.Transformer}[table]
    if kind == "xgboost":
        return type("Boosting", (_Boosting,), {"table": table})
    return {"mlp": _Perceptron, "linear": _Linear}[kind]


@cache
def _example() -> Any:
    path = Path(__file__).parents[2] / "examples" / "digits.py"
    spec = importlib.util.spec_from_file_location("example_digits", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class _Perceptron:
    """The model of examples/digits.py, without saving, so that saving costs nothing."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._digits = _example().Digits(config)

    def change(self, config: dict[str, Any]) -> None:
        model = self._digits.model
        model.set_params(learning_rate_init=config["lr"], alpha=config["weight_decay"], batch_size=config["batch_size"])
        optimizer = model._optimizer  # created once, so it would keep its old rate
        optimizer.learning_rate_init = optimizer.learning_rate = config["lr"]

    def step(self) -> None:
        with np.errstate(all="ignore"):
            self._digits.step()

    def validate(self) -> float:
        data = split("digits")
        with np.errstate(all="ignore"):
            return log_loss(self._digits.model.predict_proba(data.valid_x), data.valid_y)


class _Linear:
    def __init__(self, config: dict[str, Any]) -> None:
        from sklearn.linear_model import SGDClassifier

        self._model = SGDClassifier(loss="log_loss", random_state=0)
        self.change(config)

    def change(self, config: dict[str, Any]) -> None:
        self._model.set_params(
            penalty=config["penalty"],
            alpha=config["alpha"],
            learning_rate=config["schedule"],
            eta0=config["lr"],
        )

    def step(self) -> None:
        data = split("digits")
        self._model.partial_fit(data.train_x, data.train_y, classes=np.arange(data.classes))

    def validate(self) -> float:
        data = split("digits")
        with np.errstate(all="ignore"):
            return log_loss(self._model.predict_proba(data.valid_x), data.valid_y)


class _Boosting:
    table = ""
    rounds = 5  # per step

    def __init__(self, config: dict[str, Any]) -> None:
        classes = split(self.table).classes
        objective = {0: "reg:squarederror", 2: "binary:logistic"}.get(classes, "multi:softprob")
        metric = {0: "rmse", 2: "logloss"}.get(classes, "mlogloss")
        self._parameters = {"objective": objective, "eval_metric": metric, "seed": 0, "nthread": 1, **config}
        if classes > 2:
            self._parameters["num_class"] = classes
        self._booster: Any = None

    def change(self, config: dict[str, Any]) -> None:
        self._parameters |= config

    def step(self) -> None:
        import xgboost

        train, _ = _matrices(self.table)
        self._booster = xgboost.train(self._parameters, train, num_boost_round=self.rounds, xgb_model=self._booster)

    def validate(self) -> float:
        return float(self._booster.eval(_matrices(self.table)[1]).rpartition(":")[2])


@cache
def _matrices(table: str) -> tuple[Any, Any]:
    import xgboost

    data = split(table)
    return xgboost.DMatrix(data.train_x, data.train_y), xgboost.DMatrix(data.valid_x, data.valid_y)
