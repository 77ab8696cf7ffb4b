"""A study as HTML, and the progress bar that a notebook shows."""

from __future__ import annotations

import re
import sys
import types
from html.parser import HTMLParser
from typing import Any

import pytest

from shoestring import Choice, Float, Space, Study, tune
from shoestring.reports import notebook, progress
from shoestring.reports.figures import notebook_cell as cell
from shoestring.reports.figures.drawing import drop_tips, tips_as_titles
from shoestring.reports.figures.history import read_history
from shoestring.reports.figures.page import draw_study
from shoestring.reports.figures.style import DARK, LIGHT
from shoestring.reports.notebook import NotebookView, study_html
from shoestring.reports.progress import LineProgress, LiveView, SilentProgress, make_view
from shoestring.study.run_study import RunOptions, run_study

SPACE = Space({"x": Float(0.0, 1.0)})
EVIL = "<script>alert(1)</script>&\x1b[31m\"'"


def loss(config: Any) -> float:
    return float(config["x"])


class Tags(HTMLParser):
    """Record the tags that were opened, and those that were not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_study_shows_its_best_value_budget_and_best_trials() -> None:
    study = tune(loss, SPACE, "20 epochs", seed=1, name="mine")
    page = study._repr_html_()
    assert study.best is not None
    assert f"best <b>{study.best.value:.6g}</b>" in page
    assert "spent 20 epochs of 20 epochs" in page
    assert "<b>mine</b> · guided_halving, seed 1, 20 trials" in page
    tags = Tags(page)
    assert tags.open == []
    assert tags.seen.count("tr") == 9  # a head and the eight best
    assert "and 12 more" in page
    values = [float(cell) for cell in re.findall(r"<td[^>]*>(0\.\d+)</td>", page)]
    assert values == sorted(values)


def test_a_study_without_a_result_has_a_page() -> None:
    page = Study.begin(SPACE, "9 epochs")._repr_html_()
    assert "best: none yet" in page
    assert Tags(page).open == []


def test_the_page_is_self_contained_and_uses_the_notebooks_colours() -> None:
    page = tune(loss, SPACE, "9 epochs")._repr_html_()
    assert not re.search(r"https?:|src=|href=|url\(|<script|<link|@import| id=", page)
    table = page.split("<style>")[0]
    assert not re.search(r"#[0-9a-f]{3,6}\b|color:(?!inherit)|background:(?!transparent)", table)


def test_every_text_of_the_user_is_escaped() -> None:
    space = Space({f"p{EVIL}": Choice([EVIL, "b"])})
    study = tune(lambda config: 1.0, space, "1 epoch", name="a<b>&'\"")
    page = study_html(study.name, study.ledger, checkpoint=None)
    drawn = {"style", "svg", "rect", "text", "circle", "line", "polyline", "title"}
    assert set(Tags(page).seen) <= {"div", "b", "progress", "table", "tr", "th", "td"} | drawn
    assert "<script" not in page
    assert "\x1b" not in page
    assert "&lt;script&gt;" in page


# figures -------------------------------------------------------------------------------------------------------------


def simulate_study(policy: str = "sequential_halving", budget: str = "300 epochs", **more: Any) -> Study:
    study = Study.begin(SPACE, budget, policy=policy, max_steps=50, seed=1, **more)
    study.run(_simulated())
    return study


def test_the_figures_are_those_of_the_report() -> None:
    study = simulate_study()
    page = study._repr_html_()
    drawn = {figure.key: figure for figure in draw_study(read_history(study.name, study.ledger))}
    assert page.count("<svg ") == 3
    for key in ("budget", "best", "curves"):
        assert tips_as_titles(drawn[key].svg) in page, "the same marks, from the same function"
        assert drawn[key].title in page
        assert drawn[key].sentence in page
    assert "<title>order 0: trial 0 to step" in page, "marks give their reason, without a script"
    assert "data-tip" not in page


def test_the_page_of_fifty_trials_of_fifty_steps_is_small() -> None:
    study = simulate_study("random_search", "2500 epochs")
    assert (len(study.ledger.trials), study.ledger.trials[-1].steps) == (50, 50)
    assert len(study._repr_html_().encode()) <= 100_000


def test_a_page_that_is_too_large_loses_its_tips_then_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    study = simulate_study()
    full = study._repr_html_()
    monkeypatch.setattr(cell, "MAX_BYTES_WITH_TIPS", len(drop_tips(full)) // 4)
    bare = study._repr_html_()
    assert "<title>" not in bare
    assert bare.count("<svg ") == 3
    assert len(bare) < len(full)
    monkeypatch.setattr(cell, "MAX_BYTES", 1000)
    assert "kB of figures are too much for a notebook" in study._repr_html_()
    monkeypatch.setattr(cell, "MAX_ENTRIES", 10)
    text = study._repr_html_()
    assert f"{len(study.ledger)} ledger entries are too much" in text
    assert "<svg" not in text


def test_outputs_of_one_notebook_do_not_change_each_other() -> None:
    pages = [simulate_study()._repr_html_(), simulate_study("random_search")._repr_html_()]
    for page in pages:
        (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
        (scope,) = set(re.findall(r'<div class="(shoestring-\w+)">', page))
        selectors = [one.strip() for group in re.findall(r"([^{}]+)\{", style) for one in group.split(",")]
        assert len(selectors) > 10
        assert all(f".{scope}" in selector for selector in selectors), "nothing else in the notebook is touched"
        assert page.index("<style>") > page.index(scope)
    assert simulate_study()._repr_html_() == pages[0], "the same study, the same bytes: notebooks are compared"


def test_dark_notebooks_have_the_dark_colours() -> None:
    page = simulate_study()._repr_html_()
    light, dark = page.split('body[data-jp-theme-light="false"]')
    assert LIGHT["c-train"] in light
    assert DARK["c-train"] not in light
    assert DARK["c-train"] in dark
    assert "body.vscode-dark" in dark
    for name in ("ink", "soft"):  # texts are the notebook's own colour, whatever it is
        assert re.findall(rf"--{name}: ([^;]*);", page) == [cell._OWN_COLOURS[name]] * 2
        assert "currentColor" in cell._OWN_COLOURS[name]


def test_the_repr_of_a_study_is_one_line() -> None:
    study = Study.begin(Space({"x": Choice([EVIL, "b"])}), "9 epochs", name="mine")
    assert repr(study) == "<Study 'mine': guided_halving, 0 epochs of 9 epochs spent, 0 trials, no result yet>"
    study = tune(lambda config: 0.5 if config["x"] == EVIL else 1.0, study.ledger.space, "2 epochs", policy="grid")
    assert repr(study).isprintable()
    assert "2 epochs of 2 epochs spent, 2 trials, best 0.5 with x=<script>" in repr(study)


# the progress bar -------------------------------------------------------------------------------------------------------------


class RecordedDisplay:
    """Stand in for IPython's display and record every version of one output."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pages: list[str] = []
        self.outputs = 0
        display = types.SimpleNamespace(HTML=str, display=self.display)
        monkeypatch.setattr(notebook, "import_module", lambda name: display)

    def display(self, page: str, display_id: bool) -> RecordedDisplay:
        assert display_id
        self.outputs += 1
        self.update(page)
        return self

    def update(self, page: str) -> None:
        self.pages.append(page)


def share_of(page: str) -> float:
    found = re.search(r'<progress value="([\d.]+)"', page)
    return float(found[1]) if found else 0.0


def test_one_output_is_updated_until_the_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = RecordedDisplay(monkeypatch)
    monkeypatch.setattr(notebook, "_EVERY_S", 0.0)
    study = Study.begin(SPACE, "5 epochs", policy="random_search")
    with NotebookView("title <i>") as view:
        run_study(study, _simulated(), RunOptions(observe=view))
    assert recorded.outputs == 1
    shares = [share_of(page) for page in recorded.pages]
    assert shares == sorted(shares)
    assert {0.0, 0.2, 0.4, 0.6, 0.8, 1.0} <= set(shares)
    assert "title &lt;i&gt;" in recorded.pages[-1]
    assert Tags(recorded.pages[-1]).open == []


def _simulated() -> Any:
    from shoestring.runners.simulated.simulated_runner import SimulatedRunner
    from shoestring.testing.curves import DecayingCurves

    return SimulatedRunner(DecayingCurves())


def test_the_bar_is_not_updated_for_every_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = RecordedDisplay(monkeypatch)
    monkeypatch.setattr(notebook, "_EVERY_S", 1e9)
    study = Study.begin(SPACE, "50 epochs", policy="random_search")
    with NotebookView("t") as view:
        run_study(study, _simulated(), RunOptions(observe=view))
    assert len(recorded.pages) == 2  # when it begins and when it ends
    assert share_of(recorded.pages[-1]) == 1.0


def test_the_last_page_shows_a_ledger_that_others_have_appended_to(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = RecordedDisplay(monkeypatch)
    study = Study.begin(SPACE, "5 epochs", policy="random_search")
    with NotebookView("t") as view:
        view(study.ledger, None)
        study.enqueue({"x": 0.5})
    assert share_of(recorded.pages[-1]) == 0.0


def test_failures_are_listed_below_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = RecordedDisplay(monkeypatch)
    monkeypatch.setattr(progress, "is_notebook", lambda: True)

    def sometimes(config: Any) -> float:
        if config["x"] > 0.5:
            raise ValueError("<b>too large</b>")
        return float(config["x"])

    tune(sometimes, SPACE, "4 epochs", policy="random_search", seed=1)
    assert "ValueError: &lt;b&gt;too large&lt;/b&gt;" in recorded.pages[-1]


# where to show it ----------------------------------------------------------------------------------------------------


def test_the_view_depends_on_the_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_surroundings(terminal: bool, shell: str | None) -> None:
        monkeypatch.setattr(sys, "stderr", types.SimpleNamespace(isatty=lambda: terminal, write=print, flush=print))
        fake = types.ModuleType("IPython")
        fake.get_ipython = lambda: None if shell is None else type(shell, (), {})()  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", fake)

    cases = [
        (False, None, None, SilentProgress),  # a test, a scheduled job
        (False, None, True, LineProgress),
        (True, None, None, LiveView),
        (True, "TerminalInteractiveShell", None, LiveView),
        (False, "ZMQInteractiveShell", None, NotebookView),
        (False, "ZMQInteractiveShell", True, NotebookView),
        (True, "ZMQInteractiveShell", False, SilentProgress),
        (True, None, False, SilentProgress),
    ]
    for terminal, shell, wanted_progress, kind in cases:
        with_surroundings(terminal, shell)
        assert type(make_view("t", wanted_progress)) is kind, (terminal, shell, wanted_progress)
