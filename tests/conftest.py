"""Options and fixtures shared by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-dir",
        type=Path,
        default=Path(__file__).parent / "golden" / "data",
        help="folder with golden JSON files (default: the copies kept in the repository)",
    )
    parser.addoption("--update-golden", action="store_true", help="record the golden decision traces anew")
