"""What an order tells about its comparison, inspected: the words of `core/comparing.py` are there and fit together."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import get_args

from shoestring.core.comparing import BestIs
from shoestring.core.decision import Train
from shoestring.core.ledger import Ledger
from shoestring.core.strict_json import loads

_NEEDED = ("score_name", "best_is", "score")


def inspect_why(ledger: Ledger, order: Train, ordered: str) -> None:
    """`ordered` begins every complaint."""
    why = order.why
    for name, value in why.items():
        assert isinstance(value, str | int | float | bool | None), f"{ordered}: why[{name!r}] is not a number or a word"
        assert not (isinstance(value, float) and math.isnan(value)), f"{ordered}: why[{name!r}] is no number"
    compared = why.get("compared")
    assert type(compared) is int, f"{ordered} without saying how many were compared; 0 if nothing was"
    assert compared >= 0, f"{ordered}: {compared} cannot be compared"
    told = [name for name in (*_NEEDED, "runner_up", "runner_up_score") if name in why]
    if compared == 0:
        assert not told, f"{ordered}: nothing was compared, but there is {told}"
        return
    assert all(name in why for name in _NEEDED), f"{ordered}: a comparison tells {_NEEDED}, here are {told}"
    assert why["best_is"] in get_args(BestIs), (
        f"{ordered}: the best is highest, lowest or drawn, not {why['best_is']!r}"
    )
    assert ("runner_up" in why) == ("runner_up_score" in why), f"{ordered}: a runner-up has a score"
    if "runner_up" in why:
        assert compared > 1, f"{ordered}: one candidate has no runner-up"
        _inspect_runner_up(ledger, order, ordered)


def _inspect_runner_up(ledger: Ledger, order: Train, ordered: str) -> None:
    why, name = order.why, order.why["runner_up"]
    if isinstance(name, int):
        assert name < len(ledger.trials), f"{ordered}: the runner-up {name} is no trial"
        assert name != order.trial, f"{ordered}: the runner-up is what was ordered"
    elif isinstance(name, str) and name.startswith("{"):
        config = ledger.space.validate(loads(name))
        assert dict(config) != dict(order.config), f"{ordered}: the runner-up is what was ordered"
    if why["best_is"] == "drawn" or "reason" in why:  # chance, or a second condition, had the last word
        return
    scores = [float(str(why[name])) for name in ("score", "last_kept_score", "runner_up_score") if name in why]
    for better, worse in pairwise(scores if why["best_is"] == "highest" else [-score for score in scores]):
        # Equal scores are taken in a stated order (`core.choosing`), and may differ in their last digits.
        assert better >= worse or math.isclose(better, worse, rel_tol=1e-6, abs_tol=1e-9), (
            f"{ordered}: others had better scores"
        )
