"""Methods with special requirements: trials that begin as copies of others, and files that pip does not install."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.race import command, cost, digest, methods, page, problems, running, statistics, trained
from benchmarks.race.copying import COPY_OF
from benchmarks.race.peers import environments, policy
from benchmarks.race.peers.policy import ToolSpace

from shoestring.core.ledger.entries import Order
from shoestring.core.space.space import Space

DIABETES = problems.ProblemSpec("trained", "xgboost", "diabetes")
COPIER = """
VERSION = "copier 1"
def run(study):
    config = {p["name"]: p["high"] if p["high"] == 1.0 else p["low"] for p in study.parameters}  # no random subsampling
    assert not any(p["fixed"] for p in study.parameters)
    study.train("a", config, until=3)
    first = study.train("b", {**config, "x0": 0.01}, until=1, copy_of="a")
    again = study.train("c", config, until=1, copy_of="a")
    fourth = study.train("a", until=4)
    assert study.method == "blind" or first != again == fourth, (first, again)
"""


@pytest.fixture
def copier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a fake tool that copies trainings in this environment."""
    (tmp_path / "link.py").write_text(policy.LINK.read_text())
    (tmp_path / "drive_copier.py").write_text(COPIER)
    monkeypatch.setattr(policy, "LINK", tmp_path / "link.py")
    monkeypatch.setitem(environments.TOOLS, "copier", environments.Tool((), (), trained_methods=("own", "blind")))
    monkeypatch.setitem(environments.NOTES, "copier_own", "it copies trainings")
    monkeypatch.setattr(environments, "find_python", lambda tool: Path(sys.executable))
    methods.close_drivers()
    yield
    methods.close_drivers()


# copies --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(trained.SPACES))
def test_a_copied_model_continues_like_its_source_and_accepts_other_hyperparameters(name: str) -> None:
    pytest.importorskip("xgboost" if name.startswith("xgboost") else "sklearn")
    space = trained.TrainedProblem(name).space
    config = space.from_cube(np.full(space.dims, 0.4))
    config |= {"subsample": 1.0} if "subsample" in config else {}  # XGBoost has one random generator for all models
    model = trained.trainer(name)(config)
    for _ in range(2):
        model.step()
    same, changed = copy.deepcopy(model), copy.deepcopy(model)
    same.change(config)
    other = {k: v for k, v in space.from_cube(np.full(space.dims, 0.7)).items() if k not in trained.FIXED}
    changed.change({**config, **other})
    for one in (changed, same, model):
        one.step()
    assert same.validate() == model.validate()
    assert changed.validate() != model.validate()


@pytest.mark.usefixtures("copier")
def test_a_tool_can_copy_trials_where_models_are_really_trained() -> None:
    pytest.importorskip("xgboost")
    line = running.execute(running.Run(DIABETES, "copier_own", 1, "seconds", 0))
    assert (line["error"], line["trials"]) == (None, 3)


@pytest.mark.usefixtures("copier")
def test_a_method_that_copies_is_absent_on_recorded_curves() -> None:
    path = next(problems.SHIPPED.glob("*/fcnet.npz"))
    table = problems.ProblemSpec("tables", path.parent.name, "fcnet", path)
    assert running.execute(running.Run(table, "copier_own", 1, "curves", 0))["absent"] == "it copies trainings"
    assert "copier_own" in methods.expand_names(["copier"], "trained")
    assert "copier_own" not in methods.expand_names(["copier"], "tables")


@pytest.mark.usefixtures("copier")
def test_decisions_of_a_tool_that_copies_are_timed() -> None:
    line = cost.measure("copier_blind", 20, 20.0)
    assert (line["error"], line["opened"]) == (None, 3)
    assert line["mean_ms"] > 0
    assert "copier_own" in methods.expand_names(["copier"], None)


def test_the_time_of_copying_is_charged_to_the_copy() -> None:
    pytest.importorskip("xgboost")
    problem = trained.TrainedProblem("xgboost/diabetes")
    runner = problem.runner()
    config = problem.space.from_cube(np.full(problem.space.dims, 0.5))
    from shoestring import policies
    from shoestring.core.ledger.ledger import Ledger

    runner.start(Ledger([running.opening_entry(problem, policies.make("random_search"), 1, "seconds", 0)]))
    found: list[Any] = []
    for number, why in enumerate(({}, {COPY_OF: 0})):
        runner.submit(Order(number=number, trial=number, config=config, until=1, why=why), resumable_step=0)
        found += runner.wait(float("inf"))
    first, second = found
    assert second.value < first.value  # its first step is the second of the source
    assert second.cost.setup > 0.0
    assert (first.step, second.step) == (1, 1)


def test_parameters_for_tools_say_which_ones_a_copy_cannot_change() -> None:
    space = Space(trained.SPACES["networks/cnn"])
    parameters = ToolSpace(space, trained.FIXED).parameters
    assert [one["fixed"] for one in parameters] == [name == "filters" for name in space.parameters]
    assert {name for own in trained.SPACES.values() for name in own} >= trained.FIXED


# files that pip does not install ---------------------------------------------------------------------------------------


def answering(monkeypatch: pytest.MonkeyPatch, folder: Path, fetch: Any) -> list[list[str]]:
    """Replace commands: all succeed, and downloads call `fetch(folder)`, which returns exit code and output."""
    ran: list[list[str]] = []

    def run(words: list[str], **_: Any) -> Any:
        ran.append(words)
        code, text = fetch(Path(words[-1])) if words[1] == "-c" else (0, "")
        return subprocess.CompletedProcess(words, code, "", text)

    monkeypatch.setattr(environments, "FOLDER", folder)
    monkeypatch.setattr(subprocess, "run", run)
    return ran


def test_a_failed_download_makes_only_its_method_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def torn(folder: Path) -> tuple[int, str]:
        folder.mkdir(parents=True)
        (folder / "half").write_text("")
        return 1, "Traceback\nConnectionError: no route\n"

    answering(monkeypatch, tmp_path, torn)
    failures = environments.make(["neps"])
    assert list(failures) == ["neps_ifbo"]
    assert failures["neps_ifbo"].startswith("its weights are not in a package")
    assert failures["neps_ifbo"].endswith("ConnectionError: no route")
    monkeypatch.setattr(environments, "find_python", lambda tool: Path(sys.executable))
    assert methods.is_installed("neps_asha")
    assert command.main(["methods"]) == 0
    listed = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "absent: its weights are not in a package" in listed["neps_ifbo"]
    assert listed["neps_ifbo"].endswith("python -m benchmarks race peers neps")
    assert "absent" not in listed["neps_asha"]
    assert "recorded curves do not support" in listed["ray_pbt"]
    line = running.execute(
        running.Run(problems.ProblemSpec("plain", "functions", "branin"), "neps_ifbo", 5, "seconds", 0)
    )
    assert line["absent"].startswith("its weights")
    assert "neps_ifbo" not in methods.expand_names(["all"], "tables")


def test_a_method_is_available_after_its_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def good(folder: Path) -> tuple[int, str]:
        (folder / ".model").mkdir(parents=True)
        (folder / ".model" / "weights.pt").write_text("")
        return 0, ""

    ran = answering(monkeypatch, tmp_path, good)
    assert environments.make(["neps"]) == {}
    assert ran[-1][-1] == str(tmp_path / "neps" / "ifbo")
    monkeypatch.setattr(environments, "find_python", lambda tool: Path(sys.executable))
    assert methods.absence_reason("neps_ifbo") is None
    monkeypatch.setattr(environments, "find_python", lambda tool: None)
    assert methods.absence_reason("neps_ifbo") == "neps is not installed: python -m benchmarks race peers neps"


# reports ----------------------------------------------------------------------------------------------------------------


def line(**changes: Any) -> dict[str, Any]:
    record = {
        "suite": "tables",
        "unit": "curves",
        "steps": 50,
        "pool": None,
        "source": "klein_cnn_cifar10",
        "table": "t",
    }
    record |= {
        "method": "asha",
        "budget": 1.0,
        "seed": 0,
        "at": "2026-01-01T00:00:00+00:00",
        "version": "1",
        "best": 0.5,
    }
    record |= {"start": 1.0, "regret": 0.5, "thinking_s": 0.1, "decisions": 4, "trials": 2, "error": None}
    return record | changes


def mixed_facts() -> dict[str, Any]:
    plain = {"suite": "plain", "unit": "seconds", "source": "functions", "table": "branin", "budget": 20.0}
    return statistics.summary(
        [
            line(**plain, method="cost_aware_ei", regret=0.2),
            line(**plain, method="botorch_logei", regret=0.1),
            line(**plain, method="hebo_default", regret=0.3),
            line(method="sequential_halving", regret=0.4),
            line(method="syne_tune_dyhpo", regret=0.3),
            line(method="syne_tune_dyhpo", regret=0.4, seed=1),
            line(method="sequential_halving", regret=0.3, seed=1),
        ],
        resamples=50,
    )


def test_plain_objectives_have_their_own_section_and_reference() -> None:
    facts = mixed_facts()
    assert [(part["suite"], part["reference"]) for part in facts["parts"]] == [
        ("tables", "sequential_halving"),
        ("plain", "cost_aware_ei"),
    ]
    text = page.html(facts)
    assert "cost_aware_ei on plain objectives" in text
    assert "a trial has one value, budgets in seconds, 1 being the median cost of a trial</h2>" in text
    assert "<h3>Where cost_aware_ei is worse</h3><ul><li>botorch_logei at 20: by .100" in text
    assert "functions/branin ●" in text  # known while cost_aware_ei was developed
    text = digest.full_report(facts, [])
    section = text[text.index("Plain objectives") :]
    assert (
        "functions/branin; 1 seeds unless another number is given. Budgets in the median cost of a trial; †" in section
    )
    rows = [row.split("|")[1:3] for row in section.splitlines() if row.startswith("|")][2:]
    assert rows == [[" BoTorch, logei ", " **.100** "], [" `cost_aware_ei` ", " .200 "], [" HEBO, default ", " .300 "]]
    assert (
        "Where `cost_aware_ei` is worse in the mean, compared on the same problems and seeds:\n\n- at 20: BoTorch"
        in section
    )
    assert "BoTorch" not in text[: text.index("Plain objectives")]


def test_the_full_report_lists_tools_that_are_better_in_the_mean() -> None:
    lines = [line(method=m, regret=r, seed=s) for m, s, r in [("dehb_default", 0, 0.1), ("dehb_default", 1, 0.5)]]
    lines += [line(method="sequential_halving", regret=0.4, seed=s) for s in (0, 1)]
    lines += [{**one, "budget": 2.0} for one in lines]
    report = digest.full_report(statistics.summary(lines, resamples=50), [])
    assert "- at 1: DEHB, default, by .100" in report
    assert "- at 2: DEHB, default, by .100" in report
    assert report.count("which may be chance") == 2


def test_methods_without_a_run_are_named_with_the_reason() -> None:
    text = digest.describe_missing_methods(mixed_facts())
    assert "neps_ifbo (its weights are not in a package, they are downloaded from figshare.com)" in text
    assert "ray_pbt (it copies" in text
    assert "hebo_default" not in text
    assert text in page.html(mixed_facts())


def test_every_note_is_about_a_known_method() -> None:
    assert set(environments.NOTES) <= set(methods.peers())
    for tool, known in environments.TOOLS.items():
        needing = {*known.downloads, *known.trained_methods}
        assert {f"{tool}_{method}" for method in needing} <= set(environments.NOTES)
        assert set(known.downloads) <= {*known.methods, *known.plain_methods}


def test_a_report_replaces_the_text_between_the_marks_of_a_file(tmp_path: Path, capsys: Any) -> None:
    runs = tmp_path / "runs.jsonl"
    runs.write_text(json.dumps(line(method="sequential_halving")) + "\n")
    arguments = ["report", str(runs), "--resamples", "5", "--markdown", "few"]
    assert command.main(arguments) == 0
    text = capsys.readouterr().out
    page_of = tmp_path / "README.md"
    page_of.write_text(f"before\n{digest.BEGIN}old\n{digest.END}after\n")
    for _ in range(2):
        assert command.main([*arguments, "--into", str(page_of)]) == 0
        assert page_of.read_text() == f"before\n{digest.BEGIN}{text}{digest.END}after\n"
    page_of.write_text("no marks\n")
    with pytest.raises(SystemExit, match="has no lines <!-- race report: begin -->"):
        command.main([*arguments, "--into", str(page_of)])
    with pytest.raises(SystemExit):
        command.main([*arguments[:4], "--into", str(page_of)])
    assert "needs --markdown few or --markdown all" in capsys.readouterr().err
