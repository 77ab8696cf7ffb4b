"""A method is few files, and none of them belongs to another method unless `tools/reading.py` says why."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import reading

from shoestring import policies

EARLIER = 2  # files of what earlier studies predict
GUIDE = 11 + EARLIER  # files of the model that chooses new configurations, a setting of `asha` and `sequential_halving`
MOST_FILES = {
    "asha": 4 + GUIDE,
    "bhpt": 10,
    "bo_bos": 14,
    "boil": 16,
    "ce_gp_ucb": 10,  # one of them fits what is not given: drift, variance, noise
    "cost_aware_ei": 13 + EARLIER,
    "guided_halving": 9 + GUIDE,  # 5 of them are sequential halving, 3 are `cost_aware_ei` for trials of one step
    "sequential_halving": 5 + GUIDE,
}


def test_the_limits_cover_all_recommended_policies_and_those_from_the_papers() -> None:
    assert set(MOST_FILES) == {*policies.RECOMMENDED, *policies.FROM_THE_PAPERS}


@pytest.mark.parametrize(("name", "most"), MOST_FILES.items(), ids=list(MOST_FILES))
def test_a_method_is_few_files(name: str, most: int) -> None:
    files = reading.measure(name).files
    assert len(files) <= most, f"{name} takes {len(files)} files: {', '.join(files)}"


@pytest.mark.parametrize("name", sorted(policies.REGISTRY))
def test_a_method_is_in_its_own_folder(name: str) -> None:
    assert reading.measure(name).foreign == []


def test_shared_files_belong_to_no_method() -> None:
    assert reading.method_of("policies/stopping/active_trials.py") == "stopping"
    assert reading.method_of("models/stopping/curve_paths.py") == "stopping"
    assert reading.method_of("models/gp/kernels.py") is None
    assert reading.method_of("models/loss_scaling.py") is None
    assert reading.method_of("policies/config_table.py") is None


def test_imports_are_followed_through_other_files() -> None:
    found = reading.measure("hyperband")
    assert {"policies/halving/hyperband.py", "policies/halving/brackets.py"} <= set(found.files)
    assert all(name.split("/")[0] in ("policies", "models") for name in found.files)
    assert not any(name.endswith("__init__.py") for name in found.files)
    assert found.lines == sum(found.files.values())


def test_modules_named_by_a_string_count() -> None:
    code = """
from importlib import import_module
from shoestring import policies
RULE = "asha"
import_module("shoestring.policies.halving.guide")
policies.make(RULE, {})
find_class("grid")
print("shoestring.policies.boil.boil")
"""
    modules = set(reading.list_imported_modules(ast.parse(code)))
    assert {
        "shoestring.policies.halving.guide",
        "shoestring.policies.halving.asha",
        "shoestring.policies.plain.grid",
    } <= modules
    assert "shoestring.policies.boil.boil" not in modules
    assert "policies/halving/guide.py" in reading.measure("asha").files  # imported within a function
    assert "policies/halving/sequential_halving.py" in reading.measure("guided_halving").files


def test_the_command_prints_a_line_for_each_policy_and_json_on_demand() -> None:
    script = str(Path(reading.__file__))
    text = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True).stdout
    assert len(text.splitlines()) == len(policies.REGISTRY)
    done = subprocess.run(
        [sys.executable, script, "grid", "--json"], capture_output=True, text=True, timeout=60, check=True
    )
    facts = json.loads(done.stdout)
    assert facts[0]["policy"] == "grid"
    assert facts[0]["lines"] == sum(facts[0]["files"].values())
