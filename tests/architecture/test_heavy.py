"""Tests that need heavy packages: found by their command, left alone by all others, and pinned."""

from __future__ import annotations

import re

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


def test_words_that_are_no_group_go_to_pytest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called: list[tuple[str, list[str]]] = []

    def run(group: str, words: list[str]) -> int:
        called.append((group, words))
        return int(group == "boosting")

    monkeypatch.setattr(heavy, "run", run)
    assert heavy.main(["loggers", "-k", "mlflow"]) == 0
    assert called == [("loggers", ["-k", "mlflow"])]
    assert heavy.main([]) == 1
    assert [group for group, _ in called[1:]] == heavy.groups()
    assert capsys.readouterr().out.splitlines()[-1] == "failed: boosting"
