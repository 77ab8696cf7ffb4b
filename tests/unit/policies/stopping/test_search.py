from __future__ import annotations

import math

import numpy as np
import pytest

from shoestring.core.entries import Cost
from shoestring.core.ledger import Ledger
from shoestring.core.parameters import Float
from shoestring.core.space import Config, Space
from shoestring.policies.outcomes import Outcomes
from shoestring.policies.plain.random_search import RandomSearch
from shoestring.policies.stopping.bo_bos import BOBOS
from shoestring.policies.stopping.error_range import error_bounds, incumbent
from shoestring.policies.stopping.gp_ucb import GPUCB
from shoestring.policies.stopping.search import choose, multiplier, observations, surrogate
from shoestring.runners.simulated import StepOutcome
from shoestring.testing.curves import WrittenCurves
from shoestring.testing.policies import opened, simulate

SQUARE = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})


class Bowl:
    """Smooth in both numbers, best at (0.3, 0.7)."""

    def step(self, config: Config, step: int) -> StepOutcome:
        far = (config["x"] - 0.3) ** 2 + (config["y"] - 0.7) ** 2
        return StepOutcome(0.1 + far + 0.5 / step, Cost(train=1.0))


def told(curves: dict[str, list[float]], max_steps: int) -> Ledger:
    policy = RandomSearch()
    rows = Space.listed([{"name": name} for name in curves])
    return simulate(
        policy, WrittenCurves(curves), opened(policy, space=rows, budget="999 epochs", max_steps=max_steps)
    ).ledger


def by_name(ledger: Ledger, **how: bool) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {trial.config["name"]: [] for trial in ledger.trials}
    settings = {"intermediate": True, "whole_only": False} | how
    for o in observations(ledger, **settings):
        found[ledger.trials[o.trial].config["name"]].append((o.share, o.loss))
    return found


def test_what_the_surrogate_is_told() -> None:
    ledger = told(
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
    ledger = told({"a": [3.0, 2.0], "b": [3.0, 1.0]}, 2)
    first = next(trial.number for trial in ledger.trials if trial.config["name"] == "a")
    seen = observations(ledger, intermediate=False, whole_only=True, predicted={first: 0.5})
    assert sorted(o.loss for o in seen) == [0.5, 1.0]


def test_multipliers() -> None:
    assert multiplier("practical", 4, 3, 100) == pytest.approx(0.2 * 5 * math.log(6))
    assert multiplier("theory", 4, 3, 100, 0.1) == pytest.approx(math.sqrt(2 * math.log(100 * 9 * math.pi**2 / 0.6)))


def test_the_bound_is_taken_at_full_training_and_climbed() -> None:
    """No candidate, and no point near the choice, has a higher bound; those already tried are left out."""
    policy = RandomSearch()
    ledger = simulate(policy, Bowl(), opened(policy, space=SQUARE, budget="80 epochs", max_steps=8)).ledger
    table = ledger.view(Outcomes(""))
    belief = surrogate(
        ledger, table, observations(ledger, intermediate=True, whole_only=False), lengths=True, refit_every=3
    )
    chosen = choose(ledger, table, belief, 1.0, 300, np.random.default_rng(0))
    assert chosen is not None
    around = np.clip(chosen.point.cube + np.random.default_rng(1).normal(0, 0.01, (200, 2)), 0, 1)
    scattered = np.random.default_rng(2).random((500, 2))
    mean, std = belief.predict(table.encoding.snap(np.vstack([around, scattered])), 1.0)
    assert chosen.std - chosen.mean >= (std - mean).max() - 1e-4
    assert (chosen.config["x"] - 0.3) ** 2 + (chosen.config["y"] - 0.7) ** 2 < 0.3


@pytest.mark.parametrize("policy", [GPUCB(), BOBOS(paths=2000)])
def test_the_bottom_of_a_bowl_is_found(policy: GPUCB | BOBOS) -> None:
    ledger = simulate(policy, Bowl(), opened(policy, space=SQUARE, budget="200 epochs", max_steps=10)).ledger
    assert ledger.best is not None
    assert ledger.best.best_loss < 0.1 + 0.05 + 0.004
    rivals = simulate(
        RandomSearch(), Bowl(), opened(RandomSearch(), space=SQUARE, budget="200 epochs", max_steps=10)
    ).ledger
    assert rivals.best is not None
    assert ledger.best.best_loss < rivals.best.best_loss


def test_fits_are_due_by_the_number_of_trials() -> None:
    policy = GPUCB(initial_trials=2, refit_every=4)
    ledger = simulate(policy, Bowl(), opened(policy, space=SQUARE, budget="60 epochs", max_steps=4)).ledger
    fitted = [order.memo["fitted_at"][0] for order in ledger.orders if "fitted_at" in order.memo]
    assert fitted == [float(2 + 4 * (i // 4)) for i in range(len(fitted))]


def test_bounds_of_errors() -> None:
    errors = {"a": [0.9, 0.1], "b": [0.5, 0.2]}
    assert error_bounds(told(errors, 2)) == (0.0, 1.0)
    negated = {name: [-value for value in curve] for name, curve in errors.items()}
    assert error_bounds(told(negated, 2)) == (-1.0, 0.0)
    tens = {name: [10 * value for value in curve] for name, curve in errors.items()}
    assert error_bounds(told(tens, 2)) == pytest.approx((1.0 - 0.8, 9.0 + 0.8))
    exploding = {**{f"c{i}": [9.0, 1.0] for i in range(9)}, "z": [9.0, 1e9]}
    assert error_bounds(told(exploding, 2))[1] < 100.0
    assert error_bounds(told({"a": [math.nan]}, 2)) == (0.0, 1.0)
    low, high = error_bounds(told({"a": [7.0]}, 2))
    assert low < 7.0 < high


def test_the_incumbent_is_the_best_of_the_others() -> None:
    ledger = told({"a": [3.0, 1.0, 2.0], "b": [3.0, 1.5, 2.5]}, 3)
    number = {trial.config["name"]: trial.number for trial in ledger.trials}
    assert incumbent(ledger, number["a"]) == 1.5
    assert incumbent(ledger, number["b"]) == 1.0
    assert incumbent(told({"a": [1.0]}, 1), 0) == math.inf
