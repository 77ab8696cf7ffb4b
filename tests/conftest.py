"""Options and fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Matrices here are small: more threads than one only make workers wait for each other. Before numpy is imported.
for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-dir",
        type=Path,
        default=Path(__file__).parent / "golden" / "data",
        help="folder with golden JSON files (default: the copies kept in the repository)",
    )
    parser.addoption("--update-golden", action="store_true", help="record the golden decision traces anew")
