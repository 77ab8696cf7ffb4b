from __future__ import annotations

from shoestring import policies
from shoestring.core.ledger.entries import Amended, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.views import UnderWay
from shoestring.policies.halving.halving_rounds import ROUND_VIEW, rank, round_memo
from shoestring.testing.policies import ROUGH, opened, simulate


def order(number: int, trial: int, **memo: list[float]) -> Order:
    config = {"lr": 0.1 + trial / 100, "layers": 1, "optimizer": "sgd"}
    return Order(number=number, trial=trial, config=config, until=1, memo=memo)


def started() -> Ledger:
    return Ledger([opened(policies.make("random_search"))])


def test_newcomers_join_and_a_memo_begins_a_round() -> None:
    ledger = started().append(order(0, 0)).append(order(1, 1)).append(order(2, 2))
    now = ledger.view(ROUND_VIEW)
    assert (now.arms, now.newcomers, now.facts) == ([0, 1, 2], 3, ())
    ledger = ledger.append(order(3, 3, **round_memo((1.0, 5.0), (2, 3, 0))))  # type: ignore[arg-type]
    now = ledger.view(ROUND_VIEW)
    assert (now.facts, now.arms, now.listed, now.newcomers, now.cursor) == ((1.0, 5.0), [2, 3, 0, 3], 3, 1, 0)


def test_a_change_of_policy_forgets_the_round() -> None:
    ledger = started().append(order(0, 0)).append(Amended(policy="asha", settings={})).append(order(1, 1))
    assert ledger.view(ROUND_VIEW).arms == [1]


def test_views_folded_at_once_equal_views_carried_forward() -> None:
    policy = policies.make("hyperband")
    whole = simulate(policy, ROUGH, opened(policy, workers=3)).ledger
    carried = Ledger(whole.entries()[:1])
    for entry in whole.entries(1):
        carried = carried.append(entry)
        carried.view(ROUND_VIEW)
        carried.view(UnderWay((1, 3, 9)))
    afresh = Ledger(whole.entries())
    assert carried.view(ROUND_VIEW) == afresh.view(ROUND_VIEW)
    assert carried.view(UnderWay((1, 3, 9))) == afresh.view(UnderWay((1, 3, 9)))


def test_ranking_puts_what_diverged_or_failed_last() -> None:
    policy = policies.make("random_search")
    ledger = simulate(policy, ROUGH, opened(policy, budget="120 epochs")).ledger
    ranked = [ledger.trials[number].last_loss for number in rank(ledger, range(len(ledger.trials)))]
    assert ranked == sorted(ranked)
    assert ranked[-1] == float("inf")
