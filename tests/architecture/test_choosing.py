"""No policy and no model chooses among scores by itself: `core/deciding/reproducible.py` does, so that every machine chooses the same.

The test reads the syntax trees. What it finds is not always a choice among scores, but there is a function for everything
else that looks like one: `first_true` and `invert` in `core/values/arrays.py`, and `exact=True` for losses, which are data.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "shoestring"
FOLDERS = ("policies", "models", "study")
INDICES = {"argmax", "argmin", "nanargmax", "nanargmin", "argsort", "lexsort", "argpartition"}
WITH_KEY = {"max", "min", "sorted", "sort"}
LARGEST = {"nlargest", "nsmallest"}


def find_choices(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each call that chooses by itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            name = (
                called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
            )
            by_key = name in WITH_KEY and any(keyword.arg == "key" for keyword in node.keywords)
            if name in INDICES or name in LARGEST or by_key:
                yield node.lineno, name


def test_no_policy_and_no_model_chooses_by_itself() -> None:
    files = [path for folder in FOLDERS for path in sorted((SOURCE / folder).rglob("*.py"))]
    assert len(files) > 100
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path in files
        for line, name in find_choices(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, "choose by core/deciding/reproducible.py:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "np.argmax(scores)",
        "scores.argmin(axis=1)",
        "np.lexsort((a, b))",
        "np.argsort(-scores, kind='stable')[:5]",
        "max(draws, key=lambda draw: score(draw))",
        "sorted(arms, key=loss.__getitem__)",
        "arms.sort(key=loss)",
        "heapq.nsmallest(3, losses)",
    ],
)
def test_a_choice_is_seen(code: str) -> None:
    assert list(find_choices(ast.parse(code)))


def test_what_is_no_choice_is_left_alone() -> None:
    code = "max(a, b); sorted(names); np.sort(x); scores.max(); find_best(scores, 'highest')"
    assert not list(find_choices(ast.parse(code)))
