from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Amended, Order, Receipt
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
from shoestring.policies.stopping.active_runs import RunsUnderWay
from shoestring.policies.stopping.bo_bos import BOBOS, solve_rule
from shoestring.policies.stopping.surrogate import PRINTED, fit_surrogate, observe
from shoestring.policies.stopping.ucb_policy import GPUCB
from shoestring.testing.curves import Decaying, WrittenCurves
from shoestring.testing.policies import opened, simulate, summarise, watch

STEPS = 16
SMALL = BOBOS(initial_trials=3, candidates=40, n0=3, paths=3000, cells=40, replan_every=None)


def curves(count: int = 24) -> dict[str, list[float]]:
    """Errors in [0, 1] that end anywhere between 0.05 and 0.9."""
    rng = np.random.default_rng(3)
    found = {}
    for i in range(count):
        end, rate = rng.uniform(0.05, 0.9), rng.uniform(0.5, 1.5)
        found[f"c{i:02d}"] = [float(end + (0.95 - end) * n**-rate) for n in range(1, STEPS + 1)]
    return found


@cache  # a ledger is never changed, and several tests look at the same one
def study(policy: BOBOS, budget: int = 250, **more: Any) -> Ledger:
    rows = Space.listed([{"name": name, "x": i / 23} for i, name in enumerate(curves())])
    start = opened(policy, space=rows, budget=f"{budget} epochs", max_steps=STEPS, **more)
    return simulate(watch(policy), WrittenCurves(curves(), by="name"), start).ledger


def stops(ledger: Ledger) -> list[Order]:
    return [order for order in ledger.orders if "gave_up" in order.why]


@pytest.mark.parametrize(
    "policy",
    [SMALL, replace(SMALL, kappa=1.0, replan_every=3), replace(SMALL, noise_allowance=True, statistic="all")],
)
def test_every_step_and_every_stop_is_what_the_rule_says(policy: BOBOS) -> None:
    """The study walked through entry by entry, with everything worked out afresh from the receipts."""
    ledger = study(policy)
    low, high = ledger.orders[-1].memo["error_bounds"]
    losses: dict[int, list[float]] = {}
    opening: dict[int, Order] = {}
    judged = 0
    plans: dict[Any, StoppingPlan] = {}

    def verdict_of(trial: int) -> tuple[bool, dict[str, float]]:
        run = trial - policy.initial_trials
        best = min(min(seen) for number, seen in losses.items() if number != trial)
        memo = opening[trial].memo
        k1 = k1_schedule("normal", run)
        n0 = max(n for n in range(3, len(losses[trial]), 3)) if policy.replan_every else 3
        rule = StoppingRule(
            n0=n0, n_max=STEPS, k1=k1, low=low, high=high, n_paths=3000, n_cells=40, statistic=policy.statistic
        )
        if (trial, n0) not in plans:
            plans[trial, n0] = rule.plan(losses[trial], best, stream(0, "stopping", trial), xi=memo["xi"][0])
        verdict = plans[trial, n0].judge(losses[trial])
        now, full = memo["std"][len(losses[trial]) - 1], memo["std"][-1]
        told = {"k1": k1, "incumbent": best, "std_now": now, "std_full": full}
        if not math.isnan(verdict.prob_better):
            told |= {"prob_better": verdict.prob_better, "loss_give_up": verdict.loss_give_up}
        return verdict.stop and surrogate_allows_stop(now, full, policy.kappa), told

    for entry in ledger.entries():
        if isinstance(entry, Receipt):
            assert entry.value is not None
            losses.setdefault(entry.trial, []).append(entry.value)
        elif isinstance(entry, Order):
            if entry.why.get("phase") == "judged":
                stop, told = verdict_of(entry.trial)
                assert not stop
                assert entry.until == len(losses[entry.trial]) + 1
                assert {name: entry.why[name] for name in told} == told
                judged += 1
            elif "gave_up" in entry.why:
                given_up = int(entry.why["gave_up"])  # type: ignore[arg-type]
                stop, told = verdict_of(given_up)
                assert stop
                assert len(losses[given_up]) == entry.why["gave_up_at"]
                assert {name: entry.why[f"gave_up_{name}"] for name in told} == told
            if entry.trial not in opening:
                opening[entry.trial] = entry
                is_design = entry.trial < policy.initial_trials
                assert entry.until == (STEPS if is_design else policy.n0 + 1)
    assert judged > 50
    assert stops(ledger)
    cut_short = [trial.number for trial in ledger.trials if trial.steps < STEPS]
    assert set(cut_short) - {ledger.orders[-1].trial} == {order.why["gave_up"] for order in stops(ledger)}


def test_the_noise_allowance_follows_lemma_7() -> None:
    ledger = study(replace(SMALL, noise_allowance=True))
    firsts = {order.trial: order for order in reversed(ledger.orders)}
    allowances = [firsts[trial].memo["xi"][0] for trial in range(3, len(ledger.trials))]
    assert allowances[0] == 0.0
    assert all(later > 0.0 for later in allowances[1:])
    # the noise that each implies is the surrogate's, a fraction of the spread of the losses
    implied = [xi / noise_correction(t, 1.0) for t, xi in enumerate(allowances[1:], 2)]
    assert 0.0 < min(implied) <= max(implied) < 0.5


def test_dearer_mistakes_mean_fewer_stops() -> None:
    """Every run up to the first that differs has the same curve: the dearer mistake lets it go on."""
    cheap, dear = (study(replace(SMALL, k1=k1, k1_growth="fixed", cells=10, replan_every=3)) for k1 in (2.0, 1e9))
    pairs = zip(cheap.orders, dear.orders, strict=False)
    ours, theirs = next((a, b) for a, b in pairs if (a.trial, a.until) != (b.trial, b.until))
    assert ours.why["gave_up"] == theirs.trial
    assert len(stops(cheap)) >= len(stops(dear))
    assert len(stops(study(replace(SMALL, k1_growth=1e-300)))) <= 1  # k1 overflows after the first run


def test_the_second_condition_only_prevents_stops() -> None:
    """Without C2 the first run that differs is one that C2 kept going."""
    strict, free = study(replace(SMALL, kappa=1.0)), study(replace(SMALL, kappa=math.inf))
    assert any("(C2)" in str(order.why.get("reason")) for order in strict.orders)
    assert not any("(C2)" in str(order.why.get("reason")) for order in free.orders)
    pairs = zip(strict.orders, free.orders, strict=False)
    first = next((a for a, b in pairs if (a.trial, a.until) != (b.trial, b.until)), None)
    assert first is not None
    assert "(C2)" in str(first.why["reason"])


def test_the_map_of_errors_is_fixed_after_the_design() -> None:
    big = {name: [1000.0 * value for value in curve] for name, curve in curves().items()}
    rows = Space.listed([{"name": name} for name in big])
    ledger = simulate(
        SMALL, WrittenCurves(big, by="name"), opened(SMALL, space=rows, budget="250 epochs", max_steps=STEPS)
    ).ledger
    design = [loss for trial in ledger.trials[:3] for loss in trial.losses if loss is not None]
    margin = 0.1 * (max(design) - min(design))
    bounds = {tuple(order.memo["error_bounds"]) for order in ledger.orders if "error_bounds" in order.memo}
    assert len(bounds) == 1
    assert bounds.pop() == pytest.approx((min(design) - margin, max(design) + margin))
    assert all("error_bounds" not in order.memo for order in ledger.orders[:3])


def test_no_run_is_stopped_when_the_best_has_left_the_range() -> None:
    ledger = study(replace(SMALL, low=0.6, high=1.0))
    after = [o for o in ledger.orders if o.why.get("phase") == "judged" and float(o.why["incumbent"]) <= 0.6]  # type: ignore[arg-type]
    assert after
    assert all("below the range" in str(order.why["reason"]) for order in after)


def test_configs_are_chosen_as_gp_ucb_would_from_what_runs_have_reached() -> None:
    """The surrogate of ends knows each run by its best loss; the one of lengths keeps its own parameters in the memo."""
    ledger = study(SMALL)
    opening = [order for order in ledger.orders if order.why.get("phase") == "chosen"]
    numbers = len(opening[-1].memo["log_lengthscales"])
    assert all(len(order.memo["lengths_log_lengthscales"]) == numbers + 1 for order in opening)
    cut = Ledger(ledger.entries()[: ledger.entries().index(opening[-1])])
    table, runs = cut.view(ConfigsView()), RunsUnderWay.read(cut.memo, ())
    theirs = GPUCB(initial_trials=3, candidates=40).form_belief(cut, table, runs)
    mine = SMALL.form_belief(cut, table, runs)
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


@pytest.mark.parametrize("intermediate", [True, False])
def test_the_papers_surrogate_of_lengths_can_choose(intermediate: bool) -> None:
    ledger = study(replace(SMALL, search_by="lengths", intermediate=intermediate))
    opening = [order for order in ledger.orders if order.why.get("phase") == "chosen"]
    assert all(len(order.memo["log_lengthscales"]) == len(opening[0].memo["log_lengthscales"]) for order in opening)
    assert not any("lengths_log_lengthscales" in order.memo for order in opening)
    assert stops(ledger)


def test_short_trainings_are_never_judged() -> None:
    policy = replace(SMALL, n0=STEPS)
    assert all(order.until == STEPS for order in study(policy).orders[:-1])


def test_without_its_cache_a_study_goes_on_as_before() -> None:
    whole = study(SMALL)
    for cut in (len(whole) // 3, len(whole) // 2, len(whole) - 3):
        solve_rule.cache_clear()
        rows = WrittenCurves(curves(), by="name")
        assert summarise(simulate(SMALL, rows, *whole.entries()[:cut]).ledger) == summarise(whole)


@pytest.mark.parametrize("budget", [130, 2000])
def test_thawing_finishes_the_most_promising_frozen_run(budget: int) -> None:
    """With little money left (130 epochs) or every config tried (2000)."""
    policy = replace(SMALL, replan_every=3)
    plain, thawing = study(policy, budget), study(replace(policy, thaw=True), budget)
    thawed = [order for order in thawing.orders if order.why.get("phase") == "thawed"]
    assert not any(order.why.get("phase") == "thawed" for order in plain.orders)
    assert thawed
    for order in thawed:
        assert order.until == STEPS
        assert thawing.trials[order.trial].steps == STEPS
    if budget == 2000:
        assert all(trial.steps == STEPS for trial in thawing.trials)
        assert min(trial.steps for trial in plain.trials) < STEPS


def test_a_run_cut_short_at_the_wall_goes_on_when_the_budget_is_raised() -> None:
    policy = SMALL
    short = study(policy, 99)
    assert short.trials[-1].steps < STEPS
    more = simulate(
        watch(policy), WrittenCurves(curves(), by="name"), *short.entries(), Amended(budget=Budget("250 epochs"))
    )
    assert more.ledger.spent == 250
    assert more.ledger.orders[len(short.orders)].trial == short.orders[-1].trial


def test_several_workers_have_several_runs_under_way() -> None:
    ledger = study(SMALL, workers=3)
    assert max(len(order.memo["run_trials"]) for order in ledger.orders) == 3
    assert stops(ledger)


def test_continuous_spaces_diverging_and_failing_trials() -> None:
    policy = replace(SMALL, candidates=60)
    ledger = simulate(watch(policy), Decaying(), opened(policy, budget="150 epochs", max_steps=9)).ledger
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
        {"curve_noise_variance": 0.0},
    ],
)
def test_settings_out_of_range(settings: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match=next(iter(settings))):
        BOBOS(**settings)


def test_the_papers_own_combination() -> None:
    """One length-scale for the config's numbers and n / N together, refitted every ten runs, by likelihood alone."""
    policy = replace(SMALL, search_by="printed", refit_every=10)
    ledger = study(policy, budget=300)
    opening = [order for order in ledger.orders if order.why.get("phase") == "chosen"]
    # the other column is the name, an option
    assert all(len(order.memo["log_lengthscales"]) == 2 for order in opening)
    fitted = [order.memo["fitted_at"][0] for order in opening]
    assert sorted(set(fitted)) == [3.0, 13.0, 23.0]
    assert len(opening) > 10
    table = ledger.view(ConfigsView())
    belief = policy.form_belief(ledger, table, RunsUnderWay.read(ledger.memo, policy.memo_lists))
    assert belief is not None
    shares = np.array([0.25, 0.5, 1.0])
    point = table.trials[0].take([0, 0, 0])
    np.testing.assert_array_equal(belief.inputs(point, shares)[:, -1], shares)
    seen = observe(ledger, intermediate=True, idle_only=False)
    anew = fit_surrogate(Ledger([ledger.opened]), table, seen, lengths=True, refit_every=10, form=PRINTED)
    slow = fit_gp(anew.gp.kernel, anew.gp.x, anew.gp.y, n_starts=10, with_priors=False)
    np.testing.assert_allclose(anew.gp.theta, slow.theta, rtol=1e-6)
