"""What may change when the same command is given again, and what makes it another study."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoestring.core.ledger.amendments import find_amendment, find_changes
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Amendment, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Space
from shoestring.errors import StudyError

OPENED = StudyDefinition(
    space=Space({"x": Float(0, 1), "c": Choice(["a", "b"])}),
    budget=Budget("10 epochs"),
    policy="asha",
    settings={"reduction_factor": 3},
    seed=1,
    max_steps=9,
)


def test_the_same_command_changes_nothing() -> None:
    again = replace(OPENED, space=Space({"c": Choice(["a", "b"]), "x": Float(0, 1)}), seed=99)
    assert find_amendment(Ledger([OPENED]), "s", again, seed_given=False) is None


def test_marks_of_the_cost_make_no_other_study() -> None:
    """Results stay comparable, so a study continues; it keeps the marks that it was begun with."""
    marked = replace(OPENED, space=Space({"x": Float(0, 1, cost="increases"), "c": Choice(["a", "b"])}))
    assert find_amendment(Ledger([OPENED]), "s", marked, seed_given=False) is None
    assert find_amendment(Ledger([marked]), "s", OPENED, seed_given=False) is None
    other = replace(marked, space=Space({"x": Float(0, 1, cost="increases"), "c": Choice(["a", "d"])}))
    with pytest.raises(StudyError, match=r"c was \{'choice': \['a', 'b'\]\}, not \{'choice': \['a', 'd'\]\}"):
        find_amendment(Ledger([OPENED]), "s", other, seed_given=False)


def test_the_checkpoint_folder_stays_when_it_is_not_given_again() -> None:
    begun = replace(OPENED, target={"checkpoints": "/mnt/runs"})
    assert find_amendment(Ledger([begun]), "s", OPENED, seed_given=False) is None
    assert find_amendment(Ledger([begun]), "s", begun, seed_given=False) is None


def test_the_metric_keeps_its_name() -> None:
    begun = replace(OPENED, metric="validation error")
    assert find_amendment(Ledger([begun]), "s", OPENED, seed_given=False) is None
    assert find_amendment(Ledger([begun]), "s", begun, seed_given=False) is None
    with pytest.raises(StudyError, match="has the metric 'validation error', not 'accuracy'"):
        find_amendment(Ledger([begun]), "s", replace(begun, metric="accuracy"), seed_given=False)


@pytest.mark.parametrize(
    ("change", "amended"),
    [
        ({"budget": Budget("20 epochs")}, Amendment(budget=Budget("20 epochs"))),
        ({"workers": 3}, Amendment(workers=3)),
        ({"policy": "grid", "settings": {}}, Amendment(policy="grid", settings={})),
        ({"settings": {"reduction_factor": 4}}, Amendment(policy="asha", settings={"reduction_factor": 4})),
    ],
)
def test_allowed_changes_become_an_amendment(change: dict[str, Any], amended: Amendment) -> None:
    ledger = Ledger([OPENED])
    found = find_amendment(ledger, "s", replace(OPENED, **change), seed_given=True)
    assert found == amended
    after = ledger.append(found)
    assert find_changes(after, replace(OPENED, **change)) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"space": Space({"x": Float(0, 2), "c": Choice(["a", "b"])})},
            ["another space", "x was", "[0.0, 1.0]", "[0.0, 2.0]"],
        ),
        ({"space": Space({"x": Float(0, 1)})}, ["c is missing"]),
        (
            {"space": Space({"x": Float(0, 1), "c": Choice(["a", "b"]), "n": Int(1, 2)})},
            ["n is new"],
        ),
        (
            {"space": Space({"x": Float(0, 1, when={"c": "a"}), "c": Choice(["a", "b"])})},
            ["conditions"],
        ),
        ({"direction": "max"}, ["'min'", "'max'"]),
        ({"max_steps": 10}, ["9 steps, not 10"]),
        ({"prices": Prices(0.5)}, ["0 epochs for a validation pass, not 0.5"]),
        ({"seed": 2}, ["seed 1, not 2", "leave the seed out"]),
        ({"metric": "accuracy"}, ["has no name for its metric, not 'accuracy'", "leave the metric out"]),
        ({"target": {"checkpoints": "s3://b/r"}}, ["has its checkpoints beside its store, not at s3://b/r"]),
    ],
)
def test_another_study_is_refused(change: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(StudyError) as caught:
        find_amendment(Ledger([OPENED]), "mine", replace(OPENED, **change), seed_given=True)
    for word in ["'mine'", "start another study, with name=…", *words]:
        assert word in str(caught.value)
