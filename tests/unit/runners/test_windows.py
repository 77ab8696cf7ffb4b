"""Where there are no process groups the local runner works, and the others say in one line that they do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from training_code import Counter

from shoestring.core.space.space import Space
from shoestring.errors import RunnerError
from shoestring.runners.checkpoints import checkpoint_store as storage
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.command.command_runner import CommandRunner
from shoestring.runners.process import process_group as groups
from shoestring.runners.process.process_runner import ProcessRunner

SPACE = Space({"x": {"float": [0.0, 1.0]}})

WITHOUT = """
import os, signal, sys
for name in ("setsid", "killpg", "waitid", "fork", "getpgid", "getsid", "kill"):
    delattr(os, name)
for name in ("SIGKILL", "pthread_sigmask", "SIG_BLOCK", "SIG_UNBLOCK", "SIG_SETMASK"):
    delattr(signal, name)
sys.modules["fcntl"] = sys.modules["resource"] = sys.modules["termios"] = None
import shoestring
from shoestring.runners import make
from shoestring.runners.command import command_runner as command
from shoestring.runners.process import process_group as groups
from shoestring.runners.local import local_runner as local
from shoestring.runners.process import process_runner as process
from shoestring.runners.simulated import simulated_runner as simulated
from shoestring.runners.process import worker
groups.IS_WINDOWS = True
def train(config):
    yield from (config["x"], config["x"] / 2)
study = shoestring.tune(train, {"x": {"float": [0.0, 1.0]}}, "6 epochs", max_steps=2, seed=1)
print(study.spent)
try:
    shoestring.tune(train, {"x": {"float": [0.0, 1.0]}}, "6 epochs", max_steps=2, workers=2)
except shoestring.errors.RunnerError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda folder: ProcessRunner(Counter, Checkpoints(folder)), "process"),
        (lambda folder: CommandRunner(["true"], SPACE, folder), "command"),
    ],
)
def test_other_runners_are_errors_of_one_line(
    make: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "IS_WINDOWS", True)
    with pytest.raises(RunnerError) as caught:
        make(tmp_path)
    assert str(caught.value) == (
        f"the {name} runner does not work on Windows: use the local runner with one worker, or WSL"
    )


def test_the_local_runner_works_without_process_groups(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
    )
    told = ("the study is stored in ", "to open or continue this study later: ")  # the study has no store of its own
    assert [line for line in done.stderr.splitlines() if not line.startswith(told)] == []
    assert done.stdout.splitlines()[0] == "6.0"
    for name in ("process", "Windows"):
        assert name in done.stdout.splitlines()[1]


def test_checkpoints_are_flushed_through_a_writable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "IS_WINDOWS", True)
    modes: list[bool] = []
    monkeypatch.setattr(storage.os, "fsync", lambda number: modes.append(_is_writable(number)))  # type: ignore[attr-defined]
    Checkpoints(tmp_path).save(0, 1, lambda path: path.write_text("x"))
    assert modes == [True]


def _is_writable(number: int) -> bool:
    import fcntl
    import os

    return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
