"""The row format: what is written is read, and nothing changed, lost or moved goes unnoticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.ledger.entries import FORMAT, Note
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps
from shoestring.errors import StoreError, StudyError
from shoestring.stores.rows import BEGIN, Link, Row, Unsound, checksum, follow, write
from shoestring.testing.ledger_stores import a_life, an_opening, entries_as_text


def rows_of_a_life() -> list[Row]:
    rows, link = [], BEGIN
    for seq, entry in enumerate(a_life()):
        row, link = write("s", seq, entry, link, 1e9 + seq)
        rows.append(row)
    return rows


def read(rows: list[Row]) -> tuple[int, str]:
    """How many rows were sound, and what was wrong with the next one."""
    good = 0
    try:
        for _ in follow("s", rows):
            good += 1
    except Unsound as error:
        return good, str(error)
    return good, ""


def sealed(body: str, kind: str = "opened") -> Row:
    """A first row with this body and a checksum that fits."""
    return Row("s", 0, kind, body, checksum("", "s", 0, kind, body, 0.5), 0.5)


def test_the_checksum_is_the_documented_one_for_ever() -> None:
    assert checksum("", "s", 0, "note", '{"topic":"é"}', 1.5) == "2c104e074e22d7eb671c8b93ce1faa65"


def test_rows_are_read_back() -> None:
    *_, (_, ledger, link) = follow("s", rows_of_a_life())
    assert entries_as_text(ledger) == entries_as_text(Ledger(a_life()))
    assert link == Link(rows_of_a_life()[-1].sum, FORMAT)


# Lone halves of characters are what Python makes of bytes that are no UTF-8, such as odd file names.
TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXT.filter(lambda name: name != "topic"), JSON, max_size=4))
def test_any_facts_survive(facts: dict[str, object]) -> None:
    opened, link = write("s", 0, an_opening(), BEGIN, 0.0)
    noted, _ = write("s", 1, Note(topic="x", facts=facts), link, 0.0)
    noted.body.encode("utf-8")  # as databases demand
    assert "\x00" not in noted.body
    *_, (_, ledger, _) = follow("s", [opened, noted])
    (note,) = ledger.entries(1)
    assert isinstance(note, Note)
    assert dumps(note.facts) == dumps(facts)


TAMPER: dict[str, Callable[[list[Row], int], list[Row]]] = {
    "kind": lambda rows, i: [*rows[:i], rows[i]._replace(kind="note"), *rows[i + 1 :]],
    "body": lambda rows, i: [*rows[:i], rows[i]._replace(body=rows[i].body.replace(":", ": ", 1)), *rows[i + 1 :]],
    "sum": lambda rows, i: [*rows[:i], rows[i]._replace(sum=rows[i].sum[::-1]), *rows[i + 1 :]],
    "at": lambda rows, i: [*rows[:i], rows[i]._replace(at=rows[i].at + 1e-6), *rows[i + 1 :]],
    "type": lambda rows, i: [*rows[:i], rows[i]._replace(body=b"\xff"), *rows[i + 1 :]],  # type: ignore[arg-type]
    "lost": lambda rows, i: rows[:i] + rows[i + 1 :],
    "lost, the rest moved up": lambda rows, i: rows[:i] + [r._replace(seq=r.seq - 1) for r in rows[i + 1 :]],
    "repeated": lambda rows, i: rows[: i + 1] + [r._replace(seq=r.seq + 1) for r in rows[i:]],
}


@pytest.mark.parametrize("how", TAMPER)
def test_damage_shows_at_the_row_it_is_in(how: str) -> None:
    rows = rows_of_a_life()
    for i in range(len(rows) - 1):
        if how == "kind" and rows[i].kind == "note":
            continue
        bad = i + 1 if how == "repeated" else i
        good, why = read(TAMPER[how](rows, i))
        assert good == bad
        assert why.startswith(f"entry {bad} ")


def test_a_row_of_another_study_does_not_fit() -> None:
    with pytest.raises(Unsound, match="entry 0 does not match"):
        list(follow("t", rows_of_a_life()))


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (sealed("{"), "entry 0 is not JSON"),
        (sealed("[1]"), "entry 0 is not a JSON object"),
        (sealed('{"format":1}'), "entry 0 cannot be followed: KeyError"),
        (sealed('{"format":"one"}'), "entry 0 cannot be followed: ValueError"),
    ],
)
def test_a_row_that_nobody_can_have_written_is_unsound(row: Row, text: str) -> None:
    assert read([row])[1].startswith(text)


def test_an_entry_that_breaks_a_rule_is_unsound() -> None:
    opened, link = write("s", 0, an_opening(), BEGIN, 0.0)
    receipt, _ = write("s", 1, a_life()[3], link, 0.0)
    good, why = read([opened, receipt])
    assert good == 1
    assert "DecisionError" in why


def test_a_newer_format_is_no_damage() -> None:
    with pytest.raises(StudyError, match="install a newer one"):
        list(follow("s", [sealed(f'{{"format":{FORMAT + 1}}}')]))


def test_what_cannot_be_stored_is_named() -> None:
    with pytest.raises(StoreError, match=r"entry 1 .note. of the study 's'.*object"):
        write("s", 1, Note(topic="x", facts={"what": object()}), BEGIN, 0.0)
