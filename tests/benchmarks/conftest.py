"""A fixture with the modules of one benchmark. A test module that uses it sets FOLDER, the folder of the benchmark."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest


class Scripts:
    """Modules of the folder by name; `scripts.real` is real.py."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __getattr__(self, name: str) -> ModuleType:
        return importlib.import_module(f"benchmarks.{self.folder}.{name}")


@pytest.fixture
def scripts(request: pytest.FixtureRequest) -> Scripts:
    return Scripts(request.module.FOLDER.name)
