"""A space of ten thousand parameters: a study is run, inspected and reported in a few hundred megabytes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

PARAMETERS = 10_000
MAX_MEMORY = 300e6
TRAINING = """
def train(config):
    loss = sum(map(float, config.values()))
    while True:
        loss *= 0.9
        yield loss
"""
BEGIN = """
import atexit, os, re, sys
from shoestring.cli.main import main
os.chdir(sys.argv[1])
def write_memory():
    with open("/proc/self/status") as status, open("memory", "w") as file:
        file.write(re.search(r"VmHWM:\\s+(\\d+)", status.read())[1])
if sys.platform == "linux":
    atexit.register(write_memory)
main(sys.argv[2:])
"""
KINDS = {
    "floats": "p{0} = {{ float = [0.0, 1.0] }}\n",
    "integers": "p{0} = {{ int = [1, 9] }}\n",
}


def measure_command(folder: Path, *words: str) -> tuple[int, float]:
    """Run the command in a process of its own; return its exit code and the most memory that it used, in bytes."""
    output = (os.POSIX_SPAWN_OPEN, 1, folder / "out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    pid = os.posix_spawn(
        sys.executable, [sys.executable, "-c", BEGIN, str(folder), *words], os.environ, file_actions=[output]
    )
    _, status, usage = os.wait4(pid, 0)
    memory = float(usage.ru_maxrss)
    if sys.platform == "linux":  # where `ru_maxrss` may be that of the process that started this one
        memory = 1024 * float((folder / "memory").read_text())
    return os.waitstatus_to_exitcode(status), memory


@pytest.mark.parametrize("kind", list(KINDS))
def test_ten_thousand_parameters_need_little_memory(tmp_path: Path, kind: str) -> None:
    (tmp_path / "job.py").write_text(TRAINING)
    (tmp_path / "space.toml").write_text("".join(KINDS[kind].format(i) for i in range(PARAMETERS)))
    run = [
        "run",
        "job.py:train",
        "--space",
        "space.toml",
        "--max-steps",
        "8",
        "--seed",
        "1",
        "--quiet",
        "--runner",
        "local",
    ]
    for words in ([*run, "--budget", "40 epochs"], ["status", "--json"], ["report", "-o", "report.html"]):
        code, memory = measure_command(tmp_path, *words)
        assert code == 0, (tmp_path / "out").read_text()[-2000:]
        assert memory < MAX_MEMORY, words
    assert (tmp_path / "report.html").stat().st_size > 10_000
