"""The contract of a policy, as checks that its author can run.

    from shoestring.testing.policies import CHECKS, LEARNING_CHECKS

    @pytest.mark.parametrize("check", CHECKS + LEARNING_CHECKS)
    def test_contract(check):
        check(MyPolicy())

`CHECKS` hold for every policy, `LEARNING_CHECKS` for those that choose by the values they are told. A check says what is
wrong in an AssertionError; `check(policy, light=True)` asks the same of smaller studies, for policies that think long.
`simulate` runs a study on made-up curves in memory; `watch` wraps a policy and inspects every decision it makes.

What an order tells about its comparison, inspected: the words of `core/deciding/comparison.py` are there and fit together.

Settings that suit tiny budgets, for checks that run a policy hundreds of times; the policies' own where nothing is listed.
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
from shoestring.core.ledger.entries import Amended, Direction, Entry, Note, Opened, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Config, Space
from shoestring.core.values.strict_json import dumps, loads
from shoestring.runners.simulated.simulated_runner import Simulated, Source
from shoestring.study.loop import Ending, run_in_memory
from shoestring.testing.curves import Decaying, Diverging, EndingEarly, Failing, Negated, Noisy, Parallel

SPACE = Space({"lr": Float(1e-4, 1.0, log=True), "layers": Int(1, 4), "optimizer": Choice(["sgd", "adam"])})
LISTED = Space.listed([{"row": row} for row in range(7)])
FINITE = Space({"layers": Int(1, 3), "optimizer": Choice(["sgd", "adam"])})
ROUGH: Source = EndingEarly(Failing(Diverging(Noisy(Decaying(setup_s=0.5), 0.2)), share=0.15))
_MOST_ENTRIES = 20_000  # a study in a check is far smaller: beyond, it would never end


def opened(
    policy: Policy,
    *,
    space: Space = SPACE,
    budget: str = "60 epochs",
    max_steps: int = 9,
    workers: int = 1,
    direction: Direction = "min",
    seed: int = 0,
    prices: Prices | None = None,
) -> Opened:
    return Opened(
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
    """Run the study that begins with these entries (or goes on from them) in memory, on a simulated clock."""

    def comes_to_an_end(ledger: Ledger, entry: Entry | None) -> None:
        assert len(ledger) < _MOST_ENTRIES, f"{policy.name} goes on for ever"

    ledger = Ledger(entries)
    return run_in_memory(ledger, policy, Simulated(source, ledger.workers), observe=comes_to_an_end)


@dataclass(frozen=True)
class Watched:
    """The policy itself, with every decision inspected."""

    policy: Policy
    thorough: bool = True  # compares the whole ledger before and after, which takes its time

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
        ordered = f"{self.name} ordered {order!r}"
        if order.trial < len(ledger.trials):
            trial = ledger.trials[order.trial]
            assert trial.open_order is None, f"{ordered}, which is being trained"
            assert not trial.is_stuck, f"{ordered}, which failed, diverged or is at its end"
            assert trial.steps < order.until <= trial.limit, (
                f"{ordered}, which has {trial.steps} of {trial.limit} steps"
            )
        else:
            assert order.trial == len(ledger.trials), f"{ordered}, but the next new trial is {len(ledger.trials)}"
            assert 1 <= order.until <= ledger.max_steps, f"{ordered}, beyond {ledger.max_steps} steps"
            assert not ledger.queue or order.config == ledger.queue[0], f"{ordered}, but a config of the user is queued"
        assert dict(ledger.space.validate(order.config)) == dict(order.config), f"{ordered}, a config outside the space"
        inspect_why(ledger, order, ordered)
        for name, numbers in order.memo.items():
            assert all(type(number) is float for number in numbers), (
                f"{ordered}: memo[{name!r}] is not a list of floats"
            )
        dumps(order.why), dumps(order.memo)
        ledger.accept(order)  # refuses what no ledger could take


def make_anew(policy: Policy) -> Policy:
    """The policy that a resumed study would have: made from the settings that the ledger keeps."""
    settings = loads(dumps(policies.settings_of(policy)))
    return type(policy)(**settings) if is_dataclass(policy) else copy(policy)


def watch(policy: Policy, *, thorough: bool = True) -> Policy:
    return cast(Policy, Watched(policy, thorough))  # the loop asks it for its name and for decisions only


def fingerprint(ledger: Ledger) -> str:
    """Everything that a policy could have changed, as text."""
    books = ledger.books
    return repr((len(ledger), books.trials, books.queue, books.used, books.steps, books.seconds, books.open_orders))


def orders_of(ledger: Ledger) -> list[tuple[int, str, int, str]]:
    return [(order.trial, dumps(order.config), order.until, dumps(order.memo)) for order in ledger.orders]


def summarise(ledger: Ledger) -> tuple[Any, ...]:
    """What two runs of one study must agree on: orders, spend, best."""
    best = ledger.best
    return orders_of(ledger), ledger.spent, None if best is None else (best.number, best.best_step, best.best_loss)


def seams(ledger: Ledger) -> list[int]:
    """Where a study can be cut: a crash never parts what was appended together, the steps interrupted at the wall."""
    interrupted = [isinstance(entry, Receipt) and entry.status == "interrupted" for entry in ledger.entries()]
    return [cut for cut in range(1, len(ledger)) if not (interrupted[cut - 1] and interrupted[cut])] + [len(ledger)]


# what every policy must do -------------------------------------------------------------------------------------------


def same_ledger_same_decision(policy: Policy, light: bool = False) -> None:
    ledger = simulate(policy, ROUGH, opened(policy, budget="12 epochs" if light else "60 epochs")).ledger
    for count in range(1, len(ledger) + 1, 5 if light else 4):
        first, again = ledger.fork(count), ledger.fork(count)
        decision = policy.decide(first, first.decision_rng())
        assert decision == policy.decide(first, first.decision_rng()), f"{policy.name} asked twice decides differently"
        twin = make_anew(policy)
        assert decision == twin.decide(again, again.decision_rng()), f"{policy.name} made anew decides differently"


def keeps_to_the_rules(policy: Policy, light: bool = False) -> None:
    """Every decision allowed, with several workers, on rough curves, in every unit of money; the end is reached."""
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
        start = opened(policy, budget=budget, workers=workers, max_steps=max_steps)
        ledger = simulate(watch(policy), ROUGH, start).ledger
        assert not ledger.open_orders
        assert ledger.spent <= ledger.budget.total * (1 + 1e-9), f"{policy.name} spent {ledger.spent} of {budget}"


def priced_validation(policy: Policy, light: bool = False) -> None:
    start = opened(policy, budget="10 epochs" if light else "50 epochs", prices=Prices(validate_epochs=0.25), workers=2)
    ledger = simulate(watch(policy), ROUGH, start).ledger
    assert ledger.spent <= ledger.budget.total


def two_halves_equal_the_whole(policy: Policy, light: bool = False) -> None:
    for budget, workers in (("10 epochs", 2),) if light else (("40 epochs", 1), ("40 epochs", 3), ("60s", 2)):
        whole = simulate(policy, ROUGH, opened(policy, budget=budget, workers=workers)).ledger
        for cut in seams(whole)[:: 7 if light else 5]:
            resumed = simulate(policy, ROUGH, *whole.entries()[:cut]).ledger
            assert summarise(resumed) == summarise(whole), f"{policy.name} cut after {cut} entries goes on differently"


def finite_spaces_end(policy: Policy, light: bool = False) -> None:
    for space in (LISTED, FINITE):
        for workers in (3,) if light else (1, 3):
            steps = 2 if light else 5
            start = opened(policy, space=space, budget="500 epochs", max_steps=steps, workers=workers)
            outcome = simulate(watch(policy), Decaying(), start)
            assert outcome.reason == "policy", f"{policy.name} ends with {outcome.reason!r} on a space that is used up"


def queued_configs_first(policy: Policy, light: bool = False) -> None:
    mine: list[Config] = [
        {"lr": 0.5, "layers": 2, "optimizer": "adam"},
        {"lr": 0.25, "layers": 1, "optimizer": "sgd"},
    ]
    queue = [Note(topic="enqueue", facts={"config": config}) for config in mine]
    ledger = simulate(watch(policy), Decaying(), opened(policy), *queue).ledger
    acted = list({dumps(order.config): dict(order.config) for order in ledger.orders}.values())  # also within one run
    assert acted[:2] == mine, f"{policy.name} did not begin with the queued configs"
    half = ledger.entries()[: len(ledger) // 2]
    late: Config = {"lr": 0.125, "layers": 3, "optimizer": "sgd"}
    went_on = simulate(policy, Decaying(), *half, Note(topic="enqueue", facts={"config": late})).ledger
    assert any(order.config == late for order in went_on.orders), f"{policy.name} never tried a config queued later"


def directions_mirror(policy: Policy, light: bool = False) -> None:
    budget = "12 epochs" if light else "60 epochs"
    up = simulate(policy, Negated(ROUGH), opened(policy, budget=budget, direction="max")).ledger
    assert summarise(up) == summarise(simulate(policy, ROUGH, opened(policy, budget=budget)).ledger)


def a_raised_budget_goes_on(policy: Policy, light: bool = False) -> None:
    many = (("7 epochs", "60 epochs"), ("60 epochs", "61 epochs"), ("10s", "60s"))
    for first, second in (("5 epochs", "12 epochs"),) if light else many:
        spent = simulate(policy, Decaying(), opened(policy, budget=first)).ledger
        more = Amended(budget=Budget(second))
        outcome = simulate(watch(policy), Decaying(), *spent.entries(), more)
        if outcome.reason == "budget" and outcome.ledger.budget.unit == "epochs":
            assert outcome.ledger.spent == outcome.ledger.budget.total


def takes_over(policy: Policy, light: bool = False) -> None:
    """A study that another policy began, with orders open, goes on."""
    other = policies.make("random_search")
    begun = simulate(other, ROUGH, opened(other, budget="12 epochs" if light else "40 epochs", workers=2)).ledger
    for cut in range(3, len(begun), 8):
        change = Amended(policy=policy.name, settings=policies.settings_of(policy))
        simulate(watch(policy), ROUGH, *begun.entries()[:cut], change)


def settings_survive_storage(policy: Policy, light: bool = False) -> None:
    settings = dumps(policies.settings_of(policy))
    assert dumps(policies.settings_of(make_anew(policy))) == settings, f"{policy.name} loses settings in the ledger"


# what policies that learn must do ------------------------------------------------------------------------------------


def results_are_used(policy: Policy, light: bool = False) -> None:
    """Curves turned upside down lead to other orders: somebody listens to the receipts."""
    start = opened(policy, budget="40 epochs" if light else "120 epochs", max_steps=9)
    assert orders_of(simulate(policy, Decaying(), start).ledger) != orders_of(
        simulate(policy, Negated(Decaying()), start).ledger
    ), f"{policy.name} decides the same whatever it is told"


def the_best_are_trained_longest(policy: Policy, light: bool = False) -> None:
    """On curves that never cross, the trial with the best first loss is trained at least as far as the median one."""
    ledger = simulate(
        policy, Parallel(Decaying()), opened(policy, budget="40 epochs" if light else "120 epochs")
    ).ledger
    last = ledger.orders[-1].trial  # the wall may have cut it short
    steps = {trial.number: trial.steps for trial in ledger.trials if trial.losses and trial.number != last}
    if not steps:  # one run that changes its config has no other to be compared with
        return
    best = min(steps, key=lambda number: ledger.trials[number].best_loss + 0.001 * ledger.trials[number].best_step)
    assert steps[best] >= np.median(list(steps.values()))


def the_runner_up_is_told(policy: Policy, light: bool = False) -> None:
    """Some order names what else could have been bought, and its score."""
    ledger = simulate(watch(policy), Decaying(), opened(policy, budget="40 epochs" if light else "120 epochs")).ledger
    assert any("runner_up" in order.why for order in ledger.orders), f"{policy.name} never says what it compared"


Check = Callable[..., None]  # (policy, light=False)
CHECKS: tuple[Check, ...] = (
    same_ledger_same_decision,
    keeps_to_the_rules,
    priced_validation,
    two_halves_equal_the_whole,
    finite_spaces_end,
    queued_configs_first,
    directions_mirror,
    a_raised_budget_goes_on,
    takes_over,
    settings_survive_storage,
)
LEARNING_CHECKS: tuple[Check, ...] = (results_are_used, the_best_are_trained_longest, the_runner_up_is_told)


_NEEDED = ("score_name", "best_is", "score")


def inspect_why(ledger: Ledger, order: Train, ordered: str) -> None:
    """`ordered` begins every complaint."""
    why = order.why
    for name, value in why.items():
        assert isinstance(value, str | int | float | bool | None), f"{ordered}: why[{name!r}] is not a number or a word"
        assert not (isinstance(value, float) and math.isnan(value)), f"{ordered}: why[{name!r}] is no number"
    compared = why.get("compared")
    assert type(compared) is int, f"{ordered} without saying how many were compared; 0 if nothing was"
    assert compared >= 0, f"{ordered}: {compared} cannot be compared"
    told = [name for name in (*_NEEDED, "runner_up", "runner_up_score") if name in why]
    if compared == 0:
        assert not told, f"{ordered}: nothing was compared, but there is {told}"
        return
    assert all(name in why for name in _NEEDED), f"{ordered}: a comparison tells {_NEEDED}, here are {told}"
    assert why["best_is"] in get_args(BestIs), (
        f"{ordered}: the best is highest, lowest or drawn, not {why['best_is']!r}"
    )
    assert ("runner_up" in why) == ("runner_up_score" in why), f"{ordered}: a runner-up has a score"
    if "runner_up" in why:
        assert compared > 1, f"{ordered}: one candidate has no runner-up"
        _inspect_runner_up(ledger, order, ordered)


def _inspect_runner_up(ledger: Ledger, order: Train, ordered: str) -> None:
    why, name = order.why, order.why["runner_up"]
    if isinstance(name, int):
        assert name < len(ledger.trials), f"{ordered}: the runner-up {name} is no trial"
        assert name != order.trial, f"{ordered}: the runner-up is what was ordered"
    elif isinstance(name, str) and name.startswith("{"):
        config = ledger.space.validate(loads(name))
        assert dict(config) != dict(order.config), f"{ordered}: the runner-up is what was ordered"
    if why["best_is"] == "drawn" or "reason" in why:  # chance, or a second condition, had the last word
        return
    scores = [float(str(why[name])) for name in ("score", "last_kept_score", "runner_up_score") if name in why]
    for better, worse in pairwise(scores if why["best_is"] == "highest" else [-score for score in scores]):
        # Equal scores are taken in a stated order (`core.choosing`), and may differ in their last digits.
        assert better >= worse or math.isclose(better, worse, rel_tol=1e-6, abs_tol=1e-9), (
            f"{ordered}: others had better scores"
        )


_BELIEF = (1.0, 5.0, 1.0, 0.01, 1.0, 0.0)  # roughly what standardised losses of real tables gave: no fit is needed
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
    "fabolas_epochs": {"arms": 6, "representatives": 4},
    "freeze_thaw_bo": {"arms": 6, "parameters": _BELIEF, "old": 3, "new": 2},
    "gp_ucb": {"initial_trials": 2, "candidates": 40},
    "gp_ucb_bandit": {"n_starts": 4},
    "grid": {"levels": 2},
    "hyperband": {"reduction_factor": 2},
    "lc_prediction": {"initial_trials": 2, "candidates": 40, "n0": 3, "forecast": "process"},
    "r_gp_ucb": {"n_starts": 4},
    "replay_fixed": {"orders": ((0, None, 1), (1, None, 2), (0, None, 3), (2, None, 1), (1, None, 3))},
    "rollout": {"arms": 6, "parameters": _BELIEF, "horizon": 1},
    "sequential_halving": {"arms_per_curve": 4.0},
    "softmax": {"most_arms": 4},
    "successive_halving": {"reduction_factor": 2, "arms": 4},
    "thrift": {"opening": 0.1, "arms_per_curve": 4.0, "look_back": True},
    "tv_gp_ucb": {"n_starts": 4},
    "ucb1": {"most_arms": 4},
}


def small(name: str) -> Policy:
    """The registered policy of that name, with settings for tiny budgets."""
    return policies.make(name, _SMALL.get(name))
