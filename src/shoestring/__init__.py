"""Shoestring: the best model you can afford. Hyperparameter tuning under a hard budget.

The public names are those that this module, `shoestring.policy`, `shoestring.testing`, `shoestring.integrations` and
`shoestring.errors` export. Every other module is private and may change in any release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Amendment",
    "Best",
    "Budget",
    "CheckpointStore",
    "Choice",
    "Constant",
    "Context",
    "Cost",
    "Ending",
    "Float",
    "Group",
    "Heartbeat",
    "Importance",
    "Int",
    "Lease",
    "Ledger",
    "LedgerStore",
    "Note",
    "OnlineTuner",
    "OpenOrder",
    "Order",
    "Plot",
    "Policy",
    "Prices",
    "PutCheckpoint",
    "RayCluster",
    "Receipt",
    "Report",
    "RetrainResult",
    "Runner",
    "Schedule",
    "ShoestringError",
    "Space",
    "StateLoss",
    "StoredCheckpoint",
    "Study",
    "StudyDefinition",
    "StudyState",
    "TrainingFailed",
    "Trial",
    "transfer_costs",
    "tune",
    "tune_objective",
]

if TYPE_CHECKING:
    from shoestring.core.deciding.policy import Policy
    from shoestring.core.ledger.budget import Budget, Prices
    from shoestring.core.ledger.entries import Amendment, Cost, Note, Order, Receipt, StateLoss, StudyDefinition
    from shoestring.core.ledger.ledger import Ledger
    from shoestring.core.ledger.state import OpenOrder, StudyState, Trial
    from shoestring.core.space.parameters import Choice, Constant, Float, Group, Int
    from shoestring.core.space.space import Space
    from shoestring.errors import ShoestringError, TrainingFailed
    from shoestring.integrations.objective.tuning import tune_objective
    from shoestring.reports.figures.configs import Importance
    from shoestring.reports.figures.plot import Plot
    from shoestring.runners.checkpoints.checkpoint_store import CheckpointStore, PutCheckpoint, StoredCheckpoint
    from shoestring.runners.ray.cluster import RayCluster
    from shoestring.runners.runner import Runner
    from shoestring.runners.training.code import Context, Report
    from shoestring.stores.ledger_store import Heartbeat, Lease, LedgerStore
    from shoestring.study.best import Best
    from shoestring.study.loop import Ending
    from shoestring.study.online import OnlineTuner, Schedule
    from shoestring.study.retrain import RetrainResult
    from shoestring.study.study import Study
    from shoestring.study.transfer import transfer_costs
    from shoestring.study.tune import tune

_MODULES = {  # where each name is defined
    "core.deciding.policy": ("Policy",),
    "core.ledger.budget": ("Budget", "Prices"),
    "core.ledger.entries": ("Amendment", "Cost", "StateLoss", "Note", "StudyDefinition", "Order", "Receipt"),
    "core.ledger.ledger": ("Ledger",),
    "core.ledger.state": ("OpenOrder", "StudyState", "Trial"),
    "core.space.parameters": ("Choice", "Constant", "Float", "Group", "Int"),
    "core.space.space": ("Space",),
    "errors": ("ShoestringError", "TrainingFailed"),
    "integrations.objective.tuning": ("tune_objective",),
    "reports.figures.configs": ("Importance",),
    "reports.figures.plot": ("Plot",),
    "runners.checkpoints.checkpoint_store": ("CheckpointStore", "PutCheckpoint", "StoredCheckpoint"),
    "runners.ray.cluster": ("RayCluster",),
    "runners.runner": ("Runner",),
    "runners.training.code": ("Context", "Report"),
    "stores.ledger_store": ("Heartbeat", "Lease", "LedgerStore"),
    "study.best": ("Best",),
    "study.loop": ("Ending",),
    "study.online": ("OnlineTuner", "Schedule"),
    "study.retrain": ("RetrainResult",),
    "study.study": ("Study",),
    "study.transfer": ("transfer_costs",),
    "study.tune": ("tune",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that `import shoestring` loads no other module of the package."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'shoestring' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"shoestring.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
