from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Amendment, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Space
from shoestring.core.values.randomness import stream
from shoestring.errors import PolicyError
from shoestring.models.gp.fit import fit_gp
from shoestring.models.stopping.optimal_stopping import (
    StoppingPlan,
    StoppingRule,
    k1_schedule,
    noise_correction,
    surrogate_allows_stop,
)
from shoestring.policies.config_table import ConfigsView
from shoestring.policies.stopping.active_trials import ActiveTrials
from shoestring.policies.stopping.bo_bos import BOBOS, solve_rule
from shoestring.policies.stopping.surrogate import PRINTED_FORM, fit_surrogate, observe
from shoestring.policies.stopping.ucb_policy import GPUCB
from shoestring.testing.curves import DecayingCurves, ListedCurves
from shoestring.testing.policies import make_definition, simulate, summarise, watch

STEPS = 16
SMALL = BOBOS(initial_trials=3, candidates=40, n0=3, paths=3000, cells=40, replan_every=None)


def curves(count: int = 24) -> dict[str, list[float]]:
    """Return errors in [0, 1] that end between 0.05 and 0.9."""
    rng = np.random.default_rng(3)
    found = {}
    for i in range(count):
        end, rate = rng.uniform(0.05, 0.9), rng.uniform(0.5, 1.5)
        found[f"c{i:02d}"] = [float(end + (0.95 - end) * n**-rate) for n in range(1, STEPS + 1)]
    return found


@cache  # several tests read the same study, and none changes it
def study(policy: BOBOS, budget: int = 250, **more: Any) -> Ledger:
    rows = Space.from_configs([{"name": name, "x": i / 23} for i, name in enumerate(curves())])
    start = make_definition(policy, space=rows, budget=f"{budget} epochs", max_steps=STEPS, **more)
    return simulate(watch(policy), ListedCurves(curves(), by="name"), start).ledger


def stops(ledger: Ledger) -> list[Order]:
    return [order for order in ledger.orders if "stopped" in order.why]


@pytest.mark.parametrize(
    "policy",
    [SMALL, replace(SMALL, kappa=1.0, replan_every=3), replace(SMALL, noise_allowance=True, statistic="all")],
)
def test_every_step_and_every_stop_follows_the_rule(policy: BOBOS) -> None:
    """Go through the study entry by entry and compute every decision again from the receipts."""
    ledger = study(policy)
    low, high = ledger.orders[-1].memo["error_bounds"]
    losses: dict[int, list[float]] = {}
    first_orders: dict[int, Order] = {}
    checks = 0
    plans: dict[Any, StoppingPlan] = {}

    def decide(trial: int) -> tuple[bool, dict[str, float]]:
        iteration = trial - policy.initial_trials
        best = min(min(seen) for number, seen in losses.items() if number != trial)
        memo = first_orders[trial].memo
        k1 = k1_schedule("normal", iteration)
        n0 = max(n for n in range(3, len(losses[trial]), 3)) if policy.replan_every else 3
        rule = StoppingRule(
            n0=n0, n_max=STEPS, k1=k1, low=low, high=high, n_paths=3000, n_cells=40, statistic=policy.statistic
        )
        if (trial, n0) not in plans:
            plans[trial, n0] = rule.plan(losses[trial], best, stream(0, "stopping", trial), xi=memo["xi"][0])
        decision = plans[trial, n0].decide(losses[trial])
        now, full = memo["std"][len(losses[trial]) - 1], memo["std"][-1]
        numbers = {"k1": k1, "incumbent": best, "std_now": now, "std_full": full}
        if not math.isnan(decision.prob_better):
            numbers |= {"prob_better": decision.prob_better, "loss_stop": decision.loss_stop}
        return decision.stop and surrogate_allows_stop(now, full, policy.kappa), numbers

    for entry in ledger.entries():
        if isinstance(entry, Receipt):
            assert entry.value is not None
            losses.setdefault(entry.trial, []).append(entry.value)
        elif isinstance(entry, Order):
            if entry.why.get("phase") == "stopping check":
                stop, numbers = decide(entry.trial)
                assert not stop
                assert entry.until == len(losses[entry.trial]) + 1
                assert {name: entry.why[name] for name in numbers} == numbers
                checks += 1
            elif "stopped" in entry.why:
                stopped = int(entry.why["stopped"])  # type: ignore[arg-type]
                stop, numbers = decide(stopped)
                assert stop
                assert len(losses[stopped]) == entry.why["stopped_at"]
                assert {name: entry.why[f"stopped_{name}"] for name in numbers} == numbers
            if entry.trial not in first_orders:
                first_orders[entry.trial] = entry
                is_design = entry.trial < policy.initial_trials
                assert entry.until == (STEPS if is_design else policy.n0 + 1)
    assert checks > 50
    assert stops(ledger)
    unfinished = [trial.number for trial in ledger.trials if trial.steps < STEPS]
    assert set(unfinished) - {ledger.orders[-1].trial} == {order.why["stopped"] for order in stops(ledger)}


def test_the_noise_allowance_follows_lemma_7() -> None:
    ledger = study(replace(SMALL, noise_allowance=True))
    firsts = {order.trial: order for order in reversed(ledger.orders)}
    allowances = [firsts[trial].memo["xi"][0] for trial in range(3, len(ledger.trials))]
    assert allowances[0] == 0.0
    assert all(later > 0.0 for later in allowances[1:])
    # the implied noise is that of the surrogate, a fraction of the standard deviation of the losses
    implied = [xi / noise_correction(t, 1.0) for t, xi in enumerate(allowances[1:], 2)]
    assert 0.0 < min(implied) <= max(implied) < 0.5


def test_a_larger_loss_of_stopping_means_fewer_stops() -> None:
    """All trials before the first difference have the same curve; there the larger loss continues the trial."""
    small, large = (study(replace(SMALL, k1=k1, k1_growth="fixed", cells=10, replan_every=3)) for k1 in (2.0, 1e9))
    pairs = zip(small.orders, large.orders, strict=False)
    ours, theirs = next((a, b) for a, b in pairs if (a.trial, a.until) != (b.trial, b.until))
    assert ours.why["stopped"] == theirs.trial
    assert len(stops(small)) >= len(stops(large))
    assert len(stops(study(replace(SMALL, k1_growth=1e-300)))) <= 1  # k1 overflows after the first trial


def test_the_second_condition_only_prevents_stops() -> None:
    """Without C2 the first difference is at a trial that C2 continued."""
    strict, free = study(replace(SMALL, kappa=1.0)), study(replace(SMALL, kappa=math.inf))
    assert any("(C2)" in str(order.why.get("reason")) for order in strict.orders)
    assert not any("(C2)" in str(order.why.get("reason")) for order in free.orders)
    pairs = zip(strict.orders, free.orders, strict=False)
    first = next((a for a, b in pairs if (a.trial, a.until) != (b.trial, b.until)), None)
    assert first is not None
    assert "(C2)" in str(first.why["reason"])


def test_the_range_of_errors_is_fixed_after_the_design() -> None:
    big = {name: [1000.0 * value for value in curve] for name, curve in curves().items()}
    rows = Space.from_configs([{"name": name} for name in big])
    ledger = simulate(
        SMALL, ListedCurves(big, by="name"), make_definition(SMALL, space=rows, budget="250 epochs", max_steps=STEPS)
    ).ledger
    design = [loss for trial in ledger.trials[:3] for loss in trial.losses if loss is not None]
    margin = 0.1 * (max(design) - min(design))
    bounds = {tuple(order.memo["error_bounds"]) for order in ledger.orders if "error_bounds" in order.memo}
    assert len(bounds) == 1
    assert bounds.pop() == pytest.approx((min(design) - margin, max(design) + margin))
    assert all("error_bounds" not in order.memo for order in ledger.orders[:3])


def test_no_trial_is_stopped_when_the_best_loss_is_below_the_range() -> None:
    ledger = study(replace(SMALL, low=0.6, high=1.0))
    after = [o for o in ledger.orders if o.why.get("phase") == "stopping check" and float(o.why["incumbent"]) <= 0.6]  # type: ignore[arg-type]
    assert after
    assert all("below the range" in str(order.why["reason"]) for order in after)


def test_configurations_are_chosen_as_in_gp_ucb_from_the_best_losses_of_trials() -> None:
    """The surrogate of ends uses the best loss of each trial; that of lengths has its own parameters in the memo."""
    ledger = study(SMALL)
    chosen = [order for order in ledger.orders if order.why.get("phase") == "chosen"]
    numbers = len(chosen[-1].memo["log_lengthscales"])
    assert all(len(order.memo["lengths_log_lengthscales"]) == numbers + 1 for order in chosen)
    cut = Ledger(ledger.entries()[: ledger.entries().index(chosen[-1])])
    table, active = cut.view(ConfigsView()), ActiveTrials.read(cut.memo, ())
    theirs = GPUCB(initial_trials=3, candidates=40).make_surrogate(cut, table, active)
    mine = SMALL.make_surrogate(cut, table, active)
    assert theirs is not None
    assert mine is not None
    np.testing.assert_array_equal(theirs.gp.y, mine.gp.y)
    reached = [trial.best_loss for trial in cut.trials]
    np.testing.assert_allclose(mine.scale.undo(mine.gp.y), reached)


def test_without_c2_there_is_no_second_surrogate() -> None:
    ledger = study(replace(SMALL, kappa=math.inf))
    assert stops(ledger)
    assert not any("lengths_log_lengthscales" in order.memo or "std" in order.memo for order in ledger.orders)
    assert not any("std_now" in order.why for order in ledger.orders)


def test_short_trainings_are_never_checked() -> None:
    policy = replace(SMALL, n0=STEPS)
    assert all(order.until == STEPS for order in study(policy).orders[:-1])


def test_without_its_cache_a_study_continues_as_before() -> None:
    whole = study(SMALL)
    for cut in (len(whole) // 3, len(whole) // 2, len(whole) - 3):
        solve_rule.cache_clear()
        rows = ListedCurves(curves(), by="name")
        assert summarise(simulate(SMALL, rows, *whole.entries()[:cut]).ledger) == summarise(whole)


def test_a_trial_interrupted_by_the_budget_continues_when_the_budget_is_raised() -> None:
    policy = SMALL
    short = study(policy, 99)
    assert short.trials[-1].steps < STEPS
    more = simulate(
        watch(policy), ListedCurves(curves(), by="name"), *short.entries(), Amendment(budget=Budget("250 epochs"))
    )
    assert more.ledger.spent == 250
    assert more.ledger.orders[len(short.orders)].trial == short.orders[-1].trial


def test_several_workers_have_several_active_trials() -> None:
    ledger = study(SMALL, workers=3)
    assert max(len(order.memo["run_trials"]) for order in ledger.orders) == 3
    assert stops(ledger)


def test_continuous_spaces_diverging_and_failing_trials() -> None:
    policy = replace(SMALL, candidates=60)
    ledger = simulate(watch(policy), DecayingCurves(), make_definition(policy, budget="150 epochs", max_steps=9)).ledger
    assert len({str(trial.config) for trial in ledger.trials}) == len(ledger.trials) > 5


@pytest.mark.parametrize(
    "settings",
    [
        {"n0": 0},
        {"paths": 0},
        {"cells": 0},
        {"k1": 0.0},
        {"k2": math.inf},
        {"step_cost": -1.0},
        {"kappa": 0.5},
        {"kappa": math.nan},
        {"k1_growth": "fast"},
        {"k1_growth": 1.5},
        {"k1_growth": None},
        {"statistic": "mean"},
        {"search_by": "curves"},
        {"low": 0.0},
        {"low": 1.0, "high": 0.0},
        {"initial_trials": 0},
        {"exploration": "none"},
        {"candidates": 0},
        {"refit_every": 0},
    ],
)
def test_invalid_settings_raise_errors(settings: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match=next(iter(settings))):
        BOBOS(**settings)


@pytest.mark.parametrize("intermediate", [True, False])
def test_the_printed_surrogate_is_that_of_the_paper(intermediate: bool) -> None:
    """One length-scale for numbers and n / N together, fitted again after every ten trials, without priors."""
    policy = replace(SMALL, search_by="lengths", refit_every=10, intermediate=intermediate)
    ledger = study(policy, budget=300)
    chosen = [order for order in ledger.orders if order.why.get("phase") == "chosen"]
    # the second length-scale is that of the name, a choice
    assert all(len(order.memo["log_lengthscales"]) == 2 for order in chosen)
    fitted = [order.memo["fitted_at"][0] for order in chosen]
    assert sorted(set(fitted)) == ([3.0, 13.0, 23.0] if intermediate else [3.0, 13.0])
    assert len(chosen) > 10
    table = ledger.view(ConfigsView())
    surrogate = policy.make_surrogate(ledger, table, ActiveTrials.read(ledger.memo, policy.memo_lists))
    assert surrogate is not None
    shares = np.array([0.25, 0.5, 1.0])
    point = table.trials[0].take([0, 0, 0])
    np.testing.assert_array_equal(surrogate.inputs(point, shares)[:, -1], shares)
    seen = observe(ledger, intermediate=intermediate, idle_only=False)
    refitted = fit_surrogate(Ledger([ledger.definition]), table, seen, lengths=True, refit_every=10, form=PRINTED_FORM)
    slow = fit_gp(refitted.gp.kernel, refitted.gp.x, refitted.gp.y, n_starts=10, with_priors=False)
    np.testing.assert_allclose(refitted.gp.theta, slow.theta, rtol=1e-6)
