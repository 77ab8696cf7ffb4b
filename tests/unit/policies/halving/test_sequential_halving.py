from __future__ import annotations

import math

import pytest

from shoestring.core.deciding.decision import Train, Why
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Amendment, Cost, Note, Order, Receipt, StateLoss, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Space
from shoestring.errors import PolicyError
from shoestring.policies.halving.sequential_halving import ArmCost, SequentialHalving, count_rounds, find_common_step
from shoestring.testing.curves import DecayingCurves, DivergingCurves, FailingCurves, NoisyCurves
from shoestring.testing.policies import make_definition, simulate

POLICY = SequentialHalving()


def steps(ledger: Ledger) -> list[int]:
    return sorted((trial.steps for trial in ledger.trials), reverse=True)


def test_the_number_of_arms_grows_with_the_budget() -> None:
    assert POLICY.count_arms(50, 50) == 12  # round(12.5): half to even
    assert POLICY.count_arms(100, 50) == 25
    assert POLICY.count_arms(500, 50) == 125
    assert POLICY.count_arms(3, 50) == 2  # never fewer
    assert POLICY.count_arms(20, 10) == 10  # short curves: one for every two steps
    assert SequentialHalving(arms=7).count_arms(50, 50) == 7


def test_rounds_divide_the_arms_until_one_is_left() -> None:
    assert [count_rounds(n, 2) for n in (1, 2, 3, 4, 5, 12, 16, 17)] == [0, 1, 2, 2, 3, 4, 4, 5]
    assert [count_rounds(n, 3) for n in (1, 3, 4, 9, 27, 28)] == [0, 1, 2, 2, 3, 4]


def test_the_common_step_is_what_the_share_pays_for() -> None:
    assert find_common_step(12.5, [ArmCost(0, 50, 12.0, 0)]) == 1
    assert find_common_step(38 / 3, [ArmCost(1, 50, 1.0, 1)] * 6) == 3
    assert (
        find_common_step(10.0, [ArmCost(0, 50, 1.0, 0), ArmCost(6, 50, 1.0, 6)]) == 8
    )  # the less trained arm catches up first
    assert find_common_step(5.0, [ArmCost(0, 50, 1.0, 0), ArmCost(6, 50, 1.0, 6)]) == 5
    assert find_common_step(100.0, [ArmCost(3, 9, 1.0, 3), ArmCost(3, 50, 2.0, 3)]) == 50
    assert find_common_step(0.1, [ArmCost(4, 50, 1.0, 4)]) == 5  # one step at least
    assert find_common_step(10.0, [ArmCost(4, 50, 1.0, 0)]) == 10  # all of it has to be trained again
    assert (
        find_common_step(4.0, [ArmCost(4, 50, 1.0, 0), ArmCost(2, 50, 1.0, 2)]) == 4
    )  # but not an arm that need not continue


def test_a_round_has_no_more_arms_than_its_share_pays_for() -> None:
    """20 arms (one for every two steps) get 1 step each in the first of 5 rounds. A quarter of the other 20 steps pays for 1
    step of 5 of the best 10, and a third of 15 for 2 steps of 2 arms. The best gets 6 steps to its end, the next best 5."""
    ledger = simulate(POLICY, DecayingCurves(), make_definition(POLICY, budget="40 epochs", max_steps=10)).ledger
    assert steps(ledger) == [10, 9, 2, 2, 2, *[1] * 15]


def test_under_a_budget_of_time_lost_states_are_trained_again() -> None:
    """A quarter of 20 seconds pays for a second step of 5 arms, but only of 2 if the first step must be trained again."""
    start = make_definition(POLICY, budget="40s", max_steps=10)
    ledger = simulate(POLICY, DecayingCurves(spread=1.0), start).ledger
    second_round = next(order for order in ledger.orders if order.until > 1)
    first_round = list(ledger.entries())[
        : 1 + 2 * second_round.number
    ]  # the opening, an order and a receipt for each arm
    losses = [StateLoss(trial=trial, resumable_step=0, why="no room") for trial in range(second_round.number)]
    ledgers = Ledger(first_round), Ledger([*first_round, *losses])
    decisions = [POLICY.decide(state, state.decision_rng()) for state in ledgers]
    assert [len(decision.memo["arms"]) for decision in decisions if isinstance(decision, Train)] == [5, 2]


def test_fifty_epochs_are_spent_as_computed_by_hand() -> None:
    """12 arms, 4 rounds: 1 step each (12 epochs of 50/4), 6 arms 2 more (12 of 38/3), 3 arms 4 more (12 of 26/2), the
    last arm gets the rest (14)."""
    ledger = simulate(POLICY, DecayingCurves(), make_definition(POLICY, budget="50 epochs", max_steps=50)).ledger
    assert ledger.spent == 50
    assert steps(ledger) == [21, 7, 7, 3, 3, 3, 1, 1, 1, 1, 1, 1]
    first = sorted(ledger.trials, key=lambda trial: trial.losses[0])  # type: ignore[arg-type, return-value]
    assert {trial.number for trial in first[:6]} == {trial.number for trial in ledger.trials if trial.steps >= 3}


def test_with_a_power_of_two_arms_each_round_spends_the_same() -> None:
    """16 arms, 4 rounds, 64 epochs: 16, 8, 4 and 2 arms spend 16 each, so nothing remains for the last."""
    policy = SequentialHalving(arms=16)
    ledger = simulate(policy, DecayingCurves(), make_definition(policy, budget="64 epochs", max_steps=50)).ledger
    assert steps(ledger) == [15, 15, 7, 7, 3, 3, 3, 3, *[1] * 8]


def test_the_next_best_get_what_the_last_arm_cannot_use() -> None:
    policy = SequentialHalving(arms=2)
    ledger = simulate(policy, DecayingCurves(), make_definition(policy, budget="23 epochs", max_steps=10)).ledger
    assert ledger.spent == 23
    assert steps(ledger) == [10, 10, 2, 1]  # both are at their end: another race of two with the 3 epochs that are left


def test_another_race_begins_when_every_trial_has_ended() -> None:
    start = make_definition(POLICY, budget="40 epochs")
    ledger = simulate(POLICY, DivergingCurves(DecayingCurves(), share=1.0, before=2), start).ledger
    assert len(ledger.trials) > len(simulate(POLICY, DecayingCurves(), start).ledger.trials)
    assert ledger.spent == 40


def test_one_step_trials_are_quasi_random_search() -> None:
    ledger = simulate(POLICY, DecayingCurves(), make_definition(POLICY, budget="33 epochs", max_steps=1)).ledger
    assert steps(ledger) == [1] * 33
    assert len({trial.config["lr"] for trial in ledger.trials}) == 33


@pytest.mark.parametrize("budget", ["200s", "$1.001 at 18/h"])  # 200 steps of a second
@pytest.mark.parametrize("workers", [1, 4])
def test_time_is_converted_at_the_price_of_the_first_arms(budget: str, workers: int) -> None:
    source = DecayingCurves(spread=1.0)  # every step takes one second
    start = make_definition(POLICY, budget=budget, max_steps=50, workers=workers)
    ledger = simulate(POLICY, source, start).ledger
    in_epochs = simulate(POLICY, source, make_definition(POLICY, budget="200 epochs", max_steps=50)).ledger
    assert len(ledger.trials) == len(in_epochs.trials) == 50
    assert ledger.budget.total - ledger.spent <= ledger.step_price()
    assert max(steps(ledger)) == max(steps(in_epochs))


def test_every_round_is_planned_with_the_present_prices() -> None:
    ledger = simulate(POLICY, DecayingCurves(spread=10.0), make_definition(POLICY, budget="300s", max_steps=30)).ledger
    price = ledger.step_price()
    assert ledger.spent <= 300
    assert 300 - ledger.spent <= 30 * price
    assert max(steps(ledger)) >= 5 * min(steps(ledger))


def test_a_raised_budget_starts_the_missing_arms() -> None:
    spent = simulate(POLICY, DecayingCurves(), make_definition(POLICY, budget="50 epochs", max_steps=50)).ledger
    winner = max(spent.trials, key=lambda trial: (trial.steps, -trial.last_loss)).number
    ledger = simulate(POLICY, DecayingCurves(), *spent.entries(), Amendment(budget=Budget("100 epochs"))).ledger
    assert ledger.spent == 100
    assert len(ledger.trials) == POLICY.count_arms(100, 50)
    race = next(order for order in ledger.orders[len(spent.orders) :] if "arms" in order.memo)
    assert winner in [int(number) for number in race.memo["arms"]]


def test_a_raise_too_small_for_another_arm_trains_the_best() -> None:
    policy = SequentialHalving(arms=4)
    spent = simulate(policy, DecayingCurves(), make_definition(policy, budget="20 epochs", max_steps=50)).ledger
    ledger = simulate(policy, DecayingCurves(), *spent.entries(), Amendment(budget=Budget("25 epochs"))).ledger
    assert len(ledger.trials) == 4
    assert ledger.spent == 25


def test_a_config_enqueued_late_joins_the_round() -> None:
    whole = simulate(POLICY, DecayingCurves(), make_definition(POLICY, budget="50 epochs", max_steps=50)).ledger
    late = {"lr": 0.5, "layers": 2, "optimizer": "adam"}
    half = whole.entries()[:40]
    ledger = simulate(POLICY, DecayingCurves(), *half, Note(topic="enqueue", facts={"config": late})).ledger
    trial = next(trial for trial in ledger.trials if trial.config == late)
    assert trial.steps >= 3
    assert ledger.spent == 50


def test_why_describes_the_round() -> None:
    ledger = simulate(
        POLICY, NoisyCurves(DecayingCurves()), make_definition(POLICY, budget="50 epochs", max_steps=50)
    ).ledger
    second, third = [order for order in ledger.orders if order.why.get("round") == 1][:2]
    first_losses = sorted((trial.losses[0], trial.number) for trial in ledger.trials)
    assert dict(second.why) == {
        "compared": 12,
        "round": 1,
        "rounds": 4,
        "arms": 6,
        "share": pytest.approx(38 / 3),
        "score_name": "value after step 1",
        "best_is": "lowest",
        "rank": 0,
        "score": first_losses[0][0],
        "last_kept_score": first_losses[5][0],
        "runner_up": first_losses[6][1],
        "runner_up_score": first_losses[6][0],
    }
    assert dict(third.why) == {**second.why, "rank": 1, "score": first_losses[1][0]}


def test_failed_trials_cost_no_more() -> None:
    ledger = simulate(
        POLICY, FailingCurves(DecayingCurves(), share=0.5, before=3), make_definition(POLICY, budget="60 epochs")
    ).ledger
    assert ledger.spent == 60
    assert all(trial.failures <= 1 for trial in ledger.trials)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(PolicyError, match=r"sequential_halving\(arms=1\)"):
        SequentialHalving(arms=1)
    with pytest.raises(PolicyError, match=r"sequential_halving\(arms_per_curve=0\).* 12\.5"):
        SequentialHalving(arms_per_curve=0)
    with pytest.raises(PolicyError, match=r"arms_per_curve=nan"):
        SequentialHalving(arms_per_curve=math.nan)


def test_a_runner_up_that_is_trained_now_is_not_its_own_runner_up() -> None:
    """An arm of the comparison has ended since, so the order goes to the arm that was its runner-up."""
    definition = StudyDefinition(
        space=Space.from_configs([{"x": 0.0}, {"x": 1.0}]),
        budget=Budget("9 epochs"),
        policy="sequential_halving",
        settings={},
        seed=0,
        max_steps=5,
    )
    order = Order(number=0, trial=0, config={"x": 0.0}, until=1)
    ledger = Ledger([definition, order, Receipt(order=0, trial=0, step=1, value=0.5, cost=Cost(train=1.0))])
    why: Why = {"compared": 2, "score_name": "value after step 1", "score": 0.4, "runner_up": 0, "runner_up_score": 0.5}
    decision = SequentialHalving()._train_last(ledger, [0], why, {})
    assert isinstance(decision, Train)
    assert decision.trial == 0
    assert set(decision.why) == {"stage", "compared", "score_name", "score"}
