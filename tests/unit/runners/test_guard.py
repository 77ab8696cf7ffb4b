"""The guard ends steps at the cutoff, and bounds what they print, while the process that runs the study does nothing."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from runner_bench import DEADLINE_S, Bench, fresh_ledger, pid_in, receipts, wait_until_gone
from training_code import floods, sleeping

from shoestring import tune
from shoestring.core.ledger.entries import Receipt
from shoestring.core.space.space import Space
from shoestring.errors import WorkersDied
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.command.command_line import Output
from shoestring.runners.command.command_runner import CommandRunner
from shoestring.runners.command.command_state import started_at
from shoestring.runners.process.process_runner import ProcessRunner
from shoestring.runners.process.worker_child import carry_out
from shoestring.runners.runner import CUTOFF_DELAY_S
from shoestring.runners.training.code import LiveTrial
from shoestring.study.study import Study

SPACE = Space({"x": {"float": [0.0, 1.0]}})
MAX_LOG_BYTES = 1_000_000
SLEEPS = ["sh", "-c", "echo $$ > pid; echo 1; exec sleep 300"]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOESTRING_TEST_FOLDER", str(tmp_path))
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)  # worker processes would import pytest
    monkeypatch.setattr("shoestring.runners.checkpoints.trial_logs.MAX_BYTES", MAX_LOG_BYTES)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[[Any], Bench]]:
    made: list[Any] = []

    def make(train: Any) -> Bench:
        root = tmp_path / "root"
        runner = (
            CommandRunner(train, SPACE, root) if isinstance(train, list) else ProcessRunner(train, Checkpoints(root))
        )
        made.append(runner)
        return Bench(runner, fresh_ledger(SPACE), {"x": 0.5})

    yield make
    for runner in made:
        runner.close()


def wait_for(what: Callable[[], bool], text: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline, text
        time.sleep(0.01)


# the cutoff ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("train", [sleeping, SLEEPS], ids=["process", "command"])
def test_steps_end_at_the_cutoff_without_the_loop(bench: Callable[[Any], Bench], train: Any, tmp_path: Path) -> None:
    it = bench(train)
    it.submit(2)
    began = it.runner.running()[0]
    worker = pid_in(tmp_path / "pid")
    cutoff = it.runner.now() + 0.2
    it.runner.set_cutoff(cutoff, "the budget is spent")
    wait_until_gone(worker)  # and nobody calls the runner
    time.sleep(0.3)
    late = it.runner.now()
    receipt = receipts(it.wait())[-1]
    assert (receipt.status, receipt.text) == ("interrupted", "the budget is spent")
    charged_s = sum(one.cost.total for one in receipts(list(it.ledger.entries())))
    assert cutoff - began <= charged_s < late - began, "up to the moment at which the guard ended it"


def test_a_later_cutoff_replaces_an_earlier_one(bench: Callable[[Any], Bench], tmp_path: Path) -> None:
    it = bench(SLEEPS)
    it.submit(2)
    worker = pid_in(tmp_path / "pid")
    it.runner.set_cutoff(it.runner.now() + 0.5, "")
    it.runner.set_cutoff(it.runner.now() + 1000.0, "")
    time.sleep(1.0)
    assert started_at(worker)


def test_a_paused_trial_has_no_cutoff(bench: Callable[[Any], Bench]) -> None:
    it = bench(sleeping)
    it.runner.set_cutoff(it.runner.now(), "")
    time.sleep(3 * CUTOFF_DELAY_S)
    it.runner.set_cutoff(it.runner.now() + 1000.0, "")
    assert all(spare.alive for spare in it.runner._spares.spares)


TRAINER = """
import os, time

def is_first():
    try:
        return bool(os.open("first", os.O_CREAT | os.O_EXCL) >= 0)
    except FileExistsError:
        return False


def train(config):
    yield 1.0
    is_endless = is_first()  # its second step has no end; the other worker has quick steps
    with open("pids", "a") as pids:
        pids.write(f"{os.getpid()}\\n")
    with open("journal", "a", buffering=1) as journal:
        while True:
            last = time.monotonic()
            for piece in range(10):
                time.sleep(0.005)
                now = time.monotonic()
                journal.write(f"{now - last}\\n")
                last = now
            if not is_endless:
                yield 1.0
"""


def trained_s(folder: Path) -> float:
    return sum(float(line) for line in (folder / "journal").read_text().split("\n")[:-1])


def workers(folder: Path) -> list[int]:
    pids = folder / "pids"
    return [int(line) for line in pids.read_text().split()] if pids.exists() else []


def test_the_cutoff_holds_while_the_store_is_locked_and_waiting_is_not_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program locks the file as soon as both workers train, and keeps it until both have ended, for 10 s at most.

    The loop waits for the file with the next quick step, while the other worker goes on with its endless one.
    """
    (tmp_path / "endless.py").write_text(TRAINER)
    monkeypatch.syspath_prepend(tmp_path)
    import endless  # type: ignore[import-not-found]

    study = Study.begin(
        SPACE, "3s", store=f"sqlite:///{tmp_path}/s.db", max_steps=999, policy="random_search", workers=2
    )
    locked_s: list[float] = []

    def lock() -> None:
        wait_for(lambda: len(workers(tmp_path)) == 2, "the workers train")
        other = sqlite3.connect(tmp_path / "s.db", timeout=60, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        while any(map(started_at, workers(tmp_path))) and time.monotonic() < began + 10.0:
            time.sleep(0.05)
        time.sleep(2.0)  # in which nothing is trained
        locked_s.append(time.monotonic() - began)
        other.close()

    locker = threading.Thread(target=lock)
    locker.start()
    runner = ProcessRunner(endless.train, Checkpoints(study.checkpoints), workers=2)
    study.run(runner)
    locker.join()
    assert trained_s(tmp_path) <= 3.0 + 1.0
    assert locked_s[0] >= 2.0
    assert study.spent <= 3.0 + 1.0, "waiting for the store is not charged"
    assert study.spent >= trained_s(tmp_path) - 0.5
    assert study.ledger.state.by_kind["thinking"] < 2.0


@pytest.mark.parametrize("kind", ["process", "command"])
def test_the_cutoff_holds_while_the_driver_is_stopped(tmp_path: Path, kind: str) -> None:
    (tmp_path / "endless.py").write_text(TRAINER)
    train = ["--runner", "process", "endless.py:train"]
    if kind == "command":
        train = ["--", sys.executable, "-c", "import endless; print(1, flush=True); [*endless.train(0)]"]
    words = ["run", "-p", "x={float=[0,1]}", "--budget", "2s", "--max-steps", "3", "--quiet", "--store", "s.db"]
    words += ["--policy", "random_search"]
    driver = subprocess.Popen(
        [sys.executable, "-m", "shoestring", *words, *train],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
    )
    try:
        wait_for(lambda: bool(workers(tmp_path)), "the worker trains")
        driver.send_signal(19)  # SIGSTOP
        deadline = time.monotonic() + 15.0
        while any(map(started_at, workers(tmp_path))) and time.monotonic() < deadline:
            time.sleep(0.05)
        driver.send_signal(18)  # SIGCONT
        assert driver.wait(DEADLINE_S) == 0
    finally:
        driver.kill()
        driver.wait()
    assert trained_s(tmp_path) <= 2.0 + 1.0
    ledger = Study.open(store=f"sqlite:///{tmp_path}/s.db").ledger
    last = [entry for entry in ledger.entries() if isinstance(entry, Receipt)][-1]
    assert (last.status, last.text) == ("interrupted", "the budget is spent")
    assert ledger.state.by_kind["train"] <= 2.0 + 1.0


# imports -------------------------------------------------------------------------------------------------------------

NEVER_IMPORTED = """
import multiprocessing, time
if multiprocessing.parent_process() is not None:
    time.sleep(300)

def train(config):
    yield 1.0
"""


def test_the_deadline_holds_during_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hangs.py").write_text(NEVER_IMPORTED)
    monkeypatch.syspath_prepend(tmp_path)
    import hangs  # type: ignore[import-not-found]

    study = tune(hangs.train, SPACE, "5 epochs", max_steps=2, runner="process", deadline="1s", progress=False)
    assert study.ending is not None
    assert (study.ending.reason, study.spent) == ("deadline", 0)


def test_an_import_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hangs_too.py").write_text(NEVER_IMPORTED)
    monkeypatch.syspath_prepend(tmp_path)
    import hangs_too  # type: ignore[import-not-found]

    runner = ProcessRunner(hangs_too.train, Checkpoints(tmp_path / "root"), hung_after_s=1.0)
    with pytest.raises(WorkersDied, match="--hung-after"):
        runner.start(fresh_ledger(SPACE))
    runner.close()


# floods --------------------------------------------------------------------------------------------------------------

FLOOD = "yes '{\"chatter\": 1}' | head -c 20000000"


@pytest.mark.parametrize(
    "train",
    [floods, ["sh", "-c", f"echo 1; {FLOOD} >&2; echo $$ > pid; exec sleep 300"]],
    ids=["a worker's output", "a command's errors"],
)
def test_logs_are_held_to_their_size_without_the_loop(
    bench: Callable[[Any], Bench], train: Any, tmp_path: Path
) -> None:
    it = bench(train)
    it.submit(2)
    if train is floods:
        it.wait(lambda: it.ledger.trials[0].steps == 1)
    pid_in(tmp_path / "pid")  # everything is written
    sizes = [file.stat().st_size for file in (tmp_path / "root" / "trial-0000").glob("std*.txt")]
    wait_for(
        lambda: all(f.stat().st_size <= MAX_LOG_BYTES for f in (tmp_path / "root" / "trial-0000").glob("std*.txt")),
        f"the logs have {sizes} bytes, and nobody cuts them",
    )


def test_one_look_at_the_output_of_a_command_is_bounded(tmp_path: Path) -> None:
    flood, log, reports = tmp_path / "flood", tmp_path / "stdout.txt", tmp_path / "reports"
    flood.write_bytes(b'{"chatter": 1}\n' * 300_000 + b"x" * 3_000_000 + b'\n{"value": 1.5}')
    reports.write_bytes(b"\n" * 300_000 + b'{"value": 2.5}\n')
    with flood.open("rb") as pipe:  # a pipe that is always full
        output = Output(pipe, log, reports)
        before, lines = 0, list[str]()
        while not output.is_drained or not before:
            lines += [line for line in output.lines(ended=False) if "value" in line]
            assert log.stat().st_size - before <= 1 << 17
            assert len(output._printed._rest) <= 1 << 21
            before = log.stat().st_size
        lines += output.lines(ended=True)
    assert sorted(lines) == ['{"value": 1.5}', '{"value": 2.5}'], "a line of 3 MB is no report, and hides none"


def test_a_command_that_prints_without_end_keeps_to_its_budget(tmp_path: Path) -> None:
    study = Study.begin(SPACE, "1s", max_steps=3, policy="random_search", workers=2)
    flood = "yes '{\"chatter\": 1}' | head -c 50000000"
    runner = CommandRunner(["sh", "-c", f"echo 1; {flood}; exec sleep 300"], SPACE, tmp_path / "root", workers=2)
    study.run(runner)
    assert study.spent <= 1.0 + 1.0
    logs = [file.stat().st_size for file in (tmp_path / "root").rglob("std*.txt")]
    assert max(logs) <= MAX_LOG_BYTES


def test_too_many_reports_are_a_failure(bench: Callable[[Any], Bench]) -> None:
    it = bench(["sh", "-c", f"{FLOOD} > $SHOESTRING_REPORT; exec sleep 300"])
    (receipt,) = receipts(it.train(1))
    assert (receipt.status, receipt.text.partition(":")[0]) == ("failed", "the command wrote more than 1 MB of reports")


def test_a_long_message_of_an_exception_is_shortened_in_its_process() -> None:
    def fails(config: Any) -> float:
        raise RuntimeError("x" * 10_000_000)

    answer = carry_out(LiveTrial(fails, {}, 0, None, 1), {"do": "step", "config": {}, "until": 1, "validate": True})
    assert answer["is"] == "failed"
    assert len(answer["text"]) < 10_000
