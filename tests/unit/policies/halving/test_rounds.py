from __future__ import annotations

from shoestring import policies
from shoestring.core.entries import Amended, Order
from shoestring.core.ledger import Ledger
from shoestring.policies.halving.rounds import ROUNDS, UnderWay, begins, best_first
from shoestring.testing.policies import ROUGH, opened, simulate


def order(number: int, trial: int, **memo: list[float]) -> Order:
    config = {"lr": 0.1 + trial / 100, "layers": 1, "optimizer": "sgd"}
    return Order(number=number, trial=trial, config=config, until=1, memo=memo)


def started() -> Ledger:
    return Ledger([opened(policies.make("random_search"))])


def test_newcomers_join_and_a_memo_begins_a_round() -> None:
    ledger = started().append(order(0, 0)).append(order(1, 1)).append(order(2, 2))
    now = ledger.view(ROUNDS)
    assert (now.arms, now.newcomers, now.facts) == ([0, 1, 2], 3, ())
    ledger = ledger.append(order(3, 3, **begins((1.0, 5.0), (2, 3, 0))))  # type: ignore[arg-type]
    now = ledger.view(ROUNDS)
    assert (now.facts, now.arms, now.listed, now.newcomers, now.cursor) == ((1.0, 5.0), [2, 3, 0, 3], 3, 1, 0)


def test_a_change_of_policy_forgets_the_round() -> None:
    ledger = started().append(order(0, 0)).append(Amended(policy="asha", settings={})).append(order(1, 1))
    assert ledger.view(ROUNDS).arms == [1]


def test_views_folded_at_once_equal_views_carried_forward() -> None:
    policy = policies.make("hyperband")
    whole = simulate(policy, ROUGH, opened(policy, workers=3)).ledger
    carried = Ledger(whole.entries()[:1])
    for entry in whole.entries(1):
        carried = carried.append(entry)
        carried.view(ROUNDS)
        carried.view(UnderWay((1, 3, 9)))
    afresh = Ledger(whole.entries())
    assert carried.view(ROUNDS) == afresh.view(ROUNDS)
    assert carried.view(UnderWay((1, 3, 9))) == afresh.view(UnderWay((1, 3, 9)))


def test_best_first_puts_what_diverged_or_failed_last() -> None:
    policy = policies.make("random_search")
    ledger = simulate(policy, ROUGH, opened(policy, budget="120 epochs")).ledger
    ranked = [ledger.trials[number].last_loss for number in best_first(ledger, range(len(ledger.trials)))]
    assert ranked == sorted(ranked)
    assert ranked[-1] == float("inf")
