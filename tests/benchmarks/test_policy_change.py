"""A small version of the benchmark of first decisions on studies of other policies."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest


def test_each_case_of_a_taken_over_study_is_timed(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    taken_over: Any = importlib.import_module("benchmarks.taken_over")  # not typed as strictly as the tests
    monkeypatch.setattr("sys.argv", ["taken_over", "--quick"])
    assert taken_over.main() == 0
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in results] == [f"taken_over_{case}" for case in taken_over.CASES]
    assert [line["target"]["processor_s"] for line in results] == [2.0, 5.0, 0.5]
    assert [line["measured"]["trials"] for line in results] == [20, 100, 40]
    assert all(line["measured"]["processor_s"] > 0.0 for line in results)
