"""Imports point one way: core ← models ← policies ← reports; core ← runners, stores; all of these ← study ← cli.

`http` imports only core, and only the command line imports it. Code that decides is pure: core, models and policies
use no clock, no disk, no global randomness and no logging.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import shoestring

ROOT = Path(shoestring.__file__).parent
BELOW_STUDY = {"core", "models", "policies", "runners", "stores", "reports"}
EVERYTHING = {*BELOW_STUDY, "private_files", "policy", "study", "http", "cli", "testing", "integrations", "__version__"}
MAY_IMPORT: dict[str, set[str]] = {  # every folder may also import itself, `errors` and `lazy_exports`
    "core": set(),
    "models": {"core"},
    "policies": {"core", "models", "policy"},  # `policy` is what every author of a policy imports
    "runners": {"core", "private_files"},
    "stores": {"core", "private_files"},
    "reports": {"core", "policies", "private_files"},  # a policy formats its own numbers as text
    "http": {"core"},
    "study": {*BELOW_STUDY, "private_files"},
    "testing": {*BELOW_STUDY, "study"},
    "integrations": {*BELOW_STUDY, "study"},
    "cli": EVERYTHING,
    "errors": set(),
    "lazy_exports": set(),
    "private_files": set(),
    "policy": {"core"},
    "__init__": {*BELOW_STUDY, "study", "integrations"},  # names are loaded at first use
    "__main__": {"cli"},
}
PURE = ("core", "models", "policies")
IMPURE = {"os", "time", "random", "logging", "pathlib", "io", "tempfile", "shutil", "subprocess", "socket", "threading"}
IMPURE |= {"datetime", "secrets", "sqlite3", "sqlalchemy", "optuna", "ray", "torch", "click", "rich", "pickle"}
OPEN_CALLS = {"open", "print", "input", "exec", "eval"}


def modules(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).glob("**/*.py"))


def imported(path: Path) -> Iterator[str]:
    """Yield the names that a file imports, including late imports and those for type checkers."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def folder_of(name: str) -> str:
    """Return the folder of a name of the package: `shoestring.core.space.space.Space` and `shoestring.Space` are both in core."""
    first = name.split(".")[1]
    return shoestring._MODULE_OF.get(first, first).split(".")[0]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    home = name_of(path).split(".")[0]
    allowed = MAY_IMPORT[home] | {home, "errors", "lazy_exports"}
    ours = {folder_of(name) for name in imported(path) if name.startswith("shoestring.")}
    assert ours <= allowed, f"{home} must not import {sorted(ours - allowed)}"


@pytest.mark.parametrize("path", modules(*PURE), ids=name_of)
def test_code_that_decides_is_pure(path: Path) -> None:
    found = {name.split(".")[0] for name in imported(path)} & IMPURE
    assert not found, f"no clock, no disk, no logging here: {sorted(found)}"
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & OPEN_CALLS
    assert "np.random.seed" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", modules("core"), ids=name_of)
def test_the_core_needs_numpy_only(path: Path) -> None:
    standard = {
        "__future__",
        "ast",
        "bisect",
        "collections",
        "dataclasses",
        "decimal",
        "functools",
        "heapq",
        "itertools",
        "json",
        "math",
        "re",
    }
    standard |= {"sys", "types", "typing", "zlib"}
    assert {name.split(".")[0] for name in imported(path)} <= standard | {"numpy", "shoestring"}
