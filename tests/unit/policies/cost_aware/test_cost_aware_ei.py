"""Cost-aware EI as a policy: its rules on a table with known costs, failures, several workers, costs in dollars, settings."""

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
from shoestring.core.ledger.entries import Amendment, Cost, Note, Order, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Config, Space
from shoestring.errors import PolicyError
from shoestring.models.cost_aware.linear import LinearCost
from shoestring.models.cost_aware.trade_off import pareto_front
from shoestring.models.gp.fit import make_log_likelihood
from shoestring.models.gp.posterior import GP
from shoestring.policies.config_table import ConfigsView
from shoestring.policies.cost_aware.cost_aware_ei import DESIGN, CostAwareEI
from shoestring.reports.reasons import describe_reason, label_numbers
from shoestring.runners.runner import write_receipt
from shoestring.runners.simulated.simulated_runner import StepOutcome
from shoestring.study.transfer import transfer_costs
from shoestring.testing.policies import make_definition, simulate

SPACE = Space({"x": Float(0.0, 1.0), "rounds": Int(1, 256, log=True), "kind": Choice(["a", "b"])})
SMALL = CostAwareEI(initial_trials=2, candidates=40)


@dataclass(frozen=True)
class FormulaCurves:
    """A loss that depends on the configuration, and a cost of `rounds` hundredths of a second a step."""

    loss: Callable[[Config], float] = lambda config: (config["x"] - 0.6) ** 2 - 0.1 * math.log(config["rounds"])
    cost_scale: float = 0.01
    fails: Callable[[Config], bool] = lambda config: False

    def step(self, config: Config, step: int) -> StepOutcome:
        cost = Cost(train=self.cost_scale * config["rounds"], setup=0.005 if step == 1 else 0.0)
        if self.fails(config):
            return StepOutcome(None, cost, failure="out of memory")
        return StepOutcome(self.loss(config) + 1.0 / step, cost)


def study(policy: CostAwareEI, source: FormulaCurves | None = None, **options: Any) -> Ledger:
    chosen: dict[str, Any] = {"space": SPACE, "budget": "25 epochs", "max_steps": 1} | options
    return simulate(policy, source or FormulaCurves(), make_definition(policy, **chosen)).ledger


def train_trials(policy: CostAwareEI, trials: int, source: FormulaCurves | None = None) -> Ledger:
    """Return a study with much budget after so many trials of one step."""
    ledger, source = (
        Ledger([make_definition(policy, space=SPACE, budget="1000s", max_steps=1)]),
        source or FormulaCurves(),
    )
    for _ in range(trials):
        decision = policy.decide(ledger, ledger.decision_rng())
        assert isinstance(decision, Train)
        order = place_order(ledger, decision)
        assert order is not None
        outcome = source.step(order.config, 1)
        ledger = ledger.append(order).append(write_receipt(order, 1, outcome.value, outcome.cost, at=0.0, saved_step=0))
    return ledger


def cut_after(ledger: Ledger, trials: int) -> Ledger:
    """Return the ledger after so many finished trials (one worker, one step each)."""
    return ledger.fork(1 + 2 * trials)


def orders(ledger: Ledger) -> list[tuple[Any, int]]:
    return [(dict(order.config), order.until) for order in ledger.orders]


@pytest.mark.parametrize("rule", ["ei", "eipu", "ei_alpha", "cei"])
def test_a_large_space_in_which_nothing_is_continuous(rule: Any) -> None:
    space = Space(
        {"kind": Choice(["a", "b", "c"]), "rounds": Int(1, 100, log=True), "depth": Int(1, 100)}
    )  # 30,000 configs
    source = FormulaCurves(loss=lambda config: abs(config["depth"] - 50) / 50 + (config["kind"] != "b"))
    ledger = study(replace(SMALL, acquisition=rule), source, space=space, budget="15s")
    assert ledger.best is not None
    assert ledger.best.config["kind"] == "b"


@pytest.mark.parametrize("rule", ["ei", "eipu", "ei_cool", "ei_alpha", "cei"])
def test_every_rule_finds_the_good_region(rule: Any) -> None:
    ledger = study(replace(SMALL, acquisition=rule, initial_trials=4), budget="20s")
    assert ledger.best is not None
    assert abs(ledger.best.config["x"] - 0.6) < 0.1
    assert {order.why["phase"] for order in ledger.orders} <= {DESIGN, rule}


def test_rules_differ_in_the_predicted_cost() -> None:
    """On the same ledger, rules that save more choose configurations of lower predicted cost."""
    ledger = train_trials(replace(SMALL, initial_trials=8), 8)
    variants = [
        replace(SMALL, acquisition="ei"),
        replace(SMALL, acquisition="ei_alpha", cost_exponent=0.3),
        replace(SMALL, acquisition="eipu"),
        replace(SMALL, acquisition="ei_alpha", cost_exponent=10.0),
    ]
    chosen = [policy.score_candidates(ledger, ledger.decision_rng()) for policy in variants]
    costs = [scored.found.log_cost[scored.found.index] for scored in chosen if scored is not None]
    assert len(costs) == 4
    assert all(b <= a + 0.05 for a, b in pairwise(costs))
    assert costs[-1] < costs[0]


def test_cei_chooses_on_the_front_and_reports_it() -> None:
    ledger = train_trials(replace(SMALL, slack=0.3, initial_trials=4), 14)
    reasons: list[dict[str, Any]] = [dict(order.why) for order in ledger.orders if order.why["phase"] == "cei"]
    assert len(reasons) > 5
    for why in reasons:
        assert why["threshold"] <= why["ei"] * (1 + 1e-9) <= why["ei_max"] * (1 + 2e-9)
        assert 1 <= why["front_position"] <= why["front_size"]
        assert why["threshold"] == pytest.approx(0.7 * why["ei_max"])
        assert why["implied_alpha"] >= 0
    scored = SMALL.score_candidates(cut_after(ledger, 6), np.random.default_rng(0))
    assert scored is not None
    assert scored.found.index in pareto_front(scored.found.log_ei, scored.found.log_cost)


def test_the_unit_of_cost_changes_no_choice() -> None:
    """Convert seconds to dollars at some rate: the configurations stay the same, and costs are in dollars."""
    fast = study(SMALL, budget="4s")
    in_dollars = study(SMALL, budget="$4 at 3600/h")
    assert orders(fast) == orders(in_dollars)
    cheap = study(SMALL, budget="$8 at 7200/h")
    assert orders(fast) == orders(cheap)
    for one, other in zip(fast.orders, cheap.orders, strict=True):
        if one.why["phase"] == "cei":
            assert other.reserve == pytest.approx(2 * one.reserve, rel=1e-6)
            assert other.expected_cost == pytest.approx(2 * (one.expected_cost or 0), rel=1e-6)


def test_expected_costs_come_from_the_cost_model() -> None:
    ledger = train_trials(replace(SMALL, initial_trials=6), 16)
    modelled = [order for order in ledger.orders if order.why["phase"] == "cei"][2:]
    assert modelled
    for order in modelled:
        real = 0.01 * order.config["rounds"] + 0.005
        assert order.expected_cost == pytest.approx(order.why["predicted_cost"], rel=1e-12)
        assert order.expected_cost == pytest.approx(real, rel=0.5)
        assert order.reserve >= (order.expected_cost or 0.0)


def test_configs_that_are_too_expensive_are_no_candidates() -> None:
    policy = replace(SMALL, acquisition="ei", initial_trials=6)
    ledger = train_trials(policy, 8)
    with_budget = policy.decide(ledger, ledger.decision_rng())
    almost_spent = ledger.append(Amendment(budget=Budget(f"{ledger.spent + 0.5}s")))
    tight = policy.decide(almost_spent, almost_spent.decision_rng())
    assert isinstance(with_budget, Train)
    assert isinstance(tight, Train)
    assert with_budget.reserve is not None
    assert tight.reserve is not None
    assert with_budget.reserve > 0.5 >= tight.reserve


def test_failed_configs_are_not_repeated_and_a_failing_region_is_avoided() -> None:
    source = FormulaCurves(fails=lambda config: config["x"] > 0.5)
    ledger = study(replace(SMALL, initial_trials=4), source, budget="40 epochs")
    keys = [SPACE.key(trial.config) for trial in ledger.trials]
    assert len(set(keys)) == len(keys)
    later = [trial.config["x"] > 0.5 for trial in ledger.trials[15:]]
    assert sum(later) <= len(later) / 3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
def test_numbers_that_a_model_cannot_use_are_replaced(value: float) -> None:
    source = FormulaCurves(loss=lambda config: value if config["kind"] == "a" else config["x"])
    ledger = study(SMALL, source, budget="20 epochs")
    assert len(ledger.trials) == 20
    assert all(math.isfinite(number) for order in ledger.orders for part in order.memo.values() for number in part)


def test_every_config_is_new_even_if_all_trials_fail() -> None:
    policy = replace(SMALL, cost_model="gp")
    mine = [Note(topic="enqueue", facts={"config": {"x": 0.1, "rounds": 9, "kind": "a"}})]
    source = FormulaCurves(fails=lambda config: config["x"] != 0.1)
    ledger = simulate(
        policy, source, make_definition(policy, space=SPACE, budget="10 epochs", max_steps=1), *mine
    ).ledger
    assert len({SPACE.key(trial.config) for trial in ledger.trials}) == len(ledger.trials) == 10


def test_workers_train_different_configs() -> None:
    ledger = train_trials(replace(SMALL, initial_trials=5), 8)
    configs = []
    for _ in range(4):
        decision = SMALL.decide(ledger, np.random.default_rng(0))  # one and the same stream: only the ledger differs
        assert isinstance(decision, Train)
        order = place_order(ledger, decision)
        assert order is not None
        ledger = ledger.append(order)
        configs.append(SPACE.to_cube(decision.config))
    distances = [float(np.abs(a - b).max()) for i, a in enumerate(configs) for b in configs[:i]]
    assert min(distances) > 1e-3


def test_a_trial_under_way_counts_as_predicted() -> None:
    ledger = train_trials(replace(SMALL, initial_trials=5), 8)
    before = SMALL.score_candidates(ledger, np.random.default_rng(0))
    assert before is not None
    order = place_order(ledger, Train(trial=8, config=before.config(before.found.index), until=1))
    assert order is not None
    after = SMALL.score_candidates(ledger.append(order), np.random.default_rng(0))
    assert after is not None
    assert after.found.log_ei.max() < before.found.log_ei.max()


def test_all_rows_of_a_table_are_scored_and_none_is_trained_twice() -> None:
    rows = [{"x": round(0.05 * i, 2), "rounds": 2 ** (i % 8), "kind": "ab"[i % 2]} for i in range(21)]
    space = Space.from_configs(rows)
    ledger = study(SMALL, space=space, budget="100 epochs")
    assert sorted(space.row_number(trial.config) or 0 for trial in ledger.trials) == list(range(21))
    scored = SMALL.score_candidates(cut_after(ledger, 5), np.random.default_rng(0))
    assert scored is not None
    assert len(scored.found.points) == len(scored.pool.rows) == 21 - 5


def test_a_trial_that_the_budget_limit_interrupted_is_completed_first() -> None:
    spent = study(SMALL, budget="14 epochs", max_steps=4)
    assert spent.trials[-1].steps == 2
    more = spent.append(Amendment(budget=Budget("40 epochs")))
    decision = SMALL.decide(more, more.decision_rng())
    assert isinstance(decision, Train)
    assert (decision.trial, decision.until) == (3, 4)
    assert decision.memo == more.orders[-1].memo


def test_trials_that_another_policy_stopped_are_not_completed() -> None:
    other = policies.make("asha")
    begun = simulate(
        other, FormulaCurves(), make_definition(other, space=SPACE, budget="40 epochs", max_steps=9)
    ).ledger
    assert any(0 < trial.steps < 9 for trial in begun.trials)
    amended = begun.append(
        Amendment(budget=Budget("80 epochs"), policy=SMALL.name, settings=policies.settings_of(SMALL))
    )
    decision = SMALL.decide(amended, amended.decision_rng())
    assert isinstance(decision, Train)
    assert decision.trial == len(amended.trials)
    assert decision.why["phase"] == "cei"


def test_the_exponent_of_cooling_falls_to_0() -> None:
    policy = replace(SMALL, acquisition="ei_cool", initial_trials=4)
    ledger = study(policy, budget="30s")
    exponents = [float(str(o.why["cost_exponent"])) for o in ledger.orders if o.why["phase"] == "ei_cool"]
    assert exponents[0] == pytest.approx(1.0, abs=0.02)
    assert exponents == sorted(exponents, reverse=True)
    assert exponents[-1] < 0.3
    designed = sum(t.step_costs[0] for t in ledger.trials[:4])
    spent = cut_after(ledger, 9).spent
    assert ledger.orders[9].why["cost_exponent"] == pytest.approx((30 - spent) / (30 - designed))


def test_the_cheap_design_is_cheaper_and_ends_at_an_eighth() -> None:
    cheap = study(replace(SMALL, initial_design="cheap"), budget="20s")
    phases = [order.why["phase"] for order in cheap.orders]
    n = phases.count(DESIGN)
    assert phases[:n] == [DESIGN] * n
    assert cut_after(cheap, n).spent >= 20 / 8
    assert cut_after(cheap, n - 1).spent < 20 / 8
    fixed = study(replace(SMALL, initial_trials=n), budget="20s")
    assert sum(t.step_costs[0] for t in cheap.trials[1:n]) < sum(t.step_costs[0] for t in fixed.trials[1:n])


@pytest.mark.parametrize("model", ["auto", "lv1", "lv2", "lv3", "gp", "gp3", "gplv"])
def test_every_cost_model_learns_the_cost(model: str) -> None:
    policy = replace(SMALL, cost_model=model, initial_trials=10, acquisition="ei")
    ledger = train_trials(policy, 17)
    later = [o for o in ledger.orders[12:] if o.why["phase"] == "ei"]
    log_errors = [abs(math.log((o.expected_cost or 0) / (0.01 * o.config["rounds"] + 0.005))) for o in later]
    assert np.median(log_errors) < 0.7
    lengthscales = later[0].memo.get("cost_log_lengthscales")
    assert (lengthscales is not None) == model.startswith(("gp", "auto"))


def test_the_cost_gp_is_fitted_by_trials_and_kept_in_the_memo() -> None:
    ledger = train_trials(replace(SMALL, initial_trials=3), 44)
    due = [order.memo["cost_fitted_at"][0] for order in ledger.orders[3:]]
    assert due[:28] == [float(n) for n in range(3, 31)]
    assert due[28:] == [30.0] * 4 + [35.0] * 5 + [40.0] * 4
    at_rest = {tuple(order.memo["cost_log_lengthscales"]) for order in ledger.orders[33:38]}
    assert len(at_rest) == 2  # one fit at 30 trials, one at 35


def test_named_features_give_a_linear_model_of_the_first_receipts() -> None:
    ledger = train_trials(replace(SMALL, cost_features=["rounds"], initial_trials=3), 20)
    fitted = ["cost_log_lengthscales" in order.memo for order in ledger.orders]
    assert fitted == [number >= 16 for number in range(20)]


def test_features_that_the_user_names_are_used() -> None:
    policy = replace(SMALL, cost_model="lv1", cost_features=["kind"], initial_trials=6)
    ledger = train_trials(policy, 8)
    by_kind: dict[str, set[float]] = {"a": set(), "b": set()}
    scored = policy.score_candidates(ledger, np.random.default_rng(0))
    assert scored is not None
    encoding = ledger.view(ConfigsView()).encoding
    for i in range(len(scored.found.points)):
        config = encoding.config(scored.found.points, i)
        by_kind[config["kind"]].add(round(float(scored.found.log_cost[i]), 9))
    assert [len(costs) for costs in by_kind.values()] == [1, 1]
    with pytest.raises(
        PolicyError, match=r"names 'round', which is not a parameter that varies\. Did you mean 'rounds'"
    ):
        train_trials(replace(policy, cost_features=["round"]), 8)


def test_a_transferred_cost_model_predicts_from_the_start() -> None:
    earlier = [train_trials(replace(SMALL, initial_trials=12), 12, FormulaCurves(cost_scale=s)) for s in (0.01, 0.02)]
    model = transfer_costs(earlier, ["rounds"], task_meta=[[math.log(0.01)], [math.log(0.02)]], meta=[math.log(0.04)])
    policy = replace(SMALL, cost_model="transfer", transferred=model)
    ledger = train_trials(policy, 4, FormulaCurves(cost_scale=0.04))
    first = next(o for o in ledger.orders if o.why["phase"] == "cei")
    assert first.expected_cost == pytest.approx(0.04 * first.config["rounds"], rel=0.4)
    epochs = study(policy, FormulaCurves(cost_scale=0.04), budget="10 epochs")
    assert all(order.expected_cost == 1.0 for order in epochs.orders)


def test_transfer_needs_finished_trials_of_the_same_space() -> None:
    spent_study = study(SMALL, budget="5 epochs")
    with pytest.raises(PolicyError, match="trained to its end"):
        transfer_costs([spent_study.fork(1)], ["rounds"])
    with pytest.raises(PolicyError, match="one space"):
        transfer_costs(
            [spent_study, study(SMALL, space=Space({"rounds": Int(1, 9), "x": Float(0, 1)}), budget="5 epochs")], ["x"]
        )


def test_costs_are_transferred_between_spaces_that_differ_in_marks_only() -> None:
    marked = Space({**SPACE.parameters, "rounds": Int(1, 256, log=True, cost="increases")})
    studies = [study(SMALL, budget="5 epochs"), study(SMALL, space=marked, budget="5 epochs")]
    assert transfer_costs(studies, ["rounds"])["weights"]


# marks of the cost ----------------------------------------------------------------------------------------------------

MARKED = Space({**SPACE.parameters, "rounds": Int(1, 256, log=True, cost="increases")})


@pytest.mark.parametrize("seed", range(8))
def test_the_first_trial_of_a_marked_space_never_costs_the_budget(seed: int) -> None:
    """Without the mark the first trial of some of these seeds costs more than 1 s of 1 s."""
    ledger = study(replace(SMALL, initial_trials=4), space=MARKED, budget="1s", seed=seed)
    assert ledger.trials[0].config["rounds"] == 1
    assert len(ledger.trials) >= 5
    assert ledger.best is not None


def test_without_the_mark_some_first_trials_cost_the_budget() -> None:
    trials = [len(study(replace(SMALL, initial_trials=4), budget="1s", seed=seed).trials) for seed in range(8)]
    assert min(trials) == 1


def test_explain_says_where_a_marked_design_starts() -> None:
    ledger = study(replace(SMALL, initial_trials=3), space=MARKED, budget="20s")
    words = [describe_reason(order, ledger) for order in ledger.orders[:2]]
    assert words[0].endswith("; part of the initial design, which starts at the cheap end of rounds")
    assert words[1].endswith("; part of the initial design, which moves away from the cheap end of rounds")
    assert dict(ledger.orders[1].why) == {"compared": 0, "phase": DESIGN, "cheap_end_of": "rounds", "cost_share": 0.4}
    labels = [label for label, _ in label_numbers(ledger.orders[1], ledger)]
    assert "parameters at whose cheap end the initial design starts" in labels
    assert "share of their ranges that this trial could use, from the cheap end" in labels


def test_the_default_policy_starts_at_the_cheap_end_too() -> None:
    """It uses `cost_aware_ei` where a full training has one step."""
    policy = policies.make(policies.DEFAULT)
    ledger = simulate(policy, FormulaCurves(), make_definition(policy, space=MARKED, budget="20s", max_steps=1)).ledger
    assert ledger.trials[0].config["rounds"] == 1
    assert ledger.orders[0].why["cheap_end_of"] == "rounds"


def test_setup_counts_and_validation_too() -> None:
    ledger = study(SMALL, budget="2s", max_steps=2)
    trial = ledger.trials[0]
    assert trial.seconds == pytest.approx(sum(trial.step_costs))
    priced = study(SMALL, budget="30 epochs", max_steps=3, prices=Prices(validate_epochs=0.5))
    assert {order.expected_cost for order in priced.orders[:3]} == {4.5}


def test_refits_are_due_by_results_and_kept_in_the_memo() -> None:
    ledger = study(replace(SMALL, initial_trials=3), budget="45 epochs")
    due, searched = 3, 3
    for results, order in enumerate(ledger.orders[3:], start=3):
        if results >= 1.5 * searched:
            due = searched = results
        elif results <= 30 or results >= due + 5:
            due = results
        assert order.memo["fitted_at"] == [due, searched]
    at_rest = [o.memo for o in ledger.orders if o.memo.get("fitted_at") == [30.0, 27.0]]
    assert len(at_rest) == 5
    assert all(memo == at_rest[0] for memo in at_rest)


def test_the_printed_form_fits_by_likelihood_alone() -> None:
    """Parameters that maximise likelihood and priors together have a lower likelihood."""
    ledger = train_trials(CostAwareEI(initial_trials=4, candidates=40), 8)
    likelihood = {}
    for printed in (False, True):
        policy = CostAwareEI(initial_trials=4, candidates=40, printed=printed)
        scored = policy.score_candidates(ledger, ledger.decision_rng())
        assert scored is not None
        gp = scored.gp
        assert isinstance(gp, GP)
        fitted = make_log_likelihood(gp.kernel, gp.kernel.pairs(gp.x), (gp.y - gp.shift) / gp.scale)
        likelihood[printed] = fitted(gp.theta)[0]
    assert likelihood[True] > likelihood[False] + 0.1


def test_the_printed_cost_model_uses_three_features_at_once() -> None:
    parameters = ("rounds", "x", "kind")
    for printed, size in ((False, 1), (True, 3)):
        policy = CostAwareEI(initial_trials=4, cost_features=parameters, printed=printed)
        ledger = train_trials(policy, 5)
        model = policy._costs(ledger, ledger.view(ConfigsView())).model
        assert isinstance(model, LinearCost)
        assert len(model.columns) == size


def test_the_printed_design_does_not_begin_at_cheap_ends() -> None:
    marked = Space({"x": Float(0.0, 1.0), "rounds": Int(1, 256, log=True, cost="increases")})
    rounds = {}
    for printed in (False, True):
        policy = CostAwareEI(candidates=40, printed=printed)
        start = make_definition(policy, space=marked, budget="20s", max_steps=1)
        rounds[printed] = simulate(policy, FormulaCurves(), start).ledger.orders[0].config["rounds"]
    assert rounds[False] == 1 < rounds[True]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"acquisition": "ce"}, r"acquisition='ce'.*'cei'\?"),
        ({"cost_model": "lv4"}, r"cost_model='lv4'.*'lv\d'\?"),
        ({"initial_design": "costly"}, "initial_design='costly'"),
        ({"slack": 1.5}, r"slack=1\.5.* 0\.5"),
        ({"slack": math.nan}, "slack=nan"),
        ({"cost_exponent": -1}, r"cost_exponent=-1.*>= 0.* 0\.2"),
        ({"initial_trials": 0}, "initial_trials=0.*>= 1.* 5"),
        ({"candidates": 2.5}, r"candidates=2\.5"),
        ({"cost_features": "rounds"}, r"cost_features='rounds'.*write \['rounds'\]"),
        ({"transferred": {"weights": [1.0]}}, "cost_model='auto'.*does not use `transferred`"),
    ],
)
def test_settings_out_of_range_are_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        CostAwareEI(**settings)


def test_an_order_equals_its_decision() -> None:
    start = Ledger([StudyDefinition(space=SPACE, budget=Budget("9 epochs"), policy=SMALL.name, settings={}, seed=3)])
    decision = SMALL.decide(start, start.decision_rng())
    assert isinstance(decision, Train)
    assert isinstance(place_order(start, decision), Order)
    assert decision.why == {"compared": 0, "phase": DESIGN}
