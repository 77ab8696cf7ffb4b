"""Optional packages: brought in where they are needed, with one line that says how to get a missing one."""

from __future__ import annotations

import importlib
from typing import Any

from shoestring.errors import MissingExtra


def need(what: str, package: str, extra: str) -> Any:
    """The package, imported; `extra` is its name in `pip install 'shoestring[extra]'`."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] != package.split(".")[0]:
            raise  # it is there, but something of its own is missing: its message says more than ours
        raise MissingExtra(what, package.split(".")[0], extra) from None


def metric(name: str, known: dict[str, Any], where: str) -> float:
    """The metric of that name; one line with the known names if there is none."""
    from shoestring.errors import RunnerError, did_you_mean

    if name not in known:
        raise RunnerError(f"there is no {name!r} among what {where}. {did_you_mean(name, known)}")
    return float(known[name])
