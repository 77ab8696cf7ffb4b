"""A method can be read in one sitting: few files, none of them long, none of them another method's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import reading

from shoestring import policies

MOST_FILES = {
    "sequential_halving": 4,
    "bhpt": 8,
    "ce_gp_ucb": 8,
    "cost_aware_ei": 13,
    "bo_bos": 14,
    "boil": 16,
}


@pytest.mark.parametrize(("name", "most"), MOST_FILES.items(), ids=list(MOST_FILES))
def test_a_method_is_few_files(name: str, most: int) -> None:
    files = reading.measure(name).files
    assert len(files) <= most, f"{name} takes {len(files)} files: {', '.join(files)}"


@pytest.mark.parametrize("name", sorted(policies.REGISTRY))
def test_a_method_stands_in_its_own_folder(name: str) -> None:
    assert reading.measure(name).foreign == []


def test_no_file_is_long() -> None:
    lines = {
        str(path.relative_to(reading.ROOT)): len(path.read_text("utf-8").splitlines())
        for path in reading.ROOT.rglob("*.py")
    }
    assert {name: n for name, n in lines.items() if n > reading.LONGEST} == {}


def test_what_is_shared_belongs_to_no_method() -> None:
    assert reading.method_of("policies/stopping/active_runs.py") == "stopping"
    assert reading.method_of("models/stopping/curve_paths.py") == "stopping"
    assert reading.method_of("models/gp/kernels.py") is None
    assert reading.method_of("models/loss_scaling.py") is None
    assert reading.method_of("policies/config_table.py") is None


def test_imports_are_followed_as_far_as_they_lead() -> None:
    found = reading.measure("hyperband")
    assert {"policies/halving/hyperband.py", "policies/halving/brackets.py"} <= set(found.files)  # and what that needs
    assert all(name.split("/")[0] in ("policies", "models") for name in found.files)
    assert not any(name.endswith("__init__.py") for name in found.files)
    assert found.lines == sum(found.files.values())


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
