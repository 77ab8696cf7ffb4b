"""The row format: rows are read back as they were written, and every change, loss or move of a row is noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.ledger.entries import FORMAT, Note
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps
from shoestring.errors import StoreError, UnknownFormat
from shoestring.stores.rows import NO_SUM, BadRow, Row, checksum, follow, write
from shoestring.testing.ledger_stores import an_opening, entries_as_text, entries_of_all_kinds


def rows_of_a_life() -> list[Row]:
    rows: list[Row] = []
    for seq, entry in enumerate(entries_of_all_kinds()):
        rows.append(write("s", seq, entry, rows[-1].sum if rows else NO_SUM, 1e9 + seq))
    return rows


def read(rows: list[Row]) -> tuple[int, str]:
    """Return how many rows were good, and what was wrong with the next one."""
    good = 0
    try:
        for _ in follow("s", rows):
            good += 1
    except BadRow as error:
        return good, str(error)
    return good, ""


def first_row(body: str, kind: str = "opened") -> Row:
    """Return a first row with this body and a checksum that fits."""
    return Row("s", 0, kind, body, checksum("", "s", 0, kind, body, 0.5), 0.5)


def test_the_checksum_is_the_documented_one() -> None:
    assert checksum("", "s", 0, "note", '{"topic":"é"}', 1.5) == "2c104e074e22d7eb671c8b93ce1faa65"


def test_rows_are_read_back() -> None:
    *_, (row, ledger) = follow("s", rows_of_a_life())
    assert entries_as_text(ledger) == entries_as_text(Ledger(entries_of_all_kinds()))
    assert row == rows_of_a_life()[-1]


def test_rows_behind_a_known_ledger_are_read() -> None:
    rows = rows_of_a_life()
    ledger = Ledger(entries_of_all_kinds()[:3])
    *_, (_, grown) = follow("s", rows[3:], ledger, rows[2].sum)
    assert entries_as_text(grown) == entries_as_text(Ledger(entries_of_all_kinds()))


def test_a_bad_row_leaves_the_ledger_before_it_usable() -> None:
    rows = rows_of_a_life()
    ledger = Ledger(entries_of_all_kinds()[:3])
    with pytest.raises(BadRow):
        list(follow("s", [*rows[3:5], rows[3]], ledger, rows[2].sum))
    assert ledger.spent == Ledger(entries_of_all_kinds()[:3]).spent


# Python represents bytes that are not UTF-8, such as those of some file names, by lone surrogates.
TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXT.filter(lambda name: name != "topic"), JSON, max_size=4))
def test_any_facts_are_read_back(facts: dict[str, object]) -> None:
    definition = write("s", 0, an_opening(), NO_SUM, 0.0)
    note_row = write("s", 1, Note(topic="x", facts=facts), definition.sum, 0.0)
    note_row.body.encode("utf-8")  # databases require this
    assert "\x00" not in note_row.body
    *_, (_, ledger) = follow("s", [definition, note_row])
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
def test_damage_is_reported_at_the_row_where_it_is(how: str) -> None:
    rows = rows_of_a_life()
    for i in range(len(rows) - 1):
        if how == "kind" and rows[i].kind == "note":
            continue
        bad = i + 1 if how == "repeated" else i
        good, problem = read(TAMPER[how](rows, i))
        assert good == bad
        assert problem.startswith(f"entry {bad} ")


def test_a_row_of_another_study_is_bad() -> None:
    with pytest.raises(BadRow, match="entry 0 "):
        list(follow("t", rows_of_a_life()))


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (first_row("{"), "entry 0 is not JSON"),
        (first_row("[1]"), "entry 0 is not a JSON object"),
        (first_row('{"format":1}'), "entry 0 cannot be applied: KeyError"),
        (first_row('{"format":"one"}'), "entry 0 cannot be applied: ValueError"),
    ],
)
def test_a_row_that_no_version_can_have_written_is_bad(row: Row, text: str) -> None:
    assert read([row])[1].startswith(text)


def test_an_entry_that_breaks_a_rule_is_bad() -> None:
    definition = write("s", 0, an_opening(), NO_SUM, 0.0)
    receipt = write("s", 1, entries_of_all_kinds()[3], definition.sum, 0.0)
    good, problem = read([definition, receipt])
    assert good == 1
    assert "DecisionError" in problem


def test_another_format_is_not_damage() -> None:
    with pytest.raises(UnknownFormat):
        list(follow("s", [first_row(f'{{"format":{FORMAT + 1}}}')]))


def test_an_entry_that_cannot_be_stored_is_named() -> None:
    with pytest.raises(
        StoreError,
        match=r"entry 1 \(note\) of the study 's': .* \(object\) cannot be stored: use numbers, strings, booleans, None",
    ):
        write("s", 1, Note(topic="x", facts={"what": object()}), NO_SUM, 0.0)
