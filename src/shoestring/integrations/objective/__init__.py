"""Tune an objective written for Optuna: a function of a `trial` that suggests parameters and reports values.

trial      the argument of the objective: `suggest_float`, `report`, `should_prune`, …
calls      one call of an objective, as steps
finding    which parameters an objective has, and under which conditions, found by calling it
tuning     `tune_objective`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoestring.lazy_exports import import_on_first_use

if TYPE_CHECKING:
    from shoestring.integrations.objective.tuning import tune_objective

__all__ = ["tune_objective"]

__getattr__ = import_on_first_use(__name__, {"tuning": ("tune_objective",)})
