"""The contract of a policy, as checks that its author can run.

    from shoestring.testing import LEARNING_CHECKS, POLICY_CHECKS

    @pytest.mark.parametrize("check", POLICY_CHECKS + LEARNING_CHECKS)
    def test_contract(check):
        check(MyPolicy())

`POLICY_CHECKS` are for every policy, `LEARNING_CHECKS` for policies whose choices depend on the values that training reports. A
failed check raises an AssertionError that says what is wrong. `check(policy, light=True)` runs smaller studies, for slow
policies.

The parts of this file are: studies in memory, the inspection of single decisions, the checks, settings for very small budgets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, is_dataclass
from itertools import pairwise
from typing import Any, cast, get_args

import numpy as np

from shoestring import policies
from shoestring.core.deciding.comparison import BestIs
from shoestring.core.deciding.decision import Decision, Train, Wait
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Amendment, Direction, Entry, Note, Receipt, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Config, Space
from shoestring.core.values.strict_json import dumps, loads
from shoestring.runners.simulated.simulated_runner import SimulatedRunner, Source
from shoestring.study.loop import Ending, run_in_memory
from shoestring.testing.curves import (
    DecayingCurves,
    DivergingCurves,
    EarlyEndingCurves,
    FailingCurves,
    NegatedCurves,
    NoisyCurves,
    ParallelCurves,
)

SPACE = Space({"lr": Float(1e-4, 1.0, log=True), "layers": Int(1, 4), "optimizer": Choice(["sgd", "adam"])})
LISTED = Space.from_configs([{"row": row} for row in range(7)])
FINITE = Space({"layers": Int(1, 3), "optimizer": Choice(["sgd", "adam"])})
ROUGH_CURVES: Source = EarlyEndingCurves(
    FailingCurves(DivergingCurves(NoisyCurves(DecayingCurves(setup_s=0.5), 0.2)), share=0.15)
)
_MAX_ENTRIES = 20_000  # studies in checks are far smaller; one with more entries will probably never end


# studies in memory ---------------------------------------------------------------------------------------------------


def make_definition(
    policy: Policy,
    *,
    space: Space = SPACE,
    budget: str = "60 epochs",
    max_steps: int = 9,
    workers: int = 1,
    direction: Direction = "min",
    seed: int = 0,
    prices: Prices | None = None,
) -> StudyDefinition:
    """Return the first ledger entry of a study.

    Parameters
    ----------
    policy
        The policy of the study; its name and settings go into the entry.
    space
        The search space. Default: a learning rate, a number of layers and an optimizer.
    budget
        The budget as users write it, such as "60 epochs", "40s" or "$0.05 at 3/h".
    max_steps
        Steps of a full training.
    workers
        Number of workers.
    direction
        "min" or "max".
    seed
        Seed of the study.
    prices
        The price of a validation pass in an epoch budget. Default: 0.

    Returns
    -------
    StudyDefinition
        The entry, to be passed to `simulate`.
    """
    return StudyDefinition(
        space=space,
        budget=Budget(budget),
        policy=policy.name,
        settings=policies.settings_of(policy),
        seed=seed,
        direction=direction,
        max_steps=max_steps,
        workers=workers,
        prices=prices or Prices(),
    )


def simulate(policy: Policy, source: Source, *entries: Entry) -> Ending:
    """Run a study in memory on a simulated clock.

    Parameters
    ----------
    policy
        The policy that decides.
    source
        Training curves: an object with `step(config, step)`, such as `DecayingCurves()`.
    *entries
        Ledger entries that the study begins with or continues from; the first one must come from
        `shoestring.testing.make_definition`.

    Returns
    -------
    Ending
        Why the study ended, with its `ledger`.

    Raises
    ------
    AssertionError
        If the study does not end.
    """

    def check_length(ledger: Ledger, entry: Entry | None) -> None:
        assert len(ledger) < _MAX_ENTRIES, f"the study of {policy.name} does not end"

    ledger = Ledger(entries)
    return run_in_memory(ledger, policy, SimulatedRunner(source, ledger.workers), observe=check_length)


def restore_policy(policy: Policy) -> Policy:
    """Return the policy that a resumed study would have, made from the settings in the ledger."""
    settings = loads(dumps(policies.settings_of(policy)))
    return type(policy)(**settings) if is_dataclass(policy) else copy(policy)


def fingerprint(ledger: Ledger) -> str:
    """Return as text everything in the ledger that a policy could change by mistake."""
    state = ledger.state
    return repr((len(ledger), state.trials, state.queue, state.used, state.steps, state.seconds, state.open_orders))


def list_orders(ledger: Ledger) -> list[tuple[int, str, int, str]]:
    return [(order.trial, dumps(order.config), order.until, dumps(order.memo)) for order in ledger.orders]


def summarise(ledger: Ledger) -> tuple[Any, ...]:
    """Return what must be equal in two runs of one study: the orders, the cost and the best trial."""
    best = ledger.best
    return list_orders(ledger), ledger.spent, None if best is None else (best.number, best.best_step, best.best_loss)


def list_cuts(ledger: Ledger) -> list[int]:
    """Return the numbers of entries after which a crash can interrupt the study.

    A crash cannot separate entries that are appended together: the receipts of steps that the budget limit interrupted.
    """
    interrupted = [isinstance(entry, Receipt) and entry.status == "interrupted" for entry in ledger.entries()]
    return [cut for cut in range(1, len(ledger)) if not (interrupted[cut - 1] and interrupted[cut])] + [len(ledger)]


# single decisions ----------------------------------------------------------------------------------------------------


def watch(policy: Policy, *, thorough: bool = True) -> Policy:
    """Wrap a policy so that every decision is inspected.

    Parameters
    ----------
    policy
        The policy to inspect.
    thorough
        Also compare the whole ledger before and after each decision, which is slow.

    Returns
    -------
    Policy
        A policy that makes the same decisions, and raises an AssertionError if one of them breaks the contract.
    """
    return cast(Policy, WatchedPolicy(policy, thorough))  # the loop uses only its name and its decisions


@dataclass(frozen=True)
class WatchedPolicy:
    """A policy whose decisions are inspected; see `watch`."""

    policy: Policy
    thorough: bool = True

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        before = fingerprint(ledger) if self.thorough else ""
        decision = self.policy.decide(ledger, rng)
        assert not self.thorough or fingerprint(ledger) == before, f"{self.name} changed the ledger"
        if isinstance(decision, Wait):
            assert ledger.open_orders, f"{self.name} waits, but no order is open"
        if isinstance(decision, Train):
            self._inspect(ledger, decision)
        return decision

    def _inspect(self, ledger: Ledger, order: Train) -> None:
        subject = f"{self.name} ordered {order!r}"
        if order.trial < len(ledger.trials):
            trial = ledger.trials[order.trial]
            assert trial.open_order is None, f"{subject}, but the trial is being trained"
            assert not trial.is_ended, f"{subject}, but the trial failed, diverged or is complete"
            assert trial.steps < order.until <= trial.limit, (
                f"{subject}, but the trial has {trial.steps} of {trial.limit} steps"
            )
        else:
            assert order.trial == len(ledger.trials), f"{subject}, but the next new trial is {len(ledger.trials)}"
            assert 1 <= order.until <= ledger.max_steps, f"{subject}, but a trial has {ledger.max_steps} steps at most"
            assert not ledger.queue or order.config == ledger.queue[0], f"{subject}, but a config of the user is queued"
        assert dict(ledger.space.validate(order.config)) == dict(order.config), f"{subject}, a config outside the space"
        check_why(ledger, order, subject)
        for name, numbers in order.memo.items():
            assert all(type(number) is float for number in numbers), (
                f"{subject}: memo[{name!r}] is not a list of floats"
            )
        dumps(order.why), dumps(order.memo)
        place_order(ledger, order)  # raises an error if the decision is not allowed


_COMPARISON = ("score_name", "best_is", "score")


def check_why(ledger: Ledger, order: Train, subject: str) -> None:
    """Check that `why` has the keys that `core/deciding/comparison.py` describes; each message begins with `subject`."""
    why = order.why
    for name, value in why.items():
        assert isinstance(value, str | int | float | bool | None), f"{subject}: why[{name!r}] is not a number or a word"
        assert not (isinstance(value, float) and math.isnan(value)), f"{subject}: why[{name!r}] is nan"
    compared = why.get("compared")
    assert type(compared) is int, (
        f"{subject}: why['compared'] must be the number of candidates that were compared, or 0"
    )
    assert compared >= 0, f"{subject}: why['compared'] is {compared}"
    present = [name for name in (*_COMPARISON, "runner_up", "runner_up_score") if name in why]
    if compared == 0:
        assert not present, f"{subject}: nothing was compared, but why has {present}"
        return
    assert all(name in why for name in _COMPARISON), f"{subject}: why must have {_COMPARISON}, but has {present}"
    assert why["best_is"] in get_args(BestIs), f"{subject}: best_is={why['best_is']!r} is not one of {get_args(BestIs)}"
    assert ("runner_up" in why) == ("runner_up_score" in why), (
        f"{subject}: runner_up and runner_up_score belong together"
    )
    if "runner_up" in why:
        assert compared > 1, f"{subject}: one candidate has no runner-up"
        _check_runner_up(ledger, order, subject)


def _check_runner_up(ledger: Ledger, order: Train, subject: str) -> None:
    why, name = order.why, order.why["runner_up"]
    if isinstance(name, int):
        assert name < len(ledger.trials), f"{subject}: there is no trial {name}, the runner-up"
        assert name != order.trial, f"{subject}: the runner-up is the trial that was ordered"
    elif isinstance(name, str) and name.startswith("{"):
        config = ledger.space.validate(loads(name))
        assert dict(config) != dict(order.config), f"{subject}: the runner-up is the config that was ordered"
    if why["best_is"] == "drawn" or "reason" in why:  # chance or a second condition decided too
        return
    scores = [float(str(why[name])) for name in ("score", "last_kept_score", "runner_up_score") if name in why]
    for better, worse in pairwise(scores if why["best_is"] == "highest" else [-score for score in scores]):
        # Scores count as equal if only their last digits differ; then the first one wins (`core/deciding/reproducible.py`).
        assert better >= worse or math.isclose(better, worse, rel_tol=1e-6, abs_tol=1e-9), (
            f"{subject}: the runner-up has a better score"
        )


# what every policy must do -------------------------------------------------------------------------------------------


def check_decisions_repeat(policy: Policy, light: bool = False) -> None:
    """The same ledger leads to the same decision, also by a policy that was restored from its settings."""
    ledger = simulate(
        policy, ROUGH_CURVES, make_definition(policy, budget="12 epochs" if light else "60 epochs")
    ).ledger
    for count in range(1, len(ledger) + 1, 5 if light else 4):
        first, again = ledger.fork(count), ledger.fork(count)
        decision = policy.decide(first, first.decision_rng())
        assert decision == policy.decide(first, first.decision_rng()), (
            f"{policy.name} decides differently a second time"
        )
        restored = restore_policy(policy)
        assert decision == restored.decide(again, again.decision_rng()), (
            f"{policy.name} decides differently after it was restored from its settings"
        )


def check_orders(policy: Policy, light: bool = False) -> None:
    """Every decision is allowed and every study ends, with several workers, rough curves, and budgets in every unit."""
    few = [
        ("1 epochs", 3, 9),
        ("6 epochs", 3, 1),
        ("12 epochs", 2, 4),
        ("10s", 2, 4),
        ("$0.01 at 3/h per machine", 2, 2),
    ]
    many = [("1 epochs", 3, 9), ("2 epochs", 1, 2), ("20 epochs", 3, 1), ("60 epochs", 1, 9), ("60 epochs", 5, 9)]
    many += [("40s", 1, 9), ("20s", 3, 1), ("$0.05 at 3/h", 2, 9), ("$0.05 at 3/h per machine", 3, 2)]
    for budget, workers, max_steps in few if light else many:
        start = make_definition(policy, budget=budget, workers=workers, max_steps=max_steps)
        ledger = simulate(watch(policy), ROUGH_CURVES, start).ledger
        assert not ledger.open_orders
        assert ledger.spent <= ledger.budget.total * (1 + 1e-9), f"{policy.name} spent {ledger.spent} of {budget}"


def check_priced_validation(policy: Policy, light: bool = False) -> None:
    """A study does not exceed its budget if validation passes have a price."""
    prices = Prices(validate_epochs=0.25)
    start = make_definition(policy, budget="10 epochs" if light else "50 epochs", prices=prices, workers=2)
    ledger = simulate(watch(policy), ROUGH_CURVES, start).ledger
    assert ledger.spent <= ledger.budget.total


def check_restart(policy: Policy, light: bool = False) -> None:
    """A study that is interrupted and continued equals the study without the interruption."""
    for budget, workers in (("10 epochs", 2),) if light else (("40 epochs", 1), ("40 epochs", 3), ("60s", 2)):
        whole = simulate(policy, ROUGH_CURVES, make_definition(policy, budget=budget, workers=workers)).ledger
        for cut in list_cuts(whole)[:: 7 if light else 5]:
            resumed = simulate(policy, ROUGH_CURVES, *whole.entries()[:cut]).ledger
            assert summarise(resumed) == summarise(whole), (
                f"{policy.name} cut after {cut} entries continues differently"
            )


def check_finite_spaces(policy: Policy, light: bool = False) -> None:
    """The policy ends the study when every config of a finite space is trained."""
    for space in (LISTED, FINITE):
        for workers in (3,) if light else (1, 3):
            steps = 2 if light else 5
            start = make_definition(policy, space=space, budget="500 epochs", max_steps=steps, workers=workers)
            outcome = simulate(watch(policy), DecayingCurves(), start)
            assert outcome.reason == "policy", (
                f"{policy.name} ends with {outcome.reason!r} after all configs of a finite space"
            )


def check_queue(policy: Policy, light: bool = False) -> None:
    """Configs that the user queued come first, at the beginning and later."""
    mine: list[Config] = [
        {"lr": 0.5, "layers": 2, "optimizer": "adam"},
        {"lr": 0.25, "layers": 1, "optimizer": "sgd"},
    ]
    queue = [Note(topic="enqueue", facts={"config": config}) for config in mine]
    ledger = simulate(watch(policy), DecayingCurves(), make_definition(policy), *queue).ledger
    # Orders and not trials are compared, because a policy that tunes while training tries several configs in one trial.
    tried = list({dumps(order.config): dict(order.config) for order in ledger.orders}.values())
    assert tried[:2] == mine, f"{policy.name} did not begin with the queued configs"
    half = ledger.entries()[: len(ledger) // 2]
    late: Config = {"lr": 0.125, "layers": 3, "optimizer": "sgd"}
    continued = simulate(policy, DecayingCurves(), *half, Note(topic="enqueue", facts={"config": late})).ledger
    assert any(order.config == late for order in continued.orders), f"{policy.name} never tried a config queued later"


def check_directions(policy: Policy, light: bool = False) -> None:
    """Maximising the negated values gives the same study as minimising."""
    budget = "12 epochs" if light else "60 epochs"
    up = simulate(policy, NegatedCurves(ROUGH_CURVES), make_definition(policy, budget=budget, direction="max")).ledger
    down = simulate(policy, ROUGH_CURVES, make_definition(policy, budget=budget)).ledger
    assert summarise(up) == summarise(down)


def check_raised_budget(policy: Policy, light: bool = False) -> None:
    """A finished study continues when its budget is raised."""
    many = (("7 epochs", "60 epochs"), ("60 epochs", "61 epochs"), ("10s", "60s"))
    for first, second in (("5 epochs", "12 epochs"),) if light else many:
        spent = simulate(policy, DecayingCurves(), make_definition(policy, budget=first)).ledger
        more = Amendment(budget=Budget(second))
        outcome = simulate(watch(policy), DecayingCurves(), *spent.entries(), more)
        if outcome.reason == "budget" and outcome.ledger.budget.unit == "epochs":
            assert outcome.ledger.spent == outcome.ledger.budget.total


def check_takeover(policy: Policy, light: bool = False) -> None:
    """The policy continues a study that another policy began, also with open orders."""
    other = policies.make("random_search")
    start = make_definition(other, budget="12 epochs" if light else "40 epochs", workers=2)
    begun = simulate(other, ROUGH_CURVES, start).ledger
    for cut in range(3, len(begun), 8):
        change = Amendment(policy=policy.name, settings=policies.settings_of(policy))
        simulate(watch(policy), ROUGH_CURVES, *begun.entries()[:cut], change)


def check_settings(policy: Policy, light: bool = False) -> None:
    """Every setting is the same after it was stored in the ledger and read back."""
    settings = dumps(policies.settings_of(policy))
    assert dumps(policies.settings_of(restore_policy(policy))) == settings, (
        f"{policy.name} loses settings in the ledger"
    )


# what policies that learn must do ------------------------------------------------------------------------------------


def check_results_matter(policy: Policy, light: bool = False) -> None:
    """Curves with the opposite sign lead to different orders."""
    start = make_definition(policy, budget="40 epochs" if light else "120 epochs", max_steps=9)
    assert list_orders(simulate(policy, DecayingCurves(), start).ledger) != list_orders(
        simulate(policy, NegatedCurves(DecayingCurves()), start).ledger
    ), f"{policy.name} decides the same whatever training reports"


def check_best_trained_longest(policy: Policy, light: bool = False) -> None:
    """On curves that never cross, the trial with the best first loss is trained at least as far as the median one."""
    start = make_definition(policy, budget="40 epochs" if light else "120 epochs")
    ledger = simulate(policy, ParallelCurves(DecayingCurves()), start).ledger
    last = ledger.orders[-1].trial  # the budget limit may have cut it short
    steps = {trial.number: trial.steps for trial in ledger.trials if trial.losses and trial.number != last}
    if not steps:  # a single run that changes its config cannot be compared with others
        return
    best = min(steps, key=lambda number: ledger.trials[number].best_loss + 0.001 * ledger.trials[number].best_step)
    assert steps[best] >= np.median(list(steps.values()))


def check_runner_up(policy: Policy, light: bool = False) -> None:
    """At least one order names a runner-up and its score."""
    start = make_definition(policy, budget="40 epochs" if light else "120 epochs")
    ledger = simulate(watch(policy), DecayingCurves(), start).ledger
    assert any("runner_up" in order.why for order in ledger.orders), f"{policy.name} never names a runner-up in `why`"


Check = Callable[..., None]  # (policy, light=False)
POLICY_CHECKS: tuple[Check, ...] = (
    check_decisions_repeat,
    check_orders,
    check_priced_validation,
    check_restart,
    check_finite_spaces,
    check_queue,
    check_directions,
    check_raised_budget,
    check_takeover,
    check_settings,
)
LEARNING_CHECKS: tuple[Check, ...] = (check_results_matter, check_best_trained_longest, check_runner_up)


# settings for very small budgets -------------------------------------------------------------------------------------


# Roughly the fitted parameters of standardised losses in real tables, so that no fit is needed.
_CURVE_PARAMETERS = (1.0, 5.0, 1.0, 0.01, 1.0, 0.0)
_SMALL: dict[str, dict[str, Any]] = {
    "asha": {"reduction_factor": 2},
    "bhpt": {"arms": 6, "samples": 1},
    "bo_bos": {"initial_trials": 2, "candidates": 40, "n0": 3, "paths": 2000, "cells": 20},
    "boca": {"initial_trials": 2, "candidates": 40},
    "boil": {"initial_trials": 2, "candidates": 40, "max_points": 4},
    "ce_gp_ucb": {"n_starts": 4},
    "cost_aware_ei": {"initial_trials": 2, "candidates": 40},
    "epsilon_greedy": {"most_arms": 4},
    "exp3s": {"most_arms": 8, "mixing": 0.5},
    "fabolas_epochs": {"arms": 6},
    "freeze_thaw_bo": {"arms": 6, "parameters": _CURVE_PARAMETERS, "old": 3, "new": 2},
    "gp_ucb": {"initial_trials": 2, "candidates": 40},
    "gp_ucb_bandit": {"n_starts": 4},
    "grid": {"levels": 2},
    "hyperband": {"reduction_factor": 2},
    "lc_prediction": {"initial_trials": 2, "candidates": 40, "n0": 3, "forecast": "process"},
    "r_gp_ucb": {"n_starts": 4},
    "replay_fixed": {"orders": ((0, None, 1), (1, None, 2), (0, None, 3), (2, None, 1), (1, None, 3))},
    "rollout": {"arms": 6, "parameters": _CURVE_PARAMETERS, "horizon": 1},
    "sequential_halving": {"arms_per_curve": 4.0},
    "softmax": {"most_arms": 4},
    "successive_halving": {"reduction_factor": 2, "arms": 4},
    "tv_gp_ucb": {"n_starts": 4},
    "ucb1": {"most_arms": 4},
}


def make_small_policy(name: str) -> Policy:
    """Return the registered policy of this name, with settings for very small budgets, or its defaults if none are listed."""
    return policies.make(name, _SMALL.get(name))
