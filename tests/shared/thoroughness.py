"""How often a test repeats itself: often enough to notice a mistake in `make test`, far more often in `make test-heavy`.

A repetition asserts what the first one asserts, of another example or after another kill. A test that says here how often it
repeats itself is marked `repeated`; `pytest --thorough -m repeated` runs those tests, and no others, with the larger numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

Test = TypeVar("Test", bound=Callable[..., Any])


class Thoroughness:
    """Set by tests/conftest.py from the command line, before any module of tests is imported."""

    is_thorough = False


def repetitions(quick: int, *, thorough: int) -> int:
    """So many, by the option --thorough. Whoever asks marks its test with `pytest.mark.repeated`."""
    return thorough if Thoroughness.is_thorough else quick


def examples(quick: int, *, thorough: int) -> Callable[[Test], Test]:
    """Let Hypothesis draw so many examples, by the option --thorough, and mark the test as `repeated`."""
    drawn = settings(
        max_examples=repetitions(quick, thorough=thorough),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    return lambda test: pytest.mark.repeated(drawn(test))
