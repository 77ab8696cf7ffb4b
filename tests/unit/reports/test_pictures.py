"""Figures and pages: the numbers agree with the ledger, every text is escaped, and nothing is loaded."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring import Study, policies
from shoestring.core.ledger.entries import Cost, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Config, Space
from shoestring.reports.figures.comparisons import best_values_at, bootstrap_mean, draw_comparison
from shoestring.reports.figures.configs import draw_importance, measure_divergence, measure_importance
from shoestring.reports.figures.costs import choose_range, clip_range, draw_best, make_staircase, spans_decades
from shoestring.reports.figures.drawing import PlotAxis, Sheet, show_numbers, thin, value_axis
from shoestring.reports.figures.history import read_history
from shoestring.reports.figures.page import describe_study, draw_study, list_copyables, write_page
from shoestring.reports.figures.trial_curves import draw_curves
from shoestring.runners.simulated.simulated_runner import StepOutcome
from shoestring.testing.curves import DecayingCurves
from shoestring.testing.policies import make_definition, simulate

EVIL = '<script>alert("x")</script>\x1b[31m'
SPACE = Space(
    {
        "lr": Float(1e-4, 1.0, log=True),
        "layers": Int(1, 8),
        "kind": Choice(["sgd", "adam", EVIL]),
        "momentum": Float(0.0, 0.99, when={"kind": "sgd"}),
    }
)


class Curves:
    def step(self, config: Config, step: int) -> StepOutcome:
        end = 0.1 + 0.05 * (math.log10(config["lr"]) + 2) ** 2
        if config["layers"] == 8:
            return StepOutcome(None, Cost(train=0.5), failure=f"RuntimeError: {EVIL}")
        cost = Cost(setup=0.3 if step == 1 else 0.02, train=0.5 + 0.1 * config["layers"], validate=0.1)
        return StepOutcome(end + (1 - end) * math.exp(-step / 8), cost)


def study(policy: str = "sequential_halving", budget: str = "300s", **more: Any) -> Ledger:
    chosen = policies.make(policy)
    start = make_definition(chosen, space=SPACE, budget=budget, max_steps=30, **{"workers": 2, **more})
    return simulate(chosen, Curves(), start).ledger


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    return study()


def test_the_history_agrees_with_the_ledger(ledger: Ledger) -> None:
    history, state = read_history("s", ledger), ledger.state
    assert math.isclose(math.fsum(history.seconds.values()), state.seconds, rel_tol=1e-9)
    assert math.isclose(
        math.fsum(s.cost for s in history.segments) + state.by_kind["thinking"], ledger.spent, rel_tol=1e-9
    )
    assert [segment.order for segment in history.segments] == list(ledger.orders)
    assert (history.bests[-1].value, history.bests[-1].trial) == (
        ledger.best and ledger.best.best_value,
        state.best_trial,
    )
    assert [best.spent for best in history.bests] == sorted(best.spent for best in history.bests)
    assert history.failed_steps == sum(trial.failures for trial in ledger.trials) > 0
    for trial in ledger.trials:
        assert max(segment.to_step for segment in history.segments_of_trials()[trial.number]) == trial.steps


def test_a_budget_of_epochs_has_no_figure_of_expected_costs() -> None:
    keys = [figure.key for figure in draw_study(read_history("s", study(budget="200 epochs")))]
    assert "predicted" not in keys
    assert {"budget", "best", "curves", "timeline", "front", "parallel", "slices", "importance"} <= set(keys)


def test_a_study_without_values_has_a_page() -> None:
    fresh = read_history("new", study().fork(1))
    assert [figure.key for figure in draw_study(fresh)] == ["budget"]
    assert "no value yet" in describe_study(fresh)


class _Reader(HTMLParser):
    """Collects what a browser would run, load, or show."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts = self.styles = 0
        self.loads: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.scripts += tag == "script" and values.get("type") != "application/json"
        self.styles += tag == "style"
        self.loads += [value or "" for name, value in attributes if name in ("src", "href", "action", "style")]
        self.handlers += [name for name, _ in attributes if name.startswith("on")]


def test_a_page_runs_only_its_own_script_and_loads_nothing(ledger: Ledger) -> None:
    history = read_history(EVIL, ledger)
    page = write_page(EVIL, describe_study(history), draw_study(history), list_copyables(history, "shoestring resume"))
    reader = _Reader()
    reader.feed(page)
    assert (reader.scripts, reader.styles, reader.handlers) == (1, 1, [])
    assert all(address.startswith("#") for address in reader.loads)
    assert "<script>alert" not in page
    assert "\x1b" not in page
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    for tag in ("style", "script"):
        body = re.search(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert body is not None
        digest = base64.b64encode(hashlib.sha256(body[1].encode()).digest()).decode()
        assert f"{tag}-src &#x27;sha256-{digest}&#x27;" in policy[1]
    assert policy[1].startswith("default-src &#x27;none&#x27;")
    tips = re.search(r'id="tips">(.*?)</script>', page, re.DOTALL)
    assert tips is not None
    texts = json.loads(tips[1])
    assert any("RuntimeError" in text for text in texts)
    assert max(map(int, re.findall(r'data-t="(\d+)"', page))) == len(texts) - 1


def test_the_best_configuration_can_be_copied(ledger: Ledger) -> None:
    history = read_history("s", ledger)
    python, as_json, words, resume = list_copyables(history, "shoestring resume --study s")
    assert ledger.best is not None
    assert json.loads(as_json.text) == dict(ledger.best.config)
    assert f"--layers={ledger.best.config['layers']}" in words.text
    assert (python.text, resume.text) == (repr(dict(ledger.best.config)), "shoestring resume --study s")


def test_a_copied_command_line_runs_nothing_that_a_configuration_holds(tmp_path: Path) -> None:
    options = {"kind": "adam$(touch ran)`touch ran`", "quote": "'; touch ran; '", "flag": True, "a b|c": [1, "*"]}
    ledger = Ledger(
        [replace(study().definition, space=Space({name: Choice([value]) for name, value in options.items()}))]
    )
    ledger = ledger.append(Order(number=0, trial=0, config=options, until=1))
    ledger = ledger.append(Receipt(order=0, trial=0, step=1, value=0.5, cost=Cost(train=1.0)))
    words = list_copyables(read_history("s", ledger), "")[2].text
    script = f"set -- {words}; printf '%s\\n' \"$@\""
    printed = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    expected = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    assert printed.stdout.splitlines() == [f"--{name}={value}" for name, value in expected.items()]
    assert list(tmp_path.iterdir()) == []


def test_every_trained_step_is_drawn_once(ledger: Ledger) -> None:
    figure = draw_curves(read_history("s", ledger))
    assert figure is not None
    lines = re.findall(r"<polyline", figure.svg)
    assert len(lines) == sum(segment.to_step > segment.from_step for segment in read_history("s", ledger).segments)


def test_a_line_of_many_new_best_values_is_thinned() -> None:
    policy = policies.make("random_search")
    start = make_definition(policy, space=Space({"x": Float(0.0, 1.0)}), budget="2000 epochs", max_steps=1000)
    history = read_history("s", simulate(policy, DecayingCurves(), start).ledger)
    assert len(history.bests) > 600
    figure = draw_best(history)
    assert figure is not None
    dots = re.findall(r"<circle [^>]*data-tip=\"([^\"]*)", figure.svg)
    assert 250 < len(dots) <= 301
    assert dots[0].startswith(f"{history.bests[0].value:.6g} after")
    assert dots[-1].startswith(f"{history.bests[-1].value:.6g} after")
    assert len(figure.svg) < 100_000


# the parts -----------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(0, 10_000), st.floats(-1e6, 1e6)), min_size=1, max_size=400, unique_by=lambda p: p[0]
    )
)
def test_thinning_keeps_the_ends_and_the_peaks(points: list[tuple[float, float]]) -> None:
    points.sort()
    thinned = thin(points, 50)
    assert len(thinned) <= 54
    assert set(thinned) <= set(points)
    assert (thinned[0], thinned[-1]) == (points[0], points[-1])
    assert min(p[1] for p in thinned) == min(p[1] for p in points)
    assert max(p[1] for p in thinned) == max(p[1] for p in points)
    assert thinned == sorted(thinned)


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.booleans())
def test_ticks_are_round_and_inside(low: float, width: float, log: bool) -> None:
    low = abs(low) + 1e-6 if log else low
    scale = PlotAxis(low, low + width, 0.0, 100.0, log=log)
    ticks = scale.ticks()
    assert len(ticks) <= 12
    for tick in ticks:
        slack = 1e-6 * max(abs(scale.low), abs(scale.high), scale.high - scale.low)
        assert scale.low - slack <= tick <= scale.high + slack
        assert -1e-6 <= scale(tick) <= 100.0 + 1e-6
    assert scale(scale.low) == pytest.approx(0.0)
    assert scale(scale.high) == pytest.approx(100.0)


@given(st.floats(-1e4, 1e4), st.floats(1e-5, 1e6))
def test_labels_tell_neighbouring_ticks_apart(low: float, width: float) -> None:
    ticks = PlotAxis(low, low + width, 0.0, 100.0).labelled_ticks()
    labels = [label for _, label in ticks]
    assert len(set(labels)) == len(labels)
    gap = min(b - a for (a, _), (b, _) in pairwise(ticks)) if len(ticks) > 1 else math.inf
    assert all(abs(float(label.replace(",", "")) - tick) <= 0.011 * gap for tick, label in ticks)


def test_labels_have_no_more_digits_than_they_need() -> None:
    assert show_numbers([2.7008, 2.7010, 2.7012]) == ["2.7008", "2.701", "2.7012"]
    assert show_numbers([0.0, 0.5, 1.0]) == ["0", "0.5", "1"]
    assert show_numbers([20_000.0, 30_000.0]) == ["20,000", "30,000"]
    assert show_numbers([20_000.25, 20_000.5]) == ["20000.25", "20000.5"]
    assert show_numbers([1e-6, 1e-3, 1.0]) == ["1e-06", "0.001", "1"]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.02, 2.3, [0.03, 0.1, 0.3, 1.0]), (1e-9, 1.0, [1e-9, 1e-7, 1e-5, 1e-3, 1e-1]), (3.0, 30.0, [5.0, 10.0, 20.0])],
)
def test_ticks_of_a_log_axis(low: float, high: float, expected: list[float]) -> None:
    assert PlotAxis(low, high, 0.0, 1.0, log=True).ticks() == expected


def test_an_axis_is_logarithmic_where_values_span_decades() -> None:
    decades = [10.0**-i for i in range(8)]
    for is_max in (False, True):
        *ends, log = choose_range(decades, is_max=is_max)
        assert log
        assert ends == pytest.approx([1e-7, 1.0])
    accuracies = [0.001, 0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9]
    assert not spans_decades(accuracies, is_max=True), "most of them are seen on a linear axis"
    assert spans_decades(accuracies, is_max=False), "errors: the best is 0.001"
    assert not spans_decades([*decades, 0.0], is_max=False), "0 has no place on a log axis"
    assert not spans_decades([1.0, 1.1, 1e9, 1.2], is_max=False), "one bad value far off"
    assert not spans_decades([5e-324, 1e-310, 1.0, 1.0], is_max=False), "no room below"
    assert choose_range([math.nan], is_max=False) == (0.0, 1.0, False)


@pytest.mark.parametrize(("low", "high"), [(1e-300, 1.0), (1e-300, 1e308), (1.0, 1.7e308)])
def test_a_log_axis_of_extreme_values_has_ticks(low: float, high: float) -> None:
    axis = value_axis(low, high, 100.0, 0.0, log=True)
    assert 2 <= len(axis.labelled_ticks()) <= 6
    assert 0.0 <= axis(high) < axis(low) <= 100.0


def test_figures_of_values_that_span_decades_have_a_log_axis_named_after_the_metric() -> None:
    policy = policies.make("random_search")
    start = make_definition(policy, space=Space({"x": Float(0.0, 1.0)}), budget="400 epochs", max_steps=20)
    start = replace(start, metric="validation <error>")

    class Falling:
        def step(self, config: Config, step: int) -> StepOutcome:
            return StepOutcome(10.0 ** (-step * config["x"] / 2), Cost(train=1.0))

    history = read_history("s", simulate(policy, Falling(), start).ledger)
    figures = {figure.key: figure.svg for figure in draw_study(history)}
    for key in ("best", "curves", "front"):
        texts = re.findall(r"<text [^>]*>([^<]*)</text>", figures[key])
        assert {"0.01", "1e-05"} & set(texts), f"{key} has no powers of ten"
        assert any(text.endswith("validation &lt;error&gt;") for text in texts)


def test_the_times_of_ask_and_tell_begin_at_the_first_order() -> None:
    study = Study.begin(Space({"x": Float(0.0, 1.0)}), "9 epochs", seed=0)
    while (order := study.ask()) is not None:
        study.tell(order, value=order.config["x"])
    assert study.ledger.orders[0].at > 1e9, "Unix time"
    segments = read_history("s", study.ledger).segments
    assert segments[0].began_s == 0.0
    assert max(segment.ended_s for segment in segments) < 1e6


def test_a_good_value_is_never_clipped() -> None:
    values = [1.0, 1.1, 1.2, 1.3, 0.001, 1e9]
    assert clip_range(values, is_max=False)[0] == 0.001
    assert clip_range(values, is_max=False)[1] < 10
    assert clip_range(values, is_max=True)[1] == 1e9
    assert clip_range([math.nan], is_max=True) == (0.0, 1.0)


def test_a_sheet_escapes_texts() -> None:
    sheet = Sheet(label='"quoted"')
    sheet.text(0, 0, EVIL)
    sheet.dot((1, 1), "dot", EVIL)
    assert "<script" not in str(sheet)
    assert "\x1b" not in str(sheet)
    assert 'aria-label="&quot;quoted&quot;"' in str(sheet)


def test_importance_finds_the_parameter_that_matters() -> None:
    rng = np.random.default_rng(1)
    matters, idle = rng.integers(6, size=120).astype(float), rng.integers(6, size=120).astype(float)
    losses = (matters - 2) ** 2 + 0.5 * rng.standard_normal(120)
    assert measure_importance(matters, losses).is_clear
    assert not measure_importance(idle, losses).is_clear
    assert measure_importance(idle, losses, parameters=20).chance > measure_importance(idle, losses).chance
    assert measure_divergence(np.array([2, 2]), np.array([1, 1])) == 0.0
    assert measure_divergence(np.array([2, 2]), np.array([2, 0])) == pytest.approx(4 / 9)


@pytest.mark.parametrize(("trials", "bins"), [(15, 3), (49, 5), (150, 8)])
def test_parameters_without_an_effect_are_rarely_named(trials: int, bins: int) -> None:
    """With four idle parameters, 5% of the studies may name one. Up to 9% of 200 studies pass: three standard errors."""
    rng = np.random.default_rng(2)
    named = 0
    for _ in range(200):
        losses = rng.standard_normal(trials)
        named += any(
            measure_importance(rng.integers(bins, size=trials).astype(float), losses, 4).is_clear for _ in range(4)
        )
    assert named <= 18


def test_what_mattered_agrees_with_its_marks(ledger: Ledger) -> None:
    """A parameter is named, and its bar is strong, exactly if the bar ends beyond the dashed mark."""
    figure = draw_importance(read_history("s", ledger))
    assert figure is not None
    bars = re.findall(r'<rect class="(bar[^"]*)" x="170" y="[^"]*" width="([^"]*)"', figure.svg)
    marks = re.findall(r'<line class="guide" x1="([^"]*)"', figure.svg)
    assert len(bars) == len(marks) == len(figure.rows) == 4
    named = figure.sentence.partition(" ha")[0].split(", ")
    for row, (style, width), mark in zip(figure.rows, bars, marks, strict=True):
        is_beyond = 170 + float(width) > float(mark)
        assert (style == "bar") == is_beyond == (row[0] in named) == (row[3] == "yes")
    assert any(style == "bar" for style, _ in bars)
    assert any(style == "bar faint" for style, _ in bars)


def test_the_comparison_agrees_with_a_computation_by_hand() -> None:
    histories = [
        read_history(f"{policy}-{seed}", study(policy, seed=seed))
        for policy in ("asha", "random_search")
        for seed in range(3)
    ]
    figure = draw_comparison(histories)
    assert figure is not None
    assert [row[0] for row in figure.rows] == ["asha", "random_search"]
    assert float(figure.rows[0][2]) == pytest.approx(
        np.mean([history.bests[-1].value for history in histories[:3]]), rel=1e-5
    )
    first = histories[0]
    slow = [next(b.value for b in reversed(first.bests) if b.spent <= at) for at in (first.bests[0].spent, 100.0, 1e9)]
    assert list(best_values_at(first, np.array([first.bests[0].spent, 100.0, 1e9]))) == slow
    assert make_staircase(first.bests, first.ledger.spent)[-1] == (first.ledger.spent, first.bests[-1].value)
    low, high = bootstrap_mean(np.array([[1.0], [1.0], [1.0]]))
    assert (float(low[0]), float(high[0])) == (1.0, 1.0)
    assert draw_comparison(histories[:1]) is None
    mixed = draw_comparison([*histories[:3], read_history("e", study(budget="100 epochs"))])
    assert mixed is not None
    assert "1 without a value or with a budget in another unit" in mixed.sentence
