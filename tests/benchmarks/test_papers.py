"""The overview of the five papers names files that exist, and leaves out no table, figure, algorithm or policy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoestring import policies

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "benchmarks" / "papers.md"
PAPERS = {  # heading: what the paper has. Of BO-BOS we have only the appendix; Figures 1 to 4 are in the main text.
    "Cost-efficient online tuning": (["1"], ["1", "A1", "A2", "A3", "A4", "A5", "A6"], ["1", "A1", "A2", "A3"]),
    "Budgeted tuning": (["1"], ["1", "2", "3", "4", "5"], ["1", "2", "3"]),
    "Optimal stopping": (["1", "2"], [str(n) for n in range(1, 14)], []),
    "Iterative learning": (["1"], [str(n) for n in range(1, 16)], ["1", "2", "3", "4", "5"]),
    "Cost-aware acquisition": ([], [str(n) for n in range(1, 10)], []),
}


def read_rows(paper: str) -> list[list[str]]:
    section = PAGE.read_text("utf-8").partition(f"## {paper}")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| item")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def find_path(name: str, in_code: bool) -> Path:
    if name.startswith(("tests/", "docs/")):
        return ROOT / name
    below_code = ROOT / "src" / "shoestring" / name
    return below_code if in_code and below_code.exists() else ROOT / "benchmarks" / name


def list_numbers(kind: str, items: list[str]) -> set[str]:
    """Return the numbers of the tables, figures or algorithms that these items name; "Figures 7 and 8", "1 to 4" are several."""
    found: set[str] = set()
    for item in items:
        for words in re.findall(rf"{kind}s? ([A-Z]?\d+(?:(?:, | and | to )[A-Z]?\d+)*)", item):
            first, _, last = words.partition(" to ")
            found |= (
                {str(n) for n in range(int(first), int(last) + 1)} if last else set(re.findall(r"[A-Z]?\d+", words))
            )
    return found


@pytest.mark.parametrize("paper", PAPERS)
def test_the_files_of_each_row_exist(paper: str) -> None:
    rows = read_rows(paper)
    assert len(rows) > 15
    for item, where, form, verdict, file in rows:
        for path in re.findall(r"`([\w./-]+\.\w+)`", where):
            assert find_path(path, in_code=True).is_file(), f"{item}: {path}"
        for path in re.findall(r"`([\w./-]+\.\w+)`", file):
            assert find_path(path, in_code=False).is_file(), f"{item}: {path}"
        assert form in ("–", "default", "printed", "both"), item
        assert verdict, item
        assert file != "–" or verdict.startswith(("not done", "no claim")), f"{item} has a verdict without a file"


@pytest.mark.parametrize("paper", PAPERS)
def test_every_algorithm_figure_and_table_has_a_row(paper: str) -> None:
    items = [row[0] for row in read_rows(paper)]
    for kind, numbers in zip(("Algorithm", "Figure", "Table"), PAPERS[paper], strict=True):
        assert list_numbers(kind, items) == set(numbers), kind


def test_what_is_not_done_has_a_reason() -> None:
    undone = [row[3] for paper in PAPERS for row in read_rows(paper) if "not done" in row[3]]
    assert undone
    assert all(re.search(r"not done: \w.{15}", verdict) for verdict in undone)


def test_every_policy_of_the_papers_is_named() -> None:
    """By its file: the methods, and the baselines that the papers compare with."""
    where = " ".join(row[1] for paper in PAPERS for row in read_rows(paper))
    general = {
        "successive_halving",
        "top_k_after_one",
        "replay_fixed",
        "grid",
        "random_search",
    }  # baselines of no paper, or of all
    methods = {*policies.FROM_THE_PAPERS, *policies.BASELINES, "cost_aware_ei", "ce_gp_ucb"} - general
    for name in sorted(methods):
        module = policies.REGISTRY[name].partition(":")[0]
        assert module.removeprefix("shoestring.").replace(".", "/") + ".py" in where, name
