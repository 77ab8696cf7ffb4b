"""The benchmark of serving prints the measurements of both cases; the speed of the test machine is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.benchmark_run
@pytest.mark.slow
def test_the_last_line_of_the_serve_benchmark_is_json() -> None:
    arguments = ["-m", "benchmarks", "serve", "--workers", "3", "--direct-workers", "2", "--seconds", "1"]
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert {"name", "measured", "target", "peers", "ok"} <= set(result)
    assert result["measured"]["processes"] == 3
    assert result["measured"]["orders_per_s"] > 0
    assert result["peers"]["database"]["processes"] == 2
    assert done.returncode == (0 if result["ok"] else 1), done.stderr
