"""Every attack in the table of SECURITY.md names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAD = "| attack | what happens | test |"


def read_rows() -> list[list[str]]:
    lines = (ROOT / "SECURITY.md").read_text(encoding="utf-8").splitlines()
    first = lines.index(HEAD) + 2
    last = next(number for number in range(first, len(lines)) if not lines[number].startswith("|"))
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[first:last]]


@pytest.mark.parametrize("row", read_rows(), ids=lambda row: row[0])
def test_the_test_of_an_attack_exists(row: list[str]) -> None:
    attack, outcome, test = row
    assert attack
    assert outcome
    named = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", test)
    assert named, f"{test} does not name a test"
    tree = ast.parse((ROOT / named[1]).read_text(encoding="utf-8"))
    assert named[2] in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_no_test_is_named_twice() -> None:
    named = [row[2] for row in read_rows()]
    assert len(named) == len(set(named)) >= 20
