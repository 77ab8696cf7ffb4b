"""The examples run without changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize(
    "name", ["pytorch_short", "pytorch_digits", "lightning_digits", "transformers_digits", "keras_digits"]
)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, EXAMPLES / f"{name}.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert "loss 0." in done.stdout
    assert "resuming" not in done.stderr
