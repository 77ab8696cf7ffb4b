"""Entries as they are stored: what is read back equals what was written; other formats are refused."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import (
    FORMAT,
    Amendment,
    Cost,
    Entry,
    Note,
    Order,
    Receipt,
    StateLoss,
    StudyDefinition,
    from_stored,
)
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Space
from shoestring.core.values.strict_json import dumps, loads
from shoestring.errors import StudyError, UnknownFormat

SPACE = Space({"z": Float(1e-4, 1, log=True), "a": Choice(["x", None, True]), "m": Int(1, 3, when={"a": ["x"]})})
OPENED = StudyDefinition(
    space=SPACE,
    budget=Budget("$20 at 2.50/h per machine"),
    policy="asha",
    settings={"reduction_factor": 3, "rungs": [1, 3]},
    seed=2**40,
    direction="max",
    max_steps=27,
    prices=Prices(0.25),
    workers=4,
    target={"name": "train", "fingerprint": ""},
)
ENTRIES: list[Entry] = [
    OPENED,
    Order(
        number=0,
        trial=0,
        config={"z": 0.1, "a": "x", "m": 2},
        until=3,
        validate="last",
        expected_cost=None,
        reserve=1.5,
        why={"EI": math.inf, "rung": 0, "note": "~tilde", "new": True},
        memo={"theta": [0.1, -math.inf]},
        check=True,
        thinking_s=0.01,
        at=1.0,
    ),
    Receipt(
        order=0, trial=0, step=1, value=math.nan, cost=Cost(setup=1, train=2, validate=3), status="diverged", at=2.0
    ),
    Receipt(order=0, trial=0, step=1, value=None, status="failed", text="Error: \udcff\n\x00 ✗", saved_step=1),
    StateLoss(trial=0, resumable_step=0, seconds=2.5, why="the process ended"),
    Amendment(budget=Budget("2h"), workers=3),
    Amendment(policy="hyperband", settings={}),
    Note(topic="enqueue", facts={"config": {"z": 0.5, "a": None}}),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.kind)
def test_an_entry_is_read_back_as_it_was_written(entry: Entry) -> None:
    stored = dumps(entry.body())
    again = from_stored(entry.kind, loads(stored))
    assert dumps(again.body()) == stored
    if "nan" not in stored:
        assert again == entry


def test_the_name_of_the_metric_is_stored_only_if_there_is_one() -> None:
    """Studies that were begun before metrics had names are read, and a study without a name is stored as theirs."""
    assert "metric" not in OPENED.body()
    assert from_stored("opened", OPENED.body()) == OPENED
    named = replace(OPENED, metric="validation error")
    assert named.body() == {**OPENED.body(), "metric": "validation error"}
    assert from_stored("opened", loads(dumps(named.body()))) == named


def test_an_amendment_keeps_unchanged_fields_absent() -> None:
    again = from_stored("amended", loads(dumps(Amendment(workers=3).body())))
    assert again == Amendment(workers=3)
    assert from_stored("amended", {"policy": "grid", "settings": {}}) == Amendment(policy="grid", settings={})


def test_an_order_knows_which_steps_it_validates() -> None:
    validated: dict[str, list[bool]] = {}
    for validate in ("each", "last", "none"):
        order = Order(number=0, trial=0, config={}, until=3, validate=validate)
        validated[validate] = [order.validates(step) for step in (1, 2, 3)]
    assert validated == {"each": [True] * 3, "last": [False, False, True], "none": [False] * 3}


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(StudyError, match="unknown kind 'prophecy'"):
        from_stored("prophecy", {})


def test_a_study_of_another_format_is_refused() -> None:
    for other in (FORMAT - 1, FORMAT + 1):
        with pytest.raises(UnknownFormat):
            from_stored("opened", OPENED.body() | {"format": other})


def test_the_message_about_another_format_names_both_formats() -> None:
    with pytest.raises(UnknownFormat, match=rf"format 99, this shoestring reads format {FORMAT}"):
        from_stored("opened", OPENED.body() | {"format": 99})
