"""The hyperparameters of public tables of which a user would say that larger values cost more, or less, with the reason.

Marks follow from what a hyperparameter means, never from the recorded costs. A hyperparameter whose cost a user would have to
guess has none: learning rates, dropout, the number of documents in a step of online learning, the operations of a cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoestring.core.space.parameters import CostMark

_LAYERS: tuple[CostMark, str] = ("increases", "each layer is computed in every step")
_UNITS: tuple[CostMark, str] = ("increases", "the matrices of a step grow with it")
_BATCH: tuple[CostMark, str] = ("decreases", "an epoch of the same data has fewer steps")

COST_MARKS: dict[str, dict[str, tuple[CostMark, str]]] = {  # {source: {hyperparameter: (mark, reason)}}
    "deepar_forecasting": {
        "num_batches_per_epoch": ("increases", "an epoch has so many steps"),
        "num_cells": _UNITS,
        "num_layers": _LAYERS,
        "context_length_ratio": ("increases", "the network reads so long a history in every step"),
    },
    "fcnet_tabular": {"batch_size": _BATCH, "n_units_1": _UNITS, "n_units_2": _UNITS},
    "hpobench_mlp": {"batch_size": _BATCH, "depth": _LAYERS, "width": _UNITS},
    "xgboost_rbv2_surrogate": {
        "nrounds": ("increases", "so many trees are trained"),
        "max_depth": ("increases", "each tree may have so many levels"),
    },
}


def cost_marks(source: str, columns: Sequence[str]) -> Mapping[str, CostMark]:
    """Return the marks of those of `columns` that have one."""
    return {name: mark for name, (mark, _) in COST_MARKS.get(source, {}).items() if name in columns}
