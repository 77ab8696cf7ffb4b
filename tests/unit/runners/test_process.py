"""The process runner with real processes: pausing, death, hanging, the budget limit, and closing."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from runner_bench import (
    DEADLINE_S,
    Bench,
    checks,
    fresh_ledger,
    list_workers,
    losses,
    receipts,
    summarise,
    wait_until_gone,
)
from training_code import (
    CheckedThenFailing,
    Counter,
    Dying,
    DyingOnce,
    DyingOnLoad,
    Exiting,
    Forgetful,
    NeverLoaded,
    SlowToLoad,
    SlowToSave,
    Unloadable,
    Unwritable,
    failing,
    leaves_a_child,
    one_number,
    process_number,
    sleeping,
    start_method,
    starts_a_child,
    three_steps,
    with_metrics,
)

from shoestring.core.ledger.entries import Entry, Note, StateLoss
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Space
from shoestring.errors import RunnerError
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.process.live_processes import LiveProcesses
from shoestring.runners.process.process_runner import ProcessRunner
from shoestring.runners.remote.silence_limit import SilenceLimit
from shoestring.runners.training.targets import Target
from shoestring.study.study import Study

SPACE = Space({"x": {"float": [0.0, 1.0]}})
CONFIG = {"x": 0.5}

# the bench -----------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _light_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep worker processes from importing the main script, which is pytest here."""
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[ProcessRunner] = []

    def make(train: Any, *, ledger: Ledger | None = None, **more: Any) -> Bench:
        made.append(ProcessRunner(train, Checkpoints(tmp_path / "root"), **more))
        return Bench(made[-1], ledger or fresh_ledger(SPACE), CONFIG)

    yield make
    for runner in made:
        runner.close()
    assert list_workers() == []


def numbers(entries: list[Entry]) -> list[int]:
    """Return the process numbers that `process_number` reported."""
    return [int(r.value or 0) for r in receipts(entries)]


# pausing -------------------------------------------------------------------------------------------------------------


def test_a_paused_trial_is_a_process_of_its_own(bench: Callable[..., Bench]) -> None:
    it = bench(process_number, workers=2)
    assert it.runner.can_save is None
    it.submit(2, trial=0)
    it.submit(2, trial=1)
    assert set(it.runner.running()) == {0, 1}
    it.wait()
    first, second = (set(trial.values) for trial in it.ledger.trials)
    assert len(first) == len(second) == len(first | second) - 1 == 1
    assert os.getpid() not in first | second
    assert set(numbers(it.train(4, trial=0))) == first
    assert it.runner.can_save is False


def test_trials_over_the_live_limit_are_dropped(bench: Callable[..., Bench]) -> None:
    it = bench(process_number, live=2)
    pids = [numbers(it.train(1, trial=trial))[0] for trial in range(2)]
    it.train(2, trial=0)  # now trial 1 is the least recently used
    events = it.train(1, trial=2)
    assert summarise(events)[1:] == [("lost", 0)]
    assert isinstance(events[-1], StateLoss)
    assert events[-1].trial == 1
    assert numbers(it.train(3, trial=0)) == [pids[0]]
    again = it.train(2, trial=1)
    assert [r.step for r in receipts(again)] == [1, 2]


def test_the_process_of_a_dropped_trial_is_used_again(bench: Callable[..., Bench]) -> None:
    it = bench(process_number, live=1)
    pids = {numbers(it.train(1, trial=trial))[0] for trial in range(8)}
    assert len(pids) <= 4  # imports take long: they are done once for each process, not for each trial


def test_a_trial_that_can_save_continues_from_its_checkpoint(bench: Callable[..., Bench]) -> None:
    it = bench(Counter)  # one worker: one live paused trial
    assert it.runner.can_save is True
    for trial in range(2):
        it.train(2, trial=trial)
    events = it.train(3, trial=0)
    assert summarise(events) == [(3, 3.5, "ok")]
    assert receipts(events)[0].saved_step == 3
    it.runner.close()
    again = bench(Counter, ledger=it.ledger)
    assert again.survivors == {0: 3, 1: 2}
    assert summarise(again.train(4, trial=1)) == [(3, 3.5, "ok"), (4, 4.5, "ok")]


def test_closing_saves_what_was_not_saved(bench: Callable[..., Bench], tmp_path: Path) -> None:
    it = bench(Counter)
    it.train(2)
    it.runner.checkpoints.path(0, 2).unlink()
    it.runner.close()
    assert (tmp_path / "root" / "trial-0000" / "step-000002").read_text() == "2"


def test_a_plain_function_needs_no_new_process_each_time(bench: Callable[..., Bench]) -> None:
    it = bench(one_number)
    pids = [numbers(it.train(1, trial=trial))[0] for trial in range(6)]
    assert len(set(pids)) <= 2
    assert os.getpid() not in pids


def test_training_code_starts_processes_by_the_default_method(bench: Callable[..., Bench]) -> None:
    it = bench(start_method)
    it.train(1)
    assert it.ledger.trials[0].values == [1.0]


def test_reported_values_and_costs_are_in_the_receipts(bench: Callable[..., Bench]) -> None:
    it = bench(three_steps)
    events = it.train(5)
    assert summarise(events) == [(1, 0.0, "ok"), (2, 1.0, "ok"), (3, 2.0, "ok"), ("ended", 3)]
    assert [(r.cost.train, r.cost.validate) for r in receipts(events)] == [(2.0, 3.0)] * 3


def test_metrics_are_kept_and_invalid_ones_are_failures(bench: Callable[..., Bench]) -> None:
    events = receipts(bench(with_metrics).train(2))
    assert events[0].metrics["accuracy"] == 0.9
    assert math.isnan(events[0].metrics["gap"])
    assert events[1].status == "failed"
    last = events[1].text.splitlines()[-1]
    assert last.startswith("TypeError: ")
    for name_or_value in ("'accuracy'", "'high'"):
        assert name_or_value in last


def test_the_resume_check_is_made_while_the_trial_continues(bench: Callable[..., Bench]) -> None:
    it = bench(Counter)
    events = it.train(3, check=True)
    assert summarise(events) == [(1, 1.5, "ok"), ("check", 2), (2, 2.5, "ok"), (3, 3.5, "ok")]
    note = next(entry for entry in events if isinstance(entry, Note))
    assert note.facts["same"] is True
    assert note.facts["seconds"] > 0


def test_a_copy_that_cannot_be_started_fails_the_step(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(LiveProcesses, "start_copy", refuse)
    events = bench(Counter).train(3, check=True)
    assert summarise(events) == [(1, 1.5, "ok"), ("check", 2), (2, None, "failed")]
    assert "no more processes" in receipts(events)[-1].text


def test_the_resume_check_finds_missing_state(bench: Callable[..., Bench]) -> None:
    note = next(entry for entry in bench(Forgetful).train(2, check=True) if isinstance(entry, Note))
    assert (note.facts["same"], note.facts["continued"], note.facts["resumed"]) == (False, 2.5, 1.5)


@pytest.mark.parametrize("train", [Unloadable, DyingOnLoad])
def test_a_checkpoint_that_cannot_be_loaded_is_found_without_harm(bench: Callable[..., Bench], train: type) -> None:
    events = bench(train).train(3, check=True)
    assert summarise(events) == [(1, 1.5, "ok"), ("check", 2), (2, 2.5, "ok"), (3, 3.5, "ok")]
    note = next(entry for entry in events if isinstance(entry, Note))
    assert (note.facts["same"], note.facts["resumed"]) == (False, None)


def test_all_seconds_of_a_check_are_charged_to_it(bench: Callable[..., Bench]) -> None:
    events = bench(SlowToLoad).train(2, check=True)
    (note,) = checks(events)
    assert note.facts["same"] is True
    assert note.facts["seconds"] >= 2.0
    assert receipts(events)[1].cost.total < 2.0


def slow_to_import(folder: Path) -> Target:
    code = "import time; time.sleep(1.5)\nfrom training_code import Counter\n"
    (folder / "slow_to_import.py").write_text(code)
    return Target.find(f"{folder}/slow_to_import.py:Counter")


def test_starting_a_process_for_a_check_is_charged_to_the_check(
    bench: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = bench(slow_to_import(tmp_path))
    assert it.runner.check_start_s >= 1.5
    monkeypatch.setattr(
        it.runner._spares, "refill", lambda device: None
    )  # no spare: the copy needs a process of its own
    events = it.train(2, check=True)
    assert checks(events)[0].facts["seconds"] >= 1.5
    assert receipts(events)[1].cost.total < 1.5


def test_a_check_interrupted_at_the_budget_limit_is_charged_as_a_check(bench: Callable[..., Bench]) -> None:
    it = bench(NeverLoaded)
    it.submit(2, check=True)
    it.wait(lambda: any(live.copy for live in it.runner._trials))
    it.take(it.runner.wait(it.runner.now() + 1.0))
    cut = it.take(it.runner.interrupt("the budget is spent"))
    assert summarise(cut) == [("check", 2), (2, None, "interrupted")]
    assert cut[0].facts["same"] is None
    assert cut[0].facts["seconds"] >= 1.0
    assert cut[1].cost.total < 1.0


def test_a_copy_that_hangs_does_not_fail_the_trial(bench: Callable[..., Bench]) -> None:
    it = bench(NeverLoaded)
    it.runner._silence = SilenceLimit(2.0)  # a slow import would be over the same limit, and end the run
    events = it.train(3, check=True)
    assert summarise(events) == [(1, 1.5, "ok"), ("check", 2), (2, 2.5, "ok"), (3, 3.5, "ok")]
    assert checks(events)[0].facts["resumed"] is None


def test_a_step_that_fails_after_its_check_is_no_difference(bench: Callable[..., Bench]) -> None:
    events = bench(CheckedThenFailing).train(3, check=True)
    assert summarise(events) == [(1, 1.5, "ok"), ("check", 2), (2, None, "failed")]
    assert checks(events)[0].facts["same"] is None


def test_a_trial_that_was_just_resumed_is_not_checked(bench: Callable[..., Bench]) -> None:
    it = bench(Counter)
    it.train(1)
    it.runner.close()
    again = bench(Counter, ledger=it.ledger)
    assert summarise(again.train(4, check=True)) == [(2, 2.5, "ok"), ("check", 3), (3, 3.5, "ok"), (4, 4.5, "ok")]


# death ---------------------------------------------------------------------------------------------------------------


def test_an_exception_is_a_failure_with_its_text(bench: Callable[..., Bench]) -> None:
    it = bench(failing)
    events = receipts(it.train(3))
    assert [r.status for r in events] == ["ok", "failed"]
    assert events[-1].text.endswith("RuntimeError: no such data")
    assert it.ledger.trials[0].resumable_step == 0
    assert summarise(it.train(1, trial=1)) == [(1, 1.0, "ok")]


def test_code_that_exits_is_a_failure_with_its_text(bench: Callable[..., Bench]) -> None:
    events = receipts(bench(Exiting).train(1))
    assert events[0].status == "failed"
    assert "no licence for this" in events[0].text


@pytest.mark.parametrize(("x", "how"), [(0.5, "exit code 3"), (1.0, "SIGKILL (out of memory?)")])
def test_a_dead_process_is_lost_and_fails_its_trial_at_the_third_death(
    bench: Callable[..., Bench], x: float, how: str
) -> None:
    it = bench(Dying)
    it.train(1, config={"x": x})
    events = it.train(4, config={"x": x})
    assert summarise(events) == [("lost", 1)] * 3  # its checkpoint
    for loss in losses(events):
        assert (loss.trial, loss.death) == (0, True)
        assert loss.seconds > 0
        assert how in loss.why
    trial = it.ledger.trials[0]
    assert (trial.resumable_step, trial.failures) == (1, 1)
    assert how in trial.failure
    assert it.ledger.state.by_kind["lost"] == sum(loss.seconds for loss in losses(events))
    assert summarise(it.train(1, trial=1)) == [(1, 1.5, "ok")]


def test_a_process_that_was_killed_once_costs_its_step_only(
    bench: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOESTRING_TEST_FOLDER", str(tmp_path))
    it = bench(DyingOnce)
    events = it.train(4)
    assert [loss.death for loss in losses(events)] == [True]
    assert it.ledger.trials[0].values == [1.5, 2.5, 3.5, 4.5]
    assert it.ledger.spent == 4
    assert it.ledger.trials[0].failures == 0


def test_code_that_cannot_save_and_always_dies_at_one_step_fails_at_the_third_death(
    bench: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOESTRING_TEST_FOLDER", str(tmp_path))
    it = bench(starts_a_child)
    events = it.train(2, config={"x": 0.25})  # step 1 is run again each time: that is no progress
    assert summarise(events) == [(1, 1.0, "ok"), ("lost", 0)] * 3
    assert it.ledger.trials[0].failures == 1


def test_a_hung_process_is_a_failure(bench: Callable[..., Bench]) -> None:
    it = bench(Dying)
    it.train(1, config={"x": 0.0})
    it.runner._silence = SilenceLimit(1.0)
    events = receipts(it.train(2, config={"x": 0.0}))
    assert events[-1].status == "failed"
    assert "hung" in events[-1].text


def test_the_silence_limit() -> None:
    limit = SilenceLimit(None)
    assert not limit.is_over(1e9)  # no step was observed yet
    limit.note_step(4.0)
    limit.note_step(1.0)
    assert not limit.is_over(99.9)
    assert limit.is_over(100.1)
    assert limit.describe(100.1) == (
        "no report for 100 s, which is over 10 times the longest step, 4 s, plus one minute: "
        "the step counts as hung and was ended"
    )


def test_a_checkpoint_that_cannot_be_written_fails_its_step(bench: Callable[..., Bench]) -> None:
    it = bench(Unwritable)
    events = receipts(it.train(3))
    assert [(r.step, r.status) for r in events] == [(1, "failed")]
    assert "no space left" in events[0].text


def test_a_paused_trial_whose_process_dies_is_lost(bench: Callable[..., Bench]) -> None:
    it = bench(process_number)
    pids = [numbers(it.train(1, trial=trial))[0] for trial in range(2)]
    os.kill(pids[0], signal.SIGKILL)
    os.kill(pids[1], signal.SIGKILL)
    deadline = time.monotonic() + DEADLINE_S
    while any(live.worker.alive for live in it.runner._trials):  # threads of a dead process may outlive it a moment
        assert time.monotonic() < deadline
        time.sleep(0.01)
    events = it.train(2, trial=0)
    assert [entry for entry in summarise(events) if entry == ("lost", 0)] == [("lost", 0)] * 2
    assert [r.step for r in receipts(events)] == [1, 2]
    assert it.ledger.trials[1].resumable_step == 0


# the budget limit ----------------------------------------------------------------------------------------------------


def test_the_budget_limit_ends_a_step_at_once(bench: Callable[..., Bench]) -> None:
    it = bench(Dying)
    it.train(1, config={"x": 0.0})
    it.submit(2, config={"x": 0.0})
    limit = it.runner.now() + 0.1
    assert it.runner.wait(limit) == []
    assert it.runner.now() >= limit
    cut = it.take(it.runner.interrupt("the budget is spent"))
    assert it.runner.now() < limit + 1.0  # it ignores SIGTERM, and is ended all the same
    assert summarise(cut) == [(2, None, "interrupted")]
    assert 0.1 <= cut[0].cost.total < 1.1
    assert it.ledger.trials[0].resumable_step == 1
    assert it.runner.running() == {}
    assert it.runner.wait(math.inf) == []


@pytest.mark.parametrize(("until", "given_up"), [(1, []), (3, [("released", None)])])
def test_at_the_budget_limit_a_step_that_is_being_saved_is_paid_for(
    bench: Callable[..., Bench], until: int, given_up: list[Any]
) -> None:
    it = bench(SlowToSave)
    it.submit(until)
    deadline = time.monotonic() + DEADLINE_S
    while not any(live.result for live in it.runner._trials):
        assert it.runner.wait(it.runner.now() + 0.05) == []
        assert time.monotonic() < deadline
    assert summarise(it.take(it.runner.interrupt("now"))) == [(1, 1.5, "ok"), *given_up, ("lost", 0)]
    assert it.ledger.spent == 1
    assert it.ledger.open_orders == {}


def test_a_budget_of_seconds_is_not_overspent(tmp_path: Path) -> None:
    runner = ProcessRunner(sleeping, Checkpoints(tmp_path), workers=2)
    study = Study.begin(SPACE, "2s", policy="random_search", max_steps=5, workers=2, seed=1)
    outcome = study.run(runner)
    assert outcome.reason == "budget"
    assert [r.status for r in receipts(study.ledger.entries())] == ["interrupted"] * 2
    assert 2.0 <= study.spent <= 3.0
    assert list_workers() == []


def test_an_interruption_keeps_earlier_losses(bench: Callable[..., Bench]) -> None:
    it = bench(Counter)
    it.train(2)
    it.runner.close()
    again = bench(Counter, ledger=it.ledger)
    again.runner.checkpoints.path(0, 2).unlink()
    again.runner.checkpoints.path(0, 1).unlink(missing_ok=True)
    again.submit(3)
    assert summarise(again.take(again.runner.interrupt("now"))) == [("lost", 0), (1, None, "interrupted")]


def test_submitting_after_an_interruption_works(bench: Callable[..., Bench]) -> None:
    it = bench(Dying)
    it.submit(2, config={"x": 0.0})
    it.wait(lambda: it.ledger.trials[0].steps == 1)
    it.take(it.runner.interrupt("now"))
    assert summarise(it.train(1, trial=1)) == [(1, 1.5, "ok")]


# beginning and ending ------------------------------------------------------------------------------------------------


def test_code_that_other_processes_cannot_find_is_an_error_before_any_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(RunnerError, match="lambda"):
        ProcessRunner(lambda config: 1.0, Checkpoints(tmp_path))


def test_code_that_fails_to_import_in_the_worker_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "only_in_parent.py").write_text(
        "import multiprocessing\n"
        "if multiprocessing.parent_process() is not None: raise ImportError('no GPU here')\n"
        "def train(config): return 1.0\n"
    )
    runner = ProcessRunner(Target.find(f"{tmp_path}/only_in_parent.py:train"), Checkpoints(tmp_path / "root"))
    try:
        with pytest.raises(RunnerError, match="no GPU here") as caught:
            Bench(runner, fresh_ledger(SPACE), CONFIG)
        assert "\n" not in str(caught.value)
    finally:
        runner.close()
    assert list_workers() == []


@pytest.mark.parametrize(("deaths", "workers"), [(2, 1), (2, 2), (3, 1), (99, 2)])
def test_a_worker_that_dies_while_importing_is_replaced_twice(tmp_path: Path, deaths: int, workers: int) -> None:
    """As if the system had killed it for its memory."""
    (tmp_path / "job.py").write_text(
        "import multiprocessing, os, signal\n"
        f"if multiprocessing.parent_process() is not None and len(os.listdir({str(tmp_path / 'died')!r})) < {deaths}:\n"
        f"    os.mkdir(os.path.join({str(tmp_path / 'died')!r}, str(os.getpid())))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "def train(config): return config['x']\n"
    )
    (tmp_path / "died").mkdir()
    words = ["run", "job.py:train", "-p", "x={float=[0,1]}", "--budget", "4 epochs", "--runner", "process", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "shoestring", *words, "--workers", str(workers)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    if deaths < 3:
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("WorkersDied: 3 worker processes died while they imported the training code")
    assert "was ended by SIGKILL (out of memory?)" in done.stderr
    assert done.stderr.count("\n") == 1


SCRIPT = """
import os, sys, time
from pathlib import Path
from shoestring import tune
def train(config, context):
    Path(sys.argv[1], f"pid-{os.getpid()}").touch()
    yield 1.0
    time.sleep(300)
    yield 2.0
"""
CALL = """tune(train, {"x": {"float": [0, 1]}}, "10 epochs", max_steps=2, workers=2, policy="random_search")"""


@pytest.mark.parametrize("store", ["None", "'study.db'"])
def test_an_unguarded_script_is_an_error_with_a_remedy(tmp_path: Path, store: str) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(SCRIPT + CALL.replace("max_steps", f"store={store}, max_steps"))
    done = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert 'put the call under  if __name__ == "__main__":' in done.stderr.splitlines()[-1]
    assert done.stderr.count("Traceback") == 1
    assert "bootstrapping" not in done.stderr
    assert list(tmp_path.glob("pid-*")) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "guarded.py"
    born = 'if __name__ != "__main__":\n    Path(sys.argv[1], f"born-{os.getpid()}").touch()\nelse:\n    '
    listen = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n    "  # ignored in a background job
    )
    script.write_text(SCRIPT + born + listen + CALL)
    parent = subprocess.Popen([sys.executable, script, tmp_path], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + DEADLINE_S
    # Two workers and a spare: multiprocessing itself handles a process that is killed while it starts.
    while (
        len(pids := [int(path.name[4:]) for path in tmp_path.glob("pid-*")]) < 2 or len([*tmp_path.glob("born-*")]) < 3
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    parent.send_signal(number)
    _, errors = parent.communicate(timeout=DEADLINE_S)
    for pid in pids:
        wait_until_gone(pid)
    own_tracebacks = 1 if number == signal.SIGINT else 0  # that of the parent; its children print none
    assert errors.count("Traceback") <= own_tracebacks


def test_the_death_of_a_process_is_noticed_though_its_children_hold_its_pipe(bench: Callable[..., Bench]) -> None:
    events = bench(leaves_a_child).train(3)
    assert [loss.why.split()[-1] for loss in losses(events)] == ["5"] * 3  # the exit code
    for child in numbers(events):
        wait_until_gone(child)


@pytest.mark.parametrize("train", [Counter, three_steps])
def test_a_folder_that_cannot_be_written_is_an_error_before_any_training(tmp_path: Path, train: Any) -> None:
    (tmp_path / "file").touch()
    runner = ProcessRunner(train, Checkpoints(tmp_path / "file" / "root"))
    try:
        with pytest.raises(RunnerError, match=re.escape(str(tmp_path / "file" / "root"))):
            runner.start(fresh_ledger(SPACE))
    finally:
        runner.close()
    plain = ProcessRunner(one_number, Checkpoints(tmp_path / "file" / "root"))
    it = Bench(plain, fresh_ledger(SPACE), CONFIG)  # it saves nothing, so it needs no folder, not even for its logs
    assert [r.status for r in receipts(it.train(1))] == ["ok"]
    plain.close()


def test_no_empty_folder_or_file_remains(bench: Callable[..., Bench], tmp_path: Path) -> None:
    it = bench(process_number)
    it.train(1)
    it.runner.close()
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_study_taken_over_by_another_process_is_left_alone(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    it = bench(process_number)
    it.train(1)
    it.runner.close(pause=False)
    assert (tmp_path / "root" / "trial-0000" / "stdout.txt").exists()  # empty, but a process may be writing there


def test_orders_beyond_the_workers_wait_and_are_released_at_the_budget_limit(bench: Callable[..., Bench]) -> None:
    it = bench(Dying)
    it.submit(2, config={"x": 0.0})
    it.submit(1, trial=1)
    it.submit(1, trial=2)
    assert set(it.runner.running()) == {0}
    it.wait(lambda: it.ledger.trials[0].steps == 1)
    cut = it.take(it.runner.interrupt("now"))
    assert summarise(cut) == [("released", None), ("released", None), (2, None, "interrupted")]
    assert it.ledger.open_orders == {}
    it.submit(1, trial=1)
    it.submit(1, trial=2)
    assert summarise(it.wait()) == [(1, 1.5, "ok")] * 2
