"""Figures of one family of policies each: they show the numbers in the orders."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from shoestring import policies
from shoestring.core.space.space import Space
from shoestring.policies.citations import CITATIONS, cite
from shoestring.reports.figures.history import StudyHistory, read_history
from shoestring.reports.figures.page import draw_study, list_copyables
from shoestring.reports.figures.policy_figures import draw_decisions, draw_improvement, draw_schedule
from shoestring.reports.figures.predicted_and_actual import draw_forecasts, read_forecasts
from shoestring.testing.curves import DecayingCurves
from shoestring.testing.policies import make_definition, simulate

POLICY_FIGURES = {"forecasts", "improvement", "decisions", "compression", "schedule"}


def simulate_study(name: str, budget: str = "120 epochs", settings: dict[str, Any] | None = None) -> StudyHistory:
    policy = policies.make(name, settings)
    start = make_definition(policy, budget=budget, max_steps=9, seed=3)
    return read_history("s", simulate(policy, DecayingCurves(), start).ledger)


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("sequential_halving", {}, set()),
        ("cost_aware_ei", {"initial_trials": 3}, {"improvement"}),
        ("bo_bos", {"initial_trials": 2, "n0": 2, "paths": 2000}, {"decisions"}),
        ("boil", {"initial_trials": 2}, {"compression"}),
        ("bhpt", {}, {"forecasts"}),
        ("guided_halving", {}, set()),
        ("ce_gp_ucb", {}, {"schedule"}),
    ],
)
def test_each_family_has_its_own_figures(name: str, settings: dict[str, Any], expected: set[str]) -> None:
    figures = {figure.key: figure for figure in draw_study(simulate_study(name, settings=settings))}
    assert set(figures) & POLICY_FIGURES == expected
    for key in expected:
        assert figures[key].svg.startswith("<svg")
        assert figures[key].rows
        assert all(len(row) == len(figures[key].columns) for row in figures[key].rows)
        assert "nan" not in figures[key].svg


def test_forecasts_are_those_of_the_orders() -> None:
    history = simulate_study("freeze_thaw_bo", budget="40 epochs", settings={"arms": 6})
    forecasts = read_forecasts(history)
    assert forecasts
    for forecast in forecasts:
        assert forecast.predicted == forecast.segment.order.why["asymptote"]
        assert forecast.actual == history.trials[forecast.segment.order.trial].best_value
        assert math.isnan(forecast.std)
    figure = draw_forecasts(history)
    assert figure is not None
    assert "standard deviations" not in figure.sentence  # it reports none


def test_the_share_of_the_largest_improvement_is_shown() -> None:
    history = simulate_study("cost_aware_ei", settings={"initial_trials": 3})
    figure = draw_improvement(history)
    assert figure is not None
    for row in figure.rows:
        why = history.segments[int(row[0])].order.why
        assert row[-1] == f"{float(str(why['ei'])) / float(str(why['ei_max'])):.0%}"


def test_a_trial_that_was_stopped_is_on_the_map() -> None:
    history = simulate_study("bo_bos", settings={"initial_trials": 2, "n0": 2, "paths": 2000})
    figure = draw_decisions(history)
    assert figure is not None
    n_stopped = sum("stopped_statistic" in s.order.why for s in history.segments)
    assert sum(row[-1] == "stop" for row in figure.rows) >= n_stopped


def test_the_schedule_marks_every_validated_round() -> None:
    history = simulate_study("ce_gp_ucb")
    figure = draw_schedule(history)
    assert figure is not None
    validated = [s.order.validate != "none" for s in history.segments]
    assert [row[1] == "yes" for row in figure.rows] == validated


def test_nothing_is_drawn_for_a_study_without_such_numbers() -> None:
    policy = policies.make("random_search")
    start = make_definition(policy, space=Space.from_configs([{"x": 1}, {"x": 2}]), budget="4 epochs", max_steps=2)
    empty = read_history("s", simulate(policy, DecayingCurves(), start).ledger)
    assert not {figure.key for figure in draw_study(empty)} & POLICY_FIGURES


def test_a_report_names_the_work_to_cite() -> None:
    history = simulate_study("asha")
    copies = {copy.name: copy.text for copy in list_copyables(history, "shoestring resume", cite("asha"))}
    assert "Massively Parallel" in copies["cite the method (asha)"]
    assert not any("cite" in copy.name for copy in list_copyables(history, "shoestring resume", cite("grid")))


@pytest.mark.parametrize("name", sorted(CITATIONS))
def test_a_citation_names_work_that_the_policys_page_names(name: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "policies" / f"{name}.md").read_text("utf-8")
    identifiers = re.findall(r"arXiv:\d{4}\.\d{5}", CITATIONS[name])
    assert name in policies.REGISTRY
    assert all(one in page for one in identifiers)
    first_author = CITATIONS[name].split(",")[0].split(" ")[0]
    assert first_author in page
