"""Policies and models choose among scores only with `core/deciding/reproducible.py`, so that every machine chooses the same.

The test reads the syntax trees. Some calls that it finds would not choose among scores; there are other functions for
them: `first_true` and `invert` in `core/values/arrays.py`, and `exact=True` for losses, which are data.
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
    """Yield line and name of each call that chooses without these functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            name = (
                called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
            )
            by_key = name in WITH_KEY and any(keyword.arg == "key" for keyword in node.keywords)
            if name in INDICES or name in LARGEST or by_key:
                yield node.lineno, name


def test_policies_and_models_use_the_shared_functions() -> None:
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
def test_a_choice_is_found(code: str) -> None:
    assert list(find_choices(ast.parse(code)))


def test_other_calls_are_not_found() -> None:
    code = "max(a, b); sorted(names); np.sort(x); scores.max(); find_best(scores, 'highest')"
    assert not list(find_choices(ast.parse(code)))
