"""Print how much code a reader must open to understand a policy: its files and lines in `policies` and `models`.

    python tools/reading.py [NAME…] [--json]

A file in `policies` or `models` counts if the registered class needs it, directly or through other files. An import counts
wherever it is in the file, and so do modules that are named by a string: `import_module("…")`, and `make("…")` or
`find_class("…")` with the name of a registered policy. `core` is the language of all policies, read once, and does not count.
`__init__` files of methods hold no logic and do not count either.

A file is foreign if it belongs to the folder of another method. A method that needs another method by design is listed in
`BUILDS_ON`. Code that several methods share is directly in `policies` or `models`, or in `models/gp`.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import shoestring
from shoestring import policies

ROOT = Path(shoestring.__file__).parent
SHARED_FOLDERS = {"gp"}  # folders of `models` that belong to every method
BUILDS_ON = {
    "halving": {
        "cost_aware"
    },  # the guide predicts prices; `guided_halving` decides as `cost_aware_ei` on trials of one step
}


@dataclass(frozen=True)
class Reading:
    """The files that the reader of one policy opens."""

    policy: str
    files: dict[str, int]  # path below the package -> lines
    foreign: list[str]

    @property
    def lines(self) -> int:
        return sum(self.files.values())


def measure(policy: str) -> Reading:
    """Return the files to read for a policy: follow the imports from the module of its registered class."""
    start = find_file(policies.REGISTRY[policy].partition(":")[0])
    assert start is not None
    found, to_do = {start}, [start]
    while to_do:
        new = set(list_imported_files(to_do.pop())) - found
        found |= new
        to_do += new
    files = {str(path.relative_to(ROOT)): path for path in sorted(found) if path.name != "__init__.py"}
    own = start.relative_to(ROOT).parts[1]
    allowed = {None, own, *BUILDS_ON.get(own, ())}
    foreign = [name for name in files if method_of(name) not in allowed]
    return Reading(policy, {name: len(path.read_text("utf-8").splitlines()) for name, path in files.items()}, foreign)


def method_of(name: str) -> str | None:
    """Return the folder of the method that a file belongs to; None for shared files."""
    parts = Path(name).parts
    return parts[1] if len(parts) > 2 and parts[1] not in SHARED_FOLDERS else None


@cache
def list_imported_files(path: Path) -> list[Path]:
    """Return the files of `policies` and `models` that a file imports, anywhere in its code."""
    files = (find_file(name) for name in list_imported_modules(ast.parse(path.read_text("utf-8"))))
    return [file for file in files if file is not None and file.relative_to(ROOT).parts[0] in ("policies", "models")]


def list_imported_modules(tree: ast.Module) -> Iterator[str]:
    strings = _constant_strings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            # `from folder import x` may mean a file of that folder or a name in its __init__
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if find_file(name) else node.module for name in names)
        elif isinstance(node, ast.Call):
            yield from _modules_named_by_string(node, strings)


def _constant_strings(tree: ast.Module) -> dict[str, str]:
    """Return the names at module level that are assigned a string."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _modules_named_by_string(call: ast.Call, strings: dict[str, str]) -> Iterator[str]:
    """Yield the module of `import_module("…")`, and that of the policy in `make("…")` and `find_class("…")`."""
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    argument = call.args[0] if call.args else None
    text = argument.value if isinstance(argument, ast.Constant) else strings.get(getattr(argument, "id", ""))
    if function == "import_module" and isinstance(text, str):
        yield text
    elif function in ("make", "find_class") and text in policies.REGISTRY:
        yield policies.REGISTRY[str(text)].partition(":")[0]


def find_file(module: str) -> Path | None:
    """Return the file of a module of this package; None for every other module."""
    package, *parts = module.split(".")
    place = ROOT.joinpath(*parts)
    candidates = (place.with_suffix(".py"), place / "__init__.py") if package == ROOT.name and parts else ()
    return next((path for path in candidates if path.is_file()), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="policies, each with its files (default: all)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(policies.REGISTRY):
        parser.error(f"unknown: {', '.join(sorted(unknown))}. Known: {', '.join(sorted(policies.REGISTRY))}")
    readings = [measure(name) for name in arguments.names or sorted(policies.REGISTRY)]
    if arguments.json:
        print(json.dumps([{**asdict(reading), "lines": reading.lines} for reading in readings], indent=2))
        return
    for reading in readings:
        remarks = "; ".join(f"foreign: {name}" for name in reading.foreign)
        print(f"{reading.policy:20}{len(reading.files):3} files{reading.lines:6} lines  {remarks}".rstrip())
        for name, lines in reading.files.items() if arguments.names else ():
            print(f"    {lines:5}  {name}")


if __name__ == "__main__":
    main()
