"""A snapshot of the books at any entry, read back and gone on from, is what folding all entries gives: to the last bit."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.ledger import snapshot
from shoestring.core.ledger.accounting import BooksView
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Entry, Lost, Note, Opened, Order, from_stored
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Books
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Space
from shoestring.core.values.strict_json import dumps, loads
from shoestring.runners.simulated.simulated_runner import Simulated
from shoestring.study.loop import run_in_memory
from shoestring.testing.curves import Decaying, Diverging, EndingEarly, Failing, Negated, Noisy
from shoestring.testing.ledger_stores import a_life
from shoestring.testing.policies import small

SPACE = Space({"x": Float(0, 1), "n": Int(1, 50), "c": Choice(["~a", "b"]), "m": Float(0, 1, when={"c": "b"})})
CURVES = Failing(Diverging(EndingEarly(Noisy(Decaying(setup_s=0.1)), before=6), before=6), before=6)


def exactly(books: Books) -> dict[str, Any]:
    """Every field as text that tells 1 from 1.0 and 0.0 from -0.0, with nan equal to itself."""
    return {field.name: repr(_plain(getattr(books, field.name))) for field in fields(books)}


def _plain(value: Any) -> Any:
    if isinstance(value, set):
        return sorted(value)
    return list(value) if hasattr(value, "append") else value


def check_snapshot(made: list[Entry], cut: int) -> None:
    entries = [
        from_stored(entry.kind, loads(dumps(entry.body(), in_order=True))) for entry in made
    ]  # as a store has them
    text = snapshot.write(Ledger(entries[:cut]).books)
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    orders = [entry for entry in entries[:cut] if isinstance(entry, Order)]
    books = snapshot.read(text, lambda n: orders[:n])
    assert exactly(books) == exactly(Ledger(entries[:cut]).books)
    opened = entries[0]
    assert isinstance(opened, Opened)
    ledger = Ledger.restored(opened, books, cut, lambda: entries[:cut])
    for entry in entries[cut:]:
        ledger = ledger.append(entry)
    assert exactly(ledger.books) == exactly(Ledger(entries).books)
    assert repr(ledger.entries()) == repr(entries)
    assert repr(ledger.memo) == repr(Ledger(entries).memo)


@examples(12, thorough=40)
@given(
    seed=st.integers(0, 2**16),
    policy=st.sampled_from(["asha", "hyperband", "random_search", "epsilon_greedy", "sequential_halving"]),
    budget=st.sampled_from(["60 epochs", "90s", "$3 at 200/h", "$3 at 200/h per machine"]),
    direction=st.sampled_from(["min", "max"]),
    workers=st.sampled_from([1, 3]),
    extra=st.lists(st.sampled_from(["queue", "think", "lose"]), max_size=3),
    share=st.floats(0, 1),
)
def test_a_snapshot_anywhere(
    seed: int, policy: str, budget: str, direction: Any, workers: int, extra: list[str], share: float
) -> None:
    opened = Opened(
        space=SPACE,
        budget=Budget(budget),
        policy=policy,
        settings={},
        seed=seed,
        direction=direction,
        max_steps=9,
        prices=Prices(0.1),
        workers=workers,
    )
    curves = CURVES if direction == "min" else Negated(CURVES)
    more: dict[str, Entry] = {
        "queue": Note(topic="enqueue", facts={"config": {"x": 0.5, "n": 3, "c": "~a"}}),
        "think": Note(topic="thinking", facts={"seconds": 0.1}),
    }
    begun = Ledger([opened, *(more[word] for word in extra if word in more)])
    entries = run_in_memory(begun, small(policy), Simulated(curves, workers)).ledger.entries()
    if "lose" in extra and (trials := Ledger(entries).trials):
        entries.append(Lost(trial=0, held=0, seconds=2.5, why="x", death=trials[0].open_order is not None))
    check_snapshot(entries, 1 + round(share * (len(entries) - 1)))


@pytest.mark.parametrize("cut", range(1, len(a_life()) + 1))
def test_everything_that_is_awkward_to_write_down(cut: int) -> None:
    check_snapshot(a_life(), cut)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"tagged":[]}', '{"tagged":["x"]}', '{"tagged":1}', '"tagged"']
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError, LookupError, AttributeError)):
        snapshot.read(text, lambda n: [])


def test_a_field_that_is_lost_or_new_is_refused() -> None:
    parts = json.loads(snapshot.write(BooksView().start(next(e for e in a_life() if isinstance(e, Opened)))))
    for name in parts:
        with pytest.raises((ValueError, TypeError, LookupError)):
            snapshot.read(json.dumps({key: value for key, value in parts.items() if key != name}), lambda n: [])
    with pytest.raises(ValueError, match="surprise"):
        snapshot.read(json.dumps(parts | {"surprise": 1}), lambda n: [])
