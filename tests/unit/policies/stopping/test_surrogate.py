from __future__ import annotations

import math
from typing import Any

from shoestring.core.ledger import Ledger
from shoestring.core.space import Space
from shoestring.policies.plain.random_search import RandomSearch
from shoestring.policies.stopping.gp_ucb import GPUCB
from shoestring.policies.stopping.surrogate import observe
from shoestring.testing.curves import Decaying, WrittenCurves
from shoestring.testing.policies import opened, simulate


def study(curves: dict[str, list[float]], max_steps: int) -> Ledger:
    policy = RandomSearch()
    rows = Space.listed([{"name": name} for name in curves])
    return simulate(
        policy, WrittenCurves(curves), opened(policy, space=rows, budget="999 epochs", max_steps=max_steps)
    ).ledger


def by_name(ledger: Ledger, **how: bool) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {trial.config["name"]: [] for trial in ledger.trials}
    settings: dict[str, Any] = {"intermediate": True, "idle_only": False} | how
    for o in observe(ledger, **settings):
        found[ledger.trials[o.trial].config["name"]].append((o.share, o.loss))
    return found


def test_what_the_surrogate_is_told() -> None:
    ledger = study(
        {
            "full": [10.0 - n for n in range(10)],
            "turns": [5.0, 4.0, 6.0, 7.0, 3.0, 8.0, 8.0, 8.0, 8.0, 8.0],
            "diverges": [5.0, 4.0, math.nan],
            "at once": [math.nan],
            "ends": [5.0, 4.0, 3.0],
        },
        10,
    )
    seen = by_name(ledger)
    assert seen["full"] == [(0.1, 10.0), (0.2, 9.0), (0.4, 7.0), (0.6, 5.0), (0.8, 3.0), (1.0, 1.0)]
    assert seen["turns"] == [(0.1, 5.0), (0.2, 4.0), (0.4, 4.0), (0.6, 3.0), (0.8, 3.0), (1.0, 3.0)]  # the best so far
    assert seen["diverges"] == [(0.1, 5.0), (0.2, 4.0), (1.0, math.inf)]
    assert seen["at once"] == [(1.0, math.inf)]
    assert seen["ends"] == [(0.1, 5.0), (0.2, 4.0), (1.0, 3.0)]  # that is all the training there is
    last = by_name(ledger, intermediate=False)
    assert last["full"] == [(1.0, 1.0)]
    assert last["diverges"] == [(1.0, math.inf)]


def test_a_prediction_stands_in_for_the_end() -> None:
    ledger = study({"a": [3.0, 2.0], "b": [3.0, 1.0]}, 2)
    first = next(trial.number for trial in ledger.trials if trial.config["name"] == "a")
    seen = observe(ledger, intermediate=False, idle_only=True, predicted={first: 0.5})
    assert sorted(o.loss for o in seen) == [0.5, 1.0]


def test_fits_are_due_by_the_number_of_trials() -> None:
    policy = GPUCB(initial_trials=2, refit_every=4)
    ledger = simulate(policy, Decaying(), opened(policy, budget="60 epochs", max_steps=4)).ledger
    fitted = [order.memo["fitted_at"][0] for order in ledger.orders if "fitted_at" in order.memo]
    assert fitted == [float(2 + 4 * (i // 4)) for i in range(len(fitted))]
