"""Every policy in the registry keeps the contract that ships with the library."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest

from shoestring import policies
from shoestring.core.ledger.entries import Cost
from shoestring.core.space.space import Config, Space
from shoestring.reports.reasons import COMPARISON, LABELS, ONLINE_LABELS, say_reason
from shoestring.runners.simulated.simulated_runner import StepOutcome
from shoestring.testing.policies import CHECKS, LEARNING_CHECKS, ROUGH, Check, opened, simulate, small, watch

DEAF = {"random_search", "grid", "replay_fixed"}  # choose without looking at values, by design
QUICK = {*DEAF, "asha", "hyperband", "sequential_halving", "successive_halving", "top_k_after_one"}  # have no model


def test_every_policy_is_in_exactly_one_group() -> None:
    groups = policies.groups()
    assert list(groups)[:3] == ["recommended", "from the papers", "baselines"]
    assert sorted(name for group in groups.values() for name in group) == policies.names()
    assert set(policies.USE_WHEN) == set(groups["recommended"])
    assert groups["recommended"][0] == policies.DEFAULT


@pytest.mark.parametrize("name", sorted(policies.REGISTRY))
def test_every_policy_is_registered_under_its_own_name(name: str) -> None:
    assert policies.make(name).name == name


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", sorted(policies.REGISTRY))
def test_every_policy(name: str, check: Check) -> None:
    check(small(name), light=name not in QUICK)


@pytest.mark.parametrize("check", LEARNING_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", sorted(set(policies.REGISTRY) - DEAF))
def test_policies_that_learn(name: str, check: Check) -> None:
    check(small(name), light=name not in QUICK)


@dataclass(frozen=True)
class FreeAtFirst:
    """A curve whose first two steps were recorded without a price, or were there already."""

    def step(self, config: Config, step: int) -> StepOutcome | None:
        outcome = ROUGH.step(config, step)
        return outcome if outcome is None or step > 2 else replace(outcome, cost=Cost())


@pytest.mark.parametrize("name", [name for name in policies.names() if ".online." not in policies.REGISTRY[name]])
def test_every_policy_goes_on_where_nothing_was_paid_yet(name: str) -> None:
    policy = small(name)
    rows = [{"x": i / 5, "y": i % 3} for i in range(5)]
    start = replace(opened(policy, budget="40s"), space=Space.listed(rows))
    ledger = simulate(policy, FreeAtFirst(), start).ledger
    assert max(trial.steps for trial in ledger.trials) > 2
    assert ledger.spent > 0


@pytest.mark.parametrize("name", sorted(DEAF))
def test_policies_that_compare_nothing_say_so(name: str) -> None:
    ledger = simulate(watch(small(name)), ROUGH, opened(small(name))).ledger
    assert {order.why["compared"] for order in ledger.orders} == {0}


def without_configs(sentence: str) -> str:
    """The words alone: names of parameters are the user's, and may look like anything."""
    return re.sub(r"\w+=[^\s,;)]+", "a value", sentence)


@pytest.mark.parametrize("name", sorted(policies.REGISTRY))
def test_every_number_that_a_policy_tells_has_a_label(name: str) -> None:
    policy, known = small(name), COMPARISON | set(LABELS) | set(ONLINE_LABELS)
    for budget, workers in (("30 epochs", 1), ("30s", 2)):
        ledger = simulate(policy, ROUGH, opened(policy, budget=budget, workers=workers)).ledger
        told = {key.removeprefix("gave_up_") for order in ledger.orders for key in order.why}
        assert told - known - {"at"} == set(), "write what it is, and its unit, into reports/reasons.py"
        for order in ledger.orders:
            sentence = say_reason(order, ledger)
            assert sentence == sentence.strip() != ""
            assert not re.search(r"\bnan\b|\binf\b|None|[{}_]|  ", without_configs(sentence)), sentence


@pytest.mark.parametrize("name", sorted(QUICK))
def test_default_settings_keep_to_the_rules(name: str) -> None:
    for check in CHECKS[1:3]:
        check(policies.make(name))
