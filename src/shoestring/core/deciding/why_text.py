"""How a policy puts the `why` of its orders into words: labels for its numbers, and clauses for the sentence of `explain`.

A policy class may declare two things, both optional. Reports find them through the name of the policy that placed the order.

    why_labels     what each number in `why` means, with its unit in parentheses; "{unit}" stands for the budget's unit
    describe_why   a static method that takes an order and returns a `WhyText`

The names in `SHARED_NAMES` need no label: the sentence says them. A number without a label is shown under its own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from shoestring.core.deciding.decision import Why

Labels = Mapping[str, str]
# `comparison.py` explains all of these but two: "stage" is a clause before the comparison, and "reason" a clause at the end.
SHARED_NAMES = frozenset(
    {
        "compared",
        "score_name",
        "best_is",
        "score",
        "runner_up",
        "runner_up_score",
        "rank",
        "last_kept_score",
        "stage",
        "reason",
    }
)


class WhyText(NamedTuple):
    """The words that a policy adds to the sentence of `explain`.

    Parameters
    ----------
    origin : str
        Where the configuration comes from, if no comparison led to it.
    clauses : tuple of str
        What else a user should know about the order; none of them ends with a full stop.
    """

    origin: str = ""
    clauses: tuple[str, ...] = ()


def describe_phase(why: Why, phases: Mapping[str, str]) -> tuple[str, ...]:
    """Return a tuple with the clause for the order's phase; an empty one if the phase is not listed."""
    phase = str(why.get("phase"))
    return (phases[phase],) if phase in phases else ()
