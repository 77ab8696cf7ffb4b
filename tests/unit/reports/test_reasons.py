"""The sentence of `explain`: what was compared, by which score, and how close it was."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shoestring.core.deciding.comparison import compare
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Amendment, Note, Order, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.policies.halving.rungs import compare_race
from shoestring.reports.reasons import describe_briefly, describe_reason, label_numbers


def make_ledger(why: dict[str, Any], *, policy: str = "unregistered", validate: Any = "each") -> Ledger:
    space = Space({"x": Float(0, 1)})
    definition = StudyDefinition(space=space, budget=Budget("10s"), policy=policy, settings={}, seed=4, max_steps=9)
    return Ledger([definition, Order(number=0, trial=0, config={"x": 0.5}, until=3, why=why, validate=validate)])


def describe(why: dict[str, Any], **options: Any) -> str:
    ledger = make_ledger(why, **options)
    return describe_reason(ledger.orders[0], ledger)


def shorten(why: dict[str, Any], **options: Any) -> str:
    ledger = make_ledger(why, **options)
    return describe_briefly(ledger.orders[0], ledger)


def test_a_race_names_the_last_trial_that_stayed_and_the_best_one_left_out() -> None:
    why = compare_race(1, 1.0, 45, 2, 0.29, 0.31, (0.33, 8))
    sentence = (
        "3rd of 45 by value after step 1, with 0.29; "
        "the last trial that was kept had 0.31, the best one left out (trial 8) had 0.33"
    )
    assert describe({"round": 1, **why}) == sentence
    assert shorten(why) == "3rd of 45 by value after step 1"
    last = describe(compare_race(1, 1.0, 45, 20, 0.31, 0.31, (0.33, 8)))
    assert last.startswith("21st of 45 by value after step 1, with 0.31; ")
    assert last.endswith("; it was the last trial that was kept, the best one left out (trial 8) had 0.33")
    only = describe(compare_race(1, 1.0, 1, 0, 0.3, 0.3, None))
    assert only.endswith("it was the only trial that was kept, and none was left out")


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
            "drawn from 4 with probability 0.025; the most probable other (x=1) had 0.9",
        ),
        (
            {**compare("expected loss of training on", "lowest", 2, 2.2, "stopping", 3.3), "reason": "undecided"},
            "expected loss of training on 2.2, against 3.3 for stopping; undecided",
        ),
        (
            compare("reward", "highest", 3, math.inf, 1, 2.0),
            "chosen from 3 for the highest reward, unlimited (never tried); the runner-up (trial 1) had 2",
        ),
        ({"rung": 2, "loss": 0.3}, "the policy did not report what it compared"),
        ({"compared": 0, "was": "interrupted"}, "nothing was compared: the trial continues where it was interrupted"),
        (
            {"compared": 0, "stage": "first steps"},
            "first steps; nothing was compared: the next new configuration in the order fixed by seed 4",
        ),
    ],
)
def test_every_kind_of_comparison_has_its_sentence(why: dict[str, Any], sentence: str) -> None:
    assert describe(why) == sentence


@pytest.mark.parametrize(
    ("why", "text"),
    [
        (compare("gain", "highest", 5, 0.5, 5, 0.4), "highest of 5 by gain"),
        (compare("probability", "drawn", 4, 0.025, '{"x":1.0}', 0.9), "drawn from 4 with probability 0.025"),
        (compare("expected loss of training on", "lowest", 2, 2.2, "stopping", 3.3), "better than stopping"),
        ({"compared": 0, "stage": "first steps"}, "first steps"),
        ({"compared": 0}, "the next new configuration in the order fixed by seed 4"),
        ({"rung": 2}, ""),
    ],
)
def test_every_kind_of_comparison_has_a_short_form(why: dict[str, Any], text: str) -> None:
    assert shorten(why) == text


def test_policies_put_their_own_numbers_into_words() -> None:
    new = "nothing was compared: the next new configuration in the order fixed by seed 4"
    first_look = "first look at configuration 25 of about 45"
    why = {"compared": 0, "round": 0, "arm": 24, "of": 45, "until": 1}
    assert shorten(why, policy="sequential_halving") == shorten(why, policy="guided_halving") == first_look
    assert describe(why, policy="sequential_halving") == f"{new}; {first_look}"
    assert (
        describe({"compared": 0, "arm": 2, "of": 9}, policy="hyperband")
        == f"{new}; configuration 3 of 9 in its bracket"
    )
    assert describe({"compared": 0, "point": 12}, policy="grid") == "nothing was compared: point 12 of the grid"
    assert describe({"compared": 0, "line": 3}, policy="replay_fixed") == "nothing was compared: line 3 of the list"
    stopped = {"stopped": 3, "stopped_at": 5, "stopped_reason": "too bad", "compared": 0, "phase": "initial design"}
    assert describe(stopped, policy="bo_bos") == (
        f"{new}; trial 3 was stopped at step 5 (too bad); part of the initial design"
    )
    committed = describe({"compared": 0, "committed": True}, policy="bhpt")
    assert committed.endswith("the rest of the budget goes to the trial expected to end best")


def test_the_policy_that_placed_the_order_is_the_one_that_explains_it() -> None:
    ledger = make_ledger({"compared": 0, "point": 12}, policy="grid").append(Amendment(policy="asha", settings={}))
    ledger = ledger.append(Order(number=1, trial=1, config={"x": 0.25}, until=3, why={"compared": 0, "point": 13}))
    assert label_numbers(ledger.orders[0], ledger) == [("point of the grid (number, from 0)", 12)]
    assert label_numbers(ledger.orders[1], ledger) == [("point", 13)]  # asha declares no such label


def test_configurations_that_the_user_asked_for_are_recognised() -> None:
    ledger = make_ledger({"compared": 0}).append(Note(topic="enqueue", facts={"config": {"x": 0.5}}))
    assert describe_reason(ledger.orders[0], ledger) == "nothing was compared: you asked for this configuration"


def test_the_reason_of_a_round_explains_its_validation() -> None:
    def query(why: dict[str, Any], validate: str) -> str:
        return describe({"compared": 0, **why}, policy="ce_gp_ucb", validate=validate).split("; ")[-1]

    certain = "because it beats its closest competitor with probability"
    kappa = {"query": "kappa", "kappa": 0.9}
    assert query({**kappa, "pr_better": 0.95}, "none") == f"not validated, {certain} 0.95 (0.9 is enough)"
    assert query({**kappa, "pr_better": 0.5}, "last") == f"validated, {certain} 0.5 (0.9 would be enough)"
    assert query(kappa, "last") == "validated, because there is no competitor"
    assert (
        query({**kappa, "query": "paced", "pr_better": 0.95}, "none")
        == f"not validated, {certain} 0.95 (0.9 is enough)"
    )
    assert query({**kappa, "query": "stretch"}, "last") == "validated, because too many rounds in a row were not"
    assert query({**kappa, "query": "share"}, "none") == "not validated, because enough of the rounds so far were"
    assert query({"query": "cap"}, "none") == "not validated, because the limit on validation is reached"
    assert query({"query": "lcb_ucb"}, "last") == "validated, because a competitor could be better"
    assert query({"query": "lcb_ucb"}, "none") == "not validated, because no competitor could be better"
    assert query({"query": "mine"}, "last") == "validated, by the rule mine"


def test_numbers_have_labels_with_units() -> None:
    why = {**compare("gain", "highest", 1, 0.5), "share": 2.5, "round": 1, "mine": 1}
    ledger = make_ledger(why, policy="sequential_halving")
    assert label_numbers(ledger.orders[0], ledger) == [
        ("budget of this round (seconds)", 2.5),
        ("round of halving (number, from 0)", 1),
        ("mine", 1),
    ]
    ledger = make_ledger({"stopped_prob_better": 0.2}, policy="bo_bos")
    ((label, _),) = label_numbers(ledger.orders[0], ledger)
    assert label == "stopped trial: probability of ending better than the best other trial"


def test_an_unregistered_policy_keeps_its_raw_names() -> None:
    ledger = make_ledger({"compared": 0, "share": 2.5})
    assert label_numbers(ledger.orders[0], ledger) == [("share", 2.5)]
