"""The benchmark of starting runs and says what it measured; how quick this machine is today is not a test."""

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
    words = ["-m", "benchmarks", "start", "--repeats", "1", "--workers", "2"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    told = json.loads(done.stdout.splitlines()[-1])
    assert {"name", "measured", "target", "peers", "ok"} <= set(told)
    assert set(told["added_s"]) == {"tune, 2", "command line, 2"}
    assert told["measured"] > 0
    assert done.returncode == (0 if told["ok"] else 1), done.stderr
