"""The benchmark of serving runs and says what both ways measured; how quick this machine is today is not a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.benchmark_run
@pytest.mark.slow
def test_its_last_line_is_json() -> None:
    words = ["-m", "benchmarks", "serve", "--clients", "3", "--askers", "2", "--seconds", "1"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert {"name", "measured", "target", "peers", "ok"} <= set(told)
    assert told["measured"]["processes"] == 3
    assert told["measured"]["orders_per_s"] > 0
    assert told["peers"]["database"]["processes"] == 2
    assert done.returncode == (0 if told["ok"] else 1), done.stderr
