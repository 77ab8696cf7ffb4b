"""What a whole trial will cost, as a policy needs it: predictions, a bill, what can be paid.

The models are those of `models.cost_aware.cost_models`, fitted to the trials that were trained to their end; until there is
one, all configs cost the same. They work in seconds and only the bill is in the budget's unit, so a rate in dollars changes
no choice, not even by rounding. In an epoch budget every whole trial costs its steps, and cost decides nothing.

`transferred` fits a model to earlier studies, to be given to `CostAwareEI(cost_model="transfer", transferred=...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from shoestring.core.encoding import Points
from shoestring.core.ledger import Ledger
from shoestring.errors import PolicyError, did_you_mean
from shoestring.models.cost_aware.cost_models import (
    COST_MODELS,
    CostModel,
    cost_quantile,
    fit_cost_model,
    fit_transfer,
    log_costs,
)
from shoestring.models.cost_aware.features import CostFeatures, packed, unpacked
from shoestring.models.cost_aware.linear import choose_columns
from shoestring.policies.outcomes import Outcomes, Table, whole_costs

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


class TrialCosts:
    """The cost model of one decision; `model` is None as long as nothing is known."""

    def __init__(
        self,
        ledger: Ledger,
        table: Table,
        name: str,
        parameters: Sequence[str],
        transferred: Mapping[str, Sequence[float]],
    ) -> None:
        self.ledger, self.table = ledger, table
        self.model: CostModel | None = None
        self.memo: dict[str, list[float]] = {}  # what the next decision's fit may start from
        self.rate = ledger.budget.per_second(ledger.workers) or 1.0  # budget's unit for each unit of the model
        self._newest: tuple[Points, tuple[Array, Array]] | None = None  # a whole table is asked about several times
        if name == "transfer":
            self.model = unpacked(transferred)
            return
        numbers, costs = whole_costs(ledger, table)
        if numbers and table.cost_features.names:
            self._fit(name, parameters, table.cost_features.of(table.stacked(numbers)), log_costs(costs))

    def _fit(self, name: str, parameters: Sequence[str], features: Array, log_cost: Array) -> None:
        kind = next(known for known in COST_MODELS if known == name)
        if parameters:
            columns = _columns(self.table.cost_features, parameters)
        else:
            columns = choose_columns(features, log_cost, COST_MODELS[kind])
        past = self.ledger.memo
        same = past.get("cost_columns") == [float(j) for j in columns]  # a memo fits only a model of the same columns
        start = {k.removeprefix("cost_"): v for k, v in past.items() if k.startswith("cost_log_")} if same else {}
        self.model = fit_cost_model(kind, features, log_cost, columns=columns, memo=start or None)
        fitted = {f"cost_{key}": numbers for key, numbers in self.model.memo().items()}
        self.memo = {"cost_columns": [float(j) for j in columns], **fitted} if fitted else {}

    def predict(self, points: Points) -> tuple[Array, Array]:
        """Mean and std of the log of the seconds (in an epoch budget: epochs) of a whole trial, (m,) each."""
        if self.model is None:
            return np.zeros(len(points)), np.zeros(len(points))
        if self._newest is None or self._newest[0] is not points:
            self._newest = points, self.model.predict(self.table.cost_features.of(points))
        return self._newest[1]

    def can_be_paid(self, pool: Points) -> Callable[[Points], Flags]:
        """The test that a point must pass: its cost is within what is left with 90 % probability.

        If no point of the pool passes it, the expected cost must be; if none passes that either, everything may be tried
        and the core shortens or refuses the order, as it does in epochs.
        """
        left = self.ledger.left / self.rate
        if self.model is not None and self.ledger.budget.unit != "epochs":
            for probability in (0.9, 0.5):  # the median is the expected cost

                def within(points: Points, probability: float = probability) -> Flags:
                    return np.asarray(cost_quantile(*self.predict(points), probability) <= left)

                if within(pool).any():
                    return within
        return lambda points: np.ones(len(points), dtype=bool)

    def bill(self, points: Points, index: int) -> tuple[float | None, float | None]:
        """Expected cost and reserve of a point; None leaves both to the core."""
        if self.model is None or self.ledger.budget.unit == "epochs":
            return None, None
        mean, std = self.predict(points.take([index]))
        expected, most = self.rate * float(np.exp(mean[0])), self.rate * float(cost_quantile(mean, std)[0])
        return expected, most if most <= self.ledger.left else expected


def transferred(
    studies: Sequence[Ledger],
    parameters: Sequence[str],
    *,
    task_meta: Sequence[Sequence[float]] | None = None,
    meta: Sequence[float] = (),
) -> dict[str, list[float]]:
    """A linear model of the log seconds of whole trials in earlier studies of the same space, for a policy's settings.

    `parameters`: what cost depends on. `task_meta` describes each study (log rows, log columns, classes), `meta` the new one.
    """
    tasks = []
    for ledger in studies:
        if ledger.space != studies[0].space:
            raise PolicyError("a cost model is transferred between studies of one space: leave the others out.")
        table = ledger.view(Outcomes(""))
        numbers = [t.number for t in ledger.trials if t.steps >= t.limit and t.steps > 0]
        if numbers:
            seconds = np.array([table.facts[number].seconds for number in numbers])
            tasks.append((table.cost_features.of(table.stacked(numbers)), log_costs(seconds)))
    if len(tasks) < len(studies) or not tasks:
        raise PolicyError(
            f"{len(tasks)} of {len(studies)} studies have a trial that was trained to its end: a cost model is transferred "
            "from such trials only. Leave the other studies out."
        )
    columns = _columns(studies[0].view(Outcomes("")).cost_features, parameters)
    return packed(fit_transfer(tasks, columns, task_meta=task_meta, meta=meta))


def _columns(features: CostFeatures, parameters: Sequence[str]) -> tuple[int, ...]:
    try:
        return features.columns_of(parameters)
    except KeyError as unknown:
        hint = did_you_mean(str(unknown.args[0]), set(features.names))
        raise PolicyError(
            f"cost_features={list(parameters)!r} names {unknown.args[0]!r}, which is no parameter that can vary. {hint}"
        ) from None
