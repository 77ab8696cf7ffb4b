"""The rows of the folds, as the last step of a pipeline sees them.

The transformers of a pipeline are fitted once for each fold. Configurations with equal transformers share their rows, which stay
in memory as long as there is room. Transformers that draw from NumPy's global generator differ from fit to fit, so each
configuration has its own then, and they are stored with it.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import joblib
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import _safe_split

_MAX_BYTES = 512 * 2**20  # of the rows that are kept in memory, counted without those of the newest fold


@dataclass(frozen=True)
class Rows:
    """Training and test rows of a fold, and the transformers that were fitted on the former."""

    train_x: Any
    train_y: Any
    test_x: Any
    test_y: Any
    transformers: Any = None  # a fitted Pipeline, or None

    @property
    def size(self) -> int:
        return _bytes_of(self.train_x) + _bytes_of(self.test_x)


@dataclass
class RowStore:
    """The newest rows, by fold and transformers."""

    stored: OrderedDict[Any, Rows] = field(default_factory=OrderedDict)
    size: int = 0

    def get(self, key: Any) -> Rows | None:
        rows = self.stored.get(key)
        if rows is not None:
            self.stored.move_to_end(key)
        return rows

    def put(self, key: Any, rows: Rows) -> None:
        self.size += rows.size
        self.stored[key] = rows
        while self.size > _MAX_BYTES and len(self.stored) > 1:
            _, oldest = self.stored.popitem(last=False)
            self.size -= oldest.size


def can_split(estimator: Any, names: Any) -> bool:
    """Return whether the transformers of a pipeline can be fitted apart from its last step."""
    if type(estimator) is not Pipeline or len(estimator.steps) < 2:  # a subclass may resample rows
        return False
    name, last = estimator.steps[-1]
    is_plain = getattr(estimator, "transform_input", None) is None and not get_tags(estimator).input_tags.pairwise
    return hasattr(last, "fit") and name not in names and is_plain


def key_of(transformers: Any) -> str | None:
    """Return what equal transformers have in common; None if their fits must not be shared."""
    if transformers is None:
        return ""
    if uses_global_generator(transformers):
        return None
    try:
        return str(joblib.hash(transformers))
    except Exception:  # a part cannot be pickled, such as a lambda
        return None


def make_rows(model: Any, transformers: Any, X: Any, y: Any, split: tuple[Any, Any], params: Mapping[str, Any]) -> Rows:
    """Return the rows of a fold, transformed if there are transformers; `params` are arguments of their `fit`."""
    train, test = split
    train_x, train_y = _safe_split(model, X, y, train)
    test_x, test_y = _safe_split(model, X, y, test, train)
    if transformers is None:
        return Rows(train_x, train_y, test_x, test_y)
    fitted = clone(transformers)
    train_x = fitted.fit_transform(train_x, train_y, **params)
    return Rows(train_x, train_y, fitted.transform(test_x), test_y, fitted)


def uses_global_generator(estimator: Any) -> bool:
    """Return whether the estimator draws from NumPy's global generator, which trials share."""
    params = estimator.get_params(deep=True)
    return any(value is None for name, value in params.items() if name.split("__")[-1] == "random_state")


def _bytes_of(rows: Any) -> int:
    if hasattr(rows, "nbytes"):
        return int(rows.nbytes)
    if hasattr(rows, "memory_usage"):  # a DataFrame
        return int(rows.memory_usage(deep=False).sum())
    return int(rows.data.nbytes * 2) if hasattr(getattr(rows, "data", None), "nbytes") else sys.getsizeof(rows)
