"""Policies by name, policies that somebody made, and names that people know from elsewhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from shoestring import policies
from shoestring.core.deciding.decision import Decision, Finish
from shoestring.errors import PolicyError
from shoestring.policies import other_names


class Mine:
    """The least that a policy can be."""

    name = "mine"

    def decide(self, ledger: Any, rng: Any) -> Decision:
        return Finish("enough")


@dataclass(frozen=True)
class Adjustable(Mine):
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


class Numbered(Mine):
    name = 3  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Numbered()"


@pytest.fixture
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "_plugins", dict)


# objects -------------------------------------------------------------------------------------------------------------


def test_an_object_with_name_and_decide_is_a_policy() -> None:
    mine = Mine()
    assert policies.make(mine) is mine
    assert policies.settings_of(mine) == {}


def test_a_dataclass_has_settings() -> None:
    assert policies.settings_of(Adjustable(patience=5)) == {"patience": 5}


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Nameless(), "policy=Nameless() has no name: give it one, as name = 'mine'"),
        (Undecided(), "policy=Undecided() has no decide: give it one, as def decide(self, ledger, rng)"),
        (Mine, "policy=Mine is a class: pass an object, as policy=Mine()"),
        (Numbered(), "policy=Numbered() has the name 3, which must be text: write name = 'mine'"),
        (3, "policy=3 must be the name of a policy, or an object with a name and a decide(ledger, rng). Known: asha,"),
    ],
)
def test_what_is_no_policy_is_told_what_it_lacks(policy: Any, said: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(said)):
        policies.make(policy)


def test_settings_beside_an_object_are_refused() -> None:
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
        "register it through the entry-point group shoestring.policies, or choose another with --policy NAME"
    )
    with pytest.raises(PolicyError, match=r"policy=MyOwn\(…\)"):
        policies.restore("my_own", {})


# plugins -------------------------------------------------------------------------------------------------------------


def test_a_plugin_is_found_by_name_and_listed_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "_plugins", lambda: {"mine": f"{__name__}:Mine"})
    monkeypatch.setitem(__import__("sys").modules, __name__, __import__("types").SimpleNamespace(Mine=Mine))
    assert policies.groups()["from other packages"] == ["mine"]
    assert isinstance(policies.make("mine"), Mine)
    assert isinstance(policies.restore("mine", {}), Mine)
    assert policies.defaults_of("mine") == {}
    with pytest.raises(PolicyError, match="mine has no setting 'depth'"):
        policies.make("mine", {"depth": 3})


def test_without_plugins_there_are_three_groups(no_plugins: None) -> None:
    assert list(policies.groups()) == ["recommended", "from the papers", "baselines"]


# names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bohb", "unknown policy 'bohb': not here; hyperband gives its brackets, cost_aware_ei its model."),
        ("TPESampler", "its density estimates are not here; cost_aware_ei models"),
        ("MedianPruner", "asha and sequential_halving compare runs at the same step"),
        ("median_stopping", "asha and sequential_halving compare runs at the same step"),
        ("pbt", "use ce_gp_ucb (shoestring.OnlineTuner)"),
        ("CMA-ES", "populations need more full trainings"),
        ("optuna", "a tool of its own"),
        ("freeze-thaw", "bhpt freezes and thaws runs"),
        ("sobol", "quasi-random points"),
        ("ei", 'acquisition = "ei"'),
        ("halving", "sequential_halving knows the total and plans with it, and the default, thrift, begins with it"),
        ("random", "Did you mean 'random_search'?"),
        ("RandomSearch", "Did you mean 'random_search'?"),
        ("GridSearchCV", "Did you mean 'grid'?"),
        ("ASHA", "Did you mean 'asha'?"),
        ("HyperbandPruner", "Did you mean 'hyperband'?"),
        ("ahsa", "Did you mean 'asha'?"),
        ("zzz", "Known: asha, "),
        ("", "Known: asha, "),
    ],
)
def test_a_wrong_name_is_told_what_to_use(name: str, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        policies.make(name)
    assert said in str(caught.value)


WORDS = re.compile(r"\b[a-z0-9]+_[a-z0-9_]+\b|\b(?:asha|bhpt|boil|grid|hyperband|softmax|ucb1)\b")


@pytest.mark.parametrize("name", sorted(other_names._INSTEAD))
def test_advice_is_one_sentence_about_policies_that_exist(name: str) -> None:
    advice = other_names.advise(name)
    assert advice is not None
    assert advice.endswith(".")
    assert name == other_names._normalise(name), "it could never be found"
    assert name not in policies.REGISTRY
    mentioned = set(WORDS.findall(advice))
    assert mentioned, "it names nothing to use"
    assert mentioned <= set(policies.REGISTRY)
