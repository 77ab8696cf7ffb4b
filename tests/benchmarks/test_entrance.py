"""python -m benchmarks NAME: every benchmark has a name, and an unknown name is an error."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.__main__ import HERE, MODULES, NAMES, entry_points
from benchmarks.speed.decide import POLICIES, cases_of
from benchmarks.speed.measure import measure

ROOT = Path(__file__).parents[2]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_without_a_name_all_benchmarks_are_listed() -> None:
    done = run()
    assert done.returncode == 0
    assert [name for name in [*NAMES, *entry_points()] if name not in done.stderr] == []
    assert run("nonsense").returncode == 2


def test_a_benchmark_runs_by_its_name_and_reads_its_own_options() -> None:
    done = run("decide", "--help")
    assert done.returncode == 0, done.stderr
    assert "usage: python -m benchmarks decide" in done.stdout


def test_a_module_that_formats_results_has_a_name() -> None:
    done = run("scale.arithmetic")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("| a step takes |")


def test_entry_points_are_modules_with_a_main_function() -> None:
    assert {"bhpt.real", "boil.compare", "cost_aware.run", "online.table_a1", "bo_bos.curves"} <= set(entry_points())
    assert "bhpt.problems" not in entry_points()


FIGURES = "bo_bos.figures"  # draws stored results, so it needs no quick form


@pytest.mark.parametrize("name", [*NAMES, *(name for name in entry_points() if name != FIGURES)])
def test_every_benchmark_has_a_quick_form(name: str) -> None:
    """The option is in the module or in the parser that modules of a folder share."""
    module = HERE / MODULES.get(name, name).replace(".", "/")
    files = [module.with_suffix(".py")] if module.with_suffix(".py").exists() else sorted(module.glob("*.py"))
    if any("online.runs import arguments" in file.read_text(encoding="utf-8") for file in files):
        files.append(HERE / "online" / "runs.py")
    assert any('add_argument("--quick"' in file.read_text(encoding="utf-8") for file in files)


def test_the_readme_describes_every_benchmark_in_one_sentence() -> None:
    rows = [line.split("|") for line in (HERE / "README.md").read_text().splitlines() if line.startswith("| `")]
    sentences = {row[1].strip(" `"): row[2].strip() for row in rows if len(row) == 4}
    assert set(sentences) == set(NAMES)
    assert all(sentence.endswith(".") for sentence in sentences.values())


@pytest.mark.benchmark_run
@pytest.mark.parametrize("policy", POLICIES)
def test_cases_of_a_policy_can_be_timed(policy: str) -> None:
    """Time the smallest case of each policy; the speed of the test machine is not tested."""
    case = cases_of(policy)[0]
    result = measure(case, 1, with_peers=False)
    assert {"name", "measured", "target", "peers", "ok"} <= set(result)
    assert result["measured"]["mean_ms"] > 0


def test_no_benchmark_depends_on_the_working_directory() -> None:
    for path in HERE.glob("*/*.py"):
        own = {module.stem for module in path.parent.glob("*.py")} - {"__init__"}
        text = path.read_text(encoding="utf-8")
        assert "sys.path" not in text or path.parent.name == "kill", path  # its studies run in separate processes
        imported = [line.split()[1] for line in text.splitlines() if line.startswith(("import ", "from "))]
        assert not own & set(imported), f"{path} imports a module of its folder without the package"


def test_figures_have_one_style() -> None:
    """matplotlib is set up in one place, with the colours of a report."""
    drawing = [
        file.relative_to(HERE)
        for file in HERE.rglob("*.py")
        if re.search(r"^\s*(import matplotlib|from matplotlib import)", file.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert drawing == [Path("plotting.py")]
