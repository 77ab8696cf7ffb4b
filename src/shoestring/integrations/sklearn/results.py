"""The scores of the folds: as the metrics of receipts in the ledger, and as the columns of `cv_results_`.

All scores of a search are in its receipts, so `cv_results_` can be built from the ledger alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoestring.core.ledger.entries import Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.integrations.sklearn.stages import Stages

Floats = NDArray[np.float64]
Scores = Mapping[str, float]  # by name of the metric; a single metric is called "score"
_FOLD_METRIC = re.compile(r"split(\d+)_(test|train|fit_s|score_s)(?:_(.+))?")  # the names that `to_metrics` writes


@dataclass(frozen=True)
class FoldResult:
    """The newest scores of a fold, and the seconds that it has taken so far."""

    scores: Scores
    train_scores: Scores
    fit_s: float
    score_s: float

    def after(self, before: FoldResult) -> FoldResult:
        """Return this result with the seconds of an earlier one added."""
        return replace(self, fit_s=before.fit_s + self.fit_s, score_s=before.score_s + self.score_s)


FoldResults = list[FoldResult | None]  # None: a fold that was not fitted


@dataclass(frozen=True)
class ConfigScores:
    """A row of `cv_results_`: a configuration and the results of its folds after the passes or trees that were best."""

    params: dict[str, Any]
    steps: int
    amount: int  # passes or trees of the results; with steps of folds, the number of folds
    complete: int  # folds that were trained to the end
    folds: Sequence[FoldResult | None]

    @property
    def metrics(self) -> list[str]:
        return next(list(fold.scores) for fold in self.folds if fold is not None)


# in the ledger -------------------------------------------------------------------------------------------------------


def to_metrics(results: FoldResults) -> dict[str, float]:
    """Return the results of a step as the metrics of its receipt."""
    metrics: dict[str, float] = {}
    for fold, result in enumerate(results):
        if result is not None:
            metrics |= {f"split{fold}_test_{name}": score for name, score in result.scores.items()}
            metrics |= {f"split{fold}_train_{name}": score for name, score in result.train_scores.items()}
            metrics |= {f"split{fold}_fit_s": result.fit_s, f"split{fold}_score_s": result.score_s}
    return metrics


def from_metrics(metrics: Mapping[str, float], folds: int) -> FoldResults:
    """Return the results of a step from its metrics; the inverse of `to_metrics`."""
    by_fold: dict[int, dict[str, dict[str, float]]] = {}
    for key, value in metrics.items():
        if match := _FOLD_METRIC.fullmatch(key):
            by_fold.setdefault(int(match[1]), {}).setdefault(match[2], {})[match[3] or ""] = value
    results: FoldResults = [None] * folds
    for fold, values in by_fold.items():
        results[fold] = FoldResult(values["test"], values.get("train", {}), values["fit_s"][""], values["score_s"][""])
    return results


def read_results(ledger: Ledger, folds: int) -> dict[int, dict[int, FoldResults]]:
    """Return the results that the ledger holds, by trial and step."""
    results: dict[int, dict[int, FoldResults]] = {}
    for entry in ledger.entries():
        if isinstance(entry, Receipt) and entry.is_finished and entry.metrics:
            results.setdefault(entry.trial, {}).setdefault(entry.step, from_metrics(entry.metrics, folds))
    return results


def score_config(
    params: dict[str, Any], stages: Stages, by_step: Mapping[int, FoldResults], metric: str
) -> ConfigScores:
    """Return the row of a configuration: the folds that were trained to the end, after the share with the best mean score.

    If the first fold was not trained to its end, the row holds this fold.
    """
    curves: dict[int, dict[int, FoldResult]] = {}
    for step, results in by_step.items():
        stage = stages.steps[step - 1]
        for fold in stage.folds:
            if (result := results[fold]) is not None:
                curves.setdefault(fold, {})[stage.share] = result
    complete = [fold for fold, curve in curves.items() if stages.shares in curve]
    shown = complete or list(curves)
    shares = sorted(set.intersection(*(set(curves[fold]) for fold in shown)), reverse=True)  # of equal ones the last
    best = max(shares, key=lambda share: float(np.mean([curves[fold][share].scores[metric] for fold in shown])))
    folds: FoldResults = [None] * stages.folds
    for fold in shown:
        newest = curves[fold][max(curves[fold])]
        folds[fold] = replace(curves[fold][best], fit_s=newest.fit_s, score_s=newest.score_s)
    amount = len(complete) if stages.kind == "folds" else stages.amount_at(best)
    return ConfigScores(params, max(by_step), amount, len(complete), folds)


# cv_results_ ---------------------------------------------------------------------------------------------------------


def table_of(rows: Sequence[ConfigScores], metric: str, *, with_train_score: bool) -> dict[str, Any]:
    """Return `cv_results_`. Rows with more complete folds come first; those with equally many are ranked by mean score."""
    table: dict[str, Any] = {}
    for name, attribute in (("fit_time", "fit_s"), ("score_time", "score_s")):
        times = np.array([[np.nan if fold is None else getattr(fold, attribute) for fold in row.folds] for row in rows])
        table |= {f"mean_{name}": np.nanmean(times, axis=1), f"std_{name}": np.nanstd(times, axis=1)}
    for name in sorted({name for row in rows for name in row.params}):
        values = np.empty(len(rows), dtype=object)
        for number, row in enumerate(rows):
            values[number] = row.params.get(name)  # one by one, because an option may be a sequence
        table[f"param_{name}"] = np.ma.MaskedArray(values, mask=[name not in row.params for row in rows])
    table["params"] = [row.params for row in rows]
    table["n_steps"] = np.array([row.steps for row in rows])
    for name in rows[0].metrics:
        table |= _columns(_score_matrix(rows, name, "scores"), f"test_{name}", [row.complete for row in rows])
        if with_train_score:
            table |= _columns(_score_matrix(rows, name, "train_scores"), f"train_{name}")
    return table


def best_row(table: dict[str, Any], metric: str) -> int:
    return int(np.argmin(table[f"rank_test_{metric}"]))


def _score_matrix(rows: Sequence[ConfigScores], name: str, attribute: str) -> Floats:
    """Return the scores as (rows, folds), with nan for folds that were not fitted."""
    return np.array(
        [[np.nan if fold is None else getattr(fold, attribute)[name] for fold in row.folds] for row in rows]
    )


def _columns(scores: Floats, name: str, complete_folds: Sequence[int] = ()) -> dict[str, Any]:
    columns: dict[str, Any] = {f"split{fold}_{name}": scores[:, fold] for fold in range(scores.shape[1])}
    means = np.nanmean(scores, axis=1)
    columns |= {f"mean_{name}": means, f"std_{name}": np.nanstd(scores, axis=1)}
    if complete_folds:
        keys = [(-folds, -mean) for folds, mean in zip(complete_folds, means, strict=True)]  # equal keys share a rank
        columns[f"rank_{name}"] = np.array([1 + sum(other < key for other in keys) for key in keys], dtype=np.int32)
    return columns
