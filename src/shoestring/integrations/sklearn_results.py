"""`cv_results_` of a search: a column for each parameter, split and metric, one row for each config that has a score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoestring.integrations.sklearn_folds import FoldResult

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ConfigScores:
    """A config, how far it was trained, and what its folds gave; None for folds that were not paid for."""

    config: dict[str, Any]
    steps: int
    folds: Sequence[FoldResult | None]

    @property
    def metrics(self) -> list[str]:
        return next(list(fold.scores) for fold in self.folds if fold is not None)


def table_of(rows: Sequence[ConfigScores], metric: str, *, with_train_score: bool) -> dict[str, Any]:
    """The table; ranks go by the mean of the folds seen, and configs that have seen all folds before those that have not."""
    table: dict[str, Any] = {}
    for name, attribute in (("fit_time", "fit_s"), ("score_time", "score_s")):
        times = np.array([[np.nan if fold is None else getattr(fold, attribute) for fold in row.folds] for row in rows])
        table |= {f"mean_{name}": np.nanmean(times, axis=1), f"std_{name}": np.nanstd(times, axis=1)}
    for name in sorted({name for row in rows for name in row.config}):
        column: Any = np.ma.MaskedArray(np.empty(len(rows), dtype=object), mask=True)
        for number, row in enumerate(rows):
            if name in row.config:
                column[number] = row.config[name]
        table[f"param_{name}"] = column
    table["params"] = [row.config for row in rows]
    table["n_steps"] = np.array([row.steps for row in rows])
    for name in rows[0].metrics:
        table |= _columns(_scores(rows, name, "scores"), f"test_{name}", with_rank=True)
        if with_train_score:
            table |= _columns(_scores(rows, name, "train_scores"), f"train_{name}", with_rank=False)
    return table


def best_row(table: dict[str, Any], metric: str) -> int:
    return int(np.argmin(table[f"rank_test_{metric}"]))


def _scores(rows: Sequence[ConfigScores], name: str, kind: str) -> Floats:
    """(rows, folds); nan where a fold was not seen."""
    return np.array([[np.nan if fold is None else getattr(fold, kind)[name] for fold in row.folds] for row in rows])


def _columns(scores: Floats, name: str, *, with_rank: bool) -> dict[str, Any]:
    columns: dict[str, Any] = {f"split{fold}_{name}": scores[:, fold] for fold in range(scores.shape[1])}
    means = np.nanmean(scores, axis=1)
    columns |= {f"mean_{name}": means, f"std_{name}": np.nanstd(scores, axis=1)}
    if with_rank:
        seen = np.sum(~np.isnan(scores), axis=1)
        keys = list(zip(-seen, -means, strict=True))  # equal keys share a rank, as in scikit-learn
        columns[f"rank_{name}"] = np.array([1 + sum(other < key for other in keys) for key in keys], dtype=np.int32)
    return columns
