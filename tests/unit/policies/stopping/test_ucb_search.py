from __future__ import annotations

import math

import numpy as np
import pytest

from shoestring.core.ledger.entries import Cost
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Config, Space
from shoestring.policies.config_table import ConfigsView
from shoestring.policies.plain.random_search import RandomSearch
from shoestring.policies.stopping.bo_bos import BOBOS
from shoestring.policies.stopping.surrogate import fit_surrogate, observe
from shoestring.policies.stopping.ucb_policy import GPUCB
from shoestring.policies.stopping.ucb_search import choose_config, multiplier
from shoestring.runners.simulated.simulated_runner import StepOutcome
from shoestring.testing.policies import make_definition, simulate

SQUARE = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})


class Bowl:
    """Smooth in both numbers, best at (0.3, 0.7)."""

    def step(self, config: Config, step: int) -> StepOutcome:
        far = (config["x"] - 0.3) ** 2 + (config["y"] - 0.7) ** 2
        return StepOutcome(0.1 + far + 0.5 / step, Cost(train=1.0))


def test_multipliers_equal_their_formulas() -> None:
    assert multiplier("practical", 4, 3, 100) == pytest.approx(0.2 * 5 * math.log(6))
    assert multiplier("theory", 4, 3, 100) == pytest.approx(math.sqrt(2 * math.log(100 * 9 * math.pi**2 / 0.6)))


def test_the_choice_has_the_lowest_bound_at_full_training() -> None:
    """No candidate and no point near the choice has a lower bound; tried configurations are excluded."""
    policy = RandomSearch()
    ledger = simulate(policy, Bowl(), make_definition(policy, space=SQUARE, budget="80 epochs", max_steps=8)).ledger
    table = ledger.view(ConfigsView())
    surrogate = fit_surrogate(
        ledger, table, observe(ledger, intermediate=True, idle_only=False), lengths=True, refit_every=3
    )
    chosen = choose_config(ledger, surrogate, 1.0, 300, np.random.default_rng(0))
    assert chosen is not None
    near = np.clip(chosen.point.cube + np.random.default_rng(1).normal(0, 0.01, (200, 2)), 0, 1)
    scattered = np.random.default_rng(2).random((500, 2))
    mean, std = surrogate.predict(table.encoding.snap(np.vstack([near, scattered])), 1.0)
    assert chosen.std - chosen.mean >= (std - mean).max() - 1e-4
    assert (chosen.config["x"] - 0.3) ** 2 + (chosen.config["y"] - 0.7) ** 2 < 0.3


@pytest.mark.parametrize("policy", [GPUCB(), BOBOS(paths=2000)])
def test_the_minimum_of_a_bowl_is_found(policy: GPUCB | BOBOS) -> None:
    ledger = simulate(policy, Bowl(), make_definition(policy, space=SQUARE, budget="200 epochs", max_steps=10)).ledger
    assert ledger.best is not None
    assert ledger.best.best_loss < 0.1 + 0.05 + 0.004
    random = simulate(
        RandomSearch(), Bowl(), make_definition(RandomSearch(), space=SQUARE, budget="200 epochs", max_steps=10)
    ).ledger
    assert random.best is not None
    assert ledger.best.best_loss < random.best.best_loss
