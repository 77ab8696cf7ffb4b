"""The table of trials of a report: its columns, its order, its texts, and its size."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shoestring import Choice, Float, Int, Report, Space, tune
from shoestring.cli.main import cli
from shoestring.core.ledger.ledger import Ledger
from shoestring.reports.figures import trials_table
from shoestring.reports.figures.history import StudyHistory, read_history
from shoestring.reports.figures.page import describe_study, draw_study, write_page
from shoestring.reports.figures.trials_table import Duration, TrialsTable, list_trials, show_cell
from shoestring.stores.sql import SqlStore

EVIL = '<script>alert("x")</script>\x1b[31m'
SPACE = Space(
    {
        "lr": Float(1e-4, 1.0, log=True),
        "steps": Int(1, 9),
        "kind": Choice(["sgd", EVIL]),
        "m": Float(0, 1, when={"kind": "sgd"}),
    }
)


def train(config: Any) -> Any:
    for step in range(1, 5):
        if config["steps"] == 9:
            raise RuntimeError("no luck")
        yield Report(config["lr"] + abs(step - 3), metrics={"accuracy": step / 10, "lr": 7.0, "time": 1.0})


def make_history(name: str = "s", **more: Any) -> StudyHistory:
    study = tune(train, SPACE, "60 epochs", max_steps=4, seed=1, policy="random_search", store=":memory:", **more)
    return read_history(name, study.ledger)


@pytest.fixture(scope="module")
def history() -> StudyHistory:
    return make_history(metric="validation error")


@pytest.fixture(scope="module")
def table(history: StudyHistory) -> TrialsTable:
    found = list_trials([history])
    assert found is not None
    return found


def test_there_is_a_column_for_each_parameter_and_metric(table: TrialsTable) -> None:
    """A name that another column has already gets the prefix that `shoestring export` uses."""
    parameters, metrics = ["kind", "lr", "m", "config.steps"], ["accuracy", "metrics.lr", "metrics.time"]
    own = ["trial", "validation error", "state", "steps", "at step"]
    assert table.columns == [*own, *parameters, *metrics, "time", "started", "ended"]
    assert len(set(table.columns)) == len(table.columns)
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_each_row_is_a_trial_with_its_best_step(history: StudyHistory, table: TrialsTable) -> None:
    assert sorted(row[0] for row in table.rows) == [trial.number for trial in history.trials]  # type: ignore[type-var]
    values = [row[1] for row in table.rows if row[1] is not None]
    assert values == sorted(values)
    assert all(row[1] is None for row in table.rows[len(values) :]), "failed trials are last"
    for row in table.rows:
        trial, named = history.trials[row[0]], dict(zip(table.columns, row, strict=True))  # type: ignore[index]
        assert named["lr"] == trial.config["lr"]
        assert named["config.steps"] == trial.config["steps"]
        assert (named["m"] is None) == ("m" not in trial.config)
        assert named["steps"] == trial.steps
        if trial.best_step:
            assert (named["at step"], named["accuracy"], named["metrics.lr"]) == (3, 0.3, 7.0)
        else:
            assert (named["state"], named["accuracy"], named["at step"]) == ("failed", None, None)
        began, ended = named["started"], named["ended"]
        assert isinstance(began, Duration)
        assert isinstance(ended, Duration)
        orders = [segment for segment in history.segments if segment.order.trial == trial.number]
        assert began.seconds == orders[0].began_s
        assert ended.seconds == max(segment.ended_s for segment in orders) >= began.seconds


def test_cells_are_texts_that_a_script_can_read_as_numbers() -> None:
    assert [show_cell(cell) for cell in (3, 12_345, 0.012345678, 1e-9, None, "a", Duration(200))] == [
        *("3", "12345", "0.0123457", "1e-09", "", "a", "3m 20s")
    ]
    assert show_cell(EVIL) == '<script>alert("x")</script>\\x1b[31m'


class _Cells(HTMLParser):
    """Collects the cells of the table of trials, and what is not a cell."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.attributes: list[dict[str, str | None]] = []
        self._in_cell = False
        section = re.search(r'<section id="trials".*?</section>', page, re.DOTALL)
        assert section is not None
        self.text = section[0]
        self.feed(section[0])

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "tr":
            self.rows.append([])
        self._in_cell = tag in ("td", "th")
        if self._in_cell:
            self.rows[-1].append("")
            self.attributes.append(dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.rows[-1][-1] += data


def write(history: StudyHistory, table: TrialsTable | None) -> str:
    return write_page("s", describe_study(history), draw_study(history), trials=table)


def test_the_page_has_the_plain_table_with_its_order(history: StudyHistory, table: TrialsTable) -> None:
    page = write(history, table)
    cells = _Cells(page)
    assert cells.rows[0] == table.columns
    assert cells.rows[1:] == [[show_cell(cell) for cell in row] for row in table.rows]
    sorted_heads = [facts for facts in cells.attributes if "aria-sort" in facts]
    assert [facts["aria-sort"] for facts in sorted_heads] == ["ascending"]
    durations = [float(facts["data-v"] or "nan") for facts in cells.attributes if "data-v" in facts]
    assert durations == [
        pytest.approx(c.seconds, rel=1e-5) for row in table.rows for c in row if isinstance(c, Duration)
    ]
    assert "<script" not in cells.text
    assert "\x1b" not in page
    assert not re.search(r"<(input|button)", cells.text), "controls are made by the script, which serves them"
    assert "<details open>" in cells.text
    order = re.findall(r'<section id="(\w+)"', page)
    assert order[order.index("curves") + 1] == "trials"
    assert '<a href="#trials">' in page


def test_larger_values_come_first_where_they_are_better() -> None:
    history = make_history(direction="max")
    table = list_trials([history])
    assert table is not None
    values = [row[1] for row in table.rows if row[1] is not None]
    assert values == sorted(values, reverse=True)
    assert 'aria-sort="descending"' in write(history, table)
    assert table.columns[1] == "value"


def test_a_long_table_is_closed_and_a_very_long_one_has_the_best_trials(
    history: StudyHistory, table: TrialsTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = replace(table, rows=[*table.rows] * 20)
    assert "<details><summary>Table of" in write(history, many)
    monkeypatch.setattr(trials_table, "MAX_CELLS", 5 * len(table.columns))
    short = list_trials([history])
    assert short is not None
    assert short.rows == table.rows[:5]
    assert "The table has the best 5 of them." in short.sentence


def test_several_studies_have_one_table(history: StudyHistory) -> None:
    other = make_history("other")
    found = list_trials([history, other])
    assert found is not None
    assert found.columns[:3] == ["study", "trial", "value"], "two metrics have no common name"
    assert {row[0] for row in found.rows} == {"s", "other"}
    assert len(found.rows) == len(history.trials) + len(other.trials)


def test_a_study_without_a_trial_has_no_table() -> None:
    fresh = read_history("new", Ledger([make_history().ledger.definition]))
    assert list_trials([fresh]) is None
    assert 'id="trials"' not in write(fresh, None)


def test_the_report_says_when_the_study_began_and_ended(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/s.db")
    assert store.find_times("s") is None
    tune(train, SPACE, "20 epochs", max_steps=4, seed=1, name="s", store=store, metric="error")
    times = store.find_times("s")
    assert times is not None
    assert 1.6e9 < times[0] < times[1]
    done = CliRunner().invoke(cli, ["report", "--store", f"{tmp_path}/s.db", "-o", f"{tmp_path}/report.html"])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "report.html").read_text()
    assert re.search(
        r"It began on \d{4}-\d\d-\d\d \d\d:\d\d UTC; the last entry is of \d{4}-\d\d-\d\d \d\d:\d\d UTC\.", page
    )
    assert '<section id="trials"' in page
    words = ["report", "--figure", "best", "--store", f"{tmp_path}/s.db", "-o", f"{tmp_path}/best.html"]
    assert CliRunner().invoke(cli, words).exit_code == 0
    assert '<section id="trials"' not in (tmp_path / "best.html").read_text(), "only this figure"
