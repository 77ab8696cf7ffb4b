"""python -m benchmarks NAME: every benchmark has a name, and a wrong one is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.__main__ import HERE, NAMES, entry_points

ROOT = Path(__file__).parents[2]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_without_a_name_all_are_listed() -> None:
    done = run()
    assert done.returncode == 0
    assert [name for name in [*NAMES, *entry_points()] if name not in done.stderr] == []
    assert run("nonsense").returncode == 2


def test_one_is_run_by_its_name_and_reads_its_own_words() -> None:
    done = run("decide", "--help")
    assert done.returncode == 0, done.stderr
    assert "usage: python -m benchmarks decide" in done.stdout


def test_entry_points_are_told_from_libraries() -> None:
    assert {"bhpt.real", "boil.compare", "cost_aware.run", "online.table_a1", "bo_bos.curves"} <= set(entry_points())
    assert "bhpt.problems" not in entry_points()


def test_no_script_depends_on_where_it_is_started() -> None:
    for path in HERE.glob("*/*.py"):
        own = {neighbour.stem for neighbour in path.parent.glob("*.py")} - {"__init__"}
        text = path.read_text(encoding="utf-8")
        assert "sys.path" not in text or path.parent.name == "kill", path  # whose studies are processes of their own
        begun = [line.split()[1] for line in text.splitlines() if line.startswith(("import ", "from "))]
        assert not own & set(begun), f"{path} imports a neighbour without its package"
