"""Figures of what a policy alone goes by: each family has its own, and they say what the orders say."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from shoestring import policies
from shoestring.core.space.space import Space
from shoestring.policies.citations import CITATIONS, cite
from shoestring.reports.figures.history import Story, gather
from shoestring.reports.figures.page import copies_of, draw_study
from shoestring.reports.figures.policy_figures import draw_decisions, draw_improvement, draw_schedule
from shoestring.reports.figures.predicted_and_actual import draw_chances, draw_forecasts, read_forecasts
from shoestring.testing.curves import Decaying
from shoestring.testing.policies import opened, simulate

POLICY_FIGURES = {"forecasts", "chances", "improvement", "decisions", "compression", "schedule"}


def story(name: str, budget: str = "120 epochs", settings: dict[str, Any] | None = None) -> Story:
    policy = policies.make(name, settings)
    start = opened(policy, budget=budget, max_steps=9, seed=3)
    return gather("s", simulate(policy, Decaying(), start).ledger)


@pytest.mark.parametrize(
    ("name", "settings", "wanted"),
    [
        ("sequential_halving", {}, set()),
        ("cost_aware_ei", {"initial_trials": 3}, {"improvement"}),
        ("bo_bos", {"initial_trials": 2, "n0": 2, "paths": 2000}, {"decisions"}),
        ("boil", {"initial_trials": 2}, {"compression"}),
        ("bhpt", {}, {"forecasts"}),
        ("thrift", {}, {"forecasts", "chances"}),
        ("ce_gp_ucb", {}, {"schedule"}),
    ],
)
def test_each_family_has_its_own_figures(name: str, settings: dict[str, Any], wanted: set[str]) -> None:
    figures = {figure.key: figure for figure in draw_study(story(name, settings=settings))}
    assert set(figures) & POLICY_FIGURES == wanted
    for key in wanted:
        assert figures[key].svg.startswith("<svg")
        assert figures[key].rows
        assert all(len(row) == len(figures[key].columns) for row in figures[key].rows)
        assert "nan" not in figures[key].svg


def test_forecasts_are_those_of_the_orders() -> None:
    told = story("thrift")
    forecasts = read_forecasts(told)
    assert forecasts
    for forecast in forecasts:
        assert forecast.value == forecast.segment.order.why["expected_end"]
        assert forecast.came == told.trials[forecast.segment.order.trial].best_value
        assert math.isnan(forecast.spread)
    figure = draw_forecasts(told)
    assert figure is not None
    assert "standard deviations" not in figure.sentence  # it does not tell any


def test_chances_count_new_bests_of_the_same_trial() -> None:
    told = story("thrift")
    figure = draw_chances(told)
    assert figure is not None
    asked = [s for s in told.segments if "chance_to_beat_best" in s.order.why]
    assert sum(int(row[2]) for row in figure.rows) == len(asked)


def test_the_share_of_the_largest_improvement_is_told() -> None:
    told = story("cost_aware_ei", settings={"initial_trials": 3})
    figure = draw_improvement(told)
    assert figure is not None
    for row in figure.rows:
        why = told.segments[int(row[0])].order.why
        assert row[-1] == f"{float(str(why['ei'])) / float(str(why['ei_max'])):.0%}"


def test_a_run_that_was_given_up_is_on_the_map() -> None:
    told = story("bo_bos", settings={"initial_trials": 2, "n0": 2, "paths": 2000})
    figure = draw_decisions(told)
    assert figure is not None
    given_up = sum("gave_up_statistic" in s.order.why for s in told.segments)
    assert sum(row[-1] == "give up" for row in figure.rows) >= given_up


def test_the_schedule_marks_every_validated_round() -> None:
    told = story("ce_gp_ucb")
    figure = draw_schedule(told)
    assert figure is not None
    validated = [s.order.validate != "none" for s in told.segments]
    assert [row[1] == "yes" for row in figure.rows] == validated


def test_nothing_is_drawn_of_a_study_that_tells_nothing() -> None:
    policy = policies.make("random_search")
    start = opened(policy, space=Space.listed([{"x": 1}, {"x": 2}]), budget="4 epochs", max_steps=2)
    empty = gather("s", simulate(policy, Decaying(), start).ledger)
    assert not {figure.key for figure in draw_study(empty)} & POLICY_FIGURES


def test_a_report_says_what_to_cite() -> None:
    told = story("asha")
    copies = {copy.name: copy.text for copy in copies_of(told, "shoestring resume", cite("asha"))}
    assert "Massively Parallel" in copies["cite what decided (asha)"]
    assert not any("cite" in copy.name for copy in copies_of(told, "shoestring resume", cite("thrift")))


@pytest.mark.parametrize("name", sorted(CITATIONS))
def test_a_citation_names_work_that_the_policys_page_names(name: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "policies" / f"{name}.md").read_text("utf-8")
    identifiers = re.findall(r"arXiv:\d{4}\.\d{5}", CITATIONS[name])
    assert name in policies.REGISTRY
    assert all(one in page for one in identifiers)
    first_author = CITATIONS[name].split(",")[0].split(" ")[0]
    assert first_author in page
