"""Decisions looked at again: what was believed and what came, what else could have been bought, what another would freeze."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from shoestring import policies
from shoestring.cli.report import render
from shoestring.core.deciding.decision import Decision
from shoestring.core.deciding.policy import train_new
from shoestring.core.deciding.prediction import BEST_BY_THEN, Believed, BelievedCurve, Offers, Regions
from shoestring.core.ledger.entries import Amended, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps
from shoestring.errors import StudyError
from shoestring.reports.figures.decisions import MOST_CHOICES, pick_decisions
from shoestring.reports.figures.drawing import Figure
from shoestring.reports.figures.history import Story, gather
from shoestring.reports.figures.improvement_and_cost import draw_offers
from shoestring.reports.figures.predicted_curves import draw_expected
from shoestring.reports.figures.replayed import draw_replayed
from shoestring.reports.figures.stopping_map import draw_regions
from shoestring.study.recall import believe_at, recall
from shoestring.study.simulation import replay
from shoestring.testing.curves import Decaying, Negated, Noisy
from shoestring.testing.policies import opened, simulate, small

EVIL = "<script>alert(1)</script>\x1b[31m"


@cache  # a ledger is never changed, and most tests look at the same one
def study(name: str, *, budget: str = "90 epochs", seed: int = 3, **more: Any) -> Ledger:
    policy = small(name)
    return simulate(policy, Noisy(Decaying(), 0.02), opened(policy, budget=budget, seed=seed, **more)).ledger


def figures_of(figure: Figure | None) -> list[Figure]:
    assert figure is not None
    return [figure, *figure.others]


@pytest.mark.parametrize(
    "name", ["thrift", "bhpt", "rollout", "fabolas_epochs", "bo_bos", "lc_prediction", "cost_aware_ei"]
)
def test_what_was_expected_is_drawn_of_every_policy_with_a_belief(name: str) -> None:
    story = recall("s", study(name, budget="120s" if name == "cost_aware_ei" else "90 epochs"))
    assert story.recalled
    for figure in figures_of(draw_expected(story)):
        assert figure.svg.startswith("<svg")
        assert "nan" not in figure.svg
        assert figure.rows
        assert all(len(row) == len(figure.columns) for row in figure.rows)
        assert figure.rows[0][1] == "bought"
        assert figure.choice in figure.sentence


@pytest.mark.parametrize("name", ["sequential_halving", "random_search", "ce_gp_ucb", "boil"])
def test_nothing_is_drawn_of_policies_without_a_belief(name: str) -> None:
    story = recall("s", study(name))
    assert not story.recalled
    assert draw_expected(story) is None
    assert draw_offers(story) is None
    assert 'id="expected"' not in render([story], [])


def test_a_belief_is_that_of_the_ledger_as_it_was() -> None:
    ledger = study("bhpt")
    story = recall("s", ledger)
    for place, entry in enumerate(ledger.entries()):
        if isinstance(entry, Order) and entry.number in story.recalled:
            then, recalled = ledger.fork(place), story.recalled[entry.number]
            fresh = small("bhpt").believe(then, entry)  # type: ignore[attr-defined]
            for ours, theirs in zip(recalled.believed.curves, fresh.curves, strict=True):
                np.testing.assert_array_equal(ours.quantiles, theirs.quantiles)
            assert recalled.had == {t.number: t.steps for t in then.trials if t.number in recalled.had}
            assert recalled.best == (then.best and then.best.best_value)
            assert recalled.had[entry.trial] < ledger.trials[entry.trial].steps


def test_the_policy_that_decided_is_asked_and_not_the_one_that_came_later() -> None:
    first, later = study("bhpt"), policies.make("random_search")
    more = Amended(budget=first.budget.__class__("95 epochs"), policy=later.name, settings={})
    ledger = simulate(later, Decaying(), *first.entries(), more).ledger
    assert recall("s", ledger).recalled.keys() == recall("s", first).recalled.keys() != set()


class Mine:
    name = "mine"

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        return train_new(
            ledger, {"lr": float(rng.uniform(0.1, 1)), "layers": 1, "optimizer": "sgd"}, 1, why={"mu": 0.5}
        )


def test_a_policy_that_nobody_knows_has_no_belief() -> None:
    ledger = simulate(Mine(), Decaying(), opened(Mine(), budget="5 epochs")).ledger
    assert pick_decisions(ledger)
    assert recall("s", ledger).recalled == {}


# which decisions -----------------------------------------------------------------------------------------------------


def test_telling_decisions_are_of_the_best_trial_the_middle_and_the_last() -> None:
    ledger = study("bhpt")
    told = [order.number for order in ledger.orders if "mu" in order.why]
    picked = pick_decisions(ledger)
    assert picked == sorted(picked)
    assert {told[len(told) // 2], told[-1]} <= set(picked)
    assert ledger.best is not None
    (first,) = set(picked) - {told[len(told) // 2], told[-1]}
    of_best = [order.number for order in ledger.orders if order.trial == ledger.best.number]
    assert first == of_best[1]  # the one that went on with it


def test_a_decision_can_be_asked_for() -> None:
    ledger = study("bhpt")
    story = recall("s", ledger, (7, 5))
    assert sorted(story.recalled) == [5, 7]
    assert [figure.choice for figure in figures_of(draw_expected(story))] == ["order 5", "order 7"]
    with pytest.raises(StudyError, match=r"decision 1000: there is no such order in 's'\. Its orders are 0 to \d+$"):
        recall("s", ledger, (1000,))
    with pytest.raises(StudyError, match=r"decision 0: this order of bo_bos rests on no belief; try \d+, \d+"):
        recall("s", study("bo_bos"), (0,))
    with pytest.raises(StudyError, match=r"decision 2: .* no order of this study does: leave it out"):
        recall("s", study("random_search"), (2,))
    with pytest.raises(StudyError, match=f"choose {MOST_CHOICES} at most"):
        recall("s", ledger, tuple(range(MOST_CHOICES + 1)))


def test_one_decision_is_shown_at_a_time_and_no_script_is_needed() -> None:
    page = render([recall("s", study("bhpt"), (5, 7, 9))], [])
    section = re.search(r'<section id="expected">(.*?)</section>', page, re.DOTALL)
    assert section is not None
    assert re.findall(r'<input type="radio" name="expected" id="([^"]*)"( checked)?>', section[1]) == [
        ("expected-order-5", " checked"),
        ("expected-order-7", ""),
        ("expected-order-9", ""),
    ]
    assert section[1].count('<div class="choice">') == section[1].count("<svg") == section[1].count("<table>") == 3
    style = re.search("<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    for number in range(1, MOST_CHOICES + 1):
        assert f".choices input:nth-of-type({number}):checked ~ .choice:nth-of-type({number})" in style[1]


# what is drawn of one ------------------------------------------------------------------------------------------------


def made_up(ledger: Ledger, number: int, believed: Believed) -> Story:
    return gather("s", ledger, lambda then, order: believed, {number})


def quantiles(middle: list[float], width: float) -> np.ndarray:
    return np.array(middle) + width * np.array([-2.0, -1.0, 0.0, 1.0, 2.0])[:, None]


def test_what_came_later_is_counted_and_told() -> None:
    ledger = study("bhpt")
    order = next(o for o in ledger.orders if o.why.get("runner_up") == 0)
    had = next(len(ledger.fork(p).trials[order.trial].values) for p, e in enumerate(ledger.entries()) if e is order)
    trial = ledger.trials[order.trial]
    later = [float(v) for v in trial.values[had:] if v is not None]
    steps = np.arange(had + 1, had + 1 + len(later))
    exact = BelievedCurve(order.trial, order.config, steps, quantiles(later, 0.1))
    wrong = BelievedCurve(0, ledger.trials[0].config, np.arange(1, 10), quantiles([1e3] * 9, 0.1))
    (figure,) = figures_of(draw_expected(made_up(ledger, order.number, Believed([exact, wrong]))))
    came_of_0 = [
        e
        for p, e in enumerate(ledger.entries())
        if isinstance(e, Receipt) and e.trial == 0 and p > ledger.entries().index(order)
    ]
    assert f"{len(later)} of {len(later) + len(came_of_0)} lie where nine in ten should" in figure.sentence
    assert next(row[1] for row in figure.rows if row[2] == int(steps[0])) == "bought"
    assert {row[1] for row in figure.rows if row[0] == 0} == {"runner-up"}
    assert figure.rows[0][-1] == f"{later[0]:.4g}"
    assert figure.svg.count('class="band"') == 4  # two of each curve
    assert figure.svg.count("curve best") == (had > 1)


def test_a_belief_about_the_best_is_compared_with_the_best() -> None:
    for direction, source, best_of in (
        ("min", Noisy(Decaying(), 0.5), min),
        ("max", Negated(Noisy(Decaying(), 0.5)), max),
    ):
        policy = small("random_search")
        ledger = simulate(policy, source, opened(policy, budget="9 epochs", direction=direction)).ledger  # type: ignore[arg-type]
        values = [float(v) for v in ledger.trials[0].values if v is not None]
        curve = BelievedCurve(0, ledger.trials[0].config, np.arange(1, 10), quantiles([0.0] * 9, 1.0))
        (figure,) = figures_of(draw_expected(made_up(ledger, 0, Believed([curve], BEST_BY_THEN))))
        told = {row[2]: row[-1] for row in figure.rows}
        assert told[9] == f"{best_of(values):.4g}"
        assert told[9] != f"{values[-1]:.4g}"


def test_ends_of_several_configs_stand_side_by_side() -> None:
    story = recall("s", study("cost_aware_ei", budget="200s"))
    for figure in figures_of(draw_expected(story)):
        assert "bought" in figure.svg
        assert 'class="band"' not in figure.svg
        assert "full training" in figure.sentence
        assert {row[2] for row in figure.rows} == {9}


def test_texts_of_a_config_are_texts() -> None:
    ledger = study("bhpt")
    evil = {"lr": 0.1, "layers": 1, "optimizer": EVIL}
    curve = BelievedCurve(None, evil, np.array([1, 2]), quantiles([0.5, 0.4], 0.1))
    own = BelievedCurve(ledger.orders[5].trial, ledger.orders[5].config, np.array([9]), quantiles([0.5], 0.1))
    offers = Offers(np.array([1.0, 2.0]), np.array([1.0, 3.0]), np.array([0, 1]), 0, 1, None, lambda _: evil)
    page = render([made_up(ledger, 5, Believed([own, curve], offers=offers))], [])
    assert 'id="offers"' in page
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "\x1b" not in page


def test_where_things_stood_is_never_on_the_edge() -> None:
    """One bad value among many good ones would be clipped; not if it is the newest, or the best so far."""
    policy = small("random_search")
    ledger = simulate(policy, Decaying(), opened(policy, budget="13 epochs")).ledger
    number = ledger.orders[-1].number
    curve = BelievedCurve(1, ledger.trials[1].config, np.arange(1, 10), quantiles([-9.0] * 9, 0.01))
    (figure,) = figures_of(draw_expected(made_up(ledger, number, Believed([curve]))))
    assert ledger.trials[0].best_value is not None
    guides = re.findall(r'<line class="guide" x1="62" y1="([0-9.]+)"', figure.svg)
    top = min(float(y) for y in re.findall(r'<polyline class="curve after" points="[0-9.]+,([0-9.]+)', figure.svg))
    assert len(guides) == 1
    assert top <= float(guides[0])
    axis = re.search(r'<line class="axis" x1="62" y1="([0-9.]+)"', figure.svg)
    assert axis is not None
    assert 30.0 < float(guides[0]) < float(axis[1])


# offers --------------------------------------------------------------------------------------------------------------


def test_the_front_is_marked_and_dots_are_few() -> None:
    ledger = study("bhpt")
    rng = np.random.default_rng(0)
    gain, cost = rng.uniform(0.1, 1.0, 5000), rng.uniform(1.0, 9.0, 5000)
    front = np.array([i for i in range(5000) if not ((gain >= gain[i]) & (cost < cost[i])).any()])
    top = int(np.argmax(gain))
    chosen = int(front[np.argmin(cost[front])])
    offers = Offers(gain, cost, front, chosen, top, 0.3, lambda i: {"row": i})
    own = BelievedCurve(ledger.orders[5].trial, ledger.orders[5].config, np.array([9]), quantiles([0.5], 0.1))
    (figure,) = figures_of(draw_offers(made_up(ledger, 5, Believed([own], offers=offers))))
    assert figure.svg.count("<circle") <= 302
    assert figure.svg.count("fill-s5") == len(front)
    assert figure.svg.count('class="guide"') == 1  # what promises enough
    assert f"{len(front)} of them on the front" in figure.sentence
    assert (
        f"{gain[chosen] / gain[top]:.0%} of the largest improvement for {cost[chosen] / cost[top]:.0%}"
        in figure.sentence
    )
    assert "lower edge" not in figure.sentence
    hopeless = replace(offers, gain=np.where(np.arange(5000) == top, gain, np.where(gain < 0.2, 1e-9, gain)))
    (other,) = figures_of(draw_offers(made_up(ledger, 5, Believed([own], offers=hopeless))))
    assert f"{np.count_nonzero(hopeless.gain == 1e-9)} promise next to nothing" in other.sentence
    assert [row[0] for row in figure.rows[:2]] == ["bought", "runner-up"]
    assert len(figure.rows) == len({chosen, top, *front.tolist()})
    same = replace(offers, cost=np.ones(5000))
    assert draw_offers(made_up(ledger, 5, Believed([own], offers=same))) is None  # nothing to weigh


def test_the_most_promising_one_is_told() -> None:
    ledger = study("bhpt")
    offers = Offers(np.array([2.0, 1.0]), np.array([3.0, 1.0]), np.array([0, 1]), 0, None, None, lambda i: {"row": i})
    own = BelievedCurve(ledger.orders[5].trial, ledger.orders[5].config, np.array([9]), quantiles([0.5], 0.1))
    (figure,) = figures_of(draw_offers(made_up(ledger, 5, Believed([own], offers=offers))))
    assert figure.sentence.endswith("The one that promises most was bought.")


# regions -------------------------------------------------------------------------------------------------------------


def test_a_map_of_verdicts_shows_the_run_and_where_it_would_be_given_up() -> None:
    ledger = study("bo_bos")
    order = ledger.orders[5]
    own = BelievedCurve(order.trial, order.config, np.array([9]), quantiles([0.5], 0.1))
    verdict = np.array([[-1, 2, 0, 1, 1], [-1, 2, 0, 0, 1], [2, 2, 0, 1, 0]])
    regions = Regions(order.trial, np.array([4, 5, 6]), np.linspace(0.0, 1.0, 6), verdict, np.array([0.5, 0.7]))
    (figure,) = figures_of(draw_regions(made_up(ledger, 5, Believed([own], regions=regions))))
    assert figure.svg.count('class="region ') == 3 + 3 + 4  # neighbours with the same verdict are one box
    assert figure.rows == [
        ["4", "0.4 – 0.6", "0.6 – 1", "0.2 – 0.4"],
        ["5", "0.4 – 0.8", "0.8 – 1", "0.2 – 0.4"],
        ["6", "0.4 – 0.6, 0.8 – 1", "0.6 – 0.8", "0 – 0.4"],
    ]
    assert f"trial {order.trial} had come to step 5, with a mean of 0.7 since step 3" in figure.sentence
    untold = replace(regions, verdict=np.full((3, 5), -1))
    assert draw_regions(made_up(ledger, 5, Believed([own], regions=untold))) is None
    long = replace(regions, steps=np.arange(1, 1001), verdict=np.tile(verdict[:1], (1000, 1)))
    (thinned,) = figures_of(draw_regions(made_up(ledger, 5, Believed([own], regions=long))))
    assert thinned.svg.count('class="region ') <= 3 * 150


# another policy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["asha", "random_search"])
def test_a_replay_shows_how_far_each_curve_was_trained(name: str) -> None:
    ledger = study("bhpt", budget="150 epochs")
    replayed = replay(ledger, policies.make(name))
    story, other = gather("s", ledger), gather("r", replayed.ledger)
    figure = draw_replayed(story, other, replayed.missing_share)
    assert figure is not None
    assert figure.title == f"What {name} would have frozen"
    last = other.bests[-1]
    steps: dict[str, int] = {}
    for entry in replayed.ledger.entries():
        if isinstance(entry, Receipt) and entry.is_finished:
            steps[dumps(replayed.ledger.trials[entry.trial].config)] = entry.step
            if (entry.trial, entry.step) == (last.trial, last.step):
                break
    assert {row[0]: row[3] for row in figure.rows} == {
        trial.number: steps.get(dumps(trial.config), "–") for trial in ledger.trials
    }
    best = ledger.best
    assert best is not None
    got = steps.get(dumps(best.config), 0)
    fate = "had not begun" if not got else "had frozen" if got < best.best_step else "had trained"
    assert fate in figure.sentence
    assert f"{replayed.missing_share:.0%} of the steps" in figure.sentence


def test_a_winner_that_was_frozen_is_told() -> None:
    ledger = study("random_search", budget="27 epochs")
    best = ledger.best
    assert best is not None
    assert best.best_step > 2
    entries = [e for e in ledger.entries() if not isinstance(e, Receipt) or (e.trial == best.number and e.step <= 1)]
    figure = draw_replayed(gather("s", ledger), gather("r", Ledger(entries)), 0.25)
    assert figure is not None
    fate = f"had frozen trial {best.number}, the winner, at step 1, before its best value at step {best.best_step}"
    assert fate in figure.sentence


def test_several_replays_are_chosen_from() -> None:
    page = render([recall("s", study("bhpt"))], [], ["asha", "random_search"])
    section = re.search(r'<section id="replayed">(.*?)</section>', page, re.DOTALL)
    assert section is not None
    assert section[1].count("<svg") == 2
    assert "replayed-random_search" in section[1]


def test_believe_at_needs_nothing_but_the_ledger() -> None:
    ledger = study("thrift")
    order = next(order for order in ledger.orders if "expected_end" in order.why)
    place = next(p for p, e in enumerate(ledger.entries()) if e is order)
    believed = believe_at(Ledger(ledger.entries()[:place]), order)
    assert believed is not None
    assert math.isfinite(float(believed.curves[0].quantiles.sum()))
