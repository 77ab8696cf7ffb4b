"""The number of repetitions of a test: few in `make test`, many in `make test-heavy`.

All repetitions assert the same, with another example or after another kill. Tests with repetitions are marked `repeated`.
tests/conftest.py marks those of Hypothesis, which have 30 or 100 examples unless they call `examples`. The command
`pytest --thorough -m repeated` runs only these tests, with the larger numbers; `--times 9` multiplies these numbers again, for a
long search (`pytest tests/fuzz --thorough --times 9` makes 10⁵ calls).
"""

from __future__ import annotations

from hypothesis import settings


class Thoroughness:
    """The options --thorough and --times; tests/conftest.py sets them before it imports any test module."""

    is_thorough = False
    times = 1


def repetitions(quick: int, *, thorough: int) -> int:
    """Return `thorough` with the option --thorough, else `quick`; a test that calls this needs `pytest.mark.repeated`."""
    return thorough * Thoroughness.times if Thoroughness.is_thorough else quick


def examples(quick: int, *, thorough: int) -> settings:
    """Let Hypothesis draw `thorough` examples with the option --thorough, else `quick`."""
    return settings(max_examples=repetitions(quick, thorough=thorough))
