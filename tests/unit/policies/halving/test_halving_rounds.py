from __future__ import annotations

from shoestring import policies
from shoestring.core.ledger.entries import Amendment, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.views import BetweenStops
from shoestring.policies.halving.halving_rounds import ROUND_VIEW, make_round_memo, rank_arms
from shoestring.testing.policies import ROUGH_CURVES, make_definition, simulate


def order(number: int, trial: int, **memo: list[float]) -> Order:
    config = {"lr": 0.1 + trial / 100, "layers": 1, "optimizer": "sgd"}
    return Order(number=number, trial=trial, config=config, until=1, memo=memo)


def new_ledger() -> Ledger:
    return Ledger([make_definition(policies.make("random_search"))])


def test_new_trials_join_and_a_memo_begins_a_round() -> None:
    ledger = new_ledger().append(order(0, 0)).append(order(1, 1)).append(order(2, 2))
    now = ledger.view(ROUND_VIEW)
    assert (now.arms, now.newcomers, now.facts) == ([0, 1, 2], 3, ())
    ledger = ledger.append(order(3, 3, **make_round_memo((1.0, 5.0), (2, 3, 0))))  # type: ignore[arg-type]
    now = ledger.view(ROUND_VIEW)
    assert (now.facts, now.arms, now.listed, now.newcomers, now.cursor) == ((1.0, 5.0), [2, 3, 0, 3], 3, 1, 0)


def test_a_change_of_policy_clears_the_round() -> None:
    ledger = new_ledger().append(order(0, 0)).append(Amendment(policy="asha", settings={})).append(order(1, 1))
    assert ledger.view(ROUND_VIEW).arms == [1]


def test_a_recomputed_view_equals_the_updated_view() -> None:
    policy = policies.make("hyperband")
    whole = simulate(policy, ROUGH_CURVES, make_definition(policy, workers=3)).ledger
    updated = Ledger(whole.entries()[:1])
    for entry in whole.entries(1):
        updated = updated.append(entry)
        updated.view(ROUND_VIEW)
        updated.view(BetweenStops((1, 3, 9)))
    recomputed = Ledger(whole.entries())
    assert updated.view(ROUND_VIEW) == recomputed.view(ROUND_VIEW)
    assert updated.view(BetweenStops((1, 3, 9))) == recomputed.view(BetweenStops((1, 3, 9)))


def test_diverged_and_failed_trials_rank_last() -> None:
    policy = policies.make("random_search")
    ledger = simulate(policy, ROUGH_CURVES, make_definition(policy, budget="120 epochs")).ledger
    ranked = [ledger.trials[number].last_loss for number in rank_arms(ledger, range(len(ledger.trials)))]
    assert ranked == sorted(ranked)
    assert ranked[-1] == float("inf")
