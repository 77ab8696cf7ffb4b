"""A sampler for Optuna that takes the cost of trials into account: cost-aware expected improvement in `study.optimize`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from shoestring import policies
from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, Order, Receipt, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Space
from shoestring.errors import BudgetError
from shoestring.integrations.optional import import_optional
from shoestring.integrations.optuna.spaces import Axis

_optuna = import_optional("CostAwareSampler", "optuna", "optuna")
_State = _optuna.trial.TrialState
_logger = _optuna.logging.get_logger("optuna.shoestring")  # follows Optuna's verbosity


class CostAwareSampler(_optuna.samplers.BaseSampler):  # type: ignore[misc, name-defined]
    """An Optuna sampler that prefers cheap trials and stops the study when its budget is spent.

    A trial costs the time it takes, or the seconds in its user attribute `cost`: `trial.set_user_attr("cost", 3.5)`. Inside
    Optuna the budget cannot be a hard limit, because Optuna starts trials itself and lets running trials finish. With a budget
    of 300 s and trials of 10 to 100 s, one job spent up to 388 s and four jobs up to 465 s. In `shoestring.tune` the limit is
    hard.

    Parameters
    ----------
    budget : str
        Time or money, such as "2h" or "$20 at 2.50/h".
    seed : int, optional
        The seed of the sampler; drawn if it is not given.
    policy : str, default "cost_aware_ei"
        A policy that trains a configuration in one step.

    Raises
    ------
    BudgetError
        If the budget is given in epochs.

    Examples
    --------
    An Optuna study with a budget of two hours:

        study = optuna.create_study(sampler=CostAwareSampler(budget="2h"))
        study.optimize(objective, n_trials=10_000)
    """

    def __init__(self, budget: str, *, seed: int | None = None, policy: str = "cost_aware_ei") -> None:
        self._budget = Budget(budget)
        if self._budget.unit == "epochs":
            raise BudgetError(
                f"CostAwareSampler(budget={budget!r}) must be time or money, such as '2h': trials have no epochs"
            )
        self._policy = policies.make(policy)
        self._random = _optuna.samplers.RandomSampler(seed)
        self._seed = self._draw_seed() if seed is None else seed
        self._common = _optuna.search_space.IntersectionSearchSpace(include_pruned=True)
        _logger.warning(
            "In Optuna the budget is not a hard limit: trials that run when it is spent continue. shoestring.tune keeps it."
        )

    def reseed_rng(self) -> None:
        """Draw a new seed; Optuna calls this in each of its parallel jobs."""
        self._random.reseed_rng()
        self._seed = self._draw_seed()

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        """Return the parameters that all trials so far have in common; Optuna calls this before each trial."""
        common = self._common.calculate(study)
        return {name: distribution for name, distribution in common.items() if not distribution.single()}

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        """Draw at random a parameter that not all earlier trials have; Optuna calls this."""
        self._raise_error_if_multi_objective(study)
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def sample_relative(self, study: Any, trial: Any, search_space: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters that the policy chooses; Optuna calls this before each trial."""
        self._raise_error_if_multi_objective(study)
        if not search_space:
            return {}
        axes = {name: Axis(distribution) for name, distribution in search_space.items()}
        others = [one for one in study.get_trials(deepcopy=False) if one.number != trial.number]
        ledger = self._ledger(axes, others, "min" if study.direction.name == "MINIMIZE" else "max")
        decision = self._policy.decide(ledger, ledger.decision_rng())
        if not isinstance(decision, Train):  # the space or the budget is exhausted
            return {}
        return {name: axis.to_optuna_value(decision.config[name]) for name, axis in axes.items()}

    def after_trial(self, study: Any, trial: Any, state: Any, values: Sequence[float] | None) -> None:
        """Stop the study when the budget is spent; Optuna calls this after each trial. Running trials continue."""
        finished = study.get_trials(deepcopy=False, states=(_State.COMPLETE, _State.PRUNED, _State.FAIL))
        spent_s = sum(_cost_s(one) for one in finished if one.number != trial.number) + _cost_s(trial)
        if spent_s * self._budget.per_second(1) >= self._budget.total:
            with contextlib.suppress(RuntimeError):  # the user calls ask and tell, so there is no loop to stop
                study.stop()

    def _ledger(self, axes: Mapping[str, Axis], trials: Sequence[Any], direction: Any) -> Ledger:
        """Return a ledger with the trials as orders and receipts; a running trial is an open order."""
        definition = StudyDefinition(
            space=Space({name: axis.parameter for name, axis in axes.items()}),
            budget=self._budget,
            policy=self._policy.name,
            settings=policies.settings_of(self._policy),
            seed=self._seed,
            direction=direction,
        )
        ledger, clock = Ledger([definition]), 0.0
        for one in trials:
            if not _has_all(one, axes):
                continue
            number = len(ledger.orders)
            config = definition.space.validate(
                {name: axis.from_optuna_value(one.params[name]) for name, axis in axes.items()}
            )
            ledger = ledger.append(Order(number=number, trial=number, config=config, until=1, at=clock))
            if one.state.is_finished():
                cost = _cost_s(one)
                clock += cost
                ledger = ledger.append(_receipt(number, _value(one), Cost(train=cost), clock))
        return ledger

    def _draw_seed(self) -> int:
        return int(self._random._rng.rng.randint(2**31 - 1))


def _has_all(trial: Any, axes: Mapping[str, Axis]) -> bool:
    """Return whether a trial has all these parameters, within their present ranges."""
    are_all_there = all(name in trial.params for name in axes)
    return are_all_there and all(
        axis.distribution._contains(axis.distribution.to_internal_repr(trial.params[name]))
        for name, axis in axes.items()
    )


def _receipt(number: int, value: float | None, cost: Cost, at: float) -> Receipt:
    if value is None:
        return Receipt(order=number, trial=number, step=1, cost=cost, status="failed", text="failed", at=at)
    return Receipt(order=number, trial=number, step=1, value=value, cost=cost, saved_step=1, at=at)


def _value(trial: Any) -> float | None:
    """Return the value of a trial, or the last one that a pruned trial reported."""
    if trial.state == _State.PRUNED and trial.intermediate_values:
        last = trial.intermediate_values[max(trial.intermediate_values)]
        return float(last) if last == last else None
    return float(trial.value) if trial.state == _State.COMPLETE and trial.value is not None else None


def _cost_s(trial: Any) -> float:
    """Return the seconds that the trial reports, else how long it took."""
    cost = trial.user_attrs.get("cost")
    if cost is not None:
        return float(cost)
    return float(trial.duration.total_seconds()) if trial.duration is not None else 0.0
