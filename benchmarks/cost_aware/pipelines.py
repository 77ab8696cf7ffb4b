"""Small data sets, and feature pipelines, each of which makes another problem of a data set.

raw            unchanged                           pca            imputed, standardised, components of 95 % of the variance
scaled         standardised                        raw+pca        both side by side
log            sign(x) log(1 + |x|)                best           imputed, the better half of the columns by an F-test
onehot         categories and deciles of numbers,  best+onehot    both side by side
               as columns of 0 and 1
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
BUNDLED = ("digits", "breast_cancer", "wine", "diabetes")


@dataclass(frozen=True)
class Data:
    name: str
    x: Array  # (n, d), NaN where missing
    y: Array  # (n,), class numbers or targets
    is_category: NDArray[np.bool_]  # (d,)
    classes: int  # 0 for regression


def load_bundled(name: str) -> Data:
    """Load a data set of scikit-learn."""
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    classes = 0 if name == "diabetes" else int(y.max()) + 1
    return Data(name, np.asarray(x, float), np.asarray(y, float), np.zeros(x.shape[1], dtype=bool), classes)


def load_file(path: Path) -> Data:
    """Load a data set from an .npz file; see `xgboost_problems` for the layout."""
    with np.load(path) as file:
        task = str(json.loads(str(file["meta"]))["task"])
        x, y, is_category = file["X"].astype(float), file["y"].astype(float), file["cat"].astype(bool)
    return Data(path.stem, x, y, is_category, 0 if task.startswith("regression") else int(y.max()) + 1)


def transformers() -> dict[str, Callable[[Data], Any]]:
    """Return the transformers of all pipelines by name."""
    from sklearn.compose import ColumnTransformer
    from sklearn.decomposition import PCA
    from sklearn.feature_selection import SelectKBest, f_classif, f_regression
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import FeatureUnion, make_pipeline
    from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, OneHotEncoder, StandardScaler

    imputer = lambda: SimpleImputer(strategy="median", keep_empty_features=True)  # noqa: E731
    identity = lambda: FunctionTransformer()  # noqa: E731

    def one_hot(data: Data) -> Any:
        """Return categories, and numbers cut into ten bins of equal counts, as columns of 0 and 1."""
        bins = make_pipeline(imputer(), KBinsDiscretizer(10, quantile_method="averaged_inverted_cdf"))
        codes = make_pipeline(
            SimpleImputer(strategy="most_frequent", keep_empty_features=True), OneHotEncoder(handle_unknown="ignore")
        )
        return ColumnTransformer(
            [("numbers", bins, ~data.is_category), ("categories", codes, data.is_category)], sparse_threshold=0.0
        )

    def best_half(data: Data) -> Any:
        return make_pipeline(
            imputer(), SelectKBest(f_classif if data.classes else f_regression, k=(data.x.shape[1] + 1) // 2)
        )

    def signed_log(x: Array) -> Array:
        return np.asarray(np.sign(x) * np.log1p(np.abs(x)))

    pca = lambda: make_pipeline(imputer(), StandardScaler(), PCA(0.95, svd_solver="full"))  # noqa: E731
    return {
        "raw": lambda data: identity(),
        "scaled": lambda data: StandardScaler(),
        "log": lambda data: FunctionTransformer(signed_log),
        "onehot": one_hot,
        "pca": lambda data: pca(),
        "raw+pca": lambda data: FeatureUnion([("raw", identity()), ("pca", pca())]),
        "best": best_half,
        "best+onehot": lambda data: FeatureUnion([("best", best_half(data)), ("onehot", one_hot(data))]),
    }


PIPELINES = ("raw", "scaled", "log", "onehot", "pca", "raw+pca", "best", "best+onehot")
