"""Options and fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

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


# Tests don't time things: a machine that stalls while an example is drawn is no finding.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
