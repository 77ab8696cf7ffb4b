"""Cost-aware EI as a policy: its rules on a table with known costs, failures, several workers, money, settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from shoestring import policies
from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Amended, Cost, Note, Opened, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Config, Space
from shoestring.errors import PolicyError
from shoestring.models.cost_aware.trade_off import pareto_front
from shoestring.policies.config_table import ConfigsView
from shoestring.policies.cost_aware.cost_aware_ei import DESIGN, CostAwareEI
from shoestring.policies.cost_aware.trial_costs import transfer_costs
from shoestring.runners.runner import write_receipt
from shoestring.runners.simulated.simulated_runner import StepOutcome
from shoestring.testing.policies import opened, simulate

SPACE = Space({"x": Float(0.0, 1.0), "rounds": Int(1, 256, log=True), "kind": Choice(["a", "b"])})
SMALL = CostAwareEI(initial_trials=2, candidates=40)


@dataclass(frozen=True)
class Made:
    """A loss of the config, and a cost of `rounds` hundredths of a second a step."""

    loss: Callable[[Config], float] = lambda config: (config["x"] - 0.6) ** 2 - 0.1 * math.log(config["rounds"])
    cost_scale: float = 0.01
    fails: Callable[[Config], bool] = lambda config: False

    def step(self, config: Config, step: int) -> StepOutcome:
        cost = Cost(train=self.cost_scale * config["rounds"], setup=0.005 if step == 1 else 0.0)
        if self.fails(config):
            return StepOutcome(None, cost, failure="out of memory")
        return StepOutcome(self.loss(config) + 1.0 / step, cost)


def study(policy: CostAwareEI, source: Made | None = None, **options: Any) -> Ledger:
    chosen: dict[str, Any] = {"space": SPACE, "budget": "25 epochs", "max_steps": 1} | options
    return simulate(policy, source or Made(), opened(policy, **chosen)).ledger


def begun(policy: CostAwareEI, trials: int, source: Made | None = None) -> Ledger:
    """A rich study after so many trials of one step."""
    ledger, source = Ledger([opened(policy, space=SPACE, budget="1000s", max_steps=1)]), source or Made()
    for _ in range(trials):
        decision = policy.decide(ledger, ledger.decision_rng())
        assert isinstance(decision, Train)
        order = ledger.accept(decision)
        assert order is not None
        outcome = source.step(order.config, 1)
        ledger = ledger.append(order).append(write_receipt(order, 1, outcome.value, outcome.cost, at=0.0, saved=0))
    return ledger


def at(ledger: Ledger, trials: int) -> Ledger:
    """The ledger when so many trials were finished (one worker, one step each)."""
    return ledger.fork(1 + 2 * trials)


def orders(ledger: Ledger) -> list[tuple[Any, int]]:
    return [(dict(order.config), order.until) for order in ledger.orders]


@pytest.mark.parametrize("rule", ["ei", "eipu", "ei_alpha", "cei"])
def test_a_large_space_in_which_nothing_is_continuous(rule: Any) -> None:
    space = Space(
        {"kind": Choice(["a", "b", "c"]), "rounds": Int(1, 100, log=True), "depth": Int(1, 100)}
    )  # 30,000 configs
    source = Made(loss=lambda config: abs(config["depth"] - 50) / 50 + (config["kind"] != "b"))
    ledger = study(replace(SMALL, acquisition=rule), source, space=space, budget="15s")
    assert ledger.best is not None
    assert ledger.best.config["kind"] == "b"


@pytest.mark.parametrize("rule", ["ei", "eipu", "ei_cool", "ei_alpha", "cei"])
def test_every_rule_finds_the_good_region(rule: Any) -> None:
    ledger = study(replace(SMALL, acquisition=rule, initial_trials=4), budget="20s")
    assert ledger.best is not None
    assert abs(ledger.best.config["x"] - 0.6) < 0.1
    assert {order.why["phase"] for order in ledger.orders} <= {DESIGN, rule}


def test_rules_differ_in_what_they_pay() -> None:
    """On one and the same ledger, the rules' predicted costs come in the order of their thrift."""
    ledger = begun(replace(SMALL, initial_trials=8), 8)
    variants = [
        replace(SMALL, acquisition="ei"),
        replace(SMALL, acquisition="ei_alpha", cost_exponent=0.3),
        replace(SMALL, acquisition="eipu"),
        replace(SMALL, acquisition="ei_alpha", cost_exponent=10.0),
    ]
    chosen = [policy.score_candidates(ledger, ledger.decision_rng()) for policy in variants]
    costs = [seen.found.log_cost[seen.found.index] for seen in chosen if seen is not None]
    assert len(costs) == 4
    assert all(b <= a + 0.05 for a, b in pairwise(costs))
    assert costs[-1] < costs[0]


def test_cei_chooses_on_the_front_and_says_so() -> None:
    ledger = begun(replace(SMALL, slack=0.3, initial_trials=4), 14)
    told: list[dict[str, Any]] = [dict(order.why) for order in ledger.orders if order.why["phase"] == "cei"]
    assert len(told) > 5
    for why in told:
        assert why["threshold"] <= why["ei"] * (1 + 1e-9) <= why["ei_max"] * (1 + 2e-9)
        assert 1 <= why["front_position"] <= why["front_size"]
        assert why["threshold"] == pytest.approx(0.7 * why["ei_max"])
        assert why["implied_alpha"] >= 0
    seen = SMALL.score_candidates(at(ledger, 6), np.random.default_rng(0))
    assert seen is not None
    assert seen.found.index in pareto_front(seen.found.log_ei, seen.found.log_cost)


def test_the_unit_of_cost_changes_no_choice() -> None:
    """Seconds in dollars at any rate: the same configs, bills in the other unit."""
    fast = study(SMALL, budget="4s")
    dear = study(SMALL, budget="$4 at 3600/h")
    assert orders(fast) == orders(dear)
    cheap = study(SMALL, budget="$8 at 7200/h")
    assert orders(fast) == orders(cheap)
    for one, other in zip(fast.orders, cheap.orders, strict=True):
        if one.why["phase"] == "cei":
            assert other.reserve == pytest.approx(2 * one.reserve, rel=1e-6)
            assert other.expected_cost == pytest.approx(2 * (one.expected_cost or 0), rel=1e-6)


def test_bills_come_from_the_cost_model() -> None:
    ledger = begun(replace(SMALL, initial_trials=6), 16)
    modelled = [order for order in ledger.orders if order.why["phase"] == "cei"][2:]
    assert modelled
    for order in modelled:
        real = 0.01 * order.config["rounds"] + 0.005
        assert order.expected_cost == pytest.approx(order.why["predicted_cost"], rel=1e-12)
        assert order.expected_cost == pytest.approx(real, rel=0.5)
        assert order.reserve >= (order.expected_cost or 0.0)


def test_what_cannot_be_paid_is_not_looked_at() -> None:
    policy = replace(SMALL, acquisition="ei", initial_trials=6)
    ledger = begun(policy, 8)
    poor = ledger.append(Amended(budget=Budget(f"{ledger.spent + 0.5}s")))
    rich, tight = (policy.decide(one, one.decision_rng()) for one in (ledger, poor))
    assert isinstance(rich, Train)
    assert isinstance(tight, Train)
    assert rich.reserve is not None
    assert tight.reserve is not None
    assert rich.reserve > 0.5 >= tight.reserve


def test_failed_configs_are_not_repeated_and_a_failing_region_is_avoided() -> None:
    source = Made(fails=lambda config: config["x"] > 0.5)
    ledger = study(replace(SMALL, initial_trials=4), source, budget="40 epochs")
    keys = [SPACE.key(trial.config) for trial in ledger.trials]
    assert len(set(keys)) == len(keys)
    later = [trial.config["x"] > 0.5 for trial in ledger.trials[15:]]
    assert sum(later) <= len(later) / 3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
def test_no_number_reaches_the_model_that_it_cannot_take(value: float) -> None:
    source = Made(loss=lambda config: value if config["kind"] == "a" else config["x"])
    ledger = study(SMALL, source, budget="20 epochs")
    assert len(ledger.trials) == 20
    assert all(math.isfinite(number) for order in ledger.orders for part in order.memo.values() for number in part)


def test_everything_fails_and_still_every_config_is_new() -> None:
    policy = replace(SMALL, cost_model="gp")
    mine = [Note(topic="enqueue", facts={"config": {"x": 0.1, "rounds": 9, "kind": "a"}})]
    source = Made(fails=lambda config: config["x"] != 0.1)
    ledger = simulate(policy, source, opened(policy, space=SPACE, budget="10 epochs", max_steps=1), *mine).ledger
    assert len({SPACE.key(trial.config) for trial in ledger.trials}) == len(ledger.trials) == 10


def test_workers_are_sent_to_different_places() -> None:
    ledger = begun(replace(SMALL, initial_trials=5), 8)
    configs = []
    for _ in range(4):
        decision = SMALL.decide(ledger, np.random.default_rng(0))  # one and the same stream: only the ledger differs
        assert isinstance(decision, Train)
        order = ledger.accept(decision)
        assert order is not None
        ledger = ledger.append(order)
        configs.append(SPACE.to_cube(decision.config))
    apart = [float(np.abs(a - b).max()) for i, a in enumerate(configs) for b in configs[:i]]
    assert min(apart) > 1e-3


def test_what_is_pending_is_believed_as_predicted() -> None:
    ledger = begun(replace(SMALL, initial_trials=5), 8)
    before = SMALL.score_candidates(ledger, np.random.default_rng(0))
    assert before is not None
    order = ledger.accept(Train(trial=8, config=before.config(before.found.index), until=1))
    assert order is not None
    after = SMALL.score_candidates(ledger.append(order), np.random.default_rng(0))
    assert after is not None
    assert after.found.log_ei.max() < before.found.log_ei.max()


def test_rows_of_a_table_are_all_scored_and_none_is_bought_twice() -> None:
    rows = [{"x": round(0.05 * i, 2), "rounds": 2 ** (i % 8), "kind": "ab"[i % 2]} for i in range(21)]
    space = Space.listed(rows)
    ledger = study(SMALL, space=space, budget="100 epochs")
    assert sorted(space.row_number(trial.config) or 0 for trial in ledger.trials) == list(range(21))
    seen = SMALL.score_candidates(at(ledger, 5), np.random.default_rng(0))
    assert seen is not None
    assert len(seen.found.points) == len(seen.pool.rows) == 21 - 5


def test_a_trial_that_the_wall_cut_short_is_finished_first() -> None:
    spent = study(SMALL, budget="14 epochs", max_steps=4)
    assert spent.trials[-1].steps == 2
    more = spent.append(Amended(budget=Budget("40 epochs")))
    decision = SMALL.decide(more, more.decision_rng())
    assert isinstance(decision, Train)
    assert (decision.trial, decision.until) == (3, 4)
    assert decision.memo == spent.orders[-1].memo


def test_trials_that_another_policy_stopped_are_not_finished() -> None:
    other = policies.make("asha")
    begun = simulate(other, Made(), opened(other, space=SPACE, budget="40 epochs", max_steps=9)).ledger
    assert any(0 < trial.steps < 9 for trial in begun.trials)
    taken = begun.append(Amended(budget=Budget("80 epochs"), policy=SMALL.name, settings=policies.settings_of(SMALL)))
    decision = SMALL.decide(taken, taken.decision_rng())
    assert isinstance(decision, Train)
    assert decision.trial == len(begun.trials)
    assert decision.why["phase"] == "cei"


def test_cooling_runs_from_cost_to_none() -> None:
    policy = replace(SMALL, acquisition="ei_cool", initial_trials=4)
    ledger = study(policy, budget="30s")
    exponents = [float(str(o.why["cost_exponent"])) for o in ledger.orders if o.why["phase"] == "ei_cool"]
    assert exponents[0] == pytest.approx(1.0, abs=0.02)
    assert exponents == sorted(exponents, reverse=True)
    assert exponents[-1] < 0.3
    designed = sum(t.step_costs[0] for t in ledger.trials[:4])
    spent = at(ledger, 9).spent
    assert ledger.orders[9].why["cost_exponent"] == pytest.approx((30 - spent) / (30 - designed))


def test_the_cheap_design_is_cheaper_and_ends_at_an_eighth() -> None:
    cheap = study(replace(SMALL, initial_design="cheap"), budget="20s")
    phases = [order.why["phase"] for order in cheap.orders]
    n = phases.count(DESIGN)
    assert phases[:n] == [DESIGN] * n
    assert at(cheap, n).spent >= 20 / 8
    assert at(cheap, n - 1).spent < 20 / 8
    fixed = study(replace(SMALL, initial_trials=n), budget="20s")
    assert sum(t.step_costs[0] for t in cheap.trials[1:n]) < sum(t.step_costs[0] for t in fixed.trials[1:n])


@pytest.mark.parametrize("model", ["auto", "lv1", "lv2", "lv3", "gp", "gp3", "gplv"])
def test_every_cost_model_learns_the_price(model: str) -> None:
    policy = replace(SMALL, cost_model=model, initial_trials=10, acquisition="ei")
    ledger = begun(policy, 17)
    later = [o for o in ledger.orders[12:] if o.why["phase"] == "ei"]
    missed = [abs(math.log((o.expected_cost or 0) / (0.01 * o.config["rounds"] + 0.005))) for o in later]
    assert np.median(missed) < 0.7
    kept = later[0].memo.get("cost_log_lengthscales")
    assert (kept is not None) == model.startswith(("gp", "auto"))


def test_the_process_of_costs_is_fitted_by_trials_and_travels_in_the_memo() -> None:
    ledger = begun(replace(SMALL, initial_trials=3), 44)
    due = [order.memo["cost_fitted_at"][0] for order in ledger.orders[3:]]
    assert due[:28] == [float(n) for n in range(3, 31)]
    assert due[28:] == [30.0] * 4 + [35.0] * 5 + [40.0] * 4
    at_rest = {tuple(order.memo["cost_log_lengthscales"]) for order in ledger.orders[33:38]}
    assert len(at_rest) == 2  # one fit at 30 trials, one at 35


def test_named_features_make_a_line_of_the_first_receipts() -> None:
    ledger = begun(replace(SMALL, cost_features=["rounds"], initial_trials=3), 20)
    fitted = ["cost_log_lengthscales" in order.memo for order in ledger.orders]
    assert fitted == [number >= 16 for number in range(20)]


def test_features_that_the_user_names_are_used() -> None:
    policy = replace(SMALL, cost_model="lv1", cost_features=["kind"], initial_trials=6)
    ledger = begun(policy, 8)
    by_kind: dict[str, set[float]] = {"a": set(), "b": set()}
    seen = policy.score_candidates(ledger, np.random.default_rng(0))
    assert seen is not None
    encoding = ledger.view(ConfigsView()).encoding
    for i in range(len(seen.found.points)):
        config = encoding.config(seen.found.points, i)
        by_kind[config["kind"]].add(round(float(seen.found.log_cost[i]), 9))
    assert [len(costs) for costs in by_kind.values()] == [1, 1]
    with pytest.raises(
        PolicyError, match=r"names 'round', which is not a parameter that varies\. Did you mean 'rounds'"
    ):
        begun(replace(policy, cost_features=["round"]), 8)


def test_a_transferred_cost_model_knows_the_price_at_once() -> None:
    earlier = [begun(replace(SMALL, initial_trials=12), 12, Made(cost_scale=s)) for s in (0.01, 0.02)]
    model = transfer_costs(earlier, ["rounds"], task_meta=[[math.log(0.01)], [math.log(0.02)]], meta=[math.log(0.04)])
    policy = replace(SMALL, cost_model="transfer", transferred=model)
    ledger = begun(policy, 4, Made(cost_scale=0.04))
    first = next(o for o in ledger.orders if o.why["phase"] == "cei")
    assert first.expected_cost == pytest.approx(0.04 * first.config["rounds"], rel=0.4)
    epochs = study(policy, Made(cost_scale=0.04), budget="10 epochs")
    assert all(order.expected_cost == 1.0 for order in epochs.orders)


def test_transfer_needs_finished_trials_of_the_same_space() -> None:
    done = study(SMALL, budget="5 epochs")
    with pytest.raises(PolicyError, match="trained to its end"):
        transfer_costs([done.fork(1)], ["rounds"])
    with pytest.raises(PolicyError, match="one space"):
        transfer_costs(
            [done, study(SMALL, space=Space({"rounds": Int(1, 9), "x": Float(0, 1)}), budget="5 epochs")], ["x"]
        )


def test_setup_counts_and_validation_too() -> None:
    ledger = study(SMALL, budget="2s", max_steps=2)
    trial = ledger.trials[0]
    assert trial.seconds == pytest.approx(sum(trial.step_costs))
    priced = study(SMALL, budget="30 epochs", max_steps=3, prices=Prices(validate_epochs=0.5))
    assert {order.expected_cost for order in priced.orders[:3]} == {4.5}


def test_refits_are_due_by_results_and_travel_in_the_memo() -> None:
    ledger = study(replace(SMALL, initial_trials=3), budget="45 epochs")
    due, afresh = 3, 3
    for results, order in enumerate(ledger.orders[3:], start=3):
        if results >= 1.5 * afresh:
            due = afresh = results
        elif results <= 30 or results >= due + 5:
            due = results
        assert order.memo["fitted_at"] == [due, afresh]
    at_rest = [o.memo for o in ledger.orders if o.memo.get("fitted_at") == [30.0, 27.0]]
    assert len(at_rest) == 5
    assert all(memo == at_rest[0] for memo in at_rest)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"acquisition": "ce"}, "acquisition='ce'.*Did you mean 'cei'"),
        ({"cost_model": "lv4"}, "cost_model='lv4'.*Did you mean"),
        ({"initial_design": "costly"}, "initial_design='costly'"),
        ({"slack": 1.5}, "slack=1.5.*from 0 to 1.*Try 0.5"),
        ({"slack": math.nan}, "slack=nan"),
        ({"cost_exponent": -1}, "cost_exponent=-1.*>= 0.*Try 0.2"),
        ({"initial_trials": 0}, "initial_trials=0.*integer >= 1.*Try 5"),
        ({"candidates": 2.5}, "candidates=2.5.*integer"),
        ({"cost_features": "rounds"}, r"cost_features='rounds'.*write \['rounds'\]"),
        ({"cost_model": "transfer"}, "cost_model='transfer'.*Give both or neither"),
        ({"transferred": {"weights": [1.0]}}, "go together"),
        ({"log_losses": "yes"}, "log_losses='yes'"),
    ],
)
def test_settings_out_of_range_say_so(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        CostAwareEI(**settings)


def test_log_losses_see_small_differences_near_the_best() -> None:
    source = Made(loss=lambda config: 10.0 ** (4 * abs(config["x"] - 0.6)) - 1.0)
    ledger = study(replace(SMALL, log_losses=True, initial_trials=4), source, budget="25 epochs")
    assert ledger.best is not None
    assert abs(ledger.best.config["x"] - 0.6) < 0.05


def test_an_order_is_what_was_decided() -> None:
    start = Ledger([Opened(space=SPACE, budget=Budget("9 epochs"), policy=SMALL.name, settings={}, seed=3)])
    decision = SMALL.decide(start, start.decision_rng())
    assert isinstance(decision, Train)
    assert isinstance(start.accept(decision), Order)
    assert decision.why == {"compared": 0, "phase": DESIGN}
