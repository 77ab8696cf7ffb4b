"""What a step of a search trains: which folds, and how far.

    passes   a step is some passes of `partial_fit` over the training rows of a fold
    trees    a step is some trees of a fold's ensemble, grown with `warm_start`
    folds    a step is a fold, fitted once

The first fold is trained completely before the second one begins. All folds of a poor configuration say the same, so it is paused
after some passes or trees of its first fold, and what they cost is spent on other configurations. With several jobs a step trains
as many folds at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

StepKind = Literal["passes", "trees", "folds"]
DEFAULT_PASSES = 27
MOST_SHARES = (
    9  # steps of a fold that is trained in passes; more would be short compared with their overhead, such as scoring
)
DEFAULT_SHARES = (
    5  # of trees; the first few rounds of boosting favour high learning rates, so a step must have enough of them
)


class Stage(NamedTuple):
    """One step of a trial: the folds that it trains, and the share up to which they are trained."""

    folds: range
    share: int


@dataclass(frozen=True)
class Stages:
    """The steps of a full training, in order.

    `amount` is the number of passes or trees of a fold that is trained to its end, in `shares` steps.
    """

    kind: StepKind
    folds: int
    jobs: int = 1
    amount: int = 1
    shares: int = 1

    @classmethod
    def plan(cls, kind: StepKind, estimator: Any, folds: int, jobs: int, max_steps: int | None) -> Stages:
        """Return the steps of an estimator; `max_steps` is the number of passes, or of the shares of its trees."""
        if kind == "folds":
            return cls(kind, folds, jobs)
        if kind == "passes":
            passes = max_steps or DEFAULT_PASSES
            return cls(kind, folds, jobs, passes, min(MOST_SHARES, passes))
        trees = int(estimator.get_params(deep=False)[tree_parameter(estimator) or "n_estimators"])
        return cls(kind, folds, jobs, trees, min(max_steps or DEFAULT_SHARES, trees))

    @cached_property
    def steps(self) -> list[Stage]:
        """The stages; the first step is `steps[0]`."""
        starts = range(0, self.folds, self.jobs)
        groups = [range(start, min(start + self.jobs, self.folds)) for start in starts]
        return [Stage(group, share) for group in groups for share in range(1, self.shares + 1)]

    def amount_at(self, share: int) -> int:
        """Return the passes or trees that a fold has after a share."""
        return math.ceil(self.amount * share / self.shares)


def find_step_kind(estimator: Any, searched: Mapping[str, Sequence[Any]]) -> StepKind:
    """Return how this estimator can be trained in steps while parameters are searched, given their options by name.

    A parameter that is not a choice has no options here.
    """
    names, params = set(searched), estimator.get_params(deep=False)
    if tree_parameter(estimator) not in (None, *names) and "warm_start" in params:
        return "trees"
    is_iterative = hasattr(estimator, "partial_fit") and "max_iter" in params and "max_iter" not in names
    solvers = {params.get("solver"), *searched.get("solver", ())}
    has_unknown_solver = "solver" in searched and not searched["solver"]
    may_use_lbfgs = "lbfgs" in solvers or has_unknown_solver  # it needs all its iterations in one call
    ends_itself = params.get("early_stopping") or "early_stopping" in names or may_use_lbfgs
    return "passes" if is_iterative and not ends_itself else "folds"


def tree_parameter(estimator: Any) -> str | None:
    """Return the parameter that counts the trees (or rounds) of an ensemble, or None if there is none."""
    params = estimator.get_params(deep=False)
    if "n_estimators" in params:
        return "n_estimators"
    return "max_iter" if {"max_iter", "max_leaf_nodes"} <= set(params) else None
