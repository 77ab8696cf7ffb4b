from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import earlier_studies
from benchmarks.race import problems


def test_a_case_has_the_other_tables_of_its_source_and_one_of_each_other_source() -> None:
    cases = earlier_studies.find_cases([problems.SHIPPED], 2, "curves")
    for case in cases:
        assert case.spec not in case.related
        assert {spec.source for spec in case.related} == {case.spec.source}
        assert case.spec.source not in {spec.source for spec in case.strangers}
    assert {case.spec.source for case in cases} == {"fashion_curves", "rl_curves", "stopping_curves"}


@pytest.mark.parametrize(
    ("method", "number"), [("guided_halving", 0), ("guided_halving after 3", 3), ("guided_halving after a stranger", 0)]
)
def test_the_name_of_a_method_says_how_many_earlier_studies_it_has(method: str, number: int) -> None:
    assert earlier_studies.count_earlier(method) == number


def test_an_earlier_study_of_a_related_table_is_used_and_the_base_has_none() -> None:
    case = earlier_studies.find_cases([problems.SHIPPED], 1, "curves")[0]
    runs = [
        earlier_studies.execute(case, method, 0.5, "curves", 0) for method in earlier_studies.SUITES["tables"].list([1])
    ]
    assert {run["method"]: run["earlier"] for run in runs}["guided_halving after 1"] == 1
    assert {run["method"]: run["earlier"] for run in runs}["guided_halving"] == 0
    assert len({run["spent"] for run in runs}) == 1


def test_a_run_that_is_in_the_file_is_not_executed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "runs.jsonl"
    words = ["run", "--tables", "1", "--studies", "1", "--budgets", "0.3", "--seeds", "1", "-o", str(file)]
    earlier_studies.main(words)
    lines = file.read_text("utf-8")
    monkeypatch.setattr(earlier_studies, "execute", None)
    earlier_studies.main(words)
    assert file.read_text("utf-8") == lines
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["name"] == "earlier_studies"
    assert {row["pairs"] for row in last["tables in curves"]} == {3}
