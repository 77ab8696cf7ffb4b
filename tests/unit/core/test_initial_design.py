"""When an initial design ends, and when the user is warned that the budget is too small for a model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.deciding.policy import is_in_design, warn_of_small_budget
from shoestring.core.ledger.entries import Cost
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Config, Space
from shoestring.policies import make
from shoestring.policies.cost_aware.cost_aware_ei import CostAwareEI
from shoestring.runners.simulated.simulated_runner import StepOutcome
from shoestring.testing.policies import make_definition, simulate

SPACE = Space({"x": Float(0.0, 1.0)})


class Costly:
    """Curves whose cost in seconds grows with x by a factor of 100."""

    def step(self, config: Config, step: int) -> StepOutcome:
        x = float(config["x"])
        return StepOutcome((x - 0.3) ** 2, Cost(train=100.0**x))


def run(policy: CostAwareEI, budget: str, seed: int = 0) -> tuple[Ledger, int]:
    """Return the study and the number of trials in its design."""
    ledger = simulate(
        policy, Costly(), make_definition(policy, space=SPACE, budget=budget, max_steps=1, seed=seed)
    ).ledger
    return ledger, sum(order.why["phase"] == "initial design" for order in ledger.orders)


@examples(3, thorough=25)
@given(budget=st.integers(20, 400), seed=st.integers(0, 30))
def test_in_time_the_design_ends_with_a_third_of_the_budget(budget: int, seed: int) -> None:
    policy = CostAwareEI(candidates=40)
    ledger, n = run(policy, f"{budget}s", seed)
    before = [sum(trial.seconds for trial in ledger.trials[:k]) for k in range(len(ledger.trials) + 1)]
    for k in range(len(ledger.orders)):
        ends = k >= 5 or (k >= 2 and before[k] >= budget / 3)
        assert (ledger.orders[k].why["phase"] == "initial design") == (not ends)
    assert n <= 5


def test_in_epochs_the_design_stays() -> None:
    assert run(CostAwareEI(candidates=40), "6 epochs")[1] == 5
    ledger = Ledger([make_definition(CostAwareEI(), space=SPACE, budget="2 epochs", max_steps=1)])
    assert is_in_design(ledger, 1)
    assert not is_in_design(ledger, 0)


@pytest.mark.parametrize("name", ["cost_aware_ei", "bo_bos", "boil", "gp_ucb", "boca", "lc_prediction"])
@pytest.mark.parametrize(("budget", "designed"), [("40s", 2), ("5 epochs", 3)])
def test_every_model_is_used_before_expensive_trials_use_up_the_budget(name: str, budget: str, designed: int) -> None:
    """The median trial costs 10 s: two of them are a third of 40 s. In epochs all cost the same, and the design stays."""
    policy = make(name, {"initial_trials": 3, "candidates": 40})
    ledger = simulate(policy, Costly(), make_definition(policy, space=SPACE, budget=budget, max_steps=1)).ledger
    assert sum(order.why["phase"] == "initial design" for order in ledger.orders) == designed
    assert len(ledger.orders) > designed  # the model was used


@pytest.mark.parametrize("name", ["cost_aware_ei", "bo_bos", "boil"])
def test_the_printed_form_never_shortens_the_design(name: str) -> None:
    for printed, designed in ((False, 2), (True, 3)):
        policy = make(name, {"initial_trials": 3, "candidates": 40, "printed": printed})
        ledger = simulate(policy, Costly(), make_definition(policy, space=SPACE, budget="40s", max_steps=1)).ledger
        assert sum(order.why["phase"] == "initial design" for order in ledger.orders) == designed


@pytest.mark.parametrize("name", ["cost_aware_ei", "bo_bos", "boil", "gp_ucb"])
def test_a_budget_of_less_than_twice_the_design_gives_a_warning(name: str) -> None:
    policy = make(name)
    first = policy.initial_trials  # type: ignore[attr-defined]
    warning = warn_of_small_budget(policy, 1.5 * first, 10)
    assert warning is not None
    assert warning == (
        f"the budget is worth {1.5 * first:.3g} full trainings, and {name} uses its model after the first {first}: "
        f"do not expect better results than from random search. Give it {2 * first} or more, "
        "or leave the policy out: the default compares short trainings"
    )
    assert warn_of_small_budget(policy, 2.0 * first, 10) is None
    plain = warn_of_small_budget(policy, 1.0, 1)
    assert plain is not None
    assert plain.endswith("raise the budget")


def test_policies_without_a_design_of_full_trainings_give_no_warning() -> None:
    assert warn_of_small_budget(make("sequential_halving"), 0.1, 10) is None
    assert warn_of_small_budget(make("cost_aware_ei", {"initial_design": "cheap"}), 0.1, 10) is None
