"""A quick run of the benchmark of first decisions after a change of policy."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest


def test_each_case_of_a_policy_change_is_timed(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    policy_change: Any = importlib.import_module("benchmarks.policy_change")  # not typed as strictly as the tests
    monkeypatch.setattr("sys.argv", ["policy_change", "--quick"])
    assert policy_change.main() == 0
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in results] == [f"policy_change_{case}" for case in policy_change.CASES]
    assert [line["target"]["processor_s"] for line in results] == [2.0, 5.0, 0.5]
    assert [line["measured"]["trials"] for line in results] == [20, 100, 40]
    assert all(line["measured"]["processor_s"] > 0.0 for line in results)
