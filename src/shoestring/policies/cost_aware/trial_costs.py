"""What a whole trial will cost, as a policy needs it: predictions, a bill, what can be paid.

The models are those of `models.cost_aware.cost_models`, fitted to the trials that were trained to their end; until there is
one, all configs cost the same. They work in seconds and only the bill is in the budget's unit, so a rate in dollars changes
no choice, not even by rounding. In an epoch budget every whole trial costs its steps, and cost decides nothing.

`transfer_costs` fits a model to earlier studies, to be given to `CostAwareEI(cost_model="transfer", transferred=...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from shoestring.core.deciding.decision import Memo, Train
from shoestring.core.deciding.memo import Refits
from shoestring.core.deciding.reproducible import reaches
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.space.encoding import Points
from shoestring.core.values.arrays import Flags, Floats
from shoestring.errors import PolicyError, did_you_mean
from shoestring.models.cost_aware.cost_models import (
    GPCost,
    choose_cost_model,
    cost_quantile,
    count_columns,
    fit_cost_model,
    log_costs,
)
from shoestring.models.cost_aware.features import CostFeatures
from shoestring.models.cost_aware.linear import LinearCost, choose_columns, fit_transfer, pack, unpack
from shoestring.policies.config_table import ConfigsView, ConfigTable

_REFITS = Refits(often=30, every=5, key="cost_fitted_at")  # of a process, by trials trained to their end


class TrialCosts:
    """The cost model of one decision; `model` is None as long as nothing is known."""

    def __init__(
        self, ledger: Ledger, table: ConfigTable, name: str, parameters: Sequence[str], transferred: Memo
    ) -> None:
        self.ledger, self.features = ledger, CostFeatures(table.encoding)
        self.model: LinearCost | GPCost | None = None
        self.memo: dict[str, list[float]] = {}  # what the next decision's fit may start from
        self.rate = ledger.budget.per_second(ledger.workers) or 1.0  # budget's unit for each unit of the model
        self._newest: tuple[Points, tuple[Floats, Floats]] | None = None  # a whole table is asked about several times
        if name == "transfer":
            self.model = unpack(transferred)
            return
        whole = _whole_trials(ledger)
        if whole and self.features.names:
            in_epochs, per_step = ledger.budget.unit == "epochs", ledger.step_price()
            costs = np.array([per_step * trial.steps if in_epochs else trial.seconds for trial in whole])
            features = self.features.of(table.stack([trial.number for trial in whole]))
            same = in_epochs and name == "auto"  # all cost the same: a line says so at once
            self._fit("lv3" if same else name, parameters, features, log_costs(costs))

    def _fit(self, name: str, parameters: Sequence[str], features: Floats, log_cost: Floats) -> None:
        name = choose_cost_model(name, log_cost.size, bool(parameters))
        if parameters:
            columns = _columns(self.features, parameters)
        else:
            columns = choose_columns(features, log_cost, 0 if name == "gp" else count_columns(name, log_cost.size))
        past = self.ledger.memo
        same = past.get("cost_columns") == [float(j) for j in columns]  # a memo fits only a model of the same columns
        start = {k.removeprefix("cost_"): v for k, v in past.items() if k.startswith("cost_log_")} if same else {}
        fit = _REFITS.check_due(past if start else {}, log_cost.size)
        self.model = fit_cost_model(name, features, log_cost, columns=columns, memo=start or None, refit=fit.is_due)
        if isinstance(self.model, GPCost):
            fitted = {f"cost_{key}": numbers for key, numbers in self.model.gp.memo().items()}
            self.memo = {"cost_columns": [float(j) for j in columns], **fitted, **fit.marks}

    def predict(self, points: Points) -> tuple[Floats, Floats]:
        """Mean and std of the log of the seconds (in an epoch budget: epochs) of a whole trial, (m,) each."""
        if self.model is None:
            return np.zeros(len(points)), np.zeros(len(points))
        if self._newest is None or self._newest[0] is not points:
            self._newest = points, self.model.predict(self.features.of(points))
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
                    return reaches(left, cost_quantile(*self.predict(points), probability), spread=left)

                if within(pool).any():
                    return within
        return lambda points: np.ones(len(points), dtype=bool)

    def add_bill(self, order: Train, points: Points, index: int) -> Train:
        """The order of a point with its expected cost and reserve, unless that is left to the core."""
        if self.model is None or self.ledger.budget.unit == "epochs":
            return order
        mean, std = self.predict(points.take([index]))
        expected, most = self.rate * float(np.exp(mean[0])), self.rate * float(cost_quantile(mean, std)[0])
        return replace(order, expected_cost=expected, reserve=most if most <= self.ledger.left else expected)


def transfer_costs(
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
        if whole := _whole_trials(ledger):
            table = ledger.view(ConfigsView())
            features = CostFeatures(table.encoding)
            seconds = np.array([trial.seconds for trial in whole])
            tasks.append((features.of(table.stack([trial.number for trial in whole])), log_costs(seconds)))
    if len(tasks) < len(studies) or not tasks:
        raise PolicyError(
            f"{len(tasks)} of {len(studies)} studies have a trial that was trained to its end: a cost model is transferred "
            "from such trials only. Leave the other studies out."
        )
    return pack(fit_transfer(tasks, _columns(features, parameters), task_meta=task_meta, meta=meta))


def _whole_trials(ledger: Ledger) -> list[Trial]:
    """Those that were trained to their end."""
    return [trial for trial in ledger.trials if trial.steps >= trial.limit and trial.steps > 0]


def _columns(features: CostFeatures, parameters: Sequence[str]) -> tuple[int, ...]:
    unknown = next((name for name in parameters if name not in features.names), None)
    if unknown is not None:
        rule = f"names {unknown!r}, which is not a parameter that varies. {did_you_mean(unknown, set(features.names))}"
        raise PolicyError(f"cost_features={list(parameters)!r} {rule}")
    return features.columns_of(parameters)
