"""Optional packages: imported when they are needed, with an error of one line that says how to install a missing one."""

from __future__ import annotations

import importlib
from typing import Any

from shoestring.errors import MissingExtra


def import_optional(user: str, package: str, extra: str) -> Any:
    """Import a package that `user` needs; `extra` is its name in `pip install 'shoestring[extra]'`."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] != package.split(".")[0]:
            raise  # the package is there, but one that it needs itself is missing: its own message says more
        raise MissingExtra(user, package.split(".")[0], extra) from None
