"""The benchmark with many workers; the speed of the test machine is not tested."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.lines import draw_lines, write_panels
from benchmarks.scale import MIN_BUSY_SHARE, _judge
from benchmarks.scale.arithmetic import RESULTS, write_tables
from benchmarks.scale.growth import Growth
from benchmarks.scale.utilisation import Run, _share_busy, measure

from shoestring import policies
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Space
from shoestring.reports.figures.drawing import Sheet
from shoestring.runners.simulated.simulated_runner import SimulatedRunner
from shoestring.study.loop import run_in_memory
from shoestring.testing.curves import ListedCurves
from shoestring.testing.policies import make_definition

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "ten-thousand-accelerators.md"


def make_run(policy: str, busy: float, loop_ms: float = 0.1) -> Run:
    return Run(policy, 1000, 50_000, 40_000, busy, busy, 0.5, loop_ms, 0.1, True, 0.0)


def test_the_share_of_busy_workers_agrees_with_a_manual_computation() -> None:
    """Two workers have runs of 2, 4 and 1 s: until 2 s all worker-seconds are used, until 4 s seven of eight."""
    policy = policies.make("grid")
    curves = ListedCurves({name: [0.5] for name in "abc"}, costs_s={"a": 2.0, "b": 4.0, "c": 1.0})
    start = make_definition(
        policy, space=Space.from_configs([{"name": name} for name in "abc"]), budget="3 epochs", max_steps=1, workers=2
    )
    ledger = run_in_memory(Ledger([start]), policy, SimulatedRunner(curves, 2)).ledger
    assert _share_busy(ledger, 2.0) == 1.0
    assert _share_busy(ledger, 4.0) == 7 / 8
    assert math.isnan(_share_busy(ledger, 0.0))


def test_measure_runs_a_complete_study() -> None:
    run = measure("random_search", 10, limit_s=60.0)
    assert run.is_whole
    assert run.receipts == 4000
    assert run.busy_outside_tail > 0.99
    assert run.busy < run.busy_outside_tail
    assert 0 < run.loop_ms < 50


def test_a_missed_target_makes_the_result_not_ok() -> None:
    flat = [Growth("memory", [1] * 10, [0.1] * 10, [800.0] * 10)]
    steep = [Growth("memory", [1] * 10, [0.1 + 0.1 * i for i in range(10)], [800.0] * 10)]
    good = [make_run(name, 0.99) for name in MIN_BUSY_SHARE]
    assert _judge(good, flat, {"first_decision_s": 1.0})["ok"]
    assert not _judge(good, steep, {"first_decision_s": 1.0})["ok"]
    assert not _judge(good, flat, {"first_decision_s": 3.0})["ok"]
    assert not _judge([*good, make_run("grid", 0.5, loop_ms=0.4)], flat, {"first_decision_s": 1.0})["ok"]
    stopped = _judge([*good, make_run("guided_halving", 0.2)._replace(is_whole=False)], flat, {"first_decision_s": 1.0})
    assert stopped["measured"]["busy_until_stopped"] == {"guided_halving": 0.2}
    alone = _judge([make_run("guided_halving", 0.2)._replace(is_whole=False)], flat, {"first_decision_s": 1.0})
    assert alone["measured"]["loop_ms_an_entry"] is None, "no study was complete"
    for name, least in MIN_BUSY_SHARE.items():
        others = [run for run in good if run.policy != name]
        assert not _judge([*others, make_run(name, least - 0.01)], flat, {"first_decision_s": 1.0})["ok"]


def test_the_tables_of_the_page_agree_with_the_results() -> None:
    tables = write_tables(json.loads(RESULTS.read_text(encoding="utf-8")))
    page = PAGE.read_text(encoding="utf-8")
    for table in tables.split("\n\n"):
        assert table in page, f"python -m benchmarks scale.arithmetic prints tables that differ from {PAGE.name}"


def test_labels_of_lines_do_not_overlap_points() -> None:
    panel = str(draw_lines({"low": [(0, 0.1), (9, 0.1)], "high": [(0, 1.0), (9, 0.9)]}, "x", "y"))
    marks = [float(y) for y in re.findall(r'<circle [^>]*cy="([\d.]+)"', panel)]
    names = [float(y) for y in re.findall(r'y="([\d.]+)"[^>]*>● ', panel)]
    assert len(names) == 2
    assert all(abs(name - mark) > 11 for name in names for mark in marks)
    assert "line-0" in panel
    assert "line-1" in panel
    text = write_panels([Sheet(100, 50), Sheet(200, 50)], "two")
    assert ElementTree.fromstring(text).attrib["viewBox"].split()[2:] == ["328", "78"]
