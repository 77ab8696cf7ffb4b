"""Project files agree with the code: versions, names of files, and what runs where."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import check_release
import pytest

import shoestring

ROOT = Path(__file__).parents[2]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PLACE = re.compile(r"[\w./-]*/[\w./-]*|\b\w+\.(?:py|yml|toml|txt)\b")


def test_the_build_takes_the_version_from_the_package() -> None:
    facts = tomllib.loads(PYPROJECT)
    assert "version" not in facts["project"]
    assert facts["project"]["dynamic"] == ["version"]
    assert facts["tool"]["hatch"]["version"]["path"] == "src/shoestring/__init__.py"
    for name in ("mkdocs.yml", "README.md"):
        assert shoestring.__version__ not in (ROOT / name).read_text(encoding="utf-8")


def test_version_change_log_citation_and_classifiers_agree() -> None:
    assert check_release.find_disagreements() == []


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("CHANGELOG.md", "## 0.1.0", "## 0.2.0", "CHANGELOG.md begins with 0.2.0"),
        ("CHANGELOG.md", "(not released yet)", "(soon)", "write a day"),
        ("CHANGELOG.md", "The first release.", "\n" * 60, "more than 60"),
        ("CITATION.cff", "version: 0.1.0", "version: 0.0.9", "CITATION.cff names version 0.0.9"),
        ("pyproject.toml", "3 - Alpha", "4 - Beta", "should be"),
        ("pyproject.toml", '">=3.11"', '">=3.12"', "requires-python begins with 3.12"),
    ],
)
def test_a_disagreement_is_found(tmp_path: Path, name: str, old: str, new: str, expected: str) -> None:
    for file in ("CHANGELOG.md", "CITATION.cff", "pyproject.toml", "src/shoestring/__init__.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / file).read_text(encoding="utf-8")
        assert file != name or old in text
        (tmp_path / file).write_text(text.replace(old, new, 1) if file == name else text, encoding="utf-8")
    (found,) = check_release.find_disagreements(tmp_path)
    assert expected in found


def commented_places() -> list[str]:
    """Return the files and folders that the comments of pyproject.toml name."""
    comments = [line.partition("  #")[2].partition("`")[0] for line in PYPROJECT.splitlines()]
    return sorted(
        {place.rstrip(".") for comment in comments for place in PLACE.findall(comment) if "://" not in comment}
    )


def test_pyproject_names_files() -> None:
    assert len(commented_places()) > 10


@pytest.mark.parametrize("place", commented_places())
def test_files_that_pyproject_names_are_there(place: str) -> None:
    assert any((root / place).exists() for root in (ROOT, ROOT / "src" / "shoestring")), f"{place} is nowhere"


@pytest.mark.parametrize("place", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_workflows_make_what_the_makefile_has(place: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    made = set(re.findall(r"run: make ([a-z-]+)$", place.read_text(encoding="utf-8"), re.MULTILINE))
    assert made
    assert made <= targets


def test_the_five_papers_can_be_cited() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r'notes: "policy (\w+)"', text) == ["ce_gp_ucb", "bhpt", "bo_bos", "boil", "cost_aware_ei"]


def test_the_page_about_systems_says_what_the_workflow_tests() -> None:
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    (wheel,) = re.findall(r"^  wheel:\n(.*?)(?=^  \w)", workflow, flags=re.MULTILINE | re.DOTALL)
    page = (ROOT / "docs" / "reference" / "systems.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| the wheel in an empty environment")]
    _, _, linux, macos, windows, _ = row.split("|")
    (versions,) = re.findall(r"python: \[(.*)\]", wheel)
    assert "os: [ubuntu-latest]" in wheel
    assert re.findall(r"3\.\d+", versions)[:: len(versions.split(",")) - 1] == re.findall(r"3\.\d+", linux)
    for system, cell in (("macos", macos), ("windows", windows)):
        tested = re.findall(rf'os: {system}-latest, python: "(.*?)"', wheel)
        assert tested == re.findall(r"3\.\d+", cell), system
    assert "tools/check_wheel.py" in wheel
    assert "tools/check_wheel.py" in page


def test_the_wheel_is_checked_before_a_release() -> None:
    (heavy,) = re.findall(r"^test-heavy:.*?\n\n", (ROOT / "Makefile").read_text(), flags=re.MULTILINE | re.DOTALL)
    assert "tools/check_wheel.py" in heavy
