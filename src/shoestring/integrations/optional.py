"""Import optional packages when they are needed; the error for a missing one says in one line how to install it."""

from __future__ import annotations

import importlib
from typing import Any

from shoestring.errors import MissingExtra


def import_optional(user: str, package: str, extra: str) -> Any:
    """Import and return a package that `user` needs; `extra` is its name in `pip install 'shoestring[extra]'`."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] != package.split(".")[0]:
            raise  # the package is installed, but a package that it needs is missing: this error names it
        raise MissingExtra(user, package.split(".")[0], extra) from None
