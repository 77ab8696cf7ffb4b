"""Every policy in the registry keeps the contract that ships with the library."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest

from shoestring import policies, testing
from shoestring.core.deciding.why_text import SHARED_NAMES
from shoestring.core.ledger.entries import Cost
from shoestring.core.space.space import Config, Space
from shoestring.reports.reasons import describe_briefly, describe_reason
from shoestring.runners.simulated.simulated_runner import StepOutcome
from shoestring.testing.policies import (
    LEARNING_CHECKS,
    POLICY_CHECKS,
    ROUGH_CURVES,
    Check,
    check_orders,
    check_priced_validation,
    make_definition,
    make_small_policy,
    simulate,
    watch,
)

IGNORE_VALUES = {"random_search", "grid", "replay_fixed"}  # by design
FAST = {
    *IGNORE_VALUES,
    "asha",
    "hyperband",
    "sequential_halving",
    "successive_halving",
    "top_k_after_one",
}  # have no model


def test_every_policy_is_in_exactly_one_group() -> None:
    groups = policies.groups()
    assert list(groups)[:3] == ["recommended", "from the papers", "baselines"]
    assert sorted(name for group in groups.values() for name in group) == policies.names()
    assert set(policies.USE_WHEN) == set(groups["recommended"])
    assert groups["recommended"][0] == policies.DEFAULT


@pytest.mark.parametrize("name", sorted(policies.REGISTRY))
def test_every_policy_is_registered_under_its_own_name(name: str) -> None:
    assert policies.make(name).name == name


@pytest.mark.parametrize("check", POLICY_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", sorted(policies.REGISTRY))
def test_every_policy_keeps_the_contract(name: str, check: Check) -> None:
    check(make_small_policy(name), light=name not in FAST)


@pytest.mark.parametrize("check", LEARNING_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", sorted(set(policies.REGISTRY) - IGNORE_VALUES))
def test_policies_that_learn_keep_their_contract(name: str, check: Check) -> None:
    check(make_small_policy(name), light=name not in FAST)


@dataclass(frozen=True)
class FreeAtFirst:
    """A curve whose first two steps cost nothing: recorded without a price, or trained already."""

    def step(self, config: Config, step: int) -> StepOutcome | None:
        outcome = ROUGH_CURVES.step(config, step)
        return outcome if outcome is None or step > 2 else replace(outcome, cost=Cost())


@pytest.mark.parametrize("name", [name for name in policies.names() if ".online." not in policies.REGISTRY[name]])
def test_every_policy_continues_if_the_first_steps_cost_nothing(name: str) -> None:
    policy = make_small_policy(name)
    rows = [{"x": i / 5, "y": i % 3} for i in range(5)]
    start = replace(make_definition(policy, budget="40s"), space=Space.from_configs(rows))
    ledger = simulate(policy, FreeAtFirst(), start).ledger
    assert max(trial.steps for trial in ledger.trials) > 2
    assert ledger.spent > 0


@pytest.mark.parametrize("name", sorted(IGNORE_VALUES))
def test_policies_that_compare_nothing_report_0(name: str) -> None:
    ledger = simulate(watch(make_small_policy(name)), ROUGH_CURVES, make_definition(make_small_policy(name))).ledger
    assert {order.why["compared"] for order in ledger.orders} == {0}


def without_configs(sentence: str) -> str:
    """Return the sentence without configs: names of parameters come from the user and may be anything."""
    return re.sub(r"\w+=[^\s,;)]+", "a value", sentence)


@pytest.mark.parametrize("name", sorted(policies.REGISTRY))
def test_every_number_in_why_has_a_label(name: str) -> None:
    policy = make_small_policy(name)
    known = SHARED_NAMES | set(getattr(policies.find_class(name), "why_labels", {}))
    for budget, workers in (("30 epochs", 1), ("30s", 2)):
        ledger = simulate(policy, ROUGH_CURVES, make_definition(policy, budget=budget, workers=workers)).ledger
        names = {key for order in ledger.orders for key in order.why}
        assert names - known == set(), f"add what it is, and its unit, to {type(policy).__name__}.why_labels"
        for order in ledger.orders:
            for text in (describe_reason(order, ledger), describe_briefly(order, ledger)):
                assert text == text.strip() != ""
                assert not re.search(r"\bnan\b|\binf\b|None|[{}_]|  ", without_configs(text)), text


@pytest.mark.parametrize("name", sorted(FAST))
def test_default_settings_keep_the_contract(name: str) -> None:
    for check in (check_orders, check_priced_validation):
        check(policies.make(name))


@pytest.mark.parametrize("name", testing.__all__)
def test_public_names_of_testing_exist_and_have_docstrings(name: str) -> None:
    found = getattr(testing, name)
    assert name.endswith("_CHECKS") or (found.__doc__ and "\n" in found.__doc__)


def test_an_unknown_name_of_testing_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        testing.no_such_name  # noqa: B018
