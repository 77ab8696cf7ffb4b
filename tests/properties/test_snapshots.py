"""A state that is read back from a snapshot and continued equals the state computed from all entries, to the last bit."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.ledger import snapshot
from shoestring.core.ledger.accounting import StudyStateView
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Entry, Note, Order, StateLoss, StudyDefinition, from_stored
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import StudyState
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Space
from shoestring.core.values.strict_json import dumps, loads
from shoestring.runners.simulated.simulated_runner import SimulatedRunner
from shoestring.study.loop import run_in_memory
from shoestring.testing.curves import (
    DecayingCurves,
    DivergingCurves,
    EarlyEndingCurves,
    FailingCurves,
    NegatedCurves,
    NoisyCurves,
)
from shoestring.testing.ledger_stores import entries_of_all_kinds
from shoestring.testing.policies import make_small_policy

SPACE = Space({"x": Float(0, 1), "n": Int(1, 50), "c": Choice(["~a", "b"]), "m": Float(0, 1, when={"c": "b"})})
CURVES = FailingCurves(
    DivergingCurves(EarlyEndingCurves(NoisyCurves(DecayingCurves(setup_s=0.1)), before=6), before=6), before=6
)


def exactly(state: StudyState) -> dict[str, Any]:
    """Return every field as text that distinguishes 1 from 1.0 and 0.0 from -0.0, with NaN equal to itself."""
    return {field.name: repr(_plain(getattr(state, field.name))) for field in fields(state)}


def _plain(value: Any) -> Any:
    if isinstance(value, set):
        return sorted(value)
    return list(value) if hasattr(value, "append") else value


def check_snapshot(entries: list[Entry], cut: int) -> None:
    entries = [
        from_stored(entry.kind, loads(dumps(entry.body(), in_order=True))) for entry in entries
    ]  # as a store has them
    text = snapshot.write(Ledger(entries[:cut]).state)
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    orders = [entry for entry in entries[:cut] if isinstance(entry, Order)]
    state = snapshot.read(text, lambda n: orders[:n])
    assert exactly(state) == exactly(Ledger(entries[:cut]).state)
    definition = entries[0]
    assert isinstance(definition, StudyDefinition)
    ledger = Ledger.restore(definition, state, cut, lambda: entries[:cut])
    for entry in entries[cut:]:
        ledger = ledger.append(entry)
    assert exactly(ledger.state) == exactly(Ledger(entries).state)
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
def test_a_snapshot_at_any_entry_restores_the_state(
    seed: int, policy: str, budget: str, direction: Any, workers: int, extra: list[str], share: float
) -> None:
    definition = StudyDefinition(
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
    curves = CURVES if direction == "min" else NegatedCurves(CURVES)
    more: dict[str, Entry] = {
        "queue": Note(topic="enqueue", facts={"config": {"x": 0.5, "n": 3, "c": "~a"}}),
        "think": Note(topic="thinking", facts={"seconds": 0.1}),
    }
    begun = Ledger([definition, *(more[word] for word in extra if word in more)])
    entries = run_in_memory(begun, make_small_policy(policy), SimulatedRunner(curves, workers)).ledger.entries()
    if "lose" in extra and (trials := Ledger(entries).trials):
        entries.append(
            StateLoss(trial=0, resumable_step=0, seconds=2.5, why="x", death=trials[0].open_order is not None)
        )
    check_snapshot(entries, 1 + round(share * (len(entries) - 1)))


@pytest.mark.parametrize("cut", range(1, len(entries_of_all_kinds()) + 1))
def test_values_that_are_difficult_to_store_are_restored(cut: int) -> None:
    check_snapshot(entries_of_all_kinds(), cut)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"tagged":[]}', '{"tagged":["x"]}', '{"tagged":1}', '"tagged"']
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError, LookupError, AttributeError)):
        snapshot.read(text, lambda n: [])


def test_a_missing_or_a_new_field_is_refused() -> None:
    parts = json.loads(
        snapshot.write(
            StudyStateView().start(next(e for e in entries_of_all_kinds() if isinstance(e, StudyDefinition)))
        )
    )
    for name in parts:
        with pytest.raises((ValueError, TypeError, LookupError)):
            snapshot.read(json.dumps({key: value for key, value in parts.items() if key != name}), lambda n: [])
    with pytest.raises(ValueError, match="surprise"):
        snapshot.read(json.dumps(parts | {"surprise": 1}), lambda n: [])
