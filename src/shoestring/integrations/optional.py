"""Optional packages: brought in where they are needed, with one line that says how to get a missing one."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
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


def metric(name: str, known: Mapping[str, Any], where: str) -> float:
    """The metric of that name; one line with the known names if there is none."""
    from shoestring.errors import RunnerError, did_you_mean

    if name not in known:
        raise RunnerError(f"there is no {name!r} among what {where}. {did_you_mean(name, known)}")
    return float(known[name])


def others(name: str, known: Mapping[str, Any]) -> dict[str, float]:
    """All other numbers that a framework has logged, to be kept beside the value; no more than a step may have."""
    from shoestring.runners.training.code import LONGEST_NAME, MOST_METRICS

    numbers = [
        word for word, value in known.items() if word != name and _is_number(value) and len(word) <= LONGEST_NAME
    ]
    return {word: float(known[word]) for word in numbers[:MOST_METRICS]}


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, RuntimeError):
        return False
    return not isinstance(value, str | bytes)
