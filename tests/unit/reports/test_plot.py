"""Figures as objects: `study.plot_best()` and the others, and the numbers of `study.importances()`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoestring import Choice, Float, Plot, Space, Study, tune
from shoestring.errors import StoreError, StudyError
from shoestring.reports.figures.history import read_history
from shoestring.reports.figures.page import draw_study
from shoestring.reports.figures.static import write_svg

EVIL = "<script>alert(1)</script>"
SPACE = Space({"x": Float(-1.0, 1.0), "idle": Float(0.0, 1.0), "kind": Choice(["a", EVIL])})
FIGURES = {"plot_best": "best", "plot_curves": "curves", "plot_importances": "importance", "plot_parallel": "parallel"}


def train(config: Any) -> Iterator[float]:
    for step in range(1, 5):
        yield float(config["x"] ** 2 + 1 / step)


@pytest.fixture(scope="module")
def study() -> Study:
    return tune(
        train, SPACE, "160 epochs", max_steps=4, policy="random_search", seed=1, store=":memory:", metric="error <1>"
    )


@pytest.mark.parametrize("method", FIGURES)
def test_a_plot_is_the_figure_of_the_report(method: str, study: Study) -> None:
    figures = {figure.key: figure for figure in draw_study(read_history(study.name, study.ledger))}
    expected, plot = figures[FIGURES[method]], getattr(study, method)()
    assert isinstance(plot, Plot)
    assert (plot.title, plot.sentence) == (expected.title, expected.sentence)
    assert (plot.columns, plot.rows) == (expected.columns, expected.rows)
    assert plot.svg == plot._repr_svg_() == write_svg(expected)
    marks = re.findall(r"<polyline [^>]*?points=\"[^\"]*\"", expected.svg)
    assert all(mark in plot._repr_html_() for mark in marks), "the notebook shows the same marks"
    assert EVIL not in plot._repr_html_() + plot.svg
    assert plot.title in repr(plot)
    assert "\n" not in repr(plot)


@pytest.mark.parametrize("method", [*FIGURES, "importances"])
def test_what_a_plot_needs_is_said_in_one_line(method: str) -> None:
    fresh = Study.begin(SPACE, "9 epochs", name="new")
    with pytest.raises(StudyError, match=r"the study 'new' has no .* yet: that needs (a|10|12) ") as caught:
        getattr(fresh, method)()
    assert "\n" not in str(caught.value)


def test_a_plot_is_saved_in_light_and_dark(study: Study, tmp_path: Path) -> None:
    plot = study.plot_best()
    plot.save(tmp_path / "light.svg")
    plot.save(str(tmp_path / "dark.SVG"), dark=True)
    light, dark = ((tmp_path / name).read_text() for name in ("light.svg", "dark.SVG"))
    assert light == plot.svg
    assert dark != light
    with pytest.raises(StudyError, match=r"must end in \.svg or \.png"):
        plot.save(tmp_path / "figure.jpg")
    with pytest.raises(StoreError, match="cannot be written"):
        plot.save(tmp_path / "missing" / "figure.svg")
    assert {path.name for path in tmp_path.iterdir()} == {"light.svg", "dark.SVG"}


def test_a_plot_is_saved_as_png(study: Study, tmp_path: Path) -> None:
    pytest.importorskip("resvg_py", reason="pip install 'shoestring[pictures]'")
    study.plot_curves().save(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_importances_are_those_of_the_figure(study: Study) -> None:
    found = study.importances()
    assert list(found) == [row[0] for row in study.plot_importances().rows]
    assert [one.importance for one in found.values()] == sorted(
        (one.importance for one in found.values()), reverse=True
    )
    assert {name: one.is_clear for name, one in found.items()} == {"x": True, "idle": False, "kind": False}
    assert found["x"].importance > found["x"].chance > 0.0


def test_a_study_loads_no_plotting_package() -> None:
    code = "import sys, shoestring; shoestring.Study; print([n for n in sys.modules if 'figures' in n or 'matplotlib' in n])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"
