from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Space
from shoestring.models.gp.fit import fit_gp, pick_rows_to_fit
from shoestring.models.gp.posterior import condition
from shoestring.policies.config_table import ConfigsView
from shoestring.policies.plain.random_search import RandomSearch
from shoestring.policies.stopping import surrogate
from shoestring.policies.stopping.surrogate import observe
from shoestring.policies.stopping.ucb_policy import GPUCB
from shoestring.testing.curves import DecayingCurves, ListedCurves
from shoestring.testing.policies import make_definition, simulate


def study(curves: dict[str, list[float]], max_steps: int) -> Ledger:
    policy = RandomSearch()
    rows = Space.from_configs([{"name": name} for name in curves])
    return simulate(
        policy, ListedCurves(curves), make_definition(policy, space=rows, budget="999 epochs", max_steps=max_steps)
    ).ledger


def by_name(ledger: Ledger, **how: bool) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {trial.config["name"]: [] for trial in ledger.trials}
    settings: dict[str, Any] = {"intermediate": True, "idle_only": False} | how
    for o in observe(ledger, **settings):
        found[ledger.trials[o.trial].config["name"]].append((o.share, o.loss))
    return found


def test_the_observations_of_a_trial() -> None:
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
    observations = by_name(ledger)
    assert observations["full"] == [(0.1, 10.0), (0.2, 9.0), (0.4, 7.0), (0.6, 5.0), (0.8, 3.0), (1.0, 1.0)]
    assert observations["turns"] == [
        (0.1, 5.0),
        (0.2, 4.0),
        (0.4, 4.0),
        (0.6, 3.0),
        (0.8, 3.0),
        (1.0, 3.0),
    ]  # the best so far
    assert observations["diverges"] == [(0.1, 5.0), (0.2, 4.0), (1.0, math.inf)]
    assert observations["at once"] == [(1.0, math.inf)]
    assert observations["ends"] == [(0.1, 5.0), (0.2, 4.0), (1.0, 3.0)]  # the training ended there by itself
    last = by_name(ledger, intermediate=False)
    assert last["full"] == [(1.0, 1.0)]
    assert last["diverges"] == [(1.0, math.inf)]


def test_a_prediction_replaces_the_end() -> None:
    ledger = study({"a": [3.0, 2.0], "b": [3.0, 1.0]}, 2)
    first = next(trial.number for trial in ledger.trials if trial.config["name"] == "a")
    observations = observe(ledger, intermediate=False, idle_only=True, predicted={first: 0.5})
    assert sorted(o.loss for o in observations) == [0.5, 1.0]


def test_refits_are_due_by_the_number_of_trials() -> None:
    policy = GPUCB(initial_trials=2, refit_every=4)
    ledger = simulate(policy, DecayingCurves(), make_definition(policy, budget="60 epochs", max_steps=4)).ledger
    fitted = [order.memo["fitted_at"][0] for order in ledger.orders if "fitted_at" in order.memo]
    assert fitted == [float(2 + 4 * (i // 4)) for i in range(len(fitted))]


def test_parameters_are_fitted_to_some_trials_and_the_posterior_uses_all(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = RandomSearch()
    ledger = simulate(policy, DecayingCurves(), make_definition(policy, budget="120 epochs", max_steps=6)).ledger
    observations = observe(ledger, intermediate=True, idle_only=False)
    monkeypatch.setattr(surrogate, "FIT_POINTS", 40)
    table = ledger.view(ConfigsView())
    fitted = surrogate.fit_surrogate(ledger, table, observations, lengths=True, refit_every=1)
    assert fitted.gp.y.size == len(observations) > 80
    sample = pick_rows_to_fit([o.trial for o in observations], 40)
    slow = fit_gp(fitted.gp.kernel, fitted.gp.x[sample], fitted.gp.y[sample])
    assert fitted.memo["log_lengthscales"] == pytest.approx(slow.memo()["log_lengthscales"])
    plain = condition(fitted.gp.kernel, slow.theta, fitted.gp.x, fitted.gp.y)
    np.testing.assert_allclose(fitted.gp.weights, plain.weights, rtol=1e-6)
