"""Entries as stored: what is read back equals what was written, in this format and in older ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from shoestring.core.ledger import formats
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Amended, Cost, Entry, Lost, Note, Opened, Order, Receipt, from_stored
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Space
from shoestring.core.values.strict_json import dumps, loads
from shoestring.errors import StudyError

SPACE = Space({"z": Float(1e-4, 1, log=True), "a": Choice(["x", None, True]), "m": Int(1, 3, when={"a": ["x"]})})
OPENED = Opened(
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
LIFE: list[Entry] = [
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
    Receipt(order=0, trial=0, step=1, value=None, status="failed", text="Error: \udcff\n\x00 ✗", saved=1),
    Lost(trial=0, held=0, seconds=2.5, why="the process ended"),
    Amended(budget=Budget("2h"), workers=3),
    Amended(policy="hyperband", settings={}),
    Note(topic="enqueue", facts={"config": {"z": 0.5, "a": None}}),
]


@pytest.mark.parametrize("entry", LIFE, ids=lambda entry: entry.kind)
def test_there_and_back(entry: Entry) -> None:
    stored = dumps(entry.body())
    again = from_stored(entry.kind, loads(stored))
    assert dumps(again.body()) == stored
    if "nan" not in stored:
        assert again == entry


def test_absent_stays_absent_in_an_amendment() -> None:
    again = from_stored("amended", loads(dumps(Amended(workers=3).body())))
    assert again == Amended(workers=3)
    assert from_stored("amended", {"policy": "grid", "settings": {}}) == Amended(policy="grid", settings={})


def test_an_order_knows_which_steps_it_validates() -> None:
    told: dict[str, list[bool]] = {}
    for validate in ("each", "last", "none"):
        order = Order(number=0, trial=0, config={}, until=3, validate=validate)
        told[validate] = [order.validates(step) for step in (1, 2, 3)]
    assert told == {"each": [True] * 3, "last": [False, False, True], "none": [False] * 3}


def test_unknown_kinds_ask_for_a_newer_version() -> None:
    with pytest.raises(StudyError, match="unknown kind 'prophecy'"):
        from_stored("prophecy", {})


# formats -------------------------------------------------------------------------------------------------------------


def rows(entries: list[Entry]) -> list[tuple[str, dict[str, Any]]]:
    return [(entry.kind, loads(dumps(entry.body()))) for entry in entries]


def test_reading_the_present_format() -> None:
    assert [dumps(entry.body()) for entry in formats.read(rows(LIFE))] == [dumps(entry.body()) for entry in LIFE]
    assert next(formats.read(rows(LIFE)[5:], found=1)) == LIFE[5]


def test_a_study_of_an_older_format_is_read_without_being_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Format 0, made up: budgets were a number of epochs. Behind a `format` note entries are of the new one."""

    def from_0(kind: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**body, "budget": f"{body['budget']} epochs"} if "budget" in body else body

    monkeypatch.setitem(formats.MIGRATIONS, 0, from_0)
    old: list[tuple[str, dict[str, Any]]] = [
        ("opened", OPENED.body() | {"budget": 7, "format": 0}),
        ("amended", {"budget": 9}),
    ]
    new: list[tuple[str, dict[str, Any]]] = [
        ("note", {"topic": "format", "format": 1}),
        ("amended", {"budget": "11 epochs"}),
    ]
    read = list(formats.read([*old, *new]))
    budgets = [entry.budget for entry in read if isinstance(entry, Opened | Amended)]
    assert budgets == [Budget("7 epochs"), Budget("9 epochs"), Budget("11 epochs")]
    assert old[0][1]["budget"] == 7


def test_a_newer_format_asks_for_a_newer_version() -> None:
    newer = [("opened", OPENED.body() | {"format": 99})]
    with pytest.raises(StudyError, match=r"format 99.*install a newer one"):
        list(formats.read(newer))


def test_rows_that_do_not_begin_with_opened_are_no_study() -> None:
    with pytest.raises(StudyError, match="does not begin"):
        list(formats.read(rows(LIFE)[1:]))
