"""A test that fails by chance passes on its second try and is named; a fault fails again, and many failures are no chance."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import second_try

ROOT = Path(__file__).parents[2]
BY_CHANCE = """
from pathlib import Path

def test_by_chance(request):
    met = Path(request.config.rootpath) / "met"
    if not met.exists():
        met.touch()
        raise AssertionError("the first time")
"""
FAULTS = "import pytest\n@pytest.mark.parametrize('i', range({count}))\ndef test_fault(i):\n    assert i < 0\n"


def run(folder: Path, tests: str, *words: str, variable: str = "1") -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "test_some.py").write_text(f"{tests}\ndef test_good(): pass\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools"), second_try.VARIABLE: variable}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, str(folder)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_what_fails_by_chance_passes_alone_and_is_named(tmp_path: Path, workers: str) -> None:
    ended = run(tmp_path, BY_CHANCE, "-n", workers)
    assert ended.returncode == 0, ended.stdout
    assert "failed at first and passed alone, to be mended: test_some.py::test_by_chance" in ended.stdout


@pytest.mark.parametrize("count", [1, second_try.MOST, second_try.MOST + 1])
def test_a_fault_fails(tmp_path: Path, count: int) -> None:
    ended = run(tmp_path, FAULTS.format(count=count))
    assert ended.returncode == 1
    assert "to be mended" not in ended.stdout
    assert ended.stdout.count(f"{count} failed") == (2 if count <= second_try.MOST else 1)


def test_a_broken_file_is_no_chance(tmp_path: Path) -> None:
    assert run(tmp_path, "import nothing_of_this_name").returncode == 2


def test_without_the_variable_nothing_is_tried_again(tmp_path: Path) -> None:
    assert run(tmp_path, BY_CHANCE, variable="").returncode == 1
