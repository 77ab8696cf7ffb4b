"""A search that is kept in a store: what its ledger and its checkpoints must hold so that another process can go on with it.

The scores of every fold lie in the metrics of a receipt, so the table of results can be written from the ledger alone. The
models of a frozen trial lie in its checkpoint. Whether rows, folds and estimator are still those of the search, a fingerprint
says.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from typing import Any

import joblib

from shoestring.core.entries import Receipt
from shoestring.core.ledger import Ledger
from shoestring.errors import StudyError
from shoestring.integrations.sklearn_folds import FoldResult, FoldResults, Folds, to_metrics
from shoestring.runners.make import has_code_changed
from shoestring.runners.training import MOST_METRICS
from shoestring.stores.opening import open_store

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
