"""tools/heavy.py runs the tests in tests/heavy; plain runs do not collect them, and their packages are pinned."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import heavy
import pytest


def test_the_groups_are_the_folders_with_requirements() -> None:
    assert {"boosting", "frameworks", "loggers"} <= set(heavy.groups())


@pytest.mark.parametrize("group", heavy.groups())
def test_everything_is_pinned_and_torch_brings_no_gpu_libraries(group: str) -> None:
    lines = (heavy.TESTS / group / "requirements.txt").read_text().splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.+]+", line) for line in wanted)
    pinned = (heavy.ROOT / "benchmarks" / "constraints.txt").read_text()
    assert all(line in pinned for line in wanted if line.startswith("torch=="))


def test_a_plain_run_of_the_tests_does_not_collect_them(pytestconfig: pytest.Config) -> None:
    assert heavy.TESTS.name in pytestconfig.getini("norecursedirs")


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Return a list that receives each group with its arguments. No environment is made; the tests of `boosting` fail."""
    called: list[tuple[str, list[str]]] = []

    def run(group: str, python: Path, words: list[str]) -> int:
        assert python == Path(f"python of {group}")
        called.append((group, words))
        return int(group == "boosting")

    monkeypatch.setattr(heavy, "run", run)
    monkeypatch.setattr(heavy, "prepare", lambda group: Path(f"python of {group}"))
    return called


def test_words_that_are_no_group_go_to_pytest(
    called: list[tuple[str, list[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert heavy.main(["loggers", "-k", "mlflow"]) == 0
    assert called == [("loggers", ["-k", "mlflow"])]
    assert heavy.main([]) == 1
    assert [group for group, _ in called[1:]] == heavy.groups()
    assert capsys.readouterr().out.splitlines()[-1] == "failed: boosting"


def test_the_next_environment_is_made_while_tests_run(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {group: threading.Event() for group in ("loggers", "ray")}

    def prepare(group: str) -> Path:
        made[group].set()
        return Path("python")

    monkeypatch.setattr(heavy, "prepare", prepare)
    monkeypatch.setattr(heavy, "run", lambda group, python, words: int(not made["ray"].wait(30)))
    assert heavy.main(["loggers", "ray"]) == 0


def test_a_group_that_cannot_be_installed_fails_and_the_others_are_run(
    called: list[tuple[str, list[str]]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def prepare(group: str) -> Path:
        if group == "loggers":
            heavy.run_quietly([sys.executable, "-c", "print('no such version'); raise SystemExit(3)"])
        return Path(f"python of {group}")

    monkeypatch.setattr(heavy, "prepare", prepare)
    assert heavy.main(["loggers", "ray"]) == 1
    assert [group for group, _ in called] == ["ray"]
    printed = capsys.readouterr().out
    assert printed.startswith("loggers: no environment could be made for it\nno such version\n")
    assert "ended with 3" in printed
    assert printed.splitlines()[-1] == "failed: loggers"


def test_an_installation_that_succeeds_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    heavy.run_quietly([sys.executable, "-c", "import sys; print('done'); print('a warning', file=sys.stderr)"])
    assert capfd.readouterr() == ("", "")


def test_what_tests_import_is_compiled_once_for_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    environments: list[dict[str, str]] = []

    def run(command: list[str], *, env: dict[str, str], **how: object) -> subprocess.CompletedProcess[str]:
        environments.append(env)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("KEPT", "yes")
    monkeypatch.setattr(subprocess, "run", run)
    assert heavy.run("ray", Path("python"), []) == 0
    assert environments[0]["KEPT"] == "yes"
    assert "PYTHONDONTWRITEBYTECODE" not in environments[0]
