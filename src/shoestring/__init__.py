"""Shoestring: the best model you can afford. Hyperparameter tuning under a hard budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Best",
    "Budget",
    "Choice",
    "Constant",
    "Context",
    "Float",
    "Int",
    "OnlineTuner",
    "Prices",
    "Report",
    "Schedule",
    "ShoestringError",
    "Space",
    "Study",
    "TrainingFailed",
    "tune",
]

if TYPE_CHECKING:
    from shoestring.core.ledger.budget import Budget, Prices
    from shoestring.core.space.parameters import Choice, Constant, Float, Int
    from shoestring.core.space.space import Space
    from shoestring.errors import ShoestringError, TrainingFailed
    from shoestring.runners.training.code import Context, Report
    from shoestring.study.best import Best
    from shoestring.study.online import OnlineTuner, Schedule
    from shoestring.study.study import Study
    from shoestring.study.tune import tune

_WHERE = {
    "core.ledger.budget": ("Budget", "Prices"),
    "core.space.parameters": ("Choice", "Constant", "Float", "Int"),
    "core.space.space": ("Space",),
    "errors": ("ShoestringError", "TrainingFailed"),
    "study.online": ("OnlineTuner", "Schedule"),
    "runners.training.code": ("Context", "Report"),
    "study.best": ("Best",),
    "study.study": ("Study",),
    "study.tune": ("tune",),
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> Any:
    """Names are loaded when first used, so that importing the package costs little more than importing nothing."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'shoestring' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"shoestring.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
