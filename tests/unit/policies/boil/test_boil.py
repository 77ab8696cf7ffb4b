from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from shoestring import policies
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Amended, Cost, Note
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Config, Space
from shoestring.errors import PolicyError
from shoestring.models.boil.compression import CurveMatrix, compress
from shoestring.policies.boil.boil import BOIL
from shoestring.policies.boil.run_curves import read_finished_runs
from shoestring.policies.boil.score_model import ScoreBelief, believe
from shoestring.policies.config_table import ConfigsView
from shoestring.runners.simulated.simulated_runner import StepOutcome
from shoestring.testing.policies import opened, simulate, watch

SQUARE = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
FULL: dict[str, Any] = {"lengths": "full", "augmentation": "none"}


@dataclass(frozen=True)
class Hill:
    """Rewards that rise to a height set by x and y; a step costs more towards x = 1."""

    floor: float = 0.0
    diverging_beyond: float = 2.0

    def step(self, config: Config, step: int) -> StepOutcome:
        height = math.exp(-4.0 * ((config["x"] - 0.3) ** 2 + (config["y"] - 0.7) ** 2))
        diverges = config["x"] > self.diverging_beyond and step >= 4
        value = math.nan if diverges else self.floor + height * (1.0 - math.exp(-step / 4.0))
        return StepOutcome(value, Cost(train=0.5 + config["x"]))


class Collapsing:
    def step(self, config: Config, step: int) -> StepOutcome:
        risen = Hill().step(config, min(step, 6)).value
        assert risen is not None
        return StepOutcome(risen if step <= 6 else risen * 0.5 ** (step - 6), Cost(train=1.0))


def run_study(policy: BOIL, budget: str = "150 epochs", hill: Hill | None = None, **settings: Any) -> Ledger:
    start = opened(policy, space=SQUARE, budget=budget, max_steps=20, direction="max", **settings)
    return simulate(watch(policy), hill or Hill(), start).ledger


def belief_of(policy: BOIL, ledger: Ledger) -> ScoreBelief:
    belief = believe(policy.recipe(ledger), ledger, ledger.view(ConfigsView()), ledger.decision_rng())
    assert belief is not None
    return belief


def test_the_best_run_is_found_and_trained_in_full() -> None:
    ledger = run_study(BOIL(candidates=300))
    phases = [order.why["phase"] for order in ledger.orders]
    assert phases[:3] == ["initial design"] * 3
    assert set(phases[3:]) <= {"chosen", "recommended"}
    chosen = [order for order in ledger.orders if order.why["phase"] == "chosen"]
    assert all(4 <= order.memo["goal"][0] <= 20 for order in chosen)
    assert all(float(order.why["log_condition"]) <= 20.0 for order in chosen)  # type: ignore[arg-type]
    best = ledger.best
    assert best is not None
    assert best.steps == 20
    assert best.best_loss < -0.9


def test_runs_are_short_where_training_longer_spoils_them() -> None:
    """Rewards collapse after step 6; only the prefixes tell, since the initial runs are all full."""
    policy = BOIL(candidates=300, score="average")
    start = opened(policy, space=SQUARE, budget="150 epochs", max_steps=20, direction="max")
    ledger = simulate(watch(policy), Collapsing(), start).ledger
    goals = [order.memo["goal"][0] for order in ledger.orders if order.why["phase"] == "chosen"]
    assert np.median(goals) <= 10


def test_what_the_recommended_run_lacks_is_kept_back() -> None:
    """15 epochs are left: the promising run lacks 4 of its training, so a run of 20 must not be begun before."""
    begun = [[0, {"x": 0.0, "y": 0.1}, 20], [1, {"x": 0.3, "y": 0.7}, 16], [2, {"x": 0.9, "y": 0.2}, 20]]
    other = policies.make("replay_fixed", {"orders": begun})
    start = opened(other, space=SQUARE, budget="56 epochs", max_steps=20, direction="max")
    past = simulate(other, Hill(), start).ledger.entries()
    policy = BOIL(candidates=300)
    change = Amended(policy=policy.name, settings=policies.settings_of(policy), budget=Budget("71 epochs"))
    ledger = simulate(watch(policy), Hill(), *past, change).ledger
    order = ledger.orders[3]
    assert (order.trial, order.until, order.why["phase"], order.why["at"]) == (1, 20, "recommended", 16)
    assert len(ledger.orders) > 4, "the rest was not spent"


def test_unfinished_runs_go_on_when_every_config_was_tried() -> None:
    policy = BOIL(score="average")
    rows = Space.listed([{"x": x / 2, "y": y / 2} for x in range(3) for y in range(3)])
    start = opened(policy, space=rows, budget="500 epochs", max_steps=20, direction="max")
    outcome = simulate(watch(policy), Collapsing(), start)
    assert outcome.reason == "policy"
    assert [trial.steps for trial in outcome.ledger.trials] == [20] * 9
    went_on = [order for order in outcome.ledger.orders if order.why["phase"] == "recommended"]
    assert went_on, "no run was short"


def test_rows_of_the_model_are_prefixes_with_their_scores_and_costs() -> None:
    policy = BOIL(candidates=100)
    ledger = run_study(policy, budget="100s")
    belief = belief_of(policy, ledger)
    at = [ledger.trials[int(trial)] for trial in belief.trial_of]
    lengths = np.rint(4 + belief.gp.x[:, -1] * 16).astype(int)
    assert belief.added == len(at) - len(belief.runs) > 0
    assert len({(trial.number, int(length)) for trial, length in zip(at, lengths, strict=True)}) == len(at)
    curves = CurveMatrix.of(
        [np.array(trial.values[:length], dtype=float) for trial, length in zip(at, lengths, strict=True)], 20
    )
    scores, _ = compress(curves, midpoint=belief.parameters.midpoint, growth=belief.parameters.growth)
    np.testing.assert_allclose(belief.gp.y, scores, rtol=1e-9)
    for run in belief.runs:
        trial = ledger.trials[run.trial]
        np.testing.assert_allclose(run.costs, np.cumsum(trial.step_costs))


def test_prefixes_are_chosen_once_and_all_orders_together_name_them() -> None:
    ledger = run_study(BOIL(candidates=100, refit_every=1))
    pairs = [
        pair
        for o in ledger.orders
        for pair in zip(o.memo.get("added_trials", ()), o.memo.get("added_steps", ()), strict=True)
    ]
    assert len(pairs) == len(set(pairs)) > 0
    most = {trial.number: math.floor((trial.steps - 4) / 16 * 15) for trial in ledger.trials}
    for trial, at_most in most.items():
        assert sum(1 for number, _ in pairs if number == trial) <= at_most


@pytest.mark.parametrize("way", ["random", "full", "none"])
def test_other_augmentations(way: Any) -> None:
    policy = BOIL(candidates=100, augmentation=way)
    ledger = run_study(policy, budget="90 epochs")
    counts = [int(order.why["added"]) for order in ledger.orders if order.why["phase"] == "chosen"]  # type: ignore[arg-type]
    if way == "full":
        assert counts[0] == 3 * 16  # every whole step from 4 to 19 of three full runs
    else:
        assert counts[0] == (0 if way == "none" else 3 * 15)


@pytest.mark.parametrize("score", ["compressed", "last_mean"])
def test_full_lengths_are_plain_bayesian_optimisation(score: Any) -> None:
    policy = BOIL(score=score, candidates=300, last_steps=5, **FULL)
    ledger = run_study(policy, budget="240 epochs")
    assert {order.until for order in ledger.orders} == {20}
    belief = belief_of(policy, ledger)
    assert belief.added == 0
    assert set(belief.gp.x[:, -1]) == {1.0}
    if score == "last_mean":
        last = [np.mean(trial.values[-5:]) for trial in ledger.trials]  # type: ignore[arg-type]
        np.testing.assert_allclose(belief.gp.y, last)
    best = ledger.best
    assert best is not None
    assert best.best_loss < -0.95


def test_negative_rewards_are_lifted_and_the_constant_stays() -> None:
    low = run_study(BOIL(candidates=100), hill=Hill(floor=-5.0))
    shifts = [order.memo["shift"][0] for order in low.orders if "shift" in order.memo]
    assert shifts == sorted(shifts)
    assert shifts[0] > 4.0
    bounded = run_study(BOIL(candidates=100, worst_value=-7.0), hill=Hill(floor=-5.0))
    assert {order.memo["shift"][0] for order in bounded.orders if "shift" in order.memo} == {7.0}


def test_diverged_runs_count_as_the_worst_and_not_as_cheap() -> None:
    policy = BOIL(candidates=200, initial_trials=5)
    ledger = run_study(policy, hill=Hill(diverging_beyond=0.5), budget="200 epochs")
    belief = belief_of(policy, ledger)
    bad = [run for run in belief.runs if run.is_bad]
    assert bad
    assert all(run.length == 20 and run.steps == 3 for run in bad)
    is_bad = np.isin(belief.trial_of, [run.trial for run in bad])
    in_full = belief.gp.x[:, -1] == 1.0
    assert belief.gp.y[is_bad & in_full].max() < belief.gp.y[~is_bad & in_full].min()
    full = belief.cost.predict(np.column_stack([belief.x, np.ones(len(belief.x))]))
    np.testing.assert_allclose(full, 20.0, rtol=1e-6)  # epochs, whatever diverged after three
    assert (is_bad & ~in_full).sum() > len(bad), "that they are bad is known at the end only"
    chosen = [order.config["x"] for order in ledger.orders if order.why["phase"] == "chosen"]
    assert np.mean(np.array(chosen) > 0.5) < 0.3


@pytest.mark.parametrize("unit", ["epochs", "s"])
def test_runs_may_go_on_at_the_price_of_what_they_lack(unit: str) -> None:
    """The best place was trained for 14 of 20 steps: more of that run is the cheapest way to a better score."""
    places = [(0.0, 0.3, 20), (0.45, 0.55, 20), (0.8, 0.3, 20), (0.1, 0.95, 20), (0.65, 0.95, 20), (0.3, 0.7, 14)]
    begun = [[trial, {"x": x, "y": y}, until] for trial, (x, y, until) in enumerate(places)]
    other = policies.make("replay_fixed", {"orders": begun})
    start = opened(other, space=SQUARE, budget=f"114 {unit}", max_steps=20, direction="max")
    past = simulate(other, Hill(), start).ledger.entries()
    orders = {}
    for way in (True, False):
        policy = BOIL(candidates=300, continue_runs=way)
        change = Amended(policy=policy.name, settings=policies.settings_of(policy), budget=Budget(f"300 {unit}"))
        orders[way] = simulate(watch(policy), Hill(), *past, change).ledger.orders[6]
    assert (orders[False].trial, orders[False].why["phase"]) == (6, "chosen")
    order = orders[True]
    assert (order.trial, order.why["phase"], order.why["at"]) == (5, "continued", 14)
    price = 1.0 if unit == "epochs" else 0.8
    assert float(order.why["predicted_cost"]) == pytest.approx(price * (order.until - 14))  # type: ignore[arg-type]


def test_the_leader_is_the_run_that_promises_most_at_full_length() -> None:
    policy = BOIL(candidates=200)
    ledger = run_study(policy)
    belief = belief_of(policy, ledger)
    mean, _ = belief.gp.predict(np.column_stack([belief.x, np.ones(len(belief.x))]))
    assert belief.leader(range(len(belief.runs))) == belief.runs[int(np.argmax(mean))].trial
    led = [int(order.why["leader"]) for order in ledger.orders if "leader" in order.why]  # type: ignore[arg-type]
    best = ledger.best
    assert best is not None
    assert led[-1] == best.number


def test_the_printed_rule_buys_the_shortest_runs() -> None:
    ledger = run_study(BOIL(candidates=200, rule="softplus"))
    lengths = [order.memo["goal"][0] for order in ledger.orders if order.why["phase"] == "chosen"]
    ours = [o.memo["goal"][0] for o in run_study(BOIL(candidates=200)).orders if o.why["phase"] == "chosen"]
    assert np.median(lengths) == 4.0  # a fifth of a full training
    assert np.median(ours) > 10.0


def test_the_form_of_the_authors_programs() -> None:
    policy = BOIL(candidates=200, score="tail_mean", min_steps=8, max_points=10, max_log_condition=15.0, floor="std")
    ledger, plain = run_study(policy), run_study(replace(policy, floor="variance"))
    chosen = [order for order in ledger.orders if order.why["phase"] == "chosen"]
    assert min(order.memo["goal"][0] for order in chosen) >= 8.0
    assert sum(len(o.memo.get("added_steps", ())) for o in ledger.orders) > sum(
        len(o.memo.get("added_steps", ())) for o in plain.orders
    )


def test_the_time_kernel_of_freeze_thaw() -> None:
    ledger = run_study(BOIL(candidates=200, time_kernel="freeze_thaw"))
    best = ledger.best
    assert best is not None
    assert best.best_loss < -0.9


def test_unvalidated_steps_take_the_value_before_them() -> None:
    policy = BOIL(initial_trials=2, candidates=40, max_points=4)
    ledger = run_study(policy, budget="20 epochs")
    ledger.trials[0].losses[0:2] = [None, None]
    ledger.trials[0].losses[9] = None
    (run,) = read_finished_runs(ledger, 4)
    losses = ledger.trials[0].losses
    assert run.losses[:3].tolist() == [losses[2]] * 3
    assert run.losses[9] == losses[8]


def test_fits_are_due_by_runs() -> None:
    ledger = run_study(BOIL(candidates=60, refit_every=4), budget="300 epochs")
    fits = [order.memo["fitted_at"][0] for order in ledger.orders if "fitted_at" in order.memo]
    assert fits[0] == 3.0
    assert {b - a for a, b in pairwise(fits)} <= {0.0, 4.0}
    assert fits[-1] > 3.0


def test_a_run_that_the_wall_cut_short_is_finished_first() -> None:
    policy = BOIL(initial_trials=2, candidates=40, max_points=4)
    ledger = run_study(policy, budget="30 epochs")
    more = simulate(watch(policy), Hill(), *ledger.entries(), Amended(budget=Budget("60 epochs"))).ledger
    order = more.orders[len(ledger.orders)]
    assert (order.trial, order.until, order.why["phase"]) == (1, 20, "cut short")


def test_queued_configs_are_trained_in_full() -> None:
    policy = BOIL(initial_trials=2, candidates=40, max_points=4)
    mine = {"x": 0.5, "y": 0.25}
    start = opened(policy, space=SQUARE, budget="40 epochs", max_steps=20, direction="max")
    ledger = simulate(policy, Hill(), start, Note(topic="enqueue", facts={"config": mine})).ledger
    assert (dict(ledger.orders[0].config), ledger.orders[0].until) == (mine, 20)


@pytest.mark.parametrize(
    "wrong",
    [
        {"score": "last"},
        {"augmentation": "some"},
        {"lengths": "short"},
        {"rule": "ratio"},
        {"floor": "noise"},
        {"lengths": "full"},
        {"initial_trials": 0},
        {"min_steps": 0},
        {"refit_every": 0},
        {"max_points": -1},
        {"max_log_condition": 0.0},
        {"noise_variance": 0.0},
        {"learn_noise": 1},
        {"continue_runs": "yes"},
        {"time_kernel": "matern"},
        {"worst_value": math.inf},
        {"candidates": 0},
        {"last_steps": 0},
    ],
    ids=str,
)
def test_settings_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match=next(iter(wrong))):
        policies.make("boil", wrong)
