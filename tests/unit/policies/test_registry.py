"""Policies by name, policies as objects, and names from other tools."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from shoestring import policies
from shoestring.core.deciding.decision import Decision, Finish
from shoestring.errors import PolicyError
from shoestring.policies import other_names


class SmallestPolicy:
    """The smallest possible policy."""

    name = "mine"

    def decide(self, ledger: Any, rng: Any) -> Decision:
        return Finish("enough")


@dataclass(frozen=True)
class Adjustable(SmallestPolicy):
    patience: int = 3


class Nameless:
    def decide(self, ledger: Any, rng: Any) -> Decision:
        return Finish()

    def __repr__(self) -> str:
        return "Nameless()"


class Undecided:
    name = "undecided"

    def __repr__(self) -> str:
        return "Undecided()"


class Numbered(SmallestPolicy):
    name = 3  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Numbered()"


@pytest.fixture
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "_plugins", dict)


# objects -------------------------------------------------------------------------------------------------------------


def test_an_object_with_name_and_decide_is_a_policy() -> None:
    policy = SmallestPolicy()
    assert policies.make(policy) is policy
    assert policies.settings_of(policy) == {}


def test_a_dataclass_has_settings() -> None:
    assert policies.settings_of(Adjustable(patience=5)) == {"patience": 5}


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Nameless(), "policy=Nameless() has no name: give it one, as name = 'mine'"),
        (Undecided(), "policy=Undecided() has no decide: give it one, as def decide(self, ledger, rng)"),
        (SmallestPolicy, "policy=SmallestPolicy is a class: pass an object, as policy=SmallestPolicy()"),
        (Numbered(), "policy=Numbered() has the name 3, which must be text: write name = 'mine'"),
        (3, "policy=3 must be the name of a policy, or an object with a name and a decide(ledger, rng). Known: asha,"),
    ],
)
def test_an_object_that_is_no_policy_is_an_error(policy: Any, message: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(message)):
        policies.make(policy)


def test_settings_together_with_a_policy_object_are_refused() -> None:
    with pytest.raises(PolicyError, match=r"settings=.* beside the policy .*: give them to the policy itself"):
        policies.make(Adjustable(), {"patience": 4})


# stored studies ------------------------------------------------------------------------------------------------------


def test_a_stored_policy_comes_back_with_its_settings() -> None:
    assert policies.restore("asha", {"reduction_factor": 4, "min_steps": 2}) == policies.make(
        "asha", {"reduction_factor": 4, "min_steps": 2}
    )


def test_a_stored_policy_that_is_not_registered_must_be_passed_again() -> None:
    with pytest.raises(PolicyError) as caught:
        policies.restore("mine", {})
    assert str(caught.value) == (
        "the study's policy 'mine' is not registered: pass it again, as policy=Mine(…), "
        "register it through the entry-point group shoestring.policies, or choose another policy"
    )
    with pytest.raises(PolicyError, match=r"policy=MyOwn\(…\)"):
        policies.restore("my_own", {})


# plugins -------------------------------------------------------------------------------------------------------------


def test_a_plugin_is_found_by_name_and_listed_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "_plugins", lambda: {"mine": f"{__name__}:SmallestPolicy"})
    monkeypatch.setitem(
        __import__("sys").modules, __name__, __import__("types").SimpleNamespace(SmallestPolicy=SmallestPolicy)
    )
    assert policies.groups()["from other packages"] == ["mine"]
    assert isinstance(policies.make("mine"), SmallestPolicy)
    assert isinstance(policies.restore("mine", {}), SmallestPolicy)
    assert policies.defaults_of("mine") == {}
    with pytest.raises(PolicyError, match="mine has no setting 'depth'"):
        policies.make("mine", {"depth": 3})


def test_without_plugins_there_are_three_groups(no_plugins: None) -> None:
    assert list(policies.groups()) == ["recommended", "from the papers", "baselines"]


# names ---------------------------------------------------------------------------------------------------------------


WORDS = re.compile(r"\b[a-z0-9]+_[a-z0-9_]+\b|\b(?:asha|bhpt|boil|grid|hyperband|softmax|ucb1)\b")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bohb", {"hyperband"}),
        ("mobster", {"asha"}),
        ("TPESampler", {"cost_aware_ei"}),
        ("MedianPruner", {"asha", "sequential_halving", "bo_bos"}),
        ("median_stopping", {"asha", "sequential_halving", "bo_bos"}),
        ("pbt", {"ce_gp_ucb"}),
        ("CMA-ES", {"guided_halving"}),
        ("optuna", {"cost_aware_ei"}),
        ("freeze-thaw", {"bhpt", "freeze_thaw_bo"}),
        ("sobol", {"random_search"}),
        ("ei", {"cost_aware_ei"}),
        ("halving", {"successive_halving", "sequential_halving", "guided_halving"}),
    ],
)
def test_a_name_from_elsewhere_gives_the_policies_to_use(name: str, expected: set[str]) -> None:
    with pytest.raises(PolicyError, match=f"'{name}'") as caught:
        policies.make(name)
    assert set(WORDS.findall(str(caught.value).lower().replace(repr(name.lower()), "", 1))) == expected


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("random", "random_search"),
        ("RandomSearch", "random_search"),
        ("GridSearchCV", "grid"),
        ("ASHA", "asha"),
        ("HyperbandPruner", "hyperband"),
        ("ahsa", "asha"),
    ],
)
def test_a_misspelt_name_gives_the_right_one(name: str, suggestion: str) -> None:
    with pytest.raises(PolicyError) as caught:
        policies.make(name)
    assert str(caught.value) == f"unknown policy {name!r}. Did you mean {suggestion!r}?"


@pytest.mark.parametrize("name", ["zzz", ""])
def test_an_unknown_name_gives_all_names(name: str) -> None:
    with pytest.raises(PolicyError, match="Known: asha, "):
        policies.make(name)


@pytest.mark.parametrize("name", sorted(other_names._ADVICE))
def test_advice_mentions_policies_that_exist(name: str) -> None:
    advice = other_names.advise(name)
    assert advice is not None
    assert advice.endswith(".")
    assert name == other_names._normalise(name), "such a name could never match"
    assert name not in policies.REGISTRY
    expected = set(WORDS.findall(advice))
    assert expected, "the advice names no policy"
    assert expected <= set(policies.REGISTRY)
