"""Processes that training code starts end with it: at the budget limit, at a close, when the worker or the runner dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from runner_bench import DEADLINE_S, Bench, fresh_ledger, wait_until_gone
from training_code import starts_a_child

from shoestring.core.space.space import Space
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.command.command_runner import CommandRunner
from shoestring.runners.command.command_state import started_at
from shoestring.runners.process import guard
from shoestring.runners.process.process_group import GroupGuard, ProcessGroup, end_groups
from shoestring.runners.process.process_runner import ProcessRunner

SPACE = Space({"x": {"float": [0.0, 1.0]}})
SLEEPS, EXITS, IS_KILLED, RESTS, NEVER_LETS_GO = 0.0, 0.25, 0.5, 0.75, 1.0


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOESTRING_TEST_FOLDER", str(tmp_path))
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)  # worker processes would import pytest


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[[float], Bench]]:
    made: list[ProcessRunner] = []

    def make(x: float) -> Bench:
        made.append(ProcessRunner(starts_a_child, Checkpoints(tmp_path / "root")))
        return Bench(made[-1], fresh_ledger(SPACE), {"x": x})

    yield make
    for runner in made:
        runner.close()


def children(folder: Path, name: str = "child", count: int = 1) -> list[int]:
    """Return the process numbers in file names, as soon as there are so many."""
    deadline = time.monotonic() + DEADLINE_S
    while len(found := [int(path.name.rpartition("-")[2]) for path in folder.glob(f"{name}-*")]) < count:
        assert time.monotonic() < deadline, f"no {name} was started"
        time.sleep(0.01)
    return found


def test_children_end_at_the_budget_limit(bench: Callable[[float], Bench], tmp_path: Path) -> None:
    it = bench(SLEEPS)
    it.submit(2)
    it.wait(lambda: it.ledger.trials[0].steps == 1)
    (child,) = children(tmp_path)
    assert started_at(child)
    it.take(it.runner.interrupt("the budget is spent"))
    wait_until_gone(child)


@pytest.mark.parametrize("x", [SLEEPS, RESTS])
def test_closing_ends_children(bench: Callable[[float], Bench], tmp_path: Path, x: float) -> None:
    it = bench(x)
    it.submit(2 if x == SLEEPS else 1)
    it.wait(lambda: it.ledger.trials[0].steps == 1)
    (child,) = children(tmp_path)
    assert started_at(child)
    it.runner.close()
    wait_until_gone(child)


@pytest.mark.parametrize("x", [EXITS, IS_KILLED])
def test_children_end_with_a_worker_that_dies(bench: Callable[[float], Bench], tmp_path: Path, x: float) -> None:
    it = bench(x)
    it.train(2)
    for child in children(tmp_path, count=3):
        wait_until_gone(child)


def test_children_end_with_a_paused_worker_that_is_killed(bench: Callable[[float], Bench], tmp_path: Path) -> None:
    it = bench(RESTS)
    it.train(1)
    (child,) = children(tmp_path)
    os.kill(children(tmp_path, "worker")[0], signal.SIGKILL)
    deadline = time.monotonic() + DEADLINE_S
    while started_at(child):
        it.take(it.runner.wait(it.runner.now() + 0.05))
        assert time.monotonic() < deadline, "the child is still running"


@pytest.mark.parametrize("x", [SLEEPS, NEVER_LETS_GO])
def test_children_end_when_the_runner_is_killed(tmp_path: Path, x: float) -> None:
    script = f"""
        import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_children import *
        runner = ProcessRunner(starts_a_child, Checkpoints(Path({str(tmp_path / "root")!r})))
        it = Bench(runner, fresh_ledger(SPACE), {{"x": {x}}})
        it.submit(2)
        while True: it.take(it.runner.wait(it.runner.now() + 1.0))
    """
    lines = [line.removeprefix("        ") for line in script.splitlines()]
    parent = subprocess.Popen([sys.executable, "-c", "\n".join(lines)])
    (child,), (worker,) = children(tmp_path), children(tmp_path, "worker")
    parent.kill()
    parent.wait()
    wait_until_gone(child)
    wait_until_gone(worker)


# commands ------------------------------------------------------------------------------------------------------------


def command(folder: Path, last_words: str) -> list[str]:
    return [
        "sh",
        "-c",
        f"timeout 300 sleep 300 & touch {folder}/child-$!; touch {folder}/worker-$$; echo 1; {last_words}",
    ]


@pytest.mark.parametrize("last_words", ["exit 3", "kill -9 $$", "exit 0"])
def test_children_end_with_a_command_however_it_ends(tmp_path: Path, last_words: str) -> None:
    runner = CommandRunner(command(tmp_path, last_words), SPACE, tmp_path / "root")
    Bench(runner, fresh_ledger(SPACE), {"x": 0.5}).train(2)
    for child in children(tmp_path):
        wait_until_gone(child)
    runner.close()


def test_a_command_ends_when_the_runner_is_killed(tmp_path: Path) -> None:
    script = f"""
        import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_children import *
        runner = CommandRunner(command(Path({str(tmp_path)!r}), "sleep 300"), SPACE, Path({str(tmp_path / "root")!r}))
        it = Bench(runner, fresh_ledger(SPACE), {{"x": 0.5}})
        it.submit(2)
        while True: it.take(it.runner.wait(it.runner.now() + 1.0))
    """
    lines = [line.removeprefix("        ") for line in script.splitlines()]
    parent = subprocess.Popen([sys.executable, "-c", "\n".join(lines)])
    (child,), (worker,) = children(tmp_path), children(tmp_path, "worker")
    deadline = time.monotonic() + DEADLINE_S
    while not (
        tmp_path / "root" / "trial-0000" / "stdout.txt"
    ).exists():  # its output was read, so the watch knows it too
        assert time.monotonic() < deadline
        time.sleep(0.01)
    parent.kill()
    parent.wait()
    wait_until_gone(child)
    wait_until_gone(worker)


def test_a_child_in_a_session_of_its_own_ends_while_its_parent_lives(tmp_path: Path) -> None:
    script = f"setsid sleep 300 & touch {tmp_path}/child-$!; echo 1; sleep 300"
    runner = CommandRunner(["sh", "-c", script], SPACE, tmp_path / "root")
    it = Bench(runner, fresh_ledger(SPACE), {"x": 0.5})
    it.submit(2)
    (child,) = children(tmp_path)
    deadline = time.monotonic() + DEADLINE_S
    while os.getsid(child) != child:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    it.take(runner.interrupt("the budget is spent"))
    wait_until_gone(child)
    runner.close()


# groups --------------------------------------------------------------------------------------------------------------


def start(script: str) -> tuple[subprocess.Popen[bytes], ProcessGroup]:
    process = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    return process, ProcessGroup(process.pid, process.poll)


def until_group_is_gone(pid: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.killpg(pid, 0)
            assert time.monotonic() < deadline, f"the group {pid} is still running"
            time.sleep(0.01)


@pytest.fixture(params=["with waitid", "without"])
def _any_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without":  # macOS before Python 3.13
        monkeypatch.delattr(os, "waitid")


@pytest.mark.usefixtures("_any_system")
@pytest.mark.parametrize("last_words", ["exit 0", "exec sleep 300", "trap '' TERM; sleep 300; sleep 300"])
def test_a_group_ends_as_a_whole(tmp_path: Path, last_words: str) -> None:
    process, group = start(
        f"(trap '' TERM; touch {tmp_path}/child-$$; exec sleep 300) & touch {tmp_path}/up; {last_words}"
    )
    while not (tmp_path / "up").exists():
        time.sleep(0.01)
    end_groups([group], grace_s=0.1)
    assert group.has_exited()
    assert process.returncode is not None
    until_group_is_gone(process.pid)
    end_groups([group], grace_s=0.1)  # a second call does nothing


def test_a_group_whose_number_belongs_to_another_process_is_not_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    other = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        monkeypatch.delattr(os, "waitid")
        group = ProcessGroup(other.pid, lambda: 0)  # our process ended, and another process got its number
        assert group.has_exited()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_the_guard_ends_added_groups_and_not_removed_ones(tmp_path: Path) -> None:
    watched, watched_group = start("exec sleep 300")
    unwatched, unwatched_group = start("exec sleep 300")
    watch = GroupGuard()
    try:
        watch.add(watched_group)
        watch.add(unwatched_group)
        watch.forget(unwatched_group)
        watch.close()  # the watch sees the same when the runner dies
        assert watched.wait(DEADLINE_S) == -signal.SIGKILL
        assert unwatched.poll() is None
    finally:
        end_groups([watched_group, unwatched_group], 0.1)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs the environment of other processes")
def test_the_guard_ends_a_process_that_was_about_to_be_added(tmp_path: Path) -> None:
    text = f"SHOESTRING_REPORT={tmp_path}/reports"
    watch = GroupGuard()
    watch.expect(text)
    process = subprocess.Popen(
        ["sleep", "300"],
        start_new_session=True,
        env=os.environ | dict([text.split("=")]),  # and then the runner is killed
    )
    watch.close()
    assert process.wait(DEADLINE_S) == -signal.SIGKILL


def test_a_process_is_known_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_HAS_PROC", False)  # as on macOS
    process = subprocess.Popen(["sleep", "300"], start_new_session=True)
    assert started_at(process.pid) == started_at(process.pid) != ""
    assert list(guard.find_tree([process.pid])) == [process.pid]
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert started_at(process.pid) == ""  # a zombie
    process.wait()
    assert started_at(process.pid) == ""
