"""Use shoestring with scikit-learn: `BudgetSearchCV`, and estimators that are trained in steps.

from shoestring.integrations.sklearn import BudgetSearchCV, partial_fit_steps, warm_start_steps
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoestring.integrations.optional import import_optional
from shoestring.lazy_exports import import_on_first_use

if TYPE_CHECKING:
    from shoestring.integrations.sklearn.estimator_steps import partial_fit_steps, warm_start_steps
    from shoestring.integrations.sklearn.search import BudgetSearchCV

__all__ = ["BudgetSearchCV", "partial_fit_steps", "warm_start_steps"]


def _require_sklearn(name: str) -> None:
    if name == "BudgetSearchCV":  # the other names work with any estimator that has the same methods
        import_optional(name, "sklearn", "sklearn")


__getattr__ = import_on_first_use(
    __name__,
    {"estimator_steps": ("partial_fit_steps", "warm_start_steps"), "search": ("BudgetSearchCV",)},
    check=_require_sklearn,
)
