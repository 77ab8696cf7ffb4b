"""Two failures are the same if the exception and the line agree; numbers, paths and quoted texts may differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.ledger.failures import describe_failure, kind_of_failure


def traceback(message: str, *, line: int = 41, raised: str = "torch.OutOfMemoryError") -> str:
    return f"""Traceback (most recent call last):
  File "train.py", line 9, in train
    loss = step(batch)
  File "model.py", line {line}, in step
    return attention(x)
           ^^^^^^^^^^^^
{raised}: {message}"""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (traceback("Tried to allocate 3.21 GiB"), traceback("Tried to allocate 12.00 GiB")),
        (traceback("config {'lr': 0.1, 'opt': 'sgd'}"), traceback("config {'lr': 0.2, 'opt': 'adam'}\nand more")),
        ("CUDA error 77 at 0x7f00", "CUDA error 12 at 0x7fff"),
        ("cannot write /a/trial-0001/step-1: full", "cannot write /a/trial-0002/step-1: full"),
        ("exit code 1: no file data\\run-1\\x.csv", "exit code 1: no file data\\run-2\\x.csv"),
        ("KeyError: 'alpha'", "KeyError: 'beta'"),
    ],
)
def test_these_failures_are_the_same(one: str, other: str) -> None:
    assert kind_of_failure(one) == kind_of_failure(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (traceback("x"), traceback("x", line=42)),
        (traceback("x"), traceback("x", raised="ValueError")),
        ("the disk is full", "the network is gone"),
        (traceback("x"), "torch.OutOfMemoryError: x"),
    ],
)
def test_these_failures_differ(one: str, other: str) -> None:
    assert kind_of_failure(one) != kind_of_failure(other)


def test_a_chain_of_exceptions_is_identified_by_its_last_one() -> None:
    chained = traceback("first") + "\n\nDuring handling of the above exception, another exception occurred:\n\n"
    assert kind_of_failure(chained + traceback("x", line=7, raised="SystemExit")) == "SystemExit in model.py, line 7"
    assert describe_failure(chained + traceback("x", line=7, raised="SystemExit")) == "SystemExit: x"


def test_the_description_is_the_line_of_the_exception() -> None:
    assert describe_failure(traceback("no more\nsecond line")) == "torch.OutOfMemoryError: no more"
    assert describe_failure("something\nwent wrong \n") == "went wrong"
    assert describe_failure("") == kind_of_failure("") == ""


@given(st.text(), st.integers(), st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_do_not_matter(text: str, whole: int, number: float) -> None:
    def text_with(n: object) -> str:
        return f"step {n} of {text.replace(chr(39), '').replace(chr(34), '')}"

    assert kind_of_failure(text_with(whole)) == kind_of_failure(text_with(abs(whole) + 1))
    assert kind_of_failure(text_with(number)) == kind_of_failure(text_with(1))


@given(st.text())
def test_any_text_is_accepted(text: str) -> None:
    assert isinstance(kind_of_failure(text), str)
    assert "\n" not in describe_failure(text)
