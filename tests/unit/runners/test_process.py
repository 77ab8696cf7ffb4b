"""The process runner with real processes: freezing, dying, hanging, the wall, and how it all ends."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from runner_bench import DEADLINE_S, Bench, checks, fresh_ledger, losses, receipts, shown, until_gone
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

from shoestring.core.ledger.entries import Entry, Lost, Note
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Space
from shoestring.errors import RunnerError
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.process.process_runner import Processes
from shoestring.runners.process.worker import Patience
from shoestring.runners.training.targets import Target
from shoestring.study.study import Study

SPACE = Space({"x": {"float": [0.0, 1.0]}})
CONFIG = {"x": 0.5}

# the bench -------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _light_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes import the main script, which is pytest here: spare them that."""
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Processes] = []

    def make(train: Any, *, ledger: Ledger | None = None, **more: Any) -> Bench:
        made.append(Processes(train, Checkpoints(tmp_path / "root"), **more))
        return Bench(made[-1], ledger or fresh_ledger(SPACE), CONFIG)

    yield make
    for runner in made:
        runner.close()
    assert multiprocessing.active_children() == []


def numbers(entries: list[Entry]) -> list[int]:
    """The process numbers that `process_number` reported."""
    return [int(r.value or 0) for r in receipts(entries)]


# freezing --------------------------------------------------------------------------------------------------------------


def test_a_frozen_trial_is_a_process_of_its_own(bench: Callable[..., Bench]) -> None:
    it = bench(process_number, workers=2)
    assert it.runner.can_save is None
    it.submit(2, trial=0)
    it.submit(2, trial=1)
    assert set(it.runner.running()) == {0, 1}
    it.wait()
    first, second = (set(trial.values) for trial in it.ledger.trials)
    assert len(first) == len(second) == len(first | second) - 1 == 1
    assert os.getpid() not in first | second
    assert set(numbers(it.buy(4, trial=0))) == first
    assert it.runner.can_save is False


def test_more_than_the_live_limit_are_not_kept(bench: Callable[..., Bench]) -> None:
    it = bench(process_number, live=2)
    pids = [numbers(it.buy(1, trial=trial))[0] for trial in range(2)]
    it.buy(2, trial=0)  # now trial 1 is the least recently used
    told = it.buy(1, trial=2)
    assert shown(told)[1:] == [("lost", 0)]
    assert isinstance(told[-1], Lost)
    assert told[-1].trial == 1
    assert numbers(it.buy(3, trial=0)) == [pids[0]]
    again = it.buy(2, trial=1)
    assert [r.step for r in receipts(again)] == [1, 2]


def test_the_process_of_a_trial_that_is_gone_serves_another(bench: Callable[..., Bench]) -> None:
    it = bench(process_number, live=1)
    pids = {numbers(it.buy(1, trial=trial))[0] for trial in range(8)}
    assert len(pids) <= 4  # imports are dear: they are done once for each process, not for each trial


def test_one_that_can_save_goes_on_from_its_checkpoint(bench: Callable[..., Bench]) -> None:
    it = bench(Counter)  # one worker: one live frozen trial
    assert it.runner.can_save is True
    for trial in range(2):
        it.buy(2, trial=trial)
    told = it.buy(3, trial=0)
    assert shown(told) == [(3, 3.5, "ok")]
    assert receipts(told)[0].saved == 3
    it.runner.close()
    again = bench(Counter, ledger=it.ledger)
    assert again.survivors == {0: 3, 1: 2}
    assert shown(again.buy(4, trial=1)) == [(3, 3.5, "ok"), (4, 4.5, "ok")]


def test_closing_saves_what_was_not_saved(bench: Callable[..., Bench], tmp_path: Path) -> None:
    it = bench(Counter)
    it.buy(2)
    it.runner.checkpoints.path(0, 2).unlink()
    it.runner.close()
    assert (tmp_path / "root" / "trial-0000" / "step-000002").read_text() == "2"


def test_a_plain_function_needs_no_new_process_each_time(bench: Callable[..., Bench]) -> None:
    it = bench(one_number)
    pids = [numbers(it.buy(1, trial=trial))[0] for trial in range(6)]
    assert len(set(pids)) <= 2
    assert os.getpid() not in pids


def test_processes_that_training_code_starts_are_started_as_in_any_script(bench: Callable[..., Bench]) -> None:
    it = bench(start_method)
    it.buy(1)
    assert it.ledger.trials[0].values == [1.0]


def test_what_is_told_about_a_step_is_passed_on(bench: Callable[..., Bench]) -> None:
    it = bench(three_steps)
    told = it.buy(5)
    assert shown(told) == [(1, 0.0, "ok"), (2, 1.0, "ok"), (3, 2.0, "ok"), ("ended", 3)]
    assert [(r.cost.train, r.cost.validate) for r in receipts(told)] == [(2.0, 3.0)] * 3


def test_metrics_are_kept_and_wrong_ones_are_told(bench: Callable[..., Bench]) -> None:
    told = receipts(bench(with_metrics).buy(2))
    assert told[0].metrics["accuracy"] == 0.9
    assert math.isnan(told[0].metrics["gap"])
    assert told[1].status == "failed"
    assert told[1].text.endswith("TypeError: the metric 'accuracy' is 'high': report a number")


def test_the_resume_check_is_made_beside_the_trial(bench: Callable[..., Bench]) -> None:
    it = bench(Counter)
    told = it.buy(3, check=True)
    assert shown(told) == [(1, 1.5, "ok"), ("check", 2), (2, 2.5, "ok"), (3, 3.5, "ok")]
    note = next(entry for entry in told if isinstance(entry, Note))
    assert note.facts["same"] is True
    assert note.facts["seconds"] > 0


def test_the_resume_check_finds_what_is_forgotten(bench: Callable[..., Bench]) -> None:
    note = next(entry for entry in bench(Forgetful).buy(2, check=True) if isinstance(entry, Note))
    assert (note.facts["same"], note.facts["went_on"], note.facts["resumed"]) == (False, 2.5, 1.5)


@pytest.mark.parametrize("train", [Unloadable, DyingOnLoad])
def test_a_checkpoint_that_cannot_be_loaded_is_found_without_harm(bench: Callable[..., Bench], train: type) -> None:
    told = bench(train).buy(3, check=True)
    assert shown(told) == [(1, 1.5, "ok"), ("check", 2), (2, 2.5, "ok"), (3, 3.5, "ok")]
    note = next(entry for entry in told if isinstance(entry, Note))
    assert (note.facts["same"], note.facts["resumed"]) == (False, None)


def test_all_seconds_of_a_check_are_the_checks(bench: Callable[..., Bench]) -> None:
    told = bench(SlowToLoad).buy(2, check=True)
    (note,) = checks(told)
    assert note.facts["same"] is True
    assert note.facts["seconds"] >= 2.0
    assert receipts(told)[1].cost.total < 2.0


def slow_to_import(folder: Path) -> Target:
    code = "import time; time.sleep(1.5)\nfrom training_code import Counter\n"
    (folder / "slow_to_import.py").write_text(code)
    return Target.find(f"{folder}/slow_to_import.py:Counter")


def test_starting_the_process_of_a_check_is_the_checks_and_its_price_is_known(
    bench: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = bench(slow_to_import(tmp_path))
    assert it.runner.check_start_s >= 1.5
    monkeypatch.setattr(it.runner._crew, "refill", lambda device: None)  # no spare: the copy needs a process of its own
    told = it.buy(2, check=True)
    assert checks(told)[0].facts["seconds"] >= 1.5
    assert receipts(told)[1].cost.total < 1.5


def test_a_check_that_the_wall_cuts_off_is_booked_as_one(bench: Callable[..., Bench]) -> None:
    it = bench(NeverLoaded)
    it.submit(2, check=True)
    it.wait(lambda: any(live.copy for live in it.runner._lives))
    it.take(it.runner.wait(it.runner.now() + 1.0))
    cut = it.take(it.runner.interrupt("the budget is spent"))
    assert shown(cut) == [("check", 2), (2, None, "interrupted")]
    assert cut[0].facts["same"] is None
    assert cut[0].facts["seconds"] >= 1.0
    assert cut[1].cost.total < 1.0


def test_a_copy_that_hangs_does_not_fail_the_trial(bench: Callable[..., Bench]) -> None:
    it = bench(NeverLoaded, hung_after_s=2.0)
    told = it.buy(3, check=True)
    assert shown(told) == [(1, 1.5, "ok"), ("check", 2), (2, 2.5, "ok"), (3, 3.5, "ok")]
    assert checks(told)[0].facts["resumed"] is None


def test_a_step_that_fails_after_its_check_is_not_called_a_difference(bench: Callable[..., Bench]) -> None:
    told = bench(CheckedThenFailing).buy(3, check=True)
    assert shown(told) == [(1, 1.5, "ok"), ("check", 2), (2, None, "failed")]
    assert checks(told)[0].facts["same"] is None


def test_a_trial_that_was_just_thawed_is_not_checked_against_itself(bench: Callable[..., Bench]) -> None:
    it = bench(Counter)
    it.buy(1)
    it.runner.close()
    again = bench(Counter, ledger=it.ledger)
    assert shown(again.buy(4, check=True)) == [(2, 2.5, "ok"), ("check", 3), (3, 3.5, "ok"), (4, 4.5, "ok")]


# dying -----------------------------------------------------------------------------------------------------------------


def test_an_exception_is_a_failure_with_its_text(bench: Callable[..., Bench]) -> None:
    it = bench(failing)
    told = receipts(it.buy(3))
    assert [r.status for r in told] == ["ok", "failed"]
    assert told[-1].text.endswith("RuntimeError: no such data")
    assert it.ledger.trials[0].held == 0
    assert shown(it.buy(1, trial=1)) == [(1, 1.0, "ok")]


def test_code_that_exits_is_a_failure_with_its_text(bench: Callable[..., Bench]) -> None:
    told = receipts(bench(Exiting).buy(1))
    assert told[0].status == "failed"
    assert "no licence for this" in told[0].text


@pytest.mark.parametrize(("x", "how"), [(0.5, "exit code 3"), (1.0, "SIGKILL (out of memory?)")])
def test_a_dead_process_is_lost_and_fails_its_trial_only_the_third_time(
    bench: Callable[..., Bench], x: float, how: str
) -> None:
    it = bench(Dying)
    it.buy(1, config={"x": x})
    told = it.buy(4, config={"x": x})
    assert shown(told) == [("lost", 1)] * 3  # its checkpoint
    for loss in losses(told):
        assert (loss.trial, loss.death) == (0, True)
        assert loss.seconds > 0
        assert how in loss.why
    trial = it.ledger.trials[0]
    assert (trial.held, trial.failures) == (1, 1)
    assert how in trial.failure
    assert it.ledger.books.by_kind["lost"] == sum(loss.seconds for loss in losses(told))
    assert shown(it.buy(1, trial=1)) == [(1, 1.5, "ok")]


def test_a_process_that_was_killed_once_costs_its_step_only(
    bench: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOESTRING_TEST_FOLDER", str(tmp_path))
    it = bench(DyingOnce)
    told = it.buy(4)
    assert [loss.death for loss in losses(told)] == [True]
    assert it.ledger.trials[0].values == [1.5, 2.5, 3.5, 4.5]
    assert it.ledger.spent == 4
    assert it.ledger.trials[0].failures == 0


def test_code_that_cannot_save_and_always_dies_at_one_step_is_not_bought_for_ever(
    bench: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOESTRING_TEST_FOLDER", str(tmp_path))
    it = bench(starts_a_child)
    told = it.buy(2, config={"x": 0.25})  # step 1 is run again each time: that is no progress
    assert shown(told) == [(1, 1.0, "ok"), ("lost", 0)] * 3
    assert it.ledger.trials[0].failures == 1


def test_a_hung_process_is_a_failure(bench: Callable[..., Bench]) -> None:
    it = bench(Dying, hung_after_s=1.0)
    it.buy(1, config={"x": 0.0})
    told = receipts(it.buy(2, config={"x": 0.0}))
    assert told[-1].status == "failed"
    assert "taken for hung" in told[-1].text


def test_the_patience_rule() -> None:
    patience = Patience(None)
    assert not patience.is_over(1e9)  # nothing was seen yet
    patience.note_step(4.0)
    patience.note_step(1.0)
    assert not patience.is_over(99.9)
    assert patience.is_over(100.1)


def test_a_checkpoint_that_cannot_be_written_fails_its_step(bench: Callable[..., Bench]) -> None:
    it = bench(Unwritable)
    told = receipts(it.buy(3))
    assert [(r.step, r.status) for r in told] == [(1, "failed")]
    assert "no space left" in told[0].text


def test_a_frozen_trial_whose_process_dies_is_lost(bench: Callable[..., Bench]) -> None:
    it = bench(process_number)
    pids = [numbers(it.buy(1, trial=trial))[0] for trial in range(2)]
    os.kill(pids[0], signal.SIGKILL)
    os.kill(pids[1], signal.SIGKILL)
    deadline = time.monotonic() + DEADLINE_S
    while any(live.worker.alive for live in it.runner._lives):  # threads of a dead process may outlive it a moment
        assert time.monotonic() < deadline
        time.sleep(0.01)
    told = it.buy(2, trial=0)
    assert [entry for entry in shown(told) if entry == ("lost", 0)] == [("lost", 0)] * 2
    assert [r.step for r in receipts(told)] == [1, 2]
    assert it.ledger.trials[1].held == 0


# the wall --------------------------------------------------------------------------------------------------------------


def test_the_wall_ends_a_step_at_once(bench: Callable[..., Bench]) -> None:
    it = bench(Dying)
    it.buy(1, config={"x": 0.0})
    it.submit(2, config={"x": 0.0})
    wall = it.runner.now() + 0.1
    assert it.runner.wait(wall) == []
    assert it.runner.now() >= wall
    cut = it.take(it.runner.interrupt("the budget is spent"))
    assert it.runner.now() < wall + 1.0  # it ignores SIGTERM, and is gone all the same
    assert shown(cut) == [(2, None, "interrupted")]
    assert 0.1 <= cut[0].cost.total < 1.1
    assert it.ledger.trials[0].held == 1
    assert it.runner.running() == {}
    assert it.runner.wait(math.inf) == []


@pytest.mark.parametrize(("until", "given_up"), [(1, []), (3, [("released", None)])])
def test_at_the_wall_a_step_that_is_being_saved_is_paid_for(
    bench: Callable[..., Bench], until: int, given_up: list[Any]
) -> None:
    it = bench(SlowToSave)
    it.submit(until)
    deadline = time.monotonic() + DEADLINE_S
    while not any(live.result for live in it.runner._lives):
        assert it.runner.wait(it.runner.now() + 0.05) == []
        assert time.monotonic() < deadline
    assert shown(it.take(it.runner.interrupt("now"))) == [(1, 1.5, "ok"), *given_up, ("lost", 0)]
    assert it.ledger.spent == 1
    assert it.ledger.open_orders == {}


def test_a_budget_of_seconds_is_not_overspent(tmp_path: Path) -> None:
    runner = Processes(sleeping, Checkpoints(tmp_path), workers=2)
    study = Study.begin(SPACE, "2s", policy="random_search", max_steps=5, workers=2, seed=1)
    outcome = study.run(runner)
    assert outcome.reason == "budget"
    assert [r.status for r in receipts(study.ledger.entries())] == ["interrupted"] * 2
    assert 2.0 <= study.spent <= 3.0
    assert multiprocessing.active_children() == []


def test_the_wall_does_not_hide_what_was_lost_a_moment_before(bench: Callable[..., Bench]) -> None:
    it = bench(Counter)
    it.buy(2)
    it.runner.close()
    again = bench(Counter, ledger=it.ledger)
    again.runner.checkpoints.path(0, 2).unlink()
    again.runner.checkpoints.path(0, 1).unlink(missing_ok=True)
    again.submit(3)
    assert shown(again.take(again.runner.interrupt("now"))) == [("lost", 0), (1, None, "interrupted")]


def test_submitting_after_the_wall_works(bench: Callable[..., Bench]) -> None:
    it = bench(Dying)
    it.submit(2, config={"x": 0.0})
    it.wait(lambda: it.ledger.trials[0].steps == 1)
    it.take(it.runner.interrupt("now"))
    assert shown(it.buy(1, trial=1)) == [(1, 1.5, "ok")]


# beginning and ending --------------------------------------------------------------------------------------------------


def test_code_that_other_processes_cannot_find_is_refused_before_anything_is_bought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(RunnerError, match="lambda"):
        Processes(lambda config: 1.0, Checkpoints(tmp_path))


def test_code_that_fails_to_import_in_the_worker_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "only_in_parent.py").write_text(
        "import multiprocessing\n"
        "if multiprocessing.parent_process() is not None: raise ImportError('no GPU here')\n"
        "def train(config): return 1.0\n"
    )
    runner = Processes(Target.find(f"{tmp_path}/only_in_parent.py:train"), Checkpoints(tmp_path / "root"))
    try:
        with pytest.raises(RunnerError, match="no GPU here") as caught:
            Bench(runner, fresh_ledger(SPACE), CONFIG)
        assert "\n" not in str(caught.value)
    finally:
        runner.close()
    assert multiprocessing.active_children() == []


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
def test_an_unguarded_script_is_told_what_to_do(tmp_path: Path, store: str) -> None:
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
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n    "  # a shell's background job is deaf
    script.write_text(SCRIPT + born + listen + CALL)
    parent = subprocess.Popen([sys.executable, script, tmp_path], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + DEADLINE_S
    # Two at work and a spare: one that is killed while it is being born is still in the hands of multiprocessing.
    while (
        len(pids := [int(path.name[4:]) for path in tmp_path.glob("pid-*")]) < 2 or len([*tmp_path.glob("born-*")]) < 3
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    parent.send_signal(number)
    _, errors = parent.communicate(timeout=DEADLINE_S)
    for pid in pids:
        until_gone(pid)
    assert errors.count("Traceback") <= (
        1 if number == signal.SIGINT else 0
    )  # the parent's own, none from its children


def test_a_process_whose_children_hold_its_pipe_is_missed_all_the_same(bench: Callable[..., Bench]) -> None:
    told = bench(leaves_a_child).buy(3)
    assert ["exit code 5" in loss.why for loss in losses(told)] == [True] * 3
    for child in numbers(told):
        until_gone(child)


@pytest.mark.parametrize("train", [Counter, three_steps])
def test_a_folder_that_cannot_be_written_is_told_before_anything_is_bought(tmp_path: Path, train: Any) -> None:
    (tmp_path / "file").touch()
    runner = Processes(train, Checkpoints(tmp_path / "file" / "root"))
    try:
        with pytest.raises(RunnerError, match=r"the checkpoint folder .*root cannot be used: Not a directory: make it"):
            runner.start(fresh_ledger(SPACE))
    finally:
        runner.close()
    plain = Processes(one_number, Checkpoints(tmp_path / "file" / "root"))
    it = Bench(plain, fresh_ledger(SPACE), CONFIG)  # it saves nothing, so it needs no folder, not even for its logs
    assert [r.status for r in receipts(it.buy(1))] == ["ok"]
    plain.close()


def test_nothing_empty_is_left_behind(bench: Callable[..., Bench], tmp_path: Path) -> None:
    it = bench(process_number)
    it.buy(1)
    it.runner.close()
    assert list(tmp_path.iterdir()) == []


def test_a_study_that_another_process_has_taken_over_is_not_tidied_up(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    it = bench(process_number)
    it.buy(1)
    it.runner.close(freeze=False)
    assert (tmp_path / "root" / "trial-0000" / "stdout.txt").exists()  # empty, but a process may be writing there


def test_orders_beyond_the_workers_wait_and_are_released_at_the_wall(bench: Callable[..., Bench]) -> None:
    it = bench(Dying)
    it.submit(2, config={"x": 0.0})
    it.submit(1, trial=1)
    it.submit(1, trial=2)
    assert set(it.runner.running()) == {0}
    it.wait(lambda: it.ledger.trials[0].steps == 1)
    cut = it.take(it.runner.interrupt("now"))
    assert shown(cut) == [("released", None), ("released", None), (2, None, "interrupted")]
    assert it.ledger.open_orders == {}
    it.submit(1, trial=1)
    it.submit(1, trial=2)
    assert shown(it.wait()) == [(1, 1.5, "ok")] * 2
