"""A sampler for Optuna that weighs what a trial costs: cost-aware expected improvement inside `study.optimize`.

    study = optuna.create_study(sampler=CostAwareSampler(budget="2h"))
    study.optimize(objective, n_trials=10_000)

A trial costs the time it takes, or what its user attribute `cost` says (`trial.set_user_attr("cost", 3.5)`, in seconds). When
the budget is spent the study is stopped. It cannot be held here: Optuna starts trials by itself and lets those under way finish.
Of 300 s, with trials of 10 to 100 s, one job spent up to 388 and four jobs up to 465. `shoestring.tune` holds it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from shoestring import policies
from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, Opened, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Space
from shoestring.errors import BudgetError
from shoestring.integrations.optional import need
from shoestring.integrations.optuna.spaces import Axis

_optuna = need("CostAwareSampler", "optuna", "optuna")
_State = _optuna.trial.TrialState
_logger = _optuna.logging.get_logger("optuna.shoestring")  # goes by Optuna's verbosity


class CostAwareSampler(_optuna.samplers.BaseSampler):  # type: ignore[misc, name-defined]
    """See the module. `policy` is any of shoestring's that trains configs in one piece."""

    def __init__(self, budget: str, *, seed: int | None = None, policy: str = "cost_aware_ei") -> None:
        self._budget = Budget(budget)
        if self._budget.unit == "epochs":
            raise BudgetError(
                f"CostAwareSampler(budget={budget!r}) must be time or money, as '2h': trials have no epochs"
            )
        self._policy = policies.make(policy)
        self._random = _optuna.samplers.RandomSampler(seed)
        self._seed = self._draw_seed() if seed is None else seed
        self._common = _optuna.search_space.IntersectionSearchSpace(include_pruned=True)
        _logger.warning(
            "Inside Optuna a budget is a wish: trials under way when it is spent go on. shoestring.tune holds it."
        )

    def reseed_rng(self) -> None:
        self._random.reseed_rng()
        self._seed = self._draw_seed()

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        common = self._common.calculate(study)
        return {name: told for name, told in common.items() if not told.single()}

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        """Parameters that no earlier trial had."""
        self._raise_error_if_multi_objective(study)
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def sample_relative(self, study: Any, trial: Any, search_space: dict[str, Any]) -> dict[str, Any]:
        self._raise_error_if_multi_objective(study)
        if not search_space:
            return {}
        axes = {name: Axis(told) for name, told in search_space.items()}
        others = [one for one in study.get_trials(deepcopy=False) if one.number != trial.number]
        ledger = self._ledger(axes, others, "min" if study.direction.name == "MINIMIZE" else "max")
        decision = self._policy.decide(ledger, ledger.decision_rng())
        if not isinstance(decision, Train):  # the space is used up, or the budget
            return {}
        return {name: axis.outwards(decision.config[name]) for name, axis in axes.items()}

    def after_trial(self, study: Any, trial: Any, state: Any, values: Sequence[float] | None) -> None:
        """Stop where the budget is spent; trials under way in other threads and processes go on."""
        done = study.get_trials(deepcopy=False, states=(_State.COMPLETE, _State.PRUNED, _State.FAIL))
        spent_s = sum(_cost_s(one) for one in done if one.number != trial.number) + _cost_s(trial)
        if spent_s * self._budget.per_second(1) >= self._budget.total:
            with contextlib.suppress(RuntimeError):  # asked and told by hand: there is no loop to stop
                study.stop()

    def _ledger(self, axes: Mapping[str, Axis], trials: Sequence[Any], direction: Any) -> Ledger:
        """Their trials as orders and receipts; those under way are open orders."""
        opened = Opened(
            space=Space({name: axis.parameter for name, axis in axes.items()}),
            budget=self._budget,
            policy=self._policy.name,
            settings=policies.settings_of(self._policy),
            seed=self._seed,
            direction=direction,
        )
        ledger, clock = Ledger([opened]), 0.0
        for one in trials:
            if not _is_on(one, axes):
                continue
            number = len(ledger.orders)
            config = opened.space.validate({name: axis.inwards(one.params[name]) for name, axis in axes.items()})
            ledger = ledger.append(Order(number=number, trial=number, config=config, until=1, at=clock))
            if one.state.is_finished():
                cost = _cost_s(one)
                clock += cost
                ledger = ledger.append(_receipt(number, _value(one), Cost(train=cost), clock))
        return ledger

    def _draw_seed(self) -> int:
        return int(self._random._rng.rng.randint(2**31 - 1))


def _is_on(trial: Any, axes: Mapping[str, Axis]) -> bool:
    """Whether a trial has all these parameters, within their present ranges."""
    has_all = all(name in trial.params for name in axes)
    return has_all and all(
        axis.distribution._contains(axis.distribution.to_internal_repr(trial.params[name]))
        for name, axis in axes.items()
    )


def _receipt(number: int, value: float | None, cost: Cost, at: float) -> Receipt:
    if value is None:
        return Receipt(order=number, trial=number, step=1, cost=cost, status="failed", text="failed", at=at)
    return Receipt(order=number, trial=number, step=1, value=value, cost=cost, saved=1, at=at)


def _value(trial: Any) -> float | None:
    """What a trial came to: its value, or the last one that a pruned trial reported."""
    if trial.state == _State.PRUNED and trial.intermediate_values:
        last = trial.intermediate_values[max(trial.intermediate_values)]
        return float(last) if last == last else None
    return float(trial.value) if trial.state == _State.COMPLETE and trial.value is not None else None


def _cost_s(trial: Any) -> float:
    """In seconds: what the trial says, else how long it took."""
    told = trial.user_attrs.get("cost")
    if told is not None:
        return float(told)
    return float(trial.duration.total_seconds()) if trial.duration is not None else 0.0
