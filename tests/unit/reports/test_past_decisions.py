"""Decisions looked at again: predicted and actual values, candidates, stopping maps, and replays of other policies."""

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
from shoestring.core.deciding.policy import start_trial
from shoestring.core.deciding.prediction import (
    BEST_VALUE_BY_STEP,
    CandidateScores,
    CurvePrediction,
    Prediction,
    Regions,
)
from shoestring.core.ledger.entries import Amendment, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps
from shoestring.errors import StudyError
from shoestring.policies.halving.sequential_halving import SequentialHalving
from shoestring.reports.figures.comparisons import draw_replayed
from shoestring.reports.figures.decisions import MAX_CHOICES, draw_candidates, draw_regions, pick_decisions
from shoestring.reports.figures.drawing import Figure
from shoestring.reports.figures.history import StudyHistory, read_history
from shoestring.reports.figures.predicted_curves import draw_expected
from shoestring.study.predicted_history import predict_at, read_predicted_history
from shoestring.study.simulation import replay
from shoestring.testing.curves import DecayingCurves, NegatedCurves, NoisyCurves
from shoestring.testing.policies import make_definition, make_small_policy, simulate

EVIL = "<script>alert(1)</script>\x1b[31m"


@cache  # most tests read the same ledger, and none changes it
def study(name: str, *, budget: str = "90 epochs", seed: int = 3, **more: Any) -> Ledger:
    policy = make_small_policy(name)
    return simulate(
        policy, NoisyCurves(DecayingCurves(), 0.02), make_definition(policy, budget=budget, seed=seed, **more)
    ).ledger


def figures_of(figure: Figure | None) -> list[Figure]:
    assert figure is not None
    return [figure, *figure.others]


@pytest.mark.parametrize(
    "name", ["guided_halving", "bhpt", "rollout", "fabolas_epochs", "bo_bos", "lc_prediction", "cost_aware_ei"]
)
def test_predictions_are_drawn_for_every_policy_that_makes_them(name: str) -> None:
    history = read_predicted_history("s", study(name, budget="120s" if name == "cost_aware_ei" else "90 epochs"))
    assert history.predictions
    for figure in figures_of(draw_expected(history)):
        assert figure.svg.startswith("<svg")
        assert "nan" not in figure.svg
        assert figure.rows
        assert all(len(row) == len(figure.columns) for row in figure.rows)
        assert figure.rows[0][1] == "chosen"
        assert figure.choice in figure.sentence.lower()


@pytest.mark.parametrize("name", ["sequential_halving", "random_search", "ce_gp_ucb", "boil"])
def test_nothing_is_drawn_for_policies_without_predictions(name: str) -> None:
    history = read_predicted_history("s", study(name))
    assert not history.predictions
    assert draw_expected(history) is None
    assert draw_candidates(history) is None
    assert 'id="expected"' not in render([history], [])


def test_a_prediction_uses_the_ledger_as_it_was_before_the_order() -> None:
    ledger = study("bhpt")
    history = read_predicted_history("s", ledger)
    for place, entry in enumerate(ledger.entries()):
        if isinstance(entry, Order) and entry.number in history.predictions:
            then, record = ledger.fork(place), history.predictions[entry.number]
            fresh = make_small_policy("bhpt").predict(then, entry)  # type: ignore[attr-defined]
            for stored, made in zip(record.prediction.curves, fresh.curves, strict=True):
                np.testing.assert_array_equal(stored.quantiles, made.quantiles)
            assert record.steps_then == {t.number: t.steps for t in then.trials if t.number in record.steps_then}
            assert record.best_then == (then.best and then.best.best_value)
            assert record.steps_then[entry.trial] < ledger.trials[entry.trial].steps


def test_predictions_come_from_the_policy_that_placed_the_order() -> None:
    first, later = study("bhpt"), policies.make("random_search")
    more = Amendment(budget=first.budget.__class__("95 epochs"), policy=later.name, settings={})
    ledger = simulate(later, DecayingCurves(), *first.entries(), more).ledger
    assert (
        read_predicted_history("s", ledger).predictions.keys()
        == read_predicted_history("s", first).predictions.keys()
        != set()
    )


class UnregisteredPolicy:
    name = "mine"

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        return start_trial(
            ledger, {"lr": float(rng.uniform(0.1, 1)), "layers": 1, "optimizer": "sgd"}, 1, why={"mu": 0.5}
        )


def test_an_unregistered_policy_has_no_predictions() -> None:
    ledger = simulate(
        UnregisteredPolicy(), DecayingCurves(), make_definition(UnregisteredPolicy(), budget="5 epochs")
    ).ledger
    assert pick_decisions(ledger)
    assert read_predicted_history("s", ledger).predictions == {}


# which decisions -----------------------------------------------------------------------------------------------------


def test_the_default_decisions_are_of_the_best_trial_the_middle_and_the_last() -> None:
    ledger = study("bhpt")
    by_model = [order.number for order in ledger.orders if "mu" in order.why]
    picked_orders = pick_decisions(ledger)
    assert picked_orders == sorted(picked_orders)
    assert {by_model[len(by_model) // 2], by_model[-1]} <= set(picked_orders)
    assert ledger.best is not None
    (first,) = set(picked_orders) - {by_model[len(by_model) // 2], by_model[-1]}
    of_best = [order.number for order in ledger.orders if order.trial == ledger.best.number]
    assert first == of_best[1]  # the order that continued it


def test_decisions_can_be_chosen() -> None:
    ledger = study("bhpt")
    history = read_predicted_history("s", ledger, (7, 5))
    assert sorted(history.predictions) == [5, 7]
    assert [figure.choice for figure in figures_of(draw_expected(history))] == ["order 5", "order 7"]
    with pytest.raises(StudyError, match=r"there is no order 1000 in 's': its orders are 0 to \d+$"):
        read_predicted_history("s", ledger, (1000,))
    with pytest.raises(StudyError, match=r"bo_bos made no prediction for order 0; try \d+, \d+"):
        read_predicted_history("s", study("bo_bos"), (0,))
    with pytest.raises(StudyError, match=r"made no prediction for order 2; no order of this study has one"):
        read_predicted_history("s", study("random_search"), (2,))
    with pytest.raises(StudyError, match=f"choose {MAX_CHOICES} at most"):
        read_predicted_history("s", ledger, tuple(range(MAX_CHOICES + 1)))


def test_one_decision_is_shown_at_a_time_and_no_script_is_needed() -> None:
    page = render([read_predicted_history("s", study("bhpt"), (5, 7, 9))], [])
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
    for number in range(1, MAX_CHOICES + 1):
        assert f".choices input:nth-of-type({number}):checked ~ .choice:nth-of-type({number})" in style[1]


# the figure of one decision ------------------------------------------------------------------------------------------------


def with_prediction(ledger: Ledger, number: int, prediction: Prediction) -> StudyHistory:
    return read_history("s", ledger, lambda then, order: prediction, {number})


def quantiles(middle: list[float], width: float) -> np.ndarray:
    return np.array(middle) + width * np.array([-2.0, -1.0, 0.0, 1.0, 2.0])[:, None]


def test_later_values_are_compared_with_the_prediction() -> None:
    ledger = study("bhpt")
    order = next(o for o in ledger.orders if o.why.get("runner_up") == 0)
    steps_then = next(
        len(ledger.fork(p).trials[order.trial].values) for p, e in enumerate(ledger.entries()) if e is order
    )
    trial = ledger.trials[order.trial]
    later = [float(v) for v in trial.values[steps_then:] if v is not None]
    steps = np.arange(steps_then + 1, steps_then + 1 + len(later))
    exact = CurvePrediction(order.trial, order.config, steps, quantiles(later, 0.1))
    wrong = CurvePrediction(0, ledger.trials[0].config, np.arange(1, 10), quantiles([1e3] * 9, 0.1))
    (figure,) = figures_of(draw_expected(with_prediction(ledger, order.number, Prediction([exact, wrong]))))
    later_of_0 = [
        e
        for p, e in enumerate(ledger.entries())
        if isinstance(e, Receipt) and e.trial == 0 and p > ledger.entries().index(order)
    ]
    assert f"{len(later)} of {len(later) + len(later_of_0)} lie in the 90% interval" in figure.sentence
    assert next(row[1] for row in figure.rows if row[2] == int(steps[0])) == "chosen"
    assert {row[1] for row in figure.rows if row[0] == 0} == {"runner-up"}
    assert figure.rows[0][-1] == f"{later[0]:.4g}"
    assert figure.svg.count('class="band"') == 4  # two of each curve
    assert figure.svg.count("curve best") == (steps_then > 1)


def test_a_prediction_of_the_best_value_is_compared_with_the_best_value() -> None:
    for direction, source, best_of in (
        ("min", NoisyCurves(DecayingCurves(), 0.5), min),
        ("max", NegatedCurves(NoisyCurves(DecayingCurves(), 0.5)), max),
    ):
        policy = make_small_policy("random_search")
        ledger = simulate(policy, source, make_definition(policy, budget="9 epochs", direction=direction)).ledger  # type: ignore[arg-type]
        values = [float(v) for v in ledger.trials[0].values if v is not None]
        curve = CurvePrediction(0, ledger.trials[0].config, np.arange(1, 10), quantiles([0.0] * 9, 1.0))
        (figure,) = figures_of(draw_expected(with_prediction(ledger, 0, Prediction([curve], BEST_VALUE_BY_STEP))))
        actual = {row[2]: row[-1] for row in figure.rows}
        assert actual[9] == f"{best_of(values):.4g}"
        assert actual[9] != f"{values[-1]:.4g}"


def test_predicted_ends_of_new_configurations_stand_side_by_side() -> None:
    history = read_predicted_history("s", study("cost_aware_ei", budget="200s"))
    figures = figures_of(draw_expected(history))
    assert figures
    for figure in figures:
        assert "chosen" in figure.svg
        assert 'class="band"' not in figure.svg
        assert "full training" in figure.sentence
        assert {row[2] for row in figure.rows} == {9}


def test_a_predicted_first_look_is_compared_with_the_value_after_it() -> None:
    policy = SequentialHalving(newcomers="guided")
    history = read_predicted_history("s", simulate(policy, DecayingCurves(), make_definition(policy)).ledger)
    figures = figures_of(draw_expected(history))
    assert figures
    for figure in figures:
        assert "the predicted value after step 1" in figure.sentence
        assert "value after step 1" in figure.svg
        number = int(re.search(r"trained trial (\d+)", figure.sentence)[1])  # type: ignore[index]
        assert f"actual {history.trials[number].values[0]:.6g}" in figure.svg


def test_texts_in_a_configuration_are_escaped() -> None:
    ledger = study("bhpt")
    hostile = {"lr": 0.1, "layers": 1, "optimizer": EVIL}
    curve = CurvePrediction(None, hostile, np.array([1, 2]), quantiles([0.5, 0.4], 0.1))
    own = CurvePrediction(ledger.orders[5].trial, ledger.orders[5].config, np.array([9]), quantiles([0.5], 0.1))
    scores = CandidateScores(
        np.array([1.0, 2.0]), np.array([1.0, 3.0]), np.array([0, 1]), 0, 1, None, lambda _: hostile
    )
    page = render([with_prediction(ledger, 5, Prediction([own, curve], candidate_scores=scores))], [])
    assert 'id="candidates"' in page
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "\x1b" not in page


def test_the_newest_and_the_best_values_are_never_clipped() -> None:
    """One bad value among many good ones is clipped, unless it is the newest or the best so far."""
    policy = make_small_policy("random_search")
    ledger = simulate(policy, DecayingCurves(), make_definition(policy, budget="13 epochs")).ledger
    number = ledger.orders[-1].number
    curve = CurvePrediction(1, ledger.trials[1].config, np.arange(1, 10), quantiles([-9.0] * 9, 0.01))
    (figure,) = figures_of(draw_expected(with_prediction(ledger, number, Prediction([curve]))))
    assert ledger.trials[0].best_value is not None
    guides = re.findall(r'<line class="guide" x1="62" y1="([0-9.]+)"', figure.svg)
    top = min(float(y) for y in re.findall(r'<polyline class="curve after" points="[0-9.]+,([0-9.]+)', figure.svg))
    assert len(guides) == 1
    assert top <= float(guides[0])
    axis = re.search(r'<line class="axis" x1="62" y1="([0-9.]+)"', figure.svg)
    assert axis is not None
    assert 30.0 < float(guides[0]) < float(axis[1])


# candidates --------------------------------------------------------------------------------------------------------------


def test_the_front_is_marked_and_dots_are_few() -> None:
    ledger = study("bhpt")
    rng = np.random.default_rng(0)
    gain, cost = rng.uniform(0.1, 1.0, 5000), rng.uniform(1.0, 9.0, 5000)
    front = np.array([i for i in range(5000) if not ((gain >= gain[i]) & (cost < cost[i])).any()])
    top = int(np.argmax(gain))
    chosen = int(front[np.argmin(cost[front])])
    scores = CandidateScores(gain, cost, front, chosen, top, 0.3, lambda i: {"row": i})
    own = CurvePrediction(ledger.orders[5].trial, ledger.orders[5].config, np.array([9]), quantiles([0.5], 0.1))
    (figure,) = figures_of(draw_candidates(with_prediction(ledger, 5, Prediction([own], candidate_scores=scores))))
    assert figure.svg.count("<circle") <= 302
    assert figure.svg.count("fill-s5") == len(front)
    assert figure.svg.count('class="guide"') == 1  # the least improvement that was accepted
    assert f"{len(front)} of them Pareto-optimal" in figure.sentence
    assert (
        f"{gain[chosen] / gain[top]:.0%} of the largest expected improvement at {cost[chosen] / cost[top]:.0%}"
        in figure.sentence
    )
    assert "lower edge" not in figure.sentence
    hopeless = replace(scores, gain=np.where(np.arange(5000) == top, gain, np.where(gain < 0.2, 1e-9, gain)))
    (other,) = figures_of(draw_candidates(with_prediction(ledger, 5, Prediction([own], candidate_scores=hopeless))))
    assert f"{np.count_nonzero(hopeless.gain == 1e-9)} with almost no expected improvement" in other.sentence
    assert [row[0] for row in figure.rows[:2]] == ["chosen", "runner-up"]
    assert len(figure.rows) == len({chosen, top, *front.tolist()})
    same = replace(scores, cost=np.ones(5000))
    assert (
        draw_candidates(with_prediction(ledger, 5, Prediction([own], candidate_scores=same))) is None
    )  # all cost the same


def test_a_choice_with_the_largest_improvement_is_described() -> None:
    ledger = study("bhpt")
    scores = CandidateScores(
        np.array([2.0, 1.0]), np.array([3.0, 1.0]), np.array([0, 1]), 0, None, None, lambda i: {"row": i}
    )
    own = CurvePrediction(ledger.orders[5].trial, ledger.orders[5].config, np.array([9]), quantiles([0.5], 0.1))
    (figure,) = figures_of(draw_candidates(with_prediction(ledger, 5, Prediction([own], candidate_scores=scores))))
    assert figure.sentence.endswith("It has the largest expected improvement.")


# regions -------------------------------------------------------------------------------------------------------------


def test_a_stopping_map_shows_the_trial_and_where_it_would_be_stopped() -> None:
    ledger = study("bo_bos")
    order = ledger.orders[5]
    own = CurvePrediction(order.trial, order.config, np.array([9]), quantiles([0.5], 0.1))
    action = np.array([[-1, 2, 0, 1, 1], [-1, 2, 0, 0, 1], [2, 2, 0, 1, 0]])
    regions = Regions(order.trial, np.array([4, 5, 6]), np.linspace(0.0, 1.0, 6), action, np.array([0.5, 0.7]))
    (figure,) = figures_of(draw_regions(with_prediction(ledger, 5, Prediction([own], regions=regions))))
    assert figure.svg.count('class="region ') == 3 + 3 + 4  # neighbours with the same action are one box
    assert figure.rows == [
        ["4", "0.4 – 0.6", "0.6 – 1", "0.2 – 0.4"],
        ["5", "0.4 – 0.8", "0.8 – 1", "0.2 – 0.4"],
        ["6", "0.4 – 0.6, 0.8 – 1", "0.6 – 0.8", "0 – 0.4"],
    ]
    assert f"trial {order.trial} had reached step 5; its mean value since step 3 was 0.7" in figure.sentence
    empty = replace(regions, action=np.full((3, 5), -1))
    assert draw_regions(with_prediction(ledger, 5, Prediction([own], regions=empty))) is None
    long = replace(regions, steps=np.arange(1, 1001), action=np.tile(action[:1], (1000, 1)))
    (thinned,) = figures_of(draw_regions(with_prediction(ledger, 5, Prediction([own], regions=long))))
    assert thinned.svg.count('class="region ') <= 3 * 150


# another policy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["asha", "random_search"])
def test_a_replay_shows_how_far_each_curve_was_trained(name: str) -> None:
    ledger = study("bhpt", budget="150 epochs")
    replayed = replay(ledger, policies.make(name))
    history, other = read_history("s", ledger), read_history("r", replayed.ledger)
    figure = draw_replayed(history, other, replayed.missing_share)
    assert figure is not None
    assert figure.title == f"What {name} would have paused"
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
    outcome = "had not started" if not got else "had paused" if got < best.best_step else "had trained"
    assert outcome in figure.sentence
    assert f"{replayed.missing_share:.0%} of the steps" in figure.sentence


def test_a_paused_winner_is_described() -> None:
    ledger = study("random_search", budget="27 epochs")
    best = ledger.best
    assert best is not None
    assert best.best_step > 2
    entries = [e for e in ledger.entries() if not isinstance(e, Receipt) or (e.trial == best.number and e.step <= 1)]
    figure = draw_replayed(read_history("s", ledger), read_history("r", Ledger(entries)), 0.25)
    assert figure is not None
    outcome = f"had paused the best trial, {best.number}, at step 1; its best value came at step {best.best_step}"
    assert outcome in figure.sentence


def test_a_reader_can_choose_between_several_replays() -> None:
    page = render([read_predicted_history("s", study("bhpt"))], [], ["asha", "random_search"])
    section = re.search(r'<section id="replayed">(.*?)</section>', page, re.DOTALL)
    assert section is not None
    assert section[1].count("<svg") == 2
    assert "replayed-random_search" in section[1]


def test_predict_at_needs_only_the_ledger() -> None:
    ledger = study("guided_halving")
    order = next(order for order in ledger.orders if "guide_plan" in order.memo)
    place = next(p for p, e in enumerate(ledger.entries()) if e is order)
    prediction = predict_at(Ledger(ledger.entries()[:place]), order)
    assert prediction is not None
    assert math.isfinite(float(prediction.curves[0].quantiles.sum()))
