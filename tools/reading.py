"""How much must somebody read to understand a policy? Files and lines of policies and models, policy by policy.

    python tools/reading.py [NAME…] [--json]

Counted is everything in `policies` and `models` that the registered class needs, by its imports, however far they lead;
`core` is the language that all policies are written in and is read once. `__init__` files hold no logic and do not count.

A file is foreign when it belongs to the folder of another method: whoever wants to know one method should not have to
open its rival's. What several methods share stands directly in `policies` or `models`, or in `models/gp`.
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
LONGEST = 300  # lines of a file
SHARED = {"gp"}  # folders of `models` that belong to every method


@dataclass(frozen=True)
class Reading:
    """What the reader of one policy has to open."""

    policy: str
    files: dict[str, int]  # name below the package -> lines
    foreign: list[str]

    @property
    def lines(self) -> int:
        return sum(self.files.values())

    @property
    def too_long(self) -> list[str]:
        return [name for name, lines in self.files.items() if lines > LONGEST]


def measure(policy: str) -> Reading:
    """Follow the imports from the module of the registered class."""
    start = file_of(policies.REGISTRY[policy].partition(":")[0])
    assert start is not None
    found, to_do = {start}, [start]
    while to_do:
        news = set(imported_files(to_do.pop())) - found
        found |= news
        to_do += news
    files = {str(path.relative_to(ROOT)): path for path in sorted(found) if path.name != "__init__.py"}
    method = start.relative_to(ROOT).parts[1]
    foreign = [name for name in files if method_of(name) not in (None, method)]
    return Reading(policy, {name: len(path.read_text("utf-8").splitlines()) for name, path in files.items()}, foreign)


def method_of(name: str) -> str | None:
    """The folder of a method that a file belongs to; None for what all of them share."""
    parts = Path(name).parts
    return parts[1] if len(parts) > 2 and parts[1] not in SHARED else None


@cache
def imported_files(path: Path) -> list[Path]:
    """Files of policies and models that a file imports; those that it imports late count too."""
    files = (file_of(name) for name in imported_names(ast.parse(path.read_text("utf-8"))))
    return [file for file in files if file is not None and file.relative_to(ROOT).parts[0] in ("policies", "models")]


def imported_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            # `from folder import x` may mean a file of that folder or a name in its __init__
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if file_of(name) else node.module for name in names)


def file_of(module: str) -> Path | None:
    """The file of a module of ours, None for everything else."""
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
        facts = [{**asdict(each), "lines": each.lines, "too_long": each.too_long} for each in readings]
        print(json.dumps(facts, indent=2))
        return
    for each in readings:
        remarks = [f"foreign: {name}" for name in each.foreign] + [f"too long: {name}" for name in each.too_long]
        print(f"{each.policy:20}{len(each.files):3} files{each.lines:6} lines  {'; '.join(remarks)}".rstrip())
        for name, lines in each.files.items() if arguments.names else ():
            print(f"    {lines:5}  {name}")


if __name__ == "__main__":
    main()
