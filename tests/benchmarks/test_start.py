"""The benchmark of the start prints its measurements; the speed of the test machine is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.benchmark_run
@pytest.mark.slow
def test_the_last_line_of_the_start_benchmark_is_json() -> None:
    arguments = ["-m", "benchmarks", "start", "--repeats", "1", "--workers", "2"]
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert {"name", "measured", "target", "peers", "ok"} <= set(result)
    assert set(result["added_s"]) == {"tune, 2", "command line, 2"}
    assert result["measured"] > 0
    assert done.returncode == (0 if result["ok"] else 1), done.stderr
