"""The predicted cost of a whole trial, the expected cost and reserve of an order, and which trials are affordable.

The models of `models.cost_aware.cost_models` are fitted to the trials that were trained to their end. Until there is one, all
configurations cost the same. If earlier studies know prices (`like`), they predict the costs from the first trial on, and the
model is fitted to what they leave unexplained. The models work in seconds, and only the cost of an order is in the budget's
unit, so a rate in dollars changes no choice, not even by rounding. In an epoch budget every whole trial costs its steps, and all
costs are equal.

`fit_earlier_costs` fits a model to earlier studies, for `CostAwareEI(cost_model="transfer", transferred=...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from shoestring.core.values.arrays import Flags, Floats
from shoestring.errors import PolicyError, did_you_mean
from shoestring.models.cost_aware.cost_features import CostFeatures
from shoestring.models.cost_aware.cost_models import (
    GPCost,
    choose_cost_model,
    cost_quantile,
    count_columns,
    fit_cost_model,
    log_costs,
)
from shoestring.models.cost_aware.linear import PRIOR_STD, LinearCost, choose_columns, fit_transfer, pack, unpack
from shoestring.policies.config_table import ConfigsView, ConfigTable
from shoestring.policies.earlier_studies import EARLIER_STUDIES, EarlierExpectation
from shoestring.policy import Ledger, Memo, Points, Refits, Train, Trial, reaches

_REFITS = Refits(dense_until=30, every=5, key="cost_fitted_at")  # of a Gaussian process; by trials trained to their end


class TrialCosts:
    """The cost model of one decision; `model` is None until a trial was trained to its end."""

    def __init__(
        self,
        ledger: Ledger,
        table: ConfigTable,
        name: str,
        parameters: Sequence[str],
        transferred: Memo,
        *,
        at_once: bool = False,
    ) -> None:
        self._at_once = at_once  # a linear model uses all its features from the first trial on
        self.ledger, self.features = ledger, CostFeatures(table.encoding)
        self.model: LinearCost | GPCost | None = None  # of what earlier studies leave unexplained, if they know prices
        self.memo: dict[str, list[float]] = {}  # the parameters from which the next fit may start
        self.rate = ledger.budget.per_second(ledger.workers) or 1.0  # budget units per unit of the model
        # the last prediction: the same points are predicted several times
        self._newest: tuple[Points, tuple[Floats, Floats]] | None = None
        self._columns = table.encoding.features
        self._expected: EarlierExpectation | None = None  # log seconds of a step, by earlier studies
        if transferred:
            self.model = unpack(transferred)
            return
        whole, in_epochs = _whole_trials(ledger), ledger.budget.unit == "epochs"
        points = table.stack([trial.number for trial in whole]) if whole else table.encoding.points([])
        costs = np.array([ledger.step_price() * trial.steps if in_epochs else trial.seconds for trial in whole])
        log_cost, earlier = log_costs(costs), ledger.view(EARLIER_STUDIES)
        if earlier and not in_epochs:
            self._expected = earlier.expect_log_price(self._columns(points), log_cost)
        if name == "transfer":
            if self._expected is None:
                raise PolicyError(
                    "cost_aware_ei(cost_model='transfer') has no earlier study that knows the seconds of its steps: begin the "
                    "study with --like (like=…), or give `transferred`."
                )
        elif whole and self.features.names:
            is_constant = in_epochs and name == "auto"  # then a linear model is exact from the first trial on
            model = "lv3" if is_constant else name
            self._fit(model, parameters, self.features.of(points), log_cost - self._expect(points))

    @property
    def is_known(self) -> bool:
        """Whether there is anything to predict costs from."""
        return self.model is not None or self._expected is not None

    def _expect(self, points: Points) -> Floats:
        """Return the log seconds of a whole trial that earlier studies let us expect, (m,); 0 if they say nothing."""
        if self._expected is None:
            return np.zeros(len(points))
        return self._expected.mean(self._columns(points)) + float(np.log(self.ledger.max_steps))

    def _fit(self, name: str, parameters: Sequence[str], features: Floats, log_cost: Floats) -> None:
        name = choose_cost_model(name, log_cost.size, bool(parameters))
        if parameters:
            columns = _columns(self.features, parameters)
        else:
            most = 0 if name == "gp" else count_columns(name, log_cost.size, at_once=self._at_once)
            columns = choose_columns(features, log_cost, most)
        past = self.ledger.memo
        # a memo belongs to a model of the same columns
        is_usable = past.get("cost_columns") == [float(j) for j in columns]
        start = {k.removeprefix("cost_"): v for k, v in past.items() if k.startswith("cost_log_")} if is_usable else {}
        fit = _REFITS.check_fit(past if start else {}, log_cost.size)
        self.model = fit_cost_model(
            name, features, log_cost, columns=columns, memo=start or None, refit=fit.is_due, at_once=self._at_once
        )
        if isinstance(self.model, GPCost):
            fitted = {f"cost_{key}": numbers for key, numbers in self.model.gp.memo().items()}
            self.memo = {"cost_columns": [float(j) for j in columns], **fitted, **fit.marks}

    def predict(self, points: Points) -> tuple[Floats, Floats]:
        """Return mean and std of the log of the seconds (in an epoch budget: epochs) of a whole trial, (m,) each."""
        if not self.is_known:
            return np.zeros(len(points)), np.zeros(len(points))
        if self._newest is None or self._newest[0] is not points:
            expected = self._expect(points)
            if self.model is None:
                self._newest = points, (expected, np.full(len(points), PRIOR_STD))
            else:
                mean, std = self.model.predict(self.features.of(points))
                self._newest = points, (expected + mean, std)
        return self._newest[1]

    def make_affordable_test(self, pool: Points) -> Callable[[Points], Flags]:
        """Return a function that tests whether the cost of points is within the remaining budget with 90 % probability.

        If no point of the pool passes, the function tests whether the expected cost is within the budget. If none passes this
        either, all points pass, and the core shortens or refuses the order, as in an epoch budget.
        """
        left = self.ledger.left / self.rate
        if self.is_known and self.ledger.budget.unit != "epochs":
            for probability in (0.9, 0.5):  # the median is the expected cost

                def within(points: Points, probability: float = probability) -> Flags:
                    return reaches(left, cost_quantile(*self.predict(points), probability), spread=left)

                if within(pool).any():
                    return within
        return lambda points: np.ones(len(points), dtype=bool)

    def add_expected_cost(self, order: Train, points: Points, index: int) -> Train:
        """Return the order of a point with its expected cost and reserve; without them where the core knows them."""
        if not self.is_known or self.ledger.budget.unit == "epochs":
            return order
        mean, std = self.predict(points.take([index]))
        expected, most = self.rate * float(np.exp(mean[0])), self.rate * float(cost_quantile(mean, std)[0])
        return replace(order, expected_cost=expected, reserve=most if most <= self.ledger.left else expected)


def fit_earlier_costs(
    studies: Sequence[Ledger],
    parameters: Sequence[str],
    task_meta: Sequence[Sequence[float]] | None,
    meta: Sequence[float],
) -> dict[str, list[float]]:
    """Return a linear model of the log seconds of whole trials in earlier studies; see `shoestring.transfer_costs`."""
    tasks = []
    for ledger in studies:
        if not ledger.space.has_same_configs(studies[0].space):
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
    """Return the trials that were trained to their end."""
    return [trial for trial in ledger.trials if trial.steps >= trial.limit and trial.steps > 0]


def _columns(features: CostFeatures, parameters: Sequence[str]) -> tuple[int, ...]:
    unknown = next((name for name in parameters if name not in features.names), None)
    if unknown is not None:
        rule = f"names {unknown!r}, which is not a parameter that varies. {did_you_mean(unknown, set(features.names))}"
        raise PolicyError(f"cost_features={list(parameters)!r} {rule}")
    return features.columns_of(parameters)
