"""The resume check: which values are the same, and the warning."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import training_code

from shoestring import Float, tune
from shoestring.core.ledger.entries import Note, Order
from shoestring.reports.messages import find_warning
from shoestring.runners.training.resume_check import note_check, preserve_random_state

ORDER = Order(number=3, trial=1, config={}, until=5, check=True)


@pytest.mark.parametrize(
    ("continued", "resumed", "same"),
    [
        (0.5, 0.5, True),
        (0.5, 0.5 * (1 + 1e-9), True),
        (0.5, 0.5 * (1 + 1e-4), False),
        (0.0, 1e-13, True),
        (math.nan, math.nan, True),
        (math.inf, math.inf, True),
        (math.nan, 0.5, False),
        (0.5, None, False),
        (None, 0.5, False),
        (None, None, True),
    ],
)
def test_which_values_are_the_same(continued: float | None, resumed: float | None, same: bool) -> None:
    note = note_check(ORDER, 2, continued, resumed, 1.5)
    assert note.facts["same"] is same
    assert (note.facts["order"], note.facts["trial"], note.facts["step"], note.facts["seconds"]) == (3, 1, 2, 1.5)
    warning = find_warning(note)
    assert (warning is None) is same
    if warning is not None:
        for words in ("step 2 of trial 1", repr(continued), repr(resumed), "optimiser"):
            assert words in warning


def test_code_that_declares_itself_inexact_gives_another_text() -> None:
    warning = find_warning(note_check(ORDER, 2, 0.5, 0.4, 1.5, exact=False))
    assert warning == (
        "resuming is inexact, as the training code declares: step 2 of trial 1 gave 0.5 without interruption "
        "and 0.4 after save and load"
    )
    assert find_warning(note_check(ORDER, 2, 0.5, 0.5, 1.5, exact=False)) is None
    assert "declared" not in note_check(ORDER, 2, 0.5, 0.4, 1.5).facts


@pytest.mark.parametrize("runner", ["local", "process"])
@pytest.mark.parametrize("code", [training_code.Inexact, training_code.inexact_report])
def test_the_declaration_reaches_the_note(
    code: Any, runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.chdir(tmp_path)
    study = tune(code, {"x": Float(0, 1)}, "100 epochs", max_steps=8, policy="random_search", runner=runner, seed=1)
    (check,) = [note for note in study.ledger.entries() if isinstance(note, Note) and note.topic == "check"]
    assert (check.facts["same"], check.facts["declared"]) == (False, "inexact")
    assert [str(one.message) for one in recwarn] == [find_warning(check)]


def test_other_notes_give_no_warning() -> None:
    assert find_warning(Note(topic="released", facts={"order": 1})) is None


def test_global_random_generators_are_restored() -> None:
    random.seed(1)
    np.random.seed(1)
    expected = random.random(), np.random.random()
    random.seed(1)
    np.random.seed(1)

    def draw_and_fail() -> None:
        with preserve_random_state():
            random.random(), np.random.random(10)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        draw_and_fail()
    assert (random.random(), np.random.random()) == expected
