"""Messages are one line, and warnings point at the user's own code."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from shoestring import Space, TrainingFailed
from shoestring.errors import SpaceError, one_line, warn


def test_a_message_is_one_line_whatever_it_quotes() -> None:
    with pytest.raises(SpaceError) as caught:
        Space(np.zeros((3, 3)))  # type: ignore[arg-type]
    assert "array([[0., 0., 0.], [0., 0., 0.], [0., 0., 0.]])" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(SpaceError("a\nb\t\x1b[31mc\x00")) == "a b \\x1b[31mc\\x00"
    assert str(SpaceError("two  spaces are kept")) == "two  spaces are kept"


def test_a_long_message_is_cut() -> None:
    text = str(SpaceError("x" * 10_000))
    assert len(text) < 4100
    assert text.endswith("… (6000 characters more)")


def test_half_a_surrogate_pair_is_escaped() -> None:
    assert one_line("\ud800é") == "\\ud800é"


def test_an_error_can_be_pickled() -> None:
    assert str(pickle.loads(pickle.dumps(TrainingFailed("no result")))) == "no result"


def test_a_warning_points_at_the_code_that_called_the_package() -> None:
    with pytest.warns(UserWarning, match="mind") as caught:
        warn("mind")
    assert caught[0].filename == __file__
