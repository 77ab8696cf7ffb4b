"""Use shoestring with Optuna: export and import studies, or take the cost of trials into account with a sampler.

from shoestring.integrations.optuna import CostAwareSampler, from_optuna, to_optuna
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoestring.integrations.optional import import_optional
from shoestring.lazy_exports import import_on_first_use

if TYPE_CHECKING:
    from shoestring.integrations.optuna.sampler import CostAwareSampler
    from shoestring.integrations.optuna.studies import from_optuna, to_optuna

__all__ = ["CostAwareSampler", "from_optuna", "to_optuna"]

__getattr__ = import_on_first_use(
    __name__,
    {"sampler": ("CostAwareSampler",), "studies": ("from_optuna", "to_optuna")},
    check=lambda name: import_optional(name, "optuna", "optuna"),
)
