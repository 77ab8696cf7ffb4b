"""The benchmark of many workers measures what it says; how quick this machine is today is not a test."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.lines import draw_lines, write_panels
from benchmarks.scale import LEAST_BUSY, _judge
from benchmarks.scale.arithmetic import RESULTS, write_tables
from benchmarks.scale.growth import Growth
from benchmarks.scale.utilisation import Run, _share_busy, measure

from shoestring import policies
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Space
from shoestring.reports.figures.drawing import Sheet
from shoestring.runners.simulated.simulated_runner import Simulated
from shoestring.study.loop import run_in_memory
from shoestring.testing.curves import WrittenCurves
from shoestring.testing.policies import opened

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "ten-thousand-accelerators.md"


def a_run(policy: str, busy: float, loop_ms: float = 0.1) -> Run:
    return Run(policy, 1000, 50_000, 40_000, busy, busy, 0.5, loop_ms, 0.1, True, 0.0)


def test_the_share_of_busy_workers_by_hand() -> None:
    """Two workers, three runs of 2, 4 and 2 s: of 8 worker-seconds all are used; until 2 s, when the last begins, too."""
    policy = policies.make("grid")
    curves = WrittenCurves({name: [0.5] for name in "abc"}, costs_s={"a": 2.0, "b": 4.0, "c": 1.0})
    start = opened(
        policy, space=Space.listed([{"name": name} for name in "abc"]), budget="3 epochs", max_steps=1, workers=2
    )
    ledger = run_in_memory(Ledger([start]), policy, Simulated(curves, 2)).ledger
    assert _share_busy(ledger, 2.0) == 1.0
    assert _share_busy(ledger, 4.0) == 7 / 8
    assert math.isnan(_share_busy(ledger, 0.0))


def test_a_study_is_measured() -> None:
    run = measure("random_search", 10, limit_s=60.0)
    assert run.is_whole
    assert run.receipts == 4000
    assert run.busy_outside_tail > 0.99
    assert run.busy < run.busy_outside_tail
    assert 0 < run.loop_ms < 50


def test_a_missed_target_is_told() -> None:
    flat = [Growth("memory", [1] * 10, [0.1] * 10, [800.0] * 10)]
    steep = [Growth("memory", [1] * 10, [0.1 + 0.1 * i for i in range(10)], [800.0] * 10)]
    good = [a_run(name, 0.99) for name in LEAST_BUSY]
    assert _judge(good, flat, {"first_decision_s": 1.0})["ok"]
    assert not _judge(good, steep, {"first_decision_s": 1.0})["ok"]
    assert not _judge(good, flat, {"first_decision_s": 3.0})["ok"]
    assert not _judge([*good, a_run("grid", 0.5, loop_ms=0.4)], flat, {"first_decision_s": 1.0})["ok"]
    stopped = _judge([*good, a_run("thrift", 0.2)._replace(is_whole=False)], flat, {"first_decision_s": 1.0})
    assert stopped["measured"]["busy_until_stopped"] == {"thrift": 0.2}
    alone = _judge([a_run("thrift", 0.2)._replace(is_whole=False)], flat, {"first_decision_s": 1.0})
    assert alone["measured"]["loop_ms_an_entry"] is None, "nothing came to its end"
    for name, least in LEAST_BUSY.items():
        others = [run for run in good if run.policy != name]
        assert not _judge([*others, a_run(name, least - 0.01)], flat, {"first_decision_s": 1.0})["ok"]


def test_the_page_says_what_the_results_say() -> None:
    tables = write_tables(json.loads(RESULTS.read_text(encoding="utf-8")))
    page = PAGE.read_text(encoding="utf-8")
    for table in tables.split("\n\n"):
        assert table in page, f"python -m benchmarks scale.arithmetic prints other tables than {PAGE.name} has"


def test_names_of_lines_stand_where_no_line_is() -> None:
    panel = str(draw_lines({"low": [(0, 0.1), (9, 0.1)], "high": [(0, 1.0), (9, 0.9)]}, "x", "y"))
    marks = [float(y) for y in re.findall(r'<circle [^>]*cy="([\d.]+)"', panel)]
    names = [float(y) for y in re.findall(r'y="([\d.]+)"[^>]*>● ', panel)]
    assert len(names) == 2
    assert all(abs(name - mark) > 11 for name in names for mark in marks)
    assert "line-0" in panel
    assert "line-1" in panel
    text = write_panels([Sheet(100, 50), Sheet(200, 50)], "two")
    assert ElementTree.fromstring(text).attrib["viewBox"].split()[2:] == ["328", "78"]
