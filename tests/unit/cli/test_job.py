"""What the options of the command line become: spaces, settings and jobs."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoestring import Float, Int, Space
from shoestring.cli.job import Job, add_validation_limit, read_configs, read_settings, read_space
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import PolicyError, RunnerError, ShoestringError, SpaceError, StudyError
from shoestring.runners.command.command_runner import CommandRunner
from shoestring.runners.make import describe_code
from shoestring.runners.ray.cluster import RayCluster


def test_words_take_precedence_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text("lr = { float = [0.1, 1.0] }\nn = { int = [1, 3] }\n")
    space = read_space(str(file), ["n={int=[1,9]}"])
    assert space.parameters["n"] == Int(1, 9)
    marked = read_space(None, ['n={int=[1,500],log=true,cost="increases"}'])
    assert marked.parameters["n"] == Int(1, 500, log=True, cost="increases")
    for text in ("lr = [", "\xff"):
        file.write_bytes(text.encode("latin-1"))
        with pytest.raises(SpaceError, match=r"space\.toml"):
            read_space(str(file), [])
    with pytest.raises(SpaceError, match="cannot be read"):
        read_space(str(tmp_path / "none.toml"), [])


def test_nothing_may_be_given_twice() -> None:
    with pytest.raises(SpaceError, match=r"lr is given twice, as --param 'lr=\{float=\[0,1\]\}' and --param 'lr=\{int"):
        read_space(None, ["lr={float=[0,1]}", "lr={int=[1,9]}"])
    with pytest.raises(PolicyError, match="'a=4' sets a a second time"):
        read_settings(["a=3", "a=4"], "asha")


def test_settings_are_read_as_json_or_as_text() -> None:
    assert read_settings(["a=3", "b=true", 'c="x"', "d=word", "e=[1, 2]"], "asha") == {
        "a": 3,
        "b": True,
        "c": "x",
        "d": "word",
        "e": [1, 2],
    }
    with pytest.raises(ShoestringError, match="name=value"):
        read_settings(["eta"], "asha")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("none", None),
        ("None", None),
        ("null", None),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("Infinity", math.inf),
        ("True", True),
        ("true", True),
        ("False", False),
    ],
)
def test_values_are_read_as_pages_and_messages_write_them(word: str, value: object) -> None:
    assert read_settings([f"replan_every={word}"], "bo_bos") == {"replan_every": value}
    assert read_settings([f"newcomers={word}"], "asha") == {"newcomers": value}


def test_none_stays_a_word_where_a_setting_has_that_word() -> None:
    assert read_settings(["augmentation=none", "min_steps=none"], "boil") == {"augmentation": "none", "min_steps": None}
    assert read_settings(["scale=none", "eps=none"], "bhpt") == {"scale": "none", "eps": None}


def test_a_limit_on_validation_is_a_setting_of_the_policies_that_have_it() -> None:
    assert add_validation_limit("asha", {"reduction_factor": 3}, None) == {"reduction_factor": 3}
    for policy in ("ce_gp_ucb", "tv_gp_ucb", "ucb1"):
        assert add_validation_limit(policy, {"clip": 3}, "20%") == {"clip": 3, "validate_at_most": "20%"}
    with pytest.raises(PolicyError, match=r"'20%'.*decide when to validate, and asha does not.*--policy ce_gp_ucb"):
        add_validation_limit("asha", {}, "20%")
    with pytest.raises(PolicyError, match=r"'20%'.*validate_at_most=9m.*twice: leave one"):
        add_validation_limit("ce_gp_ucb", {"validate_at_most": "9m"}, "20%")


def test_configs_are_read_from_lines_or_from_a_list(tmp_path: Path) -> None:
    file = tmp_path / "first.jsonl"
    rows = [{"lr": 0.1}, {"lr": 0.2}]
    file.write_text("\n".join(map(json.dumps, rows)))
    assert read_configs(str(file)) == rows
    file.write_text(json.dumps(rows))
    assert read_configs(str(file)) == rows
    assert read_configs(None) == []
    for body in (b"{", b"\xff\xfe", b"[" * 100_000):
        file.write_bytes(body)
        with pytest.raises(SpaceError, match="not JSON"):
            read_configs(str(file))


def test_a_job_is_stored_with_its_study_and_knows_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("def f(config): return 1")
    job = Job.from_words("train.py:f", [], None, live=3)
    assert Job.from_target(json.loads(json.dumps(job.to_target()))) == job
    assert (job.name, job.words) == ("train", "train.py:f")
    Path("train.py").write_text("def f(config): return 2")
    assert job.with_fingerprint().fingerprint != job.fingerprint
    command = Job.from_words(None, ["sh", "train.py", "{lr}"], None)
    assert (command.name, command.words) == ("train", "-- sh train.py '{lr}'")
    with pytest.raises(StudyError, match="--live is for Python code"):
        Job.from_words(None, ["sh"], None, live=3)
    with pytest.raises(
        StudyError, match=r"give exactly one of TARGET \(file.py:train\), -- COMMAND …, or --table FILE"
    ):
        Job.from_words("a:b", ["sh"], None)
    with pytest.raises(StudyError, match="begun from Python"):
        Job.from_target({"name": "f"})


def test_a_long_script_among_the_words_is_not_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = Job.from_words(None, ["sh", "-c", "true; " * 200], None)
    assert (job.name, job.fingerprint) == ("sh", "")


def test_code_is_compared_only_with_fingerprints_of_the_same_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("begun_from_python.py").write_text("import os\n\n\ndef train(config):\n    return 1\n")
    job = Job.from_words("begun_from_python.py:train", [], None)
    recorded = describe_code(job.code)
    assert recorded["fingerprint"] != job.fingerprint
    assert not job.has_changed_since(recorded)
    assert job.has_changed_since(recorded | {"fingerprint": "another"})
    assert not job.has_changed_since(job.to_target())
    assert job.has_changed_since(job.to_target() | {"fingerprint": "another"})


def test_devices_set_the_number_of_workers_and_are_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shoestring.cli.job.resolve", lambda where: train_nothing)
    job = Job.from_words("train.py:f", [], None, devices="0,0,1")
    without = Job.from_words("train.py:f", [], None)
    assert (job.options.device_count, without.options.device_count) == (3, None)
    assert Job.from_target(job.to_target()).options.devices == "0,0,1"
    assert without.with_stored_options(job.to_target()).options.devices == "0,0,1"
    assert (
        Job.from_words("train.py:f", [], None, devices="2").with_stored_options(job.to_target()).options.devices == "2"
    )
    assert (
        Job.from_words("train.py:f", [], None, runner="local").with_stored_options(job.to_target()).options.devices
        is None
    )
    with pytest.raises(RunnerError, match="devices='0'"):
        Job.from_words("train.py:f", [], None, devices="0", runner="local")
    with pytest.raises(StudyError, match="leave it out with --table"):
        Job.from_words(None, [], "t.npz", devices="0")
    for wrong in ("", "0,,1", "x y", "-1"):
        with pytest.raises(RunnerError, match=re.escape(repr(wrong))):
            Job.from_words("train.py:f", [], None, devices=wrong)


def test_options_reach_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoestring.cli.job.resolve", lambda where: train_nothing)
    job = Job.from_words("train.py:f", [], None, live=3, checkpoints_at_most="2GB", hung_after="5m")
    options = job.run_options(deadline="2h", progress=False)
    assert (options.live, options.checkpoints_at_most, options.hung_after) == (3, "2GB", "5m")
    assert (options.runner, options.deadline, options.progress) == (None, "2h", False)
    assert job.code_or_runner(ledger_of_three_workers(), tmp_path) is train_nothing
    program = Job.from_words(None, ["true", "{x}"], None, devices="0,1", hung_after="5m")
    runner = program.code_or_runner(ledger_of_three_workers(), tmp_path)
    assert isinstance(runner, CommandRunner)
    assert runner.workers == 3
    runner.close()


def ledger_of_three_workers() -> Ledger:
    definition = StudyDefinition(
        space=Space({"x": Float(0, 1)}), budget=Budget("9 epochs"), policy="grid", settings={}, seed=0, workers=3
    )
    return Ledger([definition])


def train_nothing(config: object) -> float:
    return 0.0


def test_log_scales_come_from_the_table_or_the_option(tmp_path: Path) -> None:
    file = tmp_path / "t.npz"
    meta = json.dumps({"objective": "loss", "direction": "min", "log": ["b"]})
    hp = np.array([[1.0, 10.0], [2.0, 20.0]])
    np.savez(file, loss=np.ones((2, 3)), hp=hp, hp_names=np.array(["a", "b"]), meta=meta)
    assert Job.from_words(None, [], str(file)).space(None, []).log_names == ["b"]
    job = Job.from_words(None, [], str(file), log=["a"])
    assert Job.from_target(job.to_target()).space(None, []).log_names == ["a"]
    with pytest.raises(
        StudyError, match="--log is for --table: in a space, write log=true beside the range of a parameter"
    ):
        Job.from_words("train.py:f", [], None, log=["a"])


def test_a_cluster_and_a_location_of_checkpoints_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("def train(config):\n    yield 1.0\n")
    cluster: dict[str, Any] = {
        "address": "auto",
        "gpus": 0.5,
        "resources": ["highmem=1", "disk = 2"],
        "prices": ["market=spot=0.4"],
    }
    job = Job.from_words("train.py:train", [], None, runner="ray", checkpoints="s3://b/runs", **cluster)
    numbers = {"resources": {"highmem": 1.0, "disk": 2.0}, "prices": {"market=spot": 0.4}}
    assert job.cluster == {"address": "auto", "gpus": 0.5, **numbers}
    assert job.run_options().runner == RayCluster(address="auto", gpus=0.5, **numbers)  # type: ignore[arg-type]
    assert Job.from_target(json.loads(json.dumps(job.to_target()))) == job
    again = Job.from_words("train.py:train", [], None, runner="ray")
    assert again.with_stored_options(job.to_target()).cluster == job.cluster
    on_processes = Job.from_words("train.py:train", [], None, runner="process")
    assert on_processes.with_stored_options(job.to_target()).cluster is None
    job.check(None, 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"gpus": 1.0}, "--gpus is for a Ray cluster: add --runner ray"),
        ({"resources": ["a=1"], "runner": "process"}, "--resource is for a Ray cluster"),
        ({"resources": ["a"], "runner": "ray"}, "--resource 'a' must be NAME=AMOUNT"),
        ({"prices": ["spot=0"], "runner": "ray"}, "--price 'spot=0' must be NODE=FACTOR, above 0"),
        ({"prices": ["A100=2"]}, "--price is for a Ray cluster: add --runner ray"),
        ({"resources": ["a=-1"], "runner": "ray"}, "--resource 'a=-1' must be NAME=AMOUNT"),
        ({"runner": "ray", "devices": "0,1"}, "; on Ray, gpus=1 gives each worker its own GPU"),
    ],
)
def test_options_that_contradict_each_other_are_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ShoestringError, match=message):
        Job.from_words("train.py:train", [], None, **words)


def test_a_program_stores_its_checkpoints_in_a_folder() -> None:
    with pytest.raises(StudyError, match="--checkpoints s3://b/r is for Python code"):
        Job.from_words(None, ["sh", "train.sh"], None, checkpoints="s3://b/r")
