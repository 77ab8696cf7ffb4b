"""The command line as users run it: correct calls, wrong calls, interruptions, and repeated calls."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from thoroughness import repetitions

from shoestring.cli.main import main

TRAINING = """
import time

def train(config):
    weight = 5.0
    while True:
        weight -= config["lr"] * (weight - 1)
        yield weight ** 2

def slow(config):
    for _ in range(1000):
        time.sleep(0.05)
        yield config["lr"]
        open("reported", "w").close()

def endless(config):
    yield config["lr"]
    open("reported", "w").close()
    time.sleep(100)

def broken(config):
    raise ValueError("no data")

def nan(config):
    print("a word on standard output")
    while True:
        yield float("nan")

def plain(config):
    return config["lr"]
"""
SPACE = "lr = { float = [1e-3, 1.0], log = true }\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.py").write_text(TRAINING)
    (tmp_path / "space.toml").write_text(SPACE)
    return tmp_path


@dataclass(frozen=True)
class CommandOutput:
    code: int
    stdout: str
    stderr: str


def run_here(folder: Path, *words: str) -> CommandOutput:
    """Run the command in this process, so that the package is imported only once."""
    out, err = io.StringIO(), io.StringIO()
    with chdir(folder), redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        patch.delitem(sys.modules, "job", raising=False)  # of the command before, from another folder
        with pytest.raises(SystemExit) as ended:
            main([*words])
        sys.modules.pop("job", None)
    assert isinstance(ended.value.code, int)
    return CommandOutput(ended.value.code, out.getvalue(), err.getvalue())


def run_elsewhere(folder: Path, *words: str) -> CommandOutput:
    """Run the command in a new process, as from a shell."""
    command = [sys.executable, "-m", "shoestring", *words]
    completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return CommandOutput(completed.returncode, completed.stdout, completed.stderr)


def shoestring(folder: Path, *words: str, code: int = 0, run: Callable[..., CommandOutput] = run_here) -> CommandOutput:
    output = run(folder, *words)
    assert output.code == code, f"exit code {output.code}\n{output.stdout}\n{output.stderr}"
    assert "Traceback" not in output.stdout
    return output


def result(output: CommandOutput) -> Any:
    return json.loads(output.stdout)


RUN = ("run", "job.py:train", "--space", "space.toml", "--max-steps", "5", "--seed", "1")


def test_a_run_can_be_shown_explained_replayed_and_exported(folder: Path) -> None:
    summary = result(shoestring(folder, *RUN, "--budget", "40 epochs", "--json", run=run_elsewhere))
    assert summary["spent"] == 40
    assert summary["reason"] == "budget"
    assert summary["best"]["value"] >= 1
    assert result(shoestring(folder, "status", "--json"))["best"] == summary["best"]
    assert "guided_halving" in shoestring(folder, "status").stdout
    assert result(shoestring(folder, "explain", "0", "--json"))["trial"] == 0
    assert "train trial 0" in shoestring(folder, "explain", "0").stdout
    again = result(shoestring(folder, "replay", "--policy", "random_search", "--json"))
    assert again["real_best"] == summary["best"]["value"]
    assert "best trial of the study" in shoestring(folder, "replay", "--policy", "asha").stdout
    rows = shoestring(folder, "export", "--format", "csv", run=run_elsewhere).stdout.splitlines()
    assert sum(",False," in row for row in rows) == 40
    assert "config.lr" in rows[0]
    entries = shoestring(folder, "export", "--ledger").stdout.splitlines()
    assert json.loads(entries[0])["kind"] == "opened"


def test_the_same_command_continues_with_a_raised_budget(folder: Path) -> None:
    shoestring(folder, *RUN, "--budget", "20 epochs", "--quiet")
    spent = shoestring(folder, *RUN, "--budget", "20 epochs")
    assert "spend more with: shoestring resume --study job --budget" in spent.stderr
    summary = result(shoestring(folder, *RUN, "--budget", "45 epochs", "--json", "--quiet"))
    assert summary["spent"] == 45
    resumed = result(shoestring(folder, "resume", "--budget", "50 epochs", "--json", "--quiet"))
    assert resumed["spent"] == 50
    assert "50 epochs" in shoestring(folder, *RUN, "--budget", "30 epochs", code=2).stderr
    other = shoestring(folder, *RUN, "--budget", "60 epochs", "-p", "lr={float=[0.1,1.0]}", code=2)
    assert other.stderr.startswith("StudyError: the study 'job' ")
    assert " lr " in other.stderr


def test_changed_code_is_a_warning(folder: Path) -> None:
    shoestring(folder, *RUN, "--budget", "10 epochs", "--quiet")
    (folder / "job.py").write_text(TRAINING + "\n# changed\n")
    assert "the training code has changed" in shoestring(folder, *RUN, "--budget", "12 epochs").stderr


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        (["run", "job.py:trian", "--space", "space.toml", "--budget", "9 epochs"], ["trian", "train"]),
        (["run", "jop.py:train", "--space", "space.toml", "--budget", "9 epochs"], ["jop.py"]),
        ([*RUN, "--budget", "9 epoch s"], ["9 epoch s", "400 epochs"]),
        ([*RUN, "--budget", "$9"], ["rate", "2.50/h"]),
        ([*RUN, "--budget", "0 epochs"], ["0 epochs"]),
        ([*RUN, "--budget", "9 epochs", "--policy", "ahsa"], ["'ahsa'", "'asha'"]),
        ([*RUN, "--budget", "9 epochs", "--policy", "medain"], ["'medain'", "'median'", "bo_bos"]),
        ([*RUN, "--budget", "9 epochs", "--set", "min_steps=3"], ["min_steps", "a setting of asha"]),
        ([*RUN, "--budget", "9 epochs", "--study", "a" * 201], ["201 characters", "at most 200"]),
        ([*RUN, "--budget", "9 epochs", "--study", "a\x1b[2J"], ["\\x1b[2J"]),
        (
            [*RUN, "--budget", "9 epochs", "--devices", "0", "--runner", "local"],
            ["--devices 0", "--runner local", "--runner process"],
        ),
        ([*RUN, "--budget", "9 epochs", "--log", "lr"], ["--log", "--table"]),
        ([*RUN, "--budget", "9 epochs", "--policy", "asha", "--set", "eta=3"], ["eta", "reduction_factor"]),
        ([*RUN, "--budget", "9 epochs", "--policy", "asha", "--set", "reduction_factor=1"], ["reduction_factor=1"]),
        (["run", "job.py:train", "--budget", "9 epochs", "--max-steps", "3"], ["no space", "--space"]),
        (["run", "job.py:train", "--budget", "9 epochs", "--space", "space.toml"], ["--max-steps 20"]),
        (["run", "--budget", "9 epochs", "--space", "space.toml"], ["TARGET", "COMMAND", "--table"]),
        (["run", "job.py:train", "--budgte", "9 epochs"], ["--budget"]),
        (["statsu"], ["Did you mean 'status'"]),
        ([*RUN, "--budget", "9 epochs", "--workers", "0"], ["--workers 0"]),
        ([*RUN, "--budget", "9 epochs", "-p", "lr=[1,2]"], ["lr", "float"]),
        ([*RUN, "--budget", "9 epochs", "--runner", "local", "--workers", "2"], ["--runner local", "--runner process"]),
        ([*RUN, "--budget", "9 epochs", "--live", "0"], ["--live 0"]),
        ([*RUN, "--budget", "9 epochs", "--deadline", "soon"], ["soon", "2h"]),
        ([*RUN, "--budget", "9 epochs", "--hung-after", "x"], ["x", "90s"]),
        ([*RUN, "--budget", "9 epochs", "--checkpoints-at-most", "much"], ["much", "2GB"]),
        ([*RUN, "--budget", "9 epochs", "--validate-at-most", "20%"], ["'20%'", "ce_gp_ucb"]),
        ([*RUN, "--budget", "9 epochs", "--policy", "ce_gp_ucb", "--validate-at-most", "some"], ["'some'", "'20%'"]),
        (["run", "--space", "space.toml", "--budget", "9 epochs", "--", "./nonexist"], ["./nonexist"]),
        (["run", "--space", "space.toml", "--budget", "9 epochs", "--live", "2", "--", "sh"], ["--live"]),
        (["run", "--space", "space.toml", "--budget", "9 epochs", "--", "sh", "{rate}"], ["{rate}", "{{rate}}"]),
        (["plan", "--budget", "9 epochs", "--workers", "0"], ["--workers 0"]),
        (["plan", "--budget", "9 epochs", "--max-steps", "0"], ["--max-steps 0"]),
    ],
)
def test_wrong_usage_is_a_one_line_error_and_writes_nothing(
    folder: Path, words: list[str], fragments: list[str]
) -> None:
    output = run_here(folder, *words)
    assert output.code in (1, 2)
    assert "Traceback" not in output.stderr
    for fragment in fragments:
        assert fragment in output.stderr
    assert not (folder / "shoestring.db").exists()
    assert output.stdout == ""


def test_unreadable_stores_and_unknown_studies_are_errors_of_one_line(folder: Path) -> None:
    assert "shoestring.db" in shoestring(folder, "status", code=1).stderr
    (folder / "shoestring.db").write_text("this is no database, whatever its name says" * 100)
    output = shoestring(folder, "status", code=1, run=run_elsewhere)
    assert len(output.stderr.strip().splitlines()) == 1
    (folder / "shoestring.db").unlink()
    shoestring(folder, *RUN, "--budget", "5 epochs", "--quiet")
    assert "'job'" in shoestring(folder, "status", "--study", "jbo", code=2).stderr
    assert "order 99" in shoestring(folder, "explain", "99", code=2).stderr


def test_a_run_whose_code_fails_or_diverges_has_exit_code_1(folder: Path) -> None:
    words = ["--space", "space.toml", "--budget", "50 epochs", "--max-steps", "5"]
    output = shoestring(folder, "run", "job.py:broken", "--space", "space.toml", "--budget", "50 epochs", code=1)
    assert "no data" in output.stderr
    assert "repair the code, then continue with: shoestring resume --study job\n" in output.stderr
    summary = result(shoestring(folder, "status", "--json"))
    assert summary["trials"] == 3
    assert summary["spent"] == 3
    diverged = shoestring(folder, "run", "job.py:nan", *words, "--study", "nan", "--json", code=1, run=run_elsewhere)
    assert result(diverged)["best"] is None
    assert "a word" not in diverged.stdout
    assert result(shoestring(folder, "run", "job.py:plain", *words[:4], "--study", "plain", "--json"))["max_steps"] == 1


def start(folder: Path, target: str, *words: str) -> subprocess.Popen[str]:
    """Start a run and wait until it has reported a step."""
    options = ["--space", "space.toml", "--max-steps", "50", "--budget", "40 epochs", "--seed", "1", *words]
    process = subprocess.Popen(
        [sys.executable, "-m", "shoestring", "run", f"job.py:{target}", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (folder / "reported").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return process


STOPS = [(signal.SIGINT, "text"), (signal.SIGTERM, "json"), (signal.SIGTERM, "text"), (signal.SIGINT, "json")]


@pytest.mark.repeated
@pytest.mark.parametrize(("number", "form"), STOPS[: repetitions(2, thorough=4)])
def test_a_signal_pauses_the_trials_and_the_study_can_be_resumed(folder: Path, number: int, form: str) -> None:
    process = start(folder, "slow", *(["--json"] if form == "json" else []))
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert "continue with: shoestring resume --study job" in err
    assert "best" in out
    if form == "json":
        assert json.loads(out)["reason"] == "stopped"
    summary = result(shoestring(folder, "resume", "--json", "--quiet"))
    assert summary["spent"] == 40


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_second_ctrl_c_stops_at_once(folder: Path, form: str) -> None:
    process = start(folder, "endless", *(["--json"] if form == "json" else []))
    os.kill(process.pid, signal.SIGINT)
    assert process.stderr is not None
    lines = []  # type: ignore[var-annotated]
    while "press Ctrl-C again to stop at once" not in "".join(lines):
        lines.append(process.stderr.readline())
        assert lines[-1], "".join(lines)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "shoestring resume --study job" in err
    assert "Traceback" not in err
    assert "best" in out
    summary = result(shoestring(folder, "status", "--json"))
    assert (summary["orders"], len(summary["open_orders"])) == (
        summary["receipts"] + 1,
        1,
    )  # the interrupted order stays open


def test_a_second_run_of_a_study_is_refused_with_the_process_id_of_the_first(folder: Path) -> None:
    words = ["run", "job.py:slow", "--space", "space.toml", "--max-steps", "50", "--budget", "400 epochs", "--quiet"]
    process = subprocess.Popen([sys.executable, "-m", "shoestring", *words], cwd=folder, stdout=subprocess.DEVNULL)
    try:
        while "trial" not in run_here(folder, "status").stdout:
            assert process.poll() is None
            time.sleep(0.1)
        assert str(process.pid) in shoestring(folder, *words, code=1).stderr
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def test_validation_stays_within_its_limit(folder: Path) -> None:
    words = ["run", "job.py:train", "--space", "space.toml", "--max-steps", "9", "--seed", "1", "--quiet", "--json"]
    words += ["--budget", "9 epochs", "--policy", "tv_gp_ucb", "--set", "n_starts=2", "--validate-at-most", "3 passes"]
    shoestring(folder, *words)
    entries = [json.loads(line) for line in shoestring(folder, "export", "--ledger").stdout.splitlines()]
    validated = [entry.get("validate") for entry in entries if entry["kind"] == "order"]
    assert validated.count("last") == 3
    assert validated.count("none") == 6


def test_plan_counts_trials_and_policies_lists_settings(folder: Path) -> None:
    summary = result(
        shoestring(folder, "plan", "--budget", "81 epochs", "--max-steps", "27", "--policy", "hyperband", "--json")
    )
    assert summary["spent"] <= 81
    assert "--step-cost" in shoestring(folder, "plan", "--budget", "2h", code=2).stderr
    plan = ["plan", "--budget", "2h", "--step-cost", "60s", "--max-steps", "9"]
    summary = result(shoestring(folder, *plan, "--json"))
    assert (
        f"{summary['policy']} would train {summary['trials']} configurations with 2h 00m"
        in shoestring(folder, *plan).stdout
    )
    listed = result(shoestring(folder, "policies", "--json"))
    assert "asha" in listed
    assert "reduction_factor" in shoestring(folder, "policies", "asha").stdout


def test_a_budget_too_small_for_a_model_gives_a_warning_at_the_start(folder: Path) -> None:
    words = ["--budget", "12 epochs", "--max-steps", "4", "--policy", "cost_aware_ei"]
    warning = result(shoestring(folder, "plan", *words, "--json"))["warning"]
    assert " 3 " in warning
    assert "cost_aware_ei" in warning
    planned = shoestring(folder, "plan", *words)
    assert f"warning: {warning}\n" in planned.stderr
    assert warning not in planned.stdout
    run = ["run", "job.py:train", "--space", "space.toml", "--seed", "1", "--study"]
    assert f"warning: {warning}\n" in shoestring(folder, *run, "small", *words).stderr
    assert "warning" not in shoestring(folder, *run, "usual", *words[:-2]).stderr


def test_any_program_can_be_tuned(folder: Path) -> None:
    script = folder / "job.sh"
    script.write_text(
        '#!/bin/sh\nfor i in $(seq 1 "$SHOESTRING_UNTIL"); do echo "{\\"step\\": $i, \\"value\\": $1}"; done\n'
    )
    script.chmod(0o755)
    words = [
        "run",
        "--space",
        "space.toml",
        "--budget",
        "12 epochs",
        "--max-steps",
        "3",
        "--json",
        "--",
        "./job.sh",
        "{lr}",
    ]
    summary = result(shoestring(folder, *words, run=run_elsewhere))
    assert summary["study"] == "job"
    assert summary["spent"] == 12
    assert summary["best"]["value"] == pytest.approx(summary["best"]["config"]["lr"])


def test_a_program_that_saves_its_state_has_a_checkpoint(folder: Path) -> None:
    script = folder / "job.sh"
    script.write_text(
        'for i in $(seq $((SHOESTRING_STEP + 1)) "$SHOESTRING_UNTIL"); do\n'
        '  echo "{\\"step\\": $i, \\"value\\": $((10 - i))}"; echo $i > "$SHOESTRING_CHECKPOINT/state"\n'
        "done\n"
    )
    words = ["run", "--space", "space.toml", "--budget", "9 epochs", "--max-steps", "3", "--json", "--", "sh", "job.sh"]
    best = result(shoestring(folder, *words))["best"]
    assert (Path(best["checkpoint"]) / "state").read_text().strip() == str(best["step"]) == "3"
