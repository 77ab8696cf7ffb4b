"""The command runner with real programs: sh, awk, python."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from runner_bench import DEADLINE_S, Bench, fresh_ledger, losses, pid_in, receipts, summarise, wait_until_gone

from shoestring.core.ledger.entries import Cost
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Constant, Float
from shoestring.core.space.space import Space
from shoestring.errors import RunnerError
from shoestring.runners.command.command_line import check_arguments, fill_in, find_unused, read_line
from shoestring.runners.command.command_runner import CommandRunner
from shoestring.runners.command.command_state import CommandState, started_at
from shoestring.study.study import Study

SPACE = Space(
    {
        "lr": {"float": [1e-5, 1.0], "log": True},
        "optimizer": {"choice": ["sgd", "adam"]},
        "momentum": {"float": [0.0, 0.99], "when": {"optimizer": "sgd"}},
    }
)
CONFIG = {"lr": 0.25, "optimizer": "adam"}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[CommandRunner] = []

    def make(*argv: str, ledger: Ledger | None = None, **more: Any) -> Bench:
        made.append(CommandRunner(argv, SPACE, tmp_path / "root", **more))
        return Bench(made[-1], ledger or fresh_ledger(SPACE), CONFIG)

    yield make
    for runner in made:
        runner.close()


def sh(script: str) -> tuple[str, str, str]:
    return "sh", "-c", textwrap.dedent(script)


# arguments -----------------------------------------------------------------------------------------------------------


def test_awk_gets_its_placeholders_and_keeps_its_own_braces(bench: Callable[..., Bench]) -> None:
    events = bench("awk", "-v", "lr={lr}", "BEGIN { print lr * 2 }").train(1)
    assert summarise(events) == [(1, 0.5, "ok"), ("lost", 0)]


def test_arguments_and_environment_hold_all_values(bench: Callable[..., Bench], tmp_path: Path) -> None:
    script = (
        "import json, os, sys; environment = {k: v for k, v in os.environ.items() if k.startswith('SHOESTRING')};"
        "environment['config'] = json.load(open(environment['SHOESTRING_CONFIG'])); environment['argv'] = sys.argv[1:];"
        f"json.dump(environment, open({str(tmp_path / 'environment.json')!r}, 'w')); print(1.5)"
    )
    arguments = [
        "--lr={lr}",
        "--momentum={momentum}",
        "{optimizer}",
        "{step}/{until}",
        "{{print}}",
        "{config}",
        "{checkpoint}",
        "{max_steps}",
    ]
    it = bench(sys.executable, "-S", "-c", script, *arguments)
    it.train(3, validate="last")
    environment = json.loads((tmp_path / "environment.json").read_text())
    folder = tmp_path / "root" / "trial-0000"
    assert environment["config"] == CONFIG
    assert environment["argv"] == [
        "--lr=0.25",
        "adam",
        "0/3",
        "{print}",
        str(folder / "config.json"),
        str(folder / "checkpoint"),
        "10",
    ]
    assert environment["SHOESTRING_MAX_STEPS"] == "10"
    assert environment["SHOESTRING_UNTIL"] == "3"
    assert environment["SHOESTRING_STEP"] == "0"
    assert environment["SHOESTRING_VALIDATE"] == "last"
    assert Path(environment["SHOESTRING_CHECKPOINT"]).is_dir()


@given(st.floats(1e-5, 1.0), st.sampled_from(["sgd", "adam"]), st.floats(0.0, 0.99))
def test_numbers_survive_the_command_line(lr: float, optimizer: str, momentum: float) -> None:
    config = {"lr": lr, "optimizer": optimizer} | ({"momentum": momentum} if optimizer == "sgd" else {})
    filled = fill_in(["x", "{lr}", "a{lr}b{lr}", "{momentum}", "{ lr }", "{}"], SPACE, config, {})
    assert float(filled[1]) == lr
    assert filled[2] == f"a{lr!r}b{lr!r}"
    assert filled[3:] == ([repr(momentum)] if optimizer == "sgd" else []) + ["{ lr }", "{}"]


def test_braces_can_be_escaped() -> None:
    argv = ["sh", "{{lr}}", "${{HOME}}", '{"a": {lr}}', "{{{lr}}}", "{print $1}"]
    check_arguments(argv, SPACE)
    filled = fill_in(argv, SPACE, {"lr": 0.5}, {})
    assert filled == ["sh", "{lr}", "${HOME}", '{"a": 0.5}', "{0.5}", "{print $1}"]


def test_parameters_without_a_placeholder_are_found() -> None:
    space = Space({"lr": Float(0, 1), "decay": Float(0, 1), "model": Constant("a")})
    assert find_unused(["sh", "--lr={lr}"], space) == ["decay"]
    assert find_unused(["sh", "--lr={{lr}}"], space) == []  # no placeholder: the program reads the file
    assert find_unused(["sh", "--lr={lr}", "{config}"], space) == []
    assert find_unused(["sh", "-c", "train --lr={lr} $SHOESTRING_CONFIG"], space) == []
    assert find_unused(["sh", "--lr={lr}", "--decay={decay}"], space) == []


def test_an_option_with_a_nul_character_is_refused_as_an_argument() -> None:
    space = Space({"name": Choice(["a", "b\0c"]), "listed": Choice([["x\0y"], ["z"]])})
    with pytest.raises(RunnerError, match="NUL, which no argument can hold"):
        check_arguments(["sh", "{name}"], space)
    check_arguments(["sh", "{listed}", "{config}"], space)  # escaped in JSON


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        ([], "the command is empty"),
        (["no-such-program-anywhere"], "was not found"),
        (["sh", "-c", "{momentun}"], "Did you mean {momentum}?"),
        (["sh", "-c", "{LR}"], "Did you mean {lr}?"),
        (["sh", "-c", "{chekpoint}"], "Did you mean {checkpoint}?"),
        (["sh", "-c", "{weight_decay}"], "{weight_decay} is not a parameter of the space. Known: "),
        (["sh", "-c", "echo ${HOME}"], "write {{HOME}}"),
    ],
)
def test_commands_that_cannot_work_are_refused_in_one_line(argv: list[str], text: str, tmp_path: Path) -> None:
    with pytest.raises(RunnerError) as caught:
        CommandRunner(argv, SPACE, tmp_path)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_script_that_is_not_executable_and_an_ambiguous_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print(1)")
    with pytest.raises(RunnerError, match="chmod"):
        CommandRunner([str(tmp_path / "script.py")], SPACE, tmp_path)
    with pytest.raises(RunnerError, match="rename the parameter"):
        CommandRunner(["echo", "{step}"], Space({"step": {"int": [1, 3]}}), tmp_path)


# reports -------------------------------------------------------------------------------------------------------------


def test_other_output_is_kept_and_reports_are_read(bench: Callable[..., Bench], tmp_path: Path) -> None:
    it = bench(
        *sh("""echo loading 3 files; echo '{"loss": 1}'; echo oops >&2
        echo '{"value": 0.5, "cost": {"train": 2, "validate": 0.5}}'; echo 17
        printf '10%%\\r20%%\\r'; echo '{"value": 0.25, "cost": 3}'""")
    )
    events = it.train(2)
    assert summarise(events) == [(1, 0.5, "ok"), (2, 0.25, "ok"), ("lost", 0)]
    assert [r.cost for r in receipts(events)] == [Cost(train=2.0, validate=0.5), Cost(train=3.0)]
    folder = tmp_path / "root" / "trial-0000"
    assert "loading 3 files" in (folder / "stdout.txt").read_text()
    assert (folder / "stderr.txt").read_text() == "oops\n"


def test_reports_may_go_to_a_file_and_the_last_line_needs_no_end(bench: Callable[..., Bench]) -> None:
    it = bench(*sh("""echo '{"value": 3}' >> $SHOESTRING_REPORT; echo busy; printf 2 >> $SHOESTRING_REPORT"""))
    assert summarise(it.train(2)) == [
        (1, 3.0, "ok"),
        ("ended", 1),
    ]  # after a JSON report, a bare number is ordinary output
    it = bench(*sh("""printf '3\\n2' >> $SHOESTRING_REPORT"""))
    assert summarise(it.train(2)) == [(1, 3.0, "ok"), (2, 2.0, "ok"), ("lost", 0)]


@pytest.mark.parametrize("word", ["nan", '{"value": NaN}', '{"value": -Infinity}', "inf", '{"value": null}'])
def test_a_value_that_is_no_number_is_divergence_and_ends_the_command(bench: Callable[..., Bench], word: str) -> None:
    events = bench(*sh(f"echo '{word}'; exec sleep 100")).train(5)
    assert [entry.status for entry in receipts(events)] == ["diverged"]


def test_null_is_accepted_where_no_value_was_ordered(bench: Callable[..., Bench]) -> None:
    it = bench(*sh("""echo '{"value": null}'; echo '{"value": 1}'"""))
    assert summarise(it.train(2, validate="last"))[:2] == [(1, None, "ok"), (2, 1.0, "ok")]


def test_skipped_steps_are_not_diverged_and_share_the_cost(bench: Callable[..., Bench]) -> None:
    events = bench(*sh("""echo '{"value": 0.9, "step": 3, "cost": 6}'; echo '{"value": 0.8, "step": 5}'""")).train(5)
    values = [(1, None, "ok"), (2, None, "ok"), (3, 0.9, "ok"), (4, None, "ok"), (5, 0.8, "ok")]
    assert summarise(events) == [*values, ("lost", 0)]
    assert [r.cost.train for r in receipts(events)][:3] == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("""echo '{"value": 1, "step": 2}'; echo '{"value": 1, "step": 2}'""", "steps go up"),
        ("""echo '{"value": 1, "step": 9}'""", "was to stop after step 5"),
        ("""echo '{"value": "low"}'""", "report a number or null"),
        ("""echo '{"value": 1, "step": 1.5}'""", "whole numbers from 1"),
        ("""echo '{"value": 1, "cost": -2}'""", "report seconds >= 0"),
        ("""echo '{"value": 1, "saved": 4}'""", "saved step 4, but has reported 1 only"),
        ("""echo '{"value": 1, "saved": "yes"}'""", "say true, or the number"),
        ("""true""", 'print a line like {"value": 0.3}'),
        ("""echo '{"value": 1}'; echo the disk is full >&2; exit 3""", "exit code 3: the disk is full"),
    ],
)
def test_errors_of_commands_are_in_the_receipt(bench: Callable[..., Bench], script: str, text: str) -> None:
    last = receipts(bench(*sh(script + "\n")).train(5))[-1]
    assert last.status == "failed"
    assert text in last.text


def test_a_command_ended_by_a_signal_is_lost_and_fails_its_trial_at_the_third_death(
    bench: Callable[..., Bench],
) -> None:
    it = bench(*sh("echo 1; echo bad pointer >&2; kill -SEGV $$"), workers=2)
    events = it.train(5)
    assert summarise(events) == [(1, 1.0, "ok"), ("lost", 0)] * 3
    assert [(loss.death, loss.worker) for loss in losses(events)] == [(True, "1")] * 3
    assert all("SIGSEGV: bad pointer" in loss.why for loss in losses(events))
    assert it.ledger.trials[0].failures == 1
    assert it.ledger.spent == 2  # one step, and the one that always kills it


def test_a_command_ended_by_a_signal_continues_from_its_reported_save(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    it = bench(
        *sh(f"""n=$(cat $SHOESTRING_CHECKPOINT/n 2>/dev/null || echo 0)
        while [ $n -lt $SHOESTRING_UNTIL ]; do
            n=$((n+1)); echo $n > $SHOESTRING_CHECKPOINT/n; echo '{{"value": '$n', "saved": true}}'
            [ $n = 2 ] && [ ! -e {tmp_path}/died ] && touch {tmp_path}/died && kill -9 $$
        done; true""")
    )
    assert summarise(it.train(4)) == [(1, 1.0, "ok"), (2, 2.0, "ok"), ("lost", 2), (3, 3.0, "ok"), (4, 4.0, "ok")]
    assert it.ledger.trials[0].failures == 0


def test_metrics_are_kept_and_invalid_ones_are_failures(bench: Callable[..., Bench]) -> None:
    it = bench(
        *sh(
            """echo '{"value": 1, "metrics": {"acc": 0.5, "gap": NaN}}'; echo '{"value": 1, "metrics": {"acc": "?"}}'"""
        )
    )
    events = receipts(it.train(2))
    assert events[0].metrics["acc"] == 0.5
    assert math.isnan(events[0].metrics["gap"])
    assert events[1].status == "failed"
    for name_or_value in ("'acc'", "'?'"):
        assert name_or_value in events[1].text


def test_the_oldest_part_of_a_long_log_is_cut_off(
    bench: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoestring.runners.checkpoints.trial_logs.MAX_BYTES", 10_000)
    it = bench(
        *sh(
            "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo line $i >&2; done; sleep 1; echo 1; echo the end >&2; exit 3"
        )
    )
    text = receipts(it.train(2))[-1].text
    it.train(3)
    log = (tmp_path / "root" / "trial-0000" / "stderr.txt").read_text()
    first, _, rest = log.partition("\n")
    assert first.startswith("[")
    assert "bytes" in first
    assert not rest.startswith("line 1\n")
    assert len(log) < 25_000
    assert log.endswith("the end\n")
    assert text.endswith("the end")


def test_the_failure_text_holds_errors_of_this_run_only(bench: Callable[..., Bench]) -> None:
    it = bench(*sh("echo error $SHOESTRING_UNTIL >&2; exit 1"))
    it.train(1)
    text = receipts(it.train(2))[-1].text
    assert "error 2" in text
    assert "error 1" not in text


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just(10**400)
ANYTHING = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.sampled_from(["setup", "train", "x"]), SCALARS)


@given(st.text() | st.dictionaries(st.sampled_from(["value", "step", "cost", "saved"]), ANYTHING).map(json.dumps))
@example("{" * 100_000)
@example('{"value": ' * 100_000)
def test_any_line_is_a_report_or_ignored_or_an_error(line: str) -> None:
    with contextlib.suppress(ValueError):
        report = read_line(line)
        assert report is None or isinstance(report.value, float | None)
        assert report is None or report.step is None or report.step >= 1


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_values_are_read_exactly(value: float) -> None:
    for line in (json.dumps({"value": value}), repr(value), f"  {value!r} "):
        report = read_line(line)
        assert report is not None
        assert report.value is not None
        assert report.value == value or (math.isnan(value) and math.isnan(report.value))


# pausing and resuming ------------------------------------------------------------------------------------------------

COUNTS = """
    cd "$SHOESTRING_CHECKPOINT"; n=$(cat n 2>/dev/null || echo 0)
    while [ $n -lt $SHOESTRING_UNTIL ]; do n=$((n+1)); echo $n > n; echo "$n.5"; done
"""


def test_a_directory_left_by_a_clean_exit_is_continued(bench: Callable[..., Bench]) -> None:
    it = bench(*sh(COUNTS))
    assert summarise(it.train(2)) == [(1, 1.5, "ok"), (2, 2.5, "ok")]
    assert it.ledger.trials[0].saved_step == 2
    assert it.runner.can_save is True
    assert summarise(it.train(4)) == [(3, 3.5, "ok"), (4, 4.5, "ok")]
    again = bench(*sh(COUNTS), ledger=it.ledger)
    assert again.ledger.trials[0].resumable_step == 4
    assert summarise(again.train(5)) == [(5, 5.5, "ok")]


def test_a_directory_left_by_any_other_exit_is_not_trusted(bench: Callable[..., Bench]) -> None:
    it = bench(*sh(COUNTS + "exit 1"))
    assert summarise(it.train(2)) == [(1, 1.5, "ok"), (2, 2.5, "ok"), ("lost", 0)]  # the state is lost
    assert summarise(it.train(3)) == [(1, 1.5, "ok"), (2, 2.5, "ok"), (3, 3.5, "ok"), ("lost", 0)]
    assert it.ledger.spent == 3


def test_a_reported_save_is_trusted_even_when_the_command_fails(bench: Callable[..., Bench]) -> None:
    it = bench(
        *sh("""cd $SHOESTRING_CHECKPOINT; n=$(cat n 2>/dev/null || echo 0)
        while true; do n=$((n+1)); echo '{"value": '$n'}'
            [ $n = 2 ] && { echo $n > n; echo '{"saved": true}'; }
            [ $n = 3 ] && [ $SHOESTRING_STEP = 0 ] && exit 1; [ $n = $SHOESTRING_UNTIL ] && exit 0; done""")
    )
    assert summarise(it.train(5)) == [(1, 1.0, "ok"), (2, 2.0, "ok"), (3, 3.0, "ok"), (4, None, "failed")]
    assert it.ledger.trials[0].resumable_step == 2
    assert summarise(it.train(4)) == [(3, 3.0, "ok"), (4, 4.0, "ok"), ("lost", 2)]


def test_a_command_may_restart_from_an_earlier_step(bench: Callable[..., Bench]) -> None:
    it = bench(
        *sh("""touch $SHOESTRING_CHECKPOINT/x; n=0
        while [ $n -lt $SHOESTRING_UNTIL ]; do n=$((n+1)); echo '{"value": 1, "step": '$n'}'; done""")
    )
    it.train(2)
    assert summarise(it.train(3)) == [("lost", 0), (1, 1.0, "ok"), (2, 1.0, "ok"), (3, 1.0, "ok")]
    assert it.ledger.spent == 3


def test_an_emptied_directory_is_noticed(bench: Callable[..., Bench], tmp_path: Path) -> None:
    it = bench(*sh(COUNTS))
    it.train(2)
    (tmp_path / "root" / "trial-0000" / "checkpoint" / "n").unlink()
    assert summarise(it.train(3)) == [("lost", 0), (1, 1.5, "ok"), (2, 2.5, "ok"), (3, 3.5, "ok")]


def test_a_command_that_trains_beyond_its_order_is_ended(bench: Callable[..., Bench]) -> None:
    it = bench(*sh("n=0; while true; do n=$((n+1)); echo $n; sleep 0.01; done"))
    assert summarise(it.train(2)) == [(1, 1.0, "ok"), (2, 2.0, "ok"), ("lost", 0)]


def test_a_complete_trial_needs_no_checkpoint(bench: Callable[..., Bench]) -> None:
    it = bench("echo", "1", ledger=fresh_ledger(SPACE, max_steps=1))
    assert summarise(it.train(1)) == [(1, 1.0, "ok")]


FORGETS = """n=0; while [ $n -lt $SHOESTRING_UNTIL ]; do n=$((n+1)); echo {lr}; done"""


def test_a_lost_trial_that_cannot_save_is_trained_with_its_newest_config(bench: Callable[..., Bench]) -> None:
    """Each stretch of steps with one config would be a run, but none could continue from the run before."""
    it = bench(*sh(FORGETS))
    it.train(1, config={"lr": 0.25, "optimizer": "adam"})
    events = it.train(3, config={"lr": 0.5, "optimizer": "adam"})
    assert summarise(events) == [
        (1, 0.25, "ok"),
        ("lost", 0),
        (1, 0.5, "ok"),
        (2, 0.5, "ok"),
        (3, 0.5, "ok"),
        ("lost", 0),
    ]


def test_the_budget_limit_between_two_runs_of_an_order_releases_it(bench: Callable[..., Bench]) -> None:
    it = bench(*sh("echo {lr}; touch $SHOESTRING_CHECKPOINT/x; [ $SHOESTRING_STEP = 0 ] && exec sleep 300"))
    it.submit(1)
    it.wait(lambda: it.runner._runs[0].last is not None)
    it.take(it.runner.interrupt("now"))
    it.submit(3, config={"lr": 0.5, "optimizer": "adam"})
    it.wait(lambda: it.runner._runs[1].last is not None)
    assert summarise(it.take(it.runner.interrupt("now"))) == [(1, 0.25, "ok"), ("lost", 0), ("released", None)]
    assert it.ledger.open_orders == {}


def test_orders_beyond_the_workers_wait(bench: Callable[..., Bench]) -> None:
    it = bench(*sh("sleep 0.05; echo 1"))
    for trial in range(3):
        it.submit(1, trial=trial)
    assert set(it.runner.running()) == {0}
    assert [r.trial for r in receipts(it.wait())] == [0, 1, 2]


def test_a_folder_that_cannot_be_written_is_an_error_before_any_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunnerError, match=re.escape(str(tmp_path / "file" / "root"))):
        CommandRunner(["true"], SPACE, tmp_path / "file" / "root").start(fresh_ledger(SPACE))


def test_a_new_study_does_not_use_the_files_of_an_old_one(bench: Callable[..., Bench]) -> None:
    bench(*sh(COUNTS)).train(2)
    assert summarise(bench(*sh(COUNTS)).train(1)) == [(1, 1.5, "ok")]


# ending --------------------------------------------------------------------------------------------------------------


def test_two_workers_run_side_by_side(bench: Callable[..., Bench], tmp_path: Path) -> None:
    # Each waits for the other's file: one after the other they would never end.
    it = bench(
        *sh(
            f"touch {tmp_path}/{{optimizer}}; while [ $(ls {tmp_path} | grep -c '^[as]') -lt 2 ]; do sleep 0.01; done; echo 1"
        ),
        workers=2,
    )
    it.submit(1, trial=0, config=CONFIG)
    it.submit(1, trial=1, config={"lr": 0.1, "optimizer": "sgd", "momentum": 0.5})
    assert set(it.runner.running()) == {0, 1}
    it.wait()
    assert it.runner.running() == {}


def test_the_budget_limit_ends_a_command_that_ignores_sigterm_with_its_children(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    it = bench(
        *sh(
            f"trap '' TERM; sleep 300 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/leader; echo 1; wait; sleep 300"
        )
    )
    it.submit(3)
    it.wait(lambda: it.ledger.trials[0].steps == 1)
    leader, child = pid_in(tmp_path / "leader"), pid_in(tmp_path / "child")
    limit = it.runner.now() + 0.05
    assert it.runner.wait(limit) == []
    assert it.runner.now() >= limit
    cut = it.take(it.runner.interrupt("the budget is spent"))
    assert summarise(cut) == [(2, None, "interrupted")]
    assert cut[0].text == "the budget is spent"
    assert 0 < cut[0].cost.total <= it.runner.now()
    assert not started_at(leader)
    wait_until_gone(child)
    assert it.runner.running() == {}


def test_a_budget_of_seconds_is_not_overspent(tmp_path: Path) -> None:
    runner = CommandRunner(["sleep", "1000"], SPACE, tmp_path, workers=2)
    study = Study.begin(SPACE, "1s", policy="random_search", max_steps=5, workers=2, seed=1)
    assert study.run(runner).reason == "budget"
    assert [r.status for r in receipts(study.ledger.entries())] == ["interrupted"] * 2
    assert 1.0 <= study.spent <= 2.0


def test_at_the_budget_limit_a_finished_step_is_paid_for(bench: Callable[..., Bench]) -> None:
    it = bench(*sh("echo 1; exec sleep 300"))
    it.submit(1)
    deadline = time.monotonic() + DEADLINE_S
    since = it.runner.running()[0]
    while it.runner.running()[0] == since and time.monotonic() < deadline:
        assert it.runner.wait(it.runner.now() + 0.05) == []
    assert summarise(it.take(it.runner.interrupt("now"))) == [(1, 1.0, "ok"), ("lost", 0)]


def test_a_silent_command_counts_as_hung(bench: Callable[..., Bench]) -> None:
    events = receipts(bench(*sh("echo 1; exec sleep 300"), hung_after_s=0.2).train(5))
    assert [r.status for r in events] == ["ok", "failed"]
    assert "hung" in events[-1].text


def test_children_of_a_command_are_ended_with_it(bench: Callable[..., Bench], tmp_path: Path) -> None:
    it = bench(*sh(f"sleep 300 & echo $! > {tmp_path}/child; echo 1"))
    it.train(1)
    wait_until_gone(pid_in(tmp_path / "child"))


def test_closing_ends_the_command(bench: Callable[..., Bench], tmp_path: Path) -> None:
    it = bench(*sh(f"echo $$ > {tmp_path}/leader; exec sleep 300"))
    it.submit(1)
    leader = pid_in(tmp_path / "leader")
    it.runner.close()
    assert not started_at(leader)
    assert CommandState.read(tmp_path / "root" / "trial-0000").pid == 0


def test_the_next_runner_ends_a_command_left_by_a_runner_killed_with_its_guard(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    it = bench(*sh("exec sleep 300"))
    it.submit(1)
    script = f"""
        import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_command import *
        words = ["sh", "-c", "echo $$ > {tmp_path}/leader; exec sleep 300"]
        runner = CommandRunner(words, SPACE, Path({str(tmp_path / "other")!r}))
        it = Bench(runner, fresh_ledger(SPACE), CONFIG); it.submit(1)
        print(runner._guard._process.pid, flush=True)
        while True: it.runner.wait(1e9)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    os.kill(int(parent.stdout.readline()), signal.SIGKILL)
    orphan = pid_in(tmp_path / "leader")
    folder = tmp_path / "other" / "trial-0000"
    deadline = time.monotonic() + DEADLINE_S
    while CommandState.read(folder).pid != orphan:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    parent.kill()
    parent.communicate()
    assert started_at(orphan)
    CommandRunner(["true"], SPACE, tmp_path / "other").start(it.ledger)
    assert not started_at(orphan)
    assert CommandState.read(folder).pid == 0


def test_another_process_with_the_same_number_is_not_ended(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        folder = tmp_path / "trial-0000"
        folder.mkdir()
        CommandState(pid=other.pid, started="long ago").write(folder)
        CommandRunner(["true"], SPACE, tmp_path).start(fresh_ledger(SPACE))
        assert other.poll() is None
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.wait()


def test_a_deleted_program_fails_the_order(bench: Callable[..., Bench], tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho 1\n")
    program.chmod(0o755)
    it = bench(str(program))
    program.unlink()
    events = receipts(it.train(1))
    assert events[0].status == "failed"
    assert "cannot be started" in events[0].text
