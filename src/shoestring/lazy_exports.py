"""Packages whose public names are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def import_on_first_use(
    package: str, exports: Mapping[str, Sequence[str]], check: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package; `exports` has the public names of each of its modules.

    `check` is called with a name before its module is imported, and raises an error if an optional package is missing.
    """
    module_of = {name: module for module, names in exports.items() for name in names}

    def import_name(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if check is not None:
            check(name)
        value = getattr(import_module(f"{package}.{module_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return import_name
