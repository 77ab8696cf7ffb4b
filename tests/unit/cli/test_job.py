"""Words of a command line to spaces, settings and jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoestring import Choice, Constant, Float, Int, Space
from shoestring.cli.job import Job, add_validation_cap, parameter_words, read_configs, read_settings, read_space
from shoestring.errors import PolicyError, ShoestringError, SpaceError, StudyError


def test_a_space_survives_being_written_as_words() -> None:
    space = Space(
        {
            "lr": Float(1e-5, 1, log=True),
            "n": Int(1, 9),
            "kind": Choice(["a b", 'quo"ted', 3, 2.5, True]),
            "m": Float(0, 1, when={"kind": ["a b", 3]}),
            "c": Constant([1, 2]),
        }
    )
    assert read_space(None, parameter_words(space)) == space


def test_words_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text("lr = { float = [0.1, 1.0] }\nn = { int = [1, 3] }\n")
    space = read_space(str(file), ["n={int=[1,9]}"])
    assert space.parameters["n"] == Int(1, 9)
    for text in ("lr = [", "\xff"):
        file.write_bytes(text.encode("latin-1"))
        with pytest.raises(SpaceError, match=r"space\.toml"):
            read_space(str(file), [])
    with pytest.raises(SpaceError, match="cannot be read"):
        read_space(str(tmp_path / "none.toml"), [])


def test_settings() -> None:
    assert read_settings(["a=3", "b=true", 'c="x"', "d=word", "e=[1, 2]"]) == {
        "a": 3,
        "b": True,
        "c": "x",
        "d": "word",
        "e": [1, 2],
    }
    with pytest.raises(ShoestringError, match="name=value"):
        read_settings(["eta"])


def test_a_cap_on_validation_is_a_setting_of_the_policies_that_have_it() -> None:
    assert add_validation_cap("asha", {"reduction_factor": 3}, None) == {"reduction_factor": 3}
    for policy in ("ce_gp_ucb", "tv_gp_ucb", "ucb1"):
        assert add_validation_cap(policy, {"clip": 3}, "20%") == {"clip": 3, "validate_at_most": "20%"}
    with pytest.raises(PolicyError, match=r"'20%'.*decide when to validate, and asha does not.*--policy ce_gp_ucb"):
        add_validation_cap("asha", {}, "20%")
    with pytest.raises(PolicyError, match=r"'20%'.*validate_at_most=9m.*twice: leave one"):
        add_validation_cap("ce_gp_ucb", {"validate_at_most": "9m"}, "20%")


def test_configs(tmp_path: Path) -> None:
    file = tmp_path / "first.jsonl"
    rows = [{"lr": 0.1}, {"lr": 0.2}]
    file.write_text("\n".join(map(json.dumps, rows)))
    assert read_configs(str(file)) == rows
    file.write_text(json.dumps(rows))
    assert read_configs(str(file)) == rows
    assert read_configs(None) == []
    file.write_text("{")
    with pytest.raises(SpaceError, match="not JSON"):
        read_configs(str(file))


def test_a_job_survives_the_ledger_and_knows_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with pytest.raises(StudyError, match="exactly one"):
        Job.from_words("a:b", ["sh"], None)
    with pytest.raises(StudyError, match="begun from Python"):
        Job.from_target({"name": "f"})
