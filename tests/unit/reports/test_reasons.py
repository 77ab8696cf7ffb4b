"""The sentence of `explain`: what was compared, by what, how close it was."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shoestring.core.deciding.comparison import compare, compare_race
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Note, Opened, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.reports.reasons import label_numbers, say_reason

BEGIN = Opened(space=Space({"x": Float(0, 1)}), budget=Budget("10s"), policy="p", settings={}, seed=4, max_steps=9)


def say(why: dict[str, Any], *, validate: Any = "each") -> str:
    order = Order(number=0, trial=0, config={"x": 0.5}, until=3, why=why, validate=validate)
    return say_reason(order, Ledger([BEGIN, order]))


def test_who_stays_in_a_race_and_how_close_it_was() -> None:
    why = compare_race(1, 1.0, 45, 2, 0.29, 0.31, (0.33, 8))
    kept = "kept: 3rd of 45 by value after step 1, with 0.29; the last one kept had 0.31, the first one left (trial 8) 0.33"
    assert say({"round": 1, **why}) == kept
    last = compare_race(1, 1.0, 45, 20, 0.31, 0.31, (0.33, 8))
    assert say(last).startswith("kept: 21st of 45 by value after step 1, with 0.31; ")
    assert say(last).endswith("; it was the last one kept, and the first one left (trial 8) had 0.33")
    assert say(compare_race(1, 1.0, 1, 0, 0.3, 0.3, None)).endswith("it was the only one kept, and none was left")


@pytest.mark.parametrize(
    ("why", "sentence"),
    [
        (
            compare("expected improvement", "highest", 161, 0.0912, '{"layers":4,"x":0.25}', 0.0871),
            "chosen from 161 for the highest expected improvement, 0.0912; the runner-up (layers=4, x=0.25) had 0.0871",
        ),
        (
            compare("gain", "highest", 5, 0.0, 5, 0.0),
            "chosen from 5 for the highest gain, 0; the runner-up (trial 5) had the same",
        ),
        (compare("gain", "highest", 1, 0.5), "there was no other candidate: gain 0.5"),
        (
            compare("probability", "drawn", 4, 0.025, '{"x":1.0}', 0.9),
            "drawn from 4 with probability 0.025; the likeliest other (x=1) had 0.9",
        ),
        (
            {**compare("expected loss of training on", "lowest", 2, 2.2, "giving up", 3.3), "reason": "undecided"},
            "expected loss of training on 2.2, against 3.3 for giving up; undecided",
        ),
        (
            compare("reward", "highest", 3, math.inf, 1, 2.0),
            "chosen from 3 for the highest reward, unlimited (never tried); the runner-up (trial 1) had 2",
        ),
        ({"rung": 2, "loss": 0.3}, "the policy did not say what it compared"),  # an order of an older version
        ({"compared": 0, "point": 12}, "nothing was compared: point 12 of the grid"),
        ({"compared": 0, "line": 3}, "nothing was compared: line 3 of the list"),
        ({"compared": 0, "was": "cut short"}, "nothing was compared: the trial goes on where it was cut short"),
        (
            {"compared": 0, "arm": 2, "of": 9},
            "nothing was compared: the next new config in the order fixed by seed 4, newcomer 3 of 9",
        ),
        (
            {"gave_up": 3, "gave_up_at": 5, "gave_up_reason": "too bad", "compared": 0, "phase": "initial design"},
            "trial 3 was given up at step 5 (too bad); initial design; "
            "nothing was compared: the next new config in the order fixed by seed 4",
        ),
    ],
)
def test_every_kind_of_comparison_has_its_sentence(why: dict[str, Any], sentence: str) -> None:
    assert say(why) == sentence


def test_the_users_own_configs_are_known_by_the_queue() -> None:
    queued = Note(topic="enqueue", facts={"config": {"x": 0.5}})
    order = Order(number=0, trial=0, config={"x": 0.5}, until=3, why={"compared": 0})
    assert say_reason(order, Ledger([BEGIN, queued, order])) == "nothing was compared: you asked for this config"


def test_a_round_says_why_it_is_validated_or_not() -> None:
    why = {"compared": 0, "query": "kappa", "pr_better": 0.95, "kappa": 0.9}
    surely = "since it beats its closest competitor with probability"
    assert say(why, validate="none").endswith(f"; not validated, {surely} 0.95 (0.9 is enough)")
    assert say(why | {"pr_better": 0.5}, validate="last").endswith(f"; validated, {surely} 0.5 (below 0.9)")
    assert say({"compared": 0, "query": "cap"}, validate="none").endswith(
        "not validated, since the wall on validation is reached"
    )
    assert say({"compared": 0, "query": "kappa"}, validate="last").endswith("validated, since there is no competitor")
    assert say({"compared": 0, "query": "lcb_ucb"}, validate="last").endswith("since a competitor could be better")
    assert say({"compared": 0, "query": "lcb_ucb"}, validate="none").endswith("since no competitor could be better")
    assert say({"compared": 0, "query": "mine"}, validate="last").endswith("validated, by the rule mine")


def test_numbers_have_labels_with_units() -> None:
    why = {**compare("gain", "highest", 1, 0.5), "share": 2.5, "mean": 0.1, "gave_up_mean": 0.2, "mine": 1}
    order = Order(number=0, trial=0, config={"x": 0.5}, until=3, why=why)
    assert label_numbers(order, Ledger([BEGIN, order])) == [
        ("money for this round (seconds)", 2.5),
        ("expected (value)", 0.1),
        ("there: expected (value)", 0.2),
        ("mine", 1),
    ]
