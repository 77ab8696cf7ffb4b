"""One class name has one meaning in the whole package, private ones included."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import shoestring

ROOT = Path(shoestring.__file__).parent


def test_every_class_name_is_used_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
