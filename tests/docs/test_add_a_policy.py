"""The steps of docs/how-to/add-a-policy.md work."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from shoestring import Float, Space, policies, tune
from shoestring.errors import PolicyError
from shoestring.testing.policies import LEARNING_CHECKS, POLICY_CHECKS, Check

TEXT = (Path(__file__).parents[2] / "docs" / "how-to" / "add-a-policy.md").read_text()


def block(marker: str) -> str:
    found = re.search(rf"<!-- {re.escape(marker)} -->\n```python\n(.*?)```", TEXT, re.DOTALL)
    assert found, f"the page has no block {marker!r}"
    return found[1]


@pytest.fixture
def curious(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    file = tmp_path / "curious.py"
    file.write_text(block("file: src/shoestring/policies/curious.py"))
    spec = importlib.util.spec_from_file_location("shoestring.policies.curious", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "shoestring.policies.curious", module)
    spec.loader.exec_module(module)
    line = re.fullmatch(r'"(\w+)": "([\w.:]+)",', block("registry").strip())
    assert line
    monkeypatch.setitem(policies.REGISTRY, line[1], line[2])
    return module


@pytest.mark.parametrize("check", [*POLICY_CHECKS, *LEARNING_CHECKS], ids=lambda check: check.__name__)
def test_the_policy_of_the_page_fulfils_the_contract(curious: ModuleType, check: Check) -> None:
    check(curious.Curious(curiosity=0.5))


def test_an_object_needs_no_registration(curious: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(policies.REGISTRY, "curious")
    study = tune(lambda c: c["x"], Space({"x": Float(0, 1)}), "9 epochs", policy=curious.Curious())
    assert study.spent == 9


@pytest.mark.parametrize("check", [*POLICY_CHECKS, *LEARNING_CHECKS], ids=lambda check: check.__name__)
def test_the_contract_needs_no_registration(curious: ModuleType, monkeypatch: pytest.MonkeyPatch, check: Check) -> None:
    monkeypatch.delitem(policies.REGISTRY, "curious")
    check(curious.Curious(curiosity=0.5), light=True)


def test_it_can_be_used_by_name(curious: ModuleType) -> None:
    study = tune(lambda c: c["x"], Space({"x": Float(0, 1)}), "9 epochs", policy="curious", settings={"curiosity": 1.0})
    assert study.spent == 9
    with pytest.raises(PolicyError, match=r"curiosity=2\) .*Try 0.3"):
        policies.make("curious", {"curiosity": 2})
    assert "POLICY_CHECKS + LEARNING_CHECKS" in block("contract")
