from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from benchmarks import earlier_studies, guided
from benchmarks.race import problems, statistics


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


@pytest.mark.parametrize(
    ("file", "table", "base"),
    [
        ("tables", "| in curves, over `guided_halving`", "guided_halving"),
        ("tables", "| in curves, over `sequential_halving`", "sequential_halving"),
        ("tables_in_seconds", "| tables in seconds, over `guided_halving`", "guided_halving"),
        ("plain", "| in seconds, over `cost_aware_ei`", "cost_aware_ei"),
    ],
)
def test_the_page_has_the_ratios_of_the_stored_runs(file: str, table: str, base: str) -> None:
    folder = Path(earlier_studies.__file__).parent
    lines = (folder / "README.md").read_text("utf-8").splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(table))
    grid = statistics.Grid.from_runs(guided.read(folder / "results" / f"{file}.json"))
    policy = "cost_aware_ei" if file == "plain" else "guided_halving"
    rows = 0
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        words = name.replace("`", "")
        method = words if words.startswith(policy) else f"{policy} {words}"
        shown = [[float(number) for number in re.findall(r"\d*\.\d+", cell)] for cell in cells]
        found = [[row["ratio"], row["low"], row["high"]] for row in guided.compare(grid, method, base)]
        for numbers, expected in zip(shown, found, strict=True):
            assert numbers == pytest.approx(expected, abs=0.0101), line  # two decimals, of regrets stored with four
        rows += 1
    assert rows >= 2
