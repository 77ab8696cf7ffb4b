"""The commands in this process: what they store, what they print, and their exit codes."""

from __future__ import annotations

import io
import json
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import pytest

from shoestring import Float, Space, Study, tune
from shoestring.cli.main import cli, main
from shoestring.errors import BudgetError, StudyError
from shoestring.study.simulation import Replay, replay

TRAINING = """
import itertools

from shoestring import Report


def train(config):
    for step in itertools.count(1):
        yield config["lr"] / step


def unlucky(config):
    for step in range(9):
        if config["lr"] > 0.7:
            raise MemoryError(f"Tried to allocate {config['lr']:.2f} GiB")
        yield config["lr"] / (1 + step)


def expensive(config):
    yield Report(config["lr"], cost=1e308)


def leaving(config):
    yield config["lr"]
    raise GeneratorExit("of my own")


def hostile(config):
    raise ValueError("\\x1b[2J\\x07\\u202e" + "x" * 100_000 + "\\x1b]0;title\\x07")
    yield


def forgetful(config):
    for step in range(9):
        yield next(DRAWN)


DRAWN = itertools.count(100, -1)


class Saving:
    def __init__(self, config):
        self.lr = config["lr"]

    def step(self):
        return self.lr

    def save(self, path):
        path.mkdir()

    def load(self, path):
        pass
"""
SPACE = ("-p", "lr={float=[0.1,1.0]}")


@dataclass(frozen=True)
class CommandOutput:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Shoestring = Callable[..., CommandOutput]


@pytest.fixture
def shoestring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Shoestring]:
    """Return a function that runs a command line in a new folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "code_of_commands.py").write_text(TRAINING)

    def call(*words: str, code: int = 0) -> CommandOutput:
        capsys.readouterr()
        with pytest.raises(SystemExit) as raised:
            main(list(words))
        printed = capsys.readouterr()
        output = CommandOutput(int(raised.value.code or 0), printed.out, printed.err)
        assert output.code == code, f"{output.code}\n{output.out}\n{output.err}"
        return output

    yield call
    sys.modules.pop("code_of_commands", None)


def run(name: str, budget: str = "20 epochs", steps: int = 5) -> list[str]:
    return [
        *("run", f"code_of_commands.py:{name}", "--budget", budget, "--max-steps", str(steps), "--seed", "1"),
        *SPACE,
        *("--store", "s.db", "--study", name),
    ]


STORE = ("--store", "s.db")


# the same command again ---------------------------------------------------------------------------------------------


def test_a_run_without_a_policy_keeps_the_policy_of_the_study(shoestring: Shoestring) -> None:
    asha = ["--policy", "asha", "--set", "reduction_factor=4"]
    begun = shoestring(*run("train"), *asha, "--json").json
    assert (begun["policy"], begun["settings"]["reduction_factor"]) == ("asha", 4)
    again = shoestring(*run("train", "25 epochs"), "--json")
    assert (again.json["policy"], again.json["settings"]) == ("asha", begun["settings"])
    assert re.search("^changed: .* 25 epochs$", again.err, re.M)
    reset = shoestring(*run("train", "30 epochs"), "--set", "reduction_factor=2", "--json")
    assert (reset.json["policy"], reset.json["settings"]["reduction_factor"]) == ("asha", 2)
    assert re.search("^changed: .* asha .*reduction_factor=2", reset.err, re.M)
    other = shoestring(*run("train", "30 epochs"), "--policy", "random_search", "--json")
    assert other.json["policy"] == "random_search"
    assert re.search("^changed: .* random_search$", other.err, re.M)
    assert "changed" not in shoestring(*run("train", "30 epochs"), "--policy", "random_search").err
    assert shoestring(*run("train", "30 epochs"), "--set", "reduction_factor=2", code=2).err.startswith("PolicyError")


def test_a_run_without_workers_keeps_the_number_of_the_study(shoestring: Shoestring) -> None:
    shoestring(*run("train", "4 epochs"), "--workers", "2", "--quiet", "--deadline", "0s")
    assert shoestring(*run("train", "4 epochs"), "--quiet", "--json", "--deadline", "0s").json["workers"] == 2
    one = shoestring(*run("train", "4 epochs"), "--workers", "1", "--json")
    assert one.json["workers"] == 1
    assert re.search("^changed: .* 1$", one.err, re.M)


def test_a_study_of_python_continues_without_a_warning_of_changed_code(shoestring: Shoestring) -> None:
    import code_of_commands  # type: ignore[import-not-found]

    tune(code_of_commands.train, {"lr": Float(0.1, 1.0)}, "5 epochs", max_steps=5, name="train", store="s.db", seed=1)
    assert "has changed" not in shoestring(*run("train", "10 epochs")).err


# output --------------------------------------------------------------------------------------------------------------


def test_status_shows_failures_and_the_last_order_of_each_trial(shoestring: Shoestring) -> None:
    result = shoestring(*run("unlucky", "40 epochs"), "--policy", "random_search", "--json").json
    (group,) = result["failures"]
    assert group["text"].startswith("MemoryError: Tried to allocate")
    assert group["count"] == len(group["trials"]) >= 2
    status = shoestring("status", *STORE).out
    assert f"{group['count']} failed:" in status
    assert f"{group['count']} x MemoryError: Tried to allocate" in status
    assert shoestring("status", *STORE, "--json").json["failures"] == [group]
    best = shoestring("status", *STORE, "--json").json["top_trials"][0]
    explained = shoestring("explain", str(best["last_order"]), *STORE, "--json").json
    assert explained["trial"] == best["trial"]
    assert explained["steps"][-1]["step"] == best["steps"]
    row = next(line for line in status.splitlines() if re.match(rf" *{best['trial']} +{best['last_order']} ", line))
    assert "complete" in row


def test_explain_lists_the_orders_of_a_trial(shoestring: Shoestring) -> None:
    shoestring(*run("train", "60 epochs", 9), "--quiet")
    orders = shoestring("explain", "--trial", "0", *STORE, "--json").json
    assert orders
    assert {order["trial"] for order in orders} == {0}
    listed = shoestring("explain", "--trial", "0", *STORE).out
    assert all(re.search(rf"^ *{order['number']} +{order['until']} ", listed, re.M) for order in orders)
    assert "no trial 999" in shoestring("explain", "--trial", "999", *STORE, code=2).err
    assert "or --trial N" in shoestring("explain", *STORE, code=2).err
    assert "or --trial N" in shoestring("explain", "0", "--trial", "0", *STORE, code=2).err


def test_code_that_cannot_save_is_noted_once_after_its_first_report(shoestring: Shoestring) -> None:
    lines = shoestring(*run("train")).err.splitlines()
    (place,) = [number for number, line in enumerate(lines) if "cannot save checkpoints, so paused trials" in line]
    assert place <= 2
    assert "cannot save" not in shoestring(*run("Saving")).err
    words = ["run", "--budget", "6 epochs", "--max-steps", "3", *SPACE, *STORE, "--study", "program"]
    output = shoestring(*words, "--", "sh", "-c", "for i in 1 2 3; do echo {lr}; done", code=0).err
    assert output.count("this program writes no checkpoint to SHOESTRING_CHECKPOINT") == 1


def test_a_policy_that_ends_early_shows_how_much_is_left(shoestring: Shoestring) -> None:
    words = [*run("train", "90 epochs"), "--policy", "replay_fixed", "--set", 'orders=[[0,{"lr":0.5},5]]']
    assert "85 epochs of 90 epochs" in shoestring(*words).err


def test_parameters_without_a_placeholder_in_a_command_are_named(shoestring: Shoestring) -> None:
    words = ["run", "--budget", "2 epochs", "-p", "lr={float=[0.1,1]}", "-p", "decay={float=[0,1]}", *STORE]
    output = shoestring(*words, "--study", "a", "--", "echo", "{lr}").err
    assert "warning: the command has no {decay} for decay" in output
    assert "warning" not in shoestring(*words, "--study", "b", "--", "echo", "1").err


def test_texts_of_training_code_cannot_act_on_the_terminal(shoestring: Shoestring) -> None:
    result = shoestring(*run("hostile"), code=1)
    status = shoestring("status", *STORE)
    for text in (result.out, result.err, status.out):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert "\\x1b[2J" in result.err
    assert re.search(r"\(\d{2},\d{3} ", result.err), "the number of characters that were cut"
    assert len(result.err) < 10_000
    rows = [json.loads(line) for line in shoestring("export", *STORE, "--ledger").out.splitlines()]
    failures = [row["text"] for row in rows if row["kind"] == "receipt"]
    assert failures
    assert all(len(text.encode()) <= 4096 for text in failures)


def test_errors_are_one_line_whatever_they_quote(shoestring: Shoestring) -> None:
    Path("unimportable.py").write_text("raise RuntimeError('\\x1b[2J\\x07')")
    words = ["run", "unimportable.py:train", "--budget", "9 epochs", "--max-steps", "3", *SPACE]
    output = shoestring(*words, code=2).err
    assert "RuntimeError: \\x1b[2J\\x07" in output
    assert len(output.splitlines()) == 1
    assert "\x1b" not in shoestring("status", "--\x1b[2Jx", code=2).err


@pytest.mark.parametrize(
    ("name", "message"),
    [("expensive", r"ValueError: .* 1e\+308 "), ("leaving", "GeneratorExit: of my own")],
)
def test_unusual_exceptions_of_training_code_are_failures(shoestring: Shoestring, name: str, message: str) -> None:
    result = shoestring(*run(name), "--policy", "random_search", code=1)
    assert re.search(message, result.err)
    if name == "expensive":
        assert "Traceback" not in result.err


# exit codes ----------------------------------------------------------------------------------------------------------


def test_a_deadline_of_zero_trains_nothing(shoestring: Shoestring) -> None:
    result = shoestring(*run("train"), "--deadline", "0s", "--json")
    assert (result.json["spent"], result.json["orders"], result.json["reason"]) == (0, 0, "deadline")
    assert "shoestring resume" in result.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["status", "--rows", "-1", *STORE], "--rows -1"),
        (["plan", "--budget", "1h", "--max-steps", "3", "--step-cost", ""], "step cost"),
        (["run", "--max-steps", "0", "--budget", "9 epochs", *STORE, *SPACE, "--", "true", "{lr}"], "--max-steps 0"),
        (["serve", "--max-steps", "0", "--study", "train", *STORE], "--study NAME alone"),
    ],
)
def test_numbers_that_make_no_sense_are_errors(shoestring: Shoestring, words: list[str], named: str) -> None:
    shoestring(*run("train", "4 epochs"), "--quiet")
    assert named in shoestring(*words, code=2).err


def test_the_exit_codes_are_in_the_help(shoestring: Shoestring) -> None:
    for command in ("run", "resume"):
        output = " ".join(shoestring(command, "--help").out.split())
        for words in ("130 stopped by Ctrl-C", "143 stopped by SIGTERM", "0 success, also at the deadline"):
            assert words in output
        assert "0s trains nothing" in output


# settings ------------------------------------------------------------------------------------------------------------


def test_settings_are_given_in_the_words_of_the_pages(shoestring: Shoestring) -> None:
    words = ("--set", "replan_every=none", "--set", "k1=inf", "--set", "noise_allowance=true", "--set", "kappa=inf")
    begun = shoestring(*run("train"), "--policy", "bo_bos", *words, "--json", "--quiet").json["settings"]
    assert (begun["replan_every"], begun["noise_allowance"]) == (None, True)
    assert begun["k1"] == begun["kappa"] == "~inf"
    again = shoestring(*run("train", "25 epochs"), "--set", "replan_every=4", "--json", "--quiet").json["settings"]
    assert (again["replan_every"], again["k1"]) == (4, "~inf")
    planned = shoestring("plan", "--budget", "20 epochs", "--max-steps", "5", "--policy", "bhpt", "--set", "scale=none")
    assert planned.out
    assert shoestring("replay", *STORE, "--policy", "bhpt", "--set", "eps=none", "--json").json["policy"] == "bhpt"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("cost_aware_ei", "transferred=nonsense", "cost_model=transfer"), "transferred='nonsense'"),
        (("cost_aware_ei", "transferred=nonsense"), "transferred='nonsense'"),
        (("bhpt", "lengthscale=nonsense"), "lengthscale='nonsense'"),
        (("bhpt", "commit=nonsense"), "commit='nonsense'"),
        (("bo_bos", "replan_every=nonsense"), "replan_every='nonsense'"),
    ],
)
def test_a_setting_that_cannot_be_read_is_refused_before_there_is_a_study(
    shoestring: Shoestring, words: tuple[str, ...], message: str
) -> None:
    policy, *settings = words
    options = [word for setting in settings for word in ("--set", setting)]
    refused = shoestring(*run("train"), "--policy", policy, *options, code=2)
    assert message in refused.err
    assert "Traceback" not in refused.err
    assert not Path("s.db").exists()


# after a study --------------------------------------------------------------------------------------------------------


def test_replay_counts_the_steps_that_are_not_recorded(shoestring: Shoestring) -> None:
    shoestring(*run("train", "60 epochs", 9), "--quiet")
    result = shoestring("replay", "--policy", "random_search", *STORE, "--json").json
    assert result["missing_steps"] > 0
    assert result["missing_share"] == result["missing_steps"] / (result["missing_steps"] + result["recorded_steps"])
    output = shoestring("replay", "--policy", "random_search", *STORE).out
    assert f"caution: {result['missing_steps']} of the" in output
    assert f"({result['missing_share']:.0%})" in output
    assert result["can_tell"] is (result["missing_share"] <= 0.3)
    shoestring(*run("forgetful", "9 epochs", 1), "--quiet")
    complete = shoestring("replay", "--policy", "random_search", *STORE, "--study", "forgetful")
    assert "caution" not in complete.out


@pytest.mark.parametrize(("recorded", "can_tell"), [(7, True), (6, False)])
def test_a_replay_that_knows_too_little_says_so_first(
    shoestring: Shoestring, monkeypatch: pytest.MonkeyPatch, recorded: int, can_tell: bool
) -> None:
    shoestring(*run("train", "60 epochs", 9), "--quiet")

    def replay_part(*arguments: Any) -> Replay:
        return replace(replay(*arguments), recorded_steps=recorded, missing_steps=10 - recorded)

    monkeypatch.setattr("shoestring.study.simulation.replay", replay_part)
    output = shoestring("replay", "--policy", "random_search", *STORE).out
    beginning = (
        "cannot tell whether random_search would have done better: of the 10 steps that it would have trained, only 6"
    )
    assert output.startswith(beginning) is not can_tell
    assert shoestring("replay", "--policy", "random_search", *STORE, "--json").json["can_tell"] is can_tell


def test_the_best_trial_is_trained_again(shoestring: Shoestring) -> None:
    result = shoestring(*run("train", "30 epochs"))
    best = Study.open("train", "s.db").best
    assert best is not None
    assert f"for about {best.step} epochs:\n  shoestring retrain --study train --store s.db" in result.err
    dry_run = shoestring("retrain", *STORE, "--dry-run")
    assert (
        dry_run.out
        == f"training trial {best.trial} of 'train' to step {best.step} again would cost about {best.step} epochs\n"
    )
    spent = Study.open("train", "s.db").spent
    result = shoestring("retrain", "--study", "train", *STORE, "--json").json
    assert (result["value"], result["is_same"], result["step"]) == (best.value, True, best.step)
    result = shoestring("retrain", *STORE)
    assert "as recorded" in result.out
    assert f"step {best.step}: " in result.err
    assert Study.open("train", "s.db").spent == spent


def test_retraining_to_a_different_value_has_its_own_exit_code(shoestring: Shoestring) -> None:
    shoestring(*run("forgetful", "30 epochs"), "--quiet")
    result = shoestring("retrain", *STORE, code=4)
    assert "as recorded" in result.out
    assert "set its random seeds" in result.err
    assert "Warning" not in result.err


def test_the_logs_of_a_command_are_shown_by_trial_and_stream(shoestring: Shoestring) -> None:
    script = "echo first; printf 'a\\033[2Jb\\n'; echo warned >&2; echo 1.5"
    words = ["run", "--budget", "1 epochs", *SPACE, *STORE, "--study", "c", "--quiet", "--", "sh", "-c", script]
    shoestring(*words)
    assert shoestring("logs", "0", *STORE).out == "first\na\\x1b[2Jb\n1.5\n"
    assert shoestring("logs", "0", *STORE, "--tail", "1").out == "1.5\n"
    assert shoestring("logs", "0", *STORE, "--stderr").out == "warned\n"
    assert shoestring("logs", "0", *STORE, "--stderr", "--json").json["text"] == "warned\n"
    assert "trial 7:" in shoestring("logs", "7", *STORE, code=2).err
    assert "0 or more" in shoestring("logs", "0", *STORE, "--tail", "-1", code=2).err


def test_a_trial_without_a_log_is_an_error(shoestring: Shoestring) -> None:
    shoestring(*run("train", "5 epochs"), "--quiet")
    assert (
        "only worker processes and commands that print something have logs"
        in shoestring("logs", "0", *STORE, code=2).err
    )
    shoestring(*run("train", "1 epochs"), "--study", "silent", "--runner", "process", "--quiet")
    assert "the trial printed nothing" in shoestring("logs", "0", "--study", "silent", *STORE, code=2).err


# drawing -------------------------------------------------------------------------------------------------------------


def test_a_report_shows_the_chosen_decision(shoestring: Shoestring, tmp_path: Path) -> None:
    shoestring(*run("train", "30 epochs"), "--policy", "bhpt", "--set", "arms=5")
    result = shoestring("report", "--study", "train", "--order", "12", "--compare", "asha", *STORE, "--json").json
    page = (tmp_path / result["report"]).read_text("utf-8")
    assert "Order 12 trained trial" in page
    assert "asha" in page.partition('<section id="replayed">')[2]
    wrong = shoestring("report", "--study", "train", "--order", "77", *STORE, code=2)
    assert "order 77 in 'train'" in wrong.err
    shoestring(*run("unlucky", "9 epochs"))
    several = shoestring("report", "--order", "1", *STORE, code=2)
    assert "--order 1 is for one study: choose it with --study NAME, one of train, unlucky" in several.err


def test_the_command_line_needs_a_file(shoestring: Shoestring) -> None:
    found = shoestring(*run("train"), "--store", ":memory:", code=2).err
    assert "--store :memory: would lose the study at the end of the command: name a file" in found
    assert "there is no study in it to open" in shoestring("status", "--store", ":memory:", code=1).err


@pytest.mark.parametrize(
    ("words", "direction"),
    [
        ([], "min"),
        (["--direction", "min"], "min"),
        (["--direction", "max"], "max"),
        (["--maximize"], "max"),
        (["--maximize", "--direction", "max"], "max"),
    ],
    ids=" ".join,
)
def test_the_direction_has_an_option(shoestring: Shoestring, words: list[str], direction: str) -> None:
    shoestring(*run("train", "4 epochs"), "--quiet", "--study", "one", *words)
    assert Study.open("one", STORE[1]).ledger.definition.direction == direction


def test_two_directions_are_an_error(shoestring: Shoestring) -> None:
    found = shoestring(*run("train", "4 epochs"), "--maximize", "--direction", "min", code=2).err
    assert "--maximize and --direction min contradict each other" in found


# the studies of a store ----------------------------------------------------------------------------------------------


def test_every_command_names_a_study_with_the_same_option() -> None:
    named = {name for name, command in cli.commands.items() if any("--study" in one.opts for one in command.params)}
    assert cli.commands.keys() - named == {"plan", "policies", "list"}  # these are not about one study
    for command in cli.commands.values():
        words = [one.name for one in command.params if isinstance(one, click.Argument)]
        assert "study" not in " ".join(filter(None, words))


@pytest.mark.parametrize("command", ["status", "report", "retrain", "watch"])
def test_a_name_without_its_option_is_explained(shoestring: Shoestring, command: str) -> None:
    expected = "the word 'train' is too many; a study is named with --study NAME"
    assert expected in shoestring(command, "train", code=2).err


def test_several_studies_are_listed(shoestring: Shoestring) -> None:
    for name in ("train", "Saving"):
        shoestring(*run(name), "--quiet")
    listed = shoestring("list", *STORE)
    rows = [line.split() for line in listed.out.splitlines()]
    assert [row[0] for row in rows] == ["study", "train", "Saving", "more"]
    assert rows[1][3:] == ["20", "epochs", "of", "20", "epochs", "guided_halving"]
    assert "shoestring status --study NAME --store s.db" in listed.out
    assert shoestring("status", *STORE).out == listed.out
    as_json = shoestring("list", *STORE, "--json").json
    assert [one["study"] for one in as_json["studies"]] == ["train", "Saving"]
    assert (
        as_json["studies"][0]["best"]
        == shoestring("status", "--study", "train", *STORE, "--json").json["best"]["value"]
    )
    assert shoestring("status", *STORE, "--json").json == as_json
    assert (
        "2 studies, train, Saving: name one of them, with --study NAME"
        in shoestring("explain", "0", *STORE, code=2).err
    )


def test_a_damaged_study_does_not_hide_the_others(shoestring: Shoestring) -> None:
    for name in ("train", "Saving"):
        shoestring(*run(name), "--quiet")
    with closing(sqlite3.connect("s.db")) as connection, connection:
        connection.execute("UPDATE entries SET body = '{}' WHERE study = 'train' AND seq = 3")
    first, second = shoestring("list", *STORE, "--json").json["studies"]
    assert "is damaged" in first["error"]
    assert second["spent"] == 20
    assert "cannot be read" in shoestring("list", *STORE).out


def test_a_study_is_renamed_with_its_checkpoints(shoestring: Shoestring, tmp_path: Path) -> None:
    shoestring(*run("Saving"), "--quiet")
    before = shoestring("status", *STORE, "--json").json
    assert "now 'better'" in shoestring("rename", "better", *STORE).out
    after = shoestring("status", *STORE, "--json").json
    assert after["study"] == "better"
    assert Path(after["best"]["checkpoint"]).is_dir()
    assert [path.name for path in (tmp_path / "s.db.checkpoints").iterdir()] == ["better"]
    for part in ("spent", "top_trials", "seconds"):
        assert after[part] == before[part]
    resumed = shoestring("resume", *STORE, "--budget", "30 epochs", "--json").json
    shoestring(*run("train"), "--quiet")
    taken = shoestring("rename", "train", "--study", "better", *STORE, code=1).err
    assert "there is a study 'train' in" in taken
    shoestring("rename", "saved", "--study", "better", *STORE)
    shoestring(*run("Saving"), "--quiet")
    taken = shoestring("rename", "saved", "--study", "Saving", *STORE, code=1).err  # a study with checkpoints
    assert "there is a study 'saved' in" in taken
    shoestring("delete", "--yes", "--study", "Saving", *STORE)
    shoestring("rename", "better", "--study", "saved", *STORE)
    assert Path(resumed["best"]["checkpoint"]).is_dir()
    assert shoestring("list", *STORE, "--json").json["studies"][0]["spent"] == 30


def test_a_study_is_deleted_with_its_files_and_no_other_is(shoestring: Shoestring, tmp_path: Path) -> None:
    for name in ("train", "Saving"):
        shoestring(*run(name), "--quiet")
    shoestring(*run("Saving"), "--study", "other", "--quiet")
    refused = shoestring("delete", "--study", "Saving", *STORE, code=2).err
    assert "this would delete the study 'Saving' in " in refused
    assert "add --yes" in refused
    assert len(shoestring("list", *STORE, "--json").json["studies"]) == 3
    deleted = shoestring("delete", "--study", "Saving", "--yes", *STORE, "--json").json
    assert deleted["checkpoints"] == str(tmp_path / "s.db.checkpoints" / "Saving")
    assert deleted["trials"] > 0
    assert [one["study"] for one in shoestring("list", *STORE, "--json").json["studies"]] == ["train", "other"]
    assert [path.name for path in (tmp_path / "s.db.checkpoints").iterdir()] == ["other"]
    shoestring("delete", "--yes", *STORE, code=2)  # the study must be named


@pytest.mark.parametrize("answer", ["y", "n"])
def test_deleting_asks_on_a_terminal(shoestring: Shoestring, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    shoestring(*run("train"), "--quiet")
    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
    output = shoestring("delete", "--study", "train", *STORE, code=0 if answer == "y" else 130)
    assert "this deletes the study 'train'" in output.err
    assert len(shoestring("list", *STORE, "--json").json["studies"]) == (0 if answer == "y" else 1)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("words", [["delete", "--yes", "--study", "train"], ["rename", "other"]], ids=" ".join)
def test_a_study_that_is_running_is_left_alone(shoestring: Shoestring, words: list[str]) -> None:
    shoestring(*run("train"), "--quiet")
    study = Study.open("train", "s.db")
    with study.store.lease("train"):
        assert "is being run by process" in shoestring(*words, *STORE, code=1).err
    assert shoestring("list", *STORE, "--json").json["studies"][0]["study"] == "train"


def test_python_and_the_command_line_name_arguments_in_their_own_way(shoestring: Shoestring) -> None:
    space = {"lr": {"float": [0.1, 1.0]}}
    with pytest.raises(StudyError, match=r"^workers=0 must be a whole number, 1 or more$"):
        Study.begin(space, "9 epochs", workers=0)
    assert (
        "StudyError: --workers 0 must be a whole number, 1 or more\n"
        in shoestring(*run("train"), "--workers", "0", code=2).err
    )
    shoestring(*run("train"), "--quiet")
    shoestring(*run("Saving"), "--quiet")
    with pytest.raises(StudyError, match=r"name one of them, with name=…$"):
        Study.open(store="s.db")
    with pytest.raises(StudyError, match=r"start another study, with name=…$"):
        Study.begin(space, "30 epochs", name="train", store="s.db", max_steps=7)
    assert shoestring(*run("train", steps=7), code=2).err.endswith("start another study, with --study NAME\n")
    with pytest.raises(StudyError, match=r"^workers=0"):  # after a command, messages are Python's again
        Study.begin(space, "9 epochs", workers=0)


def test_a_budget_may_be_in_trials_of_a_function(shoestring: Shoestring, tmp_path: Path) -> None:
    (tmp_path / "code_of_commands.py").write_text("def plain(config):\n    return config['lr']\n\n" + TRAINING)
    words = ["run", "code_of_commands.py:plain", *SPACE, *STORE]
    summary = shoestring(*words, "--budget", "6 calls", "--json").json
    assert (summary["budget"], summary["spent"], summary["trials"]) == ("6 trials", 6, 6)
    assert "spent 6 trials of 6 trials, left 0 trials" in shoestring("status", *STORE).out
    assert shoestring("resume", "--budget", "8 trials", *STORE, "--json").json["trials"] == 8
    refused = shoestring(*run("train", "20 trials"), code=2).err
    assert 'but a full training has 5 steps: write "100 epochs", which would pay for 20 full trainings' in refused
    shoestring(*run("train"), "--quiet")
    for command in ("resume", "replay"):
        refused = shoestring(command, "--study", "train", "--budget", "30 trials", *STORE, code=2).err
        assert 'write "150 epochs"' in refused
    with pytest.raises(BudgetError, match='write "15 epochs"'):
        Study.begin(Space({"lr": Float(0.1, 1.0)}), "3 trials", max_steps=5)


def test_one_file_gets_one_figure(shoestring: Shoestring, tmp_path: Path) -> None:
    shoestring(*run("train"), "--quiet")
    assert shoestring("report", "--svg", "all.svg", *STORE, "--json").json["figures"] == ["all.svg"]
    assert "<title>" in (tmp_path / "all.svg").read_text("utf-8")
    shoestring("report", "--svg", "folder", "--figure", "curves", "--figure", "best", *STORE)
    assert (tmp_path / "all.svg").read_text("utf-8") == (tmp_path / "folder" / "curves.svg").read_text("utf-8")
    shoestring("report", "--svg", "best.SVG", "--figure", "best", *STORE)
    assert (tmp_path / "best.SVG").read_text("utf-8") == (tmp_path / "folder" / "best.svg").read_text("utf-8")
    refused = shoestring("report", "--svg", "x.svg", "--figure", "curves", "--figure", "best", *STORE, code=2).err
    assert "--svg x.svg is one file, for one figure: choose one of " in refused
    assert not (tmp_path / "x.svg").exists()
    pytest.importorskip("resvg_py")
    shoestring("report", "--png", "all.png", *STORE)
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")


def test_a_missing_store_names_those_nearby(
    shoestring: Shoestring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOESTRING_STUDIES", str(tmp_path / "unnamed"))
    assert "nearby" not in shoestring("status", code=1).err
    (tmp_path / "notes.db").write_text("no store")
    (tmp_path / "out" / "demo").mkdir(parents=True)
    shoestring(*run("train"), "--store", "out/demo/demo.db", "--quiet")
    expected = "there is no store 'shoestring.db': give one that exists, with --store … (nearby: out/demo/demo.db)"
    assert expected in shoestring("status", code=1).err
    shoestring(*run("train"), "--quiet")
    monkeypatch.chdir(tmp_path / "out")
    assert "(nearby: demo/demo.db, ../s.db)" in shoestring("status", code=1).err
    monkeypatch.chdir(tmp_path / "out" / "demo")
    study = tune(lambda config: config["lr"], Space({"lr": Float(0.1, 1.0)}), "3 trials", progress=False)
    found = shoestring("status", code=1).err
    assert f"(nearby: demo.db; without a name, the newest: {study.store.where})" in found
    assert Study.open(store=study.store.where).spent == 3


# earlier studies ------------------------------------------------------------------------------------------------------


def test_a_study_learns_from_an_earlier_one_and_says_so(shoestring: Shoestring) -> None:
    shoestring(*run("train"))
    learned = shoestring(*run("train")[:-1], "second", "--like", "train", "--json")
    assert learned.json["earlier_studies"][0]["name"] == "train"
    assert re.search(r"^learned from train: \d+ trials of \d+, 1 parameter in common, read on 20", learned.err, re.M)
    assert "learned from train" in shoestring("status", *STORE, "--study", "second").out
    assert "as learned from train (weight 1)" in shoestring("explain", "0", *STORE, "--study", "second").out


def test_earlier_studies_of_the_same_parameters_are_mentioned_but_not_used(shoestring: Shoestring) -> None:
    shoestring(*run("train"))
    second = shoestring(*run("train")[:-1], "second", "--json")
    assert "note: 1 earlier study of this space is in this store; in a new study, --like train uses it" in second.err
    assert second.json["earlier_studies"] == []
    assert "earlier stud" not in shoestring(*run("train", "25 epochs")[:-1], "second").err


def test_a_parameter_of_an_earlier_study_can_be_renamed(shoestring: Shoestring, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("learning_rate,loss\n0.1,1\n0.5,2\n0.9,3\n")
    words = [*run("train"), "--like", "runs.csv", "--like-rename", "learning_rate=lr", "--json"]
    assert shoestring(*words).json["earlier_studies"][0]["parameters"] == ["lr"]
    error = shoestring(*run("train")[:-1], "other", "--like", "runs.csv", "--like-rename", "learning_rate", code=2).err
    assert "--like-rename 'learning_rate' must be OLD=NEW" in error


def test_an_earlier_study_that_cannot_be_used_begins_nothing(shoestring: Shoestring) -> None:
    error = shoestring(*run("train"), "--like", "gone", code=2).err
    assert len(error.splitlines()) == 1
    assert "there is no study 'gone'" in error


def test_a_plan_takes_the_duration_of_a_step_from_an_earlier_study(shoestring: Shoestring, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("lr,loss,seconds\n0.1,1,2\n0.5,2,4\n")
    planned = shoestring("plan", "--budget", "30s", "--max-steps", "5", "--like", "runs.csv", "--json")
    assert planned.json["spent"] == 30.0
    assert "a step of runs.csv took 3 s" in planned.err
    assert planned.json == shoestring("plan", "--budget", "30s", "--max-steps", "5", "--step-cost", "3s", "--json").json


def test_another_policy_is_replayed_with_the_same_earlier_studies(shoestring: Shoestring) -> None:
    shoestring(*run("train"))
    shoestring(*run("train")[:-1], "second", "--like", "train")
    replayed = shoestring("replay", *STORE, "--study", "second", "--policy", "guided_halving", "--json").json
    assert replayed["policy"] == "guided_halving"


# code that changed, or is not known -----------------------------------------------------------------------------------


def test_failed_trials_of_code_that_was_repaired_are_mentioned(shoestring: Shoestring, tmp_path: Path) -> None:
    shoestring(*run("unlucky"), "--quiet")
    failed = sum(bool(trial.failure) for trial in Study.open("unlucky", "s.db").trials)
    code = tmp_path / "code_of_commands.py"
    code.write_text(TRAINING.replace("> 0.7", "> 7.0"))
    sys.modules.pop("code_of_commands", None)
    resumed = shoestring("resume", *STORE, "--budget", "30 epochs").err
    assert failed > 0
    assert f"note: {failed} failed trial" in resumed


def test_retraining_what_only_python_knows_begins_nothing(shoestring: Shoestring) -> None:
    tune(lambda config: config["lr"], Space({"lr": Float(0.1, 1.0)}), "3 trials", store="s.db", progress=False)
    refused = shoestring("retrain", *STORE, code=2).err
    assert refused.splitlines() == [refused.strip()]
    assert "pass the training code again, as study.retrain_best(train)" in refused
