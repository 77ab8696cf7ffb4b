"""How often a test repeats itself: often enough to notice a mistake in `make test`, far more often in `make test-heavy`.

A repetition asserts what the first one asserts, of another example or after another kill. Tests that repeat themselves are marked
`repeated` (those of Hypothesis by tests/conftest.py, with 30 and 100 examples unless they say otherwise here);
`pytest --thorough -m repeated` runs those tests, and no others, with the larger numbers.
"""

from __future__ import annotations

from hypothesis import settings


class Thoroughness:
    """Set by tests/conftest.py from the command line, before any module of tests is imported."""

    is_thorough = False


def repetitions(quick: int, *, thorough: int) -> int:
    """Return `thorough` with the option --thorough, else `quick`; mark a test that calls this with `pytest.mark.repeated`."""
    return thorough if Thoroughness.is_thorough else quick


def examples(quick: int, *, thorough: int) -> settings:
    """Let Hypothesis draw `thorough` examples with the option --thorough, else `quick`."""
    return settings(max_examples=repetitions(quick, thorough=thorough))
