"""Scripts of a benchmark as modules, for the test modules beside this one; each names its folder: FOLDER."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest


class Scripts:
    """Modules of the folder by name; `scripts.real` is real.py."""

    def __getattr__(self, name: str) -> ModuleType:
        return importlib.import_module(name)


@pytest.fixture
def scripts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Other folders have scripts of the same names, so none of these stays loaded."""
    folder = request.module.FOLDER
    names = [path.stem for path in folder.glob("*.py")]
    monkeypatch.syspath_prepend(folder)
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield Scripts()
    for name in names:
        sys.modules.pop(name, None)
