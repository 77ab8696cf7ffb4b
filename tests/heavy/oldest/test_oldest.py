"""The golden numbers and traces with the lowest NumPy and SciPy that pyproject.toml allows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import scipy

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("package", [numpy, scipy])
def test_these_are_the_lowest_versions_allowed(package: object) -> None:
    name, version = getattr(package, "__name__"), getattr(package, "__version__")  # noqa: B009
    allowed = re.search(rf'"{name}>=([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert allowed is not None
    assert version.startswith(allowed[1] + ".")


def test_golden_numbers_and_traces_are_the_same() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/golden"]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
