"""Studies with many trials of another policy: the fast computation decides as the direct one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.entries import Cost, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.core.values.arrays import Floats
from shoestring.models.boil.score_process import fit, product_kernel
from shoestring.models.gp.posterior import condition
from shoestring.policies.boil import prefixes as prefixes_module
from shoestring.policies.boil import score_model as model_module
from shoestring.policies.boil.boil import BOIL
from shoestring.policies.boil.loss_curves import LossCurve
from shoestring.policies.boil.prefixes import Prefixes, PrefixRule, model_rows
from shoestring.runners.runner import write_receipt
from shoestring.testing.policies import make_definition

STEPS = 12


def make_study(policy: BOIL, trials: int, *, dims: int = 2, seed: int = 0, sharpness: float = 4.0) -> Ledger:
    """Return a study with trials of different lengths at random places; rewards rise to a height that is largest at 0.6."""
    space = Space({f"x{j}": Float(0.0, 1.0) for j in range(dims)})
    start = make_definition(policy, space=space, budget="1000000 s", max_steps=STEPS, direction="max", seed=seed)
    ledger, rng = Ledger([start]), np.random.default_rng(seed)
    for number in range(trials):
        u, until = rng.random(dims), int(rng.integers(4, STEPS + 1))
        order = Order(number=number, trial=number, config=space.from_cube(u), until=until)
        ledger = ledger.append(order)
        height = math.exp(-sharpness * float(((u - 0.6) ** 2).sum()))
        for step in range(1, until + 1):
            value = height * (1.0 - math.exp(-step / 4.0)) + 0.01 * math.sin(step + 9.0 * float(u[0]))
            ledger = ledger.append(
                write_receipt(order, step, value, Cost(train=0.5 + float(u[0])), at=0.0, saved_step=step)
            )
    return ledger


def fill(ledger: Ledger, order: Order) -> Ledger:
    """Return the ledger with all steps of its last order."""
    for step in range(ledger.trials[order.trial].steps + 1, order.until + 1):
        ledger = ledger.append(write_receipt(order, step, 0.5, Cost(train=1.0), at=0.0, saved_step=step))
    return ledger


def add_prefixes_directly(
    prefixes: Prefixes,
    rule: PrefixRule,
    ledger: Ledger,
    curves: Sequence[LossCurve],
    x: Floats,
    *,
    lengths: Any,
    parameters: Any,
    time_kernel: Any,
) -> None:
    """Do the same with a process that is computed again from all points for every curve."""
    kernel, theta = product_kernel(x.shape[1], time_kernel), parameters.theta(x.shape[1])
    in_model = [place for place, curve in enumerate(curves) if prefixes.is_known(curve)]
    for place, curve in enumerate(curves):
        if not prefixes.is_known(curve):
            in_model.append(place)
            z, _ = model_rows([curves[j] for j in in_model], x[in_model], prefixes, lengths)
            gp = condition(kernel, theta, z, np.zeros(len(z)))
            rng = ledger.rng("augmentation", curve.trial, curve.steps)
            prefixes.add(curve, rule.choose(gp, x[place], curve, prefixes.of(curve), lengths, rng))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("augmentation", ["selected", "random"])
def test_an_extended_factor_decides_as_a_new_one(augmentation: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = BOIL(candidates=100, augmentation=augmentation)
    ledger = make_study(policy, 25, seed=seed)
    fast = policy.decide(ledger, ledger.decision_rng())
    assert isinstance(fast, Train)
    assert len(fast.memo["prefix_steps"]) > 20
    monkeypatch.setattr(model_module, "add_prefixes", add_prefixes_directly)
    direct = policy.decide(ledger, ledger.decision_rng())
    assert isinstance(direct, Train)
    assert fast.memo["prefix_steps"] == direct.memo["prefix_steps"]
    assert fast.memo["prefix_trials"] == direct.memo["prefix_trials"]
    assert fast.until == direct.until
    assert fast.config == pytest.approx(direct.config, abs=1e-5)


def test_continued_trials_are_considered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = BOIL(candidates=60)
    ledger = make_study(policy, 12)
    first = policy.decide(ledger, ledger.decision_rng())
    assert isinstance(first, Train)
    order = place_order(ledger, first)
    assert order is not None
    ledger = fill(ledger.append(order), order)
    longer = [trial.number for trial in ledger.trials if trial.steps < STEPS][:4]
    for number in longer:  # more than one, so that the second is added to a process that was extended
        more = Order(number=len(ledger.orders), trial=number, config=ledger.trials[number].config, until=STEPS)
        ledger = fill(ledger.append(more), more)
    fast = policy.decide(ledger, ledger.decision_rng())
    monkeypatch.setattr(model_module, "add_prefixes", add_prefixes_directly)
    direct = policy.decide(ledger, ledger.decision_rng())
    assert isinstance(fast, Train)
    assert isinstance(direct, Train)
    assert {int(trial) for trial in fast.memo["run_trials"]} == {order.trial, *longer}
    assert fast.memo["prefix_steps"] == direct.memo["prefix_steps"] != []
    assert fast.until == direct.until
    assert fast.config == pytest.approx(direct.config, abs=1e-5)


def test_the_number_of_prefixes_of_all_trials_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = BOIL(candidates=50)
    ledger = make_study(policy, 12)
    free = policy.decide(ledger, ledger.decision_rng())
    monkeypatch.setattr(prefixes_module, "MAX_PREFIXES", 7)
    bounded = policy.decide(ledger, ledger.decision_rng())
    assert isinstance(free, Train)
    assert isinstance(bounded, Train)
    assert bounded.memo["prefix_steps"] == free.memo["prefix_steps"][:7]
    assert bounded.memo["run_trials"] == free.memo["run_trials"]  # no trial is considered twice
    order = place_order(ledger, bounded)
    assert order is not None
    ledger = fill(ledger.append(order), order)
    later = policy.decide(ledger, ledger.decision_rng())
    assert isinstance(later, Train)
    assert later.memo["prefix_steps"] == []
    assert later.why["added"] == 7


def test_the_search_starts_from_a_sharp_peak_of_the_mean() -> None:
    """Where the model is certain, log EI falls towards the peak, so climbs that start far away end in corners."""
    policy = BOIL(candidates=60)
    ledger = make_study(policy, 120, dims=3, sharpness=40.0)
    decision = policy.decide(ledger, ledger.decision_rng())
    assert isinstance(decision, Train)
    np.testing.assert_allclose(list(decision.config.values()), 0.6, atol=0.1)
    assert float(decision.why["ei"]) > 1e-6  # type: ignore[arg-type]


def test_parameters_are_fitted_to_some_runs_and_the_posterior_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def count(process: Any, *arguments: Any, **settings: Any) -> Any:
        sizes.append(len(process.z))
        return fit(process, *arguments, **settings)

    monkeypatch.setattr(model_module, "fit", count)
    monkeypatch.setattr(model_module, "FIT_POINTS", 30)
    policy = BOIL(candidates=50)
    ledger = make_study(policy, 25)
    decision = policy.decide(ledger, ledger.decision_rng())
    assert isinstance(decision, Train)
    assert 20 < sizes[0] <= 30
    assert int(decision.why["points"]) > 45  # type: ignore[arg-type]
