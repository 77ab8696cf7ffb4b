"""Methods that ask for more than curves: trainings that begin as a copy of another, and files that pip does not bring."""

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
from benchmarks.race.peers.policy import Lanes

from shoestring.core.ledger.entries import Order
from shoestring.core.space.space import Space

DIABETES = problems.Entrant("trained", "xgboost", "diabetes")
COPIER = """
VERSION = "copier 1"
def run(study):
    config = {p["name"]: p["high"] if p["high"] == 1.0 else p["low"] for p in study.parameters}  # all rows: nothing is drawn
    assert not any(p["fixed"] for p in study.parameters)
    study.train("a", config, until=3)
    first = study.train("b", {**config, "x0": 0.01}, until=1, copy_of="a")
    again = study.train("c", config, until=1, copy_of="a")
    fourth = study.train("a", until=4)
    assert study.method == "blind" or first != again == fourth, (first, again)
"""


@pytest.fixture
def copier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A tool of our own that copies, in this environment."""
    (tmp_path / "link.py").write_text(policy.LINK.read_text())
    (tmp_path / "drive_copier.py").write_text(COPIER)
    monkeypatch.setattr(policy, "LINK", tmp_path / "link.py")
    monkeypatch.setitem(environments.TOOLS, "copier", environments.Tool((), (), trained_methods=("own", "blind")))
    monkeypatch.setitem(environments.NOTES, "copier_own", "it copies")
    monkeypatch.setattr(environments, "find_python", lambda tool: Path(sys.executable))
    methods.close_drivers()
    yield
    methods.close_drivers()


# copies --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(trained.SPACES))
def test_a_copied_training_goes_on_as_its_source_would_and_takes_other_hyperparameters(name: str) -> None:
    pytest.importorskip("xgboost" if name.startswith("xgboost") else "sklearn")
    space = trained.TrainedProblem(name).space
    config = space.from_cube(np.full(space.dims, 0.4))
    config |= {"subsample": 1.0} if "subsample" in config else {}  # XGBoost draws from one generator for all models
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
def test_a_tool_copies_a_training_where_there_is_one() -> None:
    pytest.importorskip("xgboost")
    line = running.do(running.Run(DIABETES, "copier_own", 1, "seconds", 0))
    assert (line["error"], line["trials"]) == (None, 3)


@pytest.mark.usefixtures("copier")
def test_recorded_curves_cannot_be_copied_and_say_so() -> None:
    path = next(problems.SHIPPED.glob("*/fcnet.npz"))
    table = problems.Entrant("tables", path.parent.name, "fcnet", path)
    assert running.do(running.Run(table, "copier_own", 1, "curves", 0))["absent"] == "it copies"
    assert "copier_own" in methods.named(["copier"], "trained")
    assert "copier_own" not in methods.named(["copier"], "tables")


@pytest.mark.usefixtures("copier")
def test_the_thinking_of_a_tool_that_copies_is_timed_like_any_other() -> None:
    line = cost.measure("copier_blind", 20, 20.0)
    assert (line["error"], line["opened"]) == (None, 3)
    assert line["mean_ms"] > 0
    assert "copier_own" in methods.named(["copier"], None)


def test_the_time_of_copying_is_paid_by_the_copy() -> None:
    pytest.importorskip("xgboost")
    problem = trained.TrainedProblem("xgboost/diabetes")
    runner = problem.runner()
    config = problem.space.from_cube(np.full(problem.space.dims, 0.5))
    from shoestring import policies
    from shoestring.core.ledger.ledger import Ledger

    runner.start(Ledger([running.opened(problem, policies.make("random_search"), 1, "seconds", 0)]))
    found: list[Any] = []
    for number, why in enumerate(({}, {COPY_OF: 0})):
        runner.submit(Order(number=number, trial=number, config=config, until=1, why=why), held=0)
        found += runner.wait(float("inf"))
    first, second = found
    assert second.value < first.value  # its first step is the second of the source
    assert second.cost.setup > 0.0
    assert (first.step, second.step) == (1, 1)


def test_tools_are_told_what_a_copy_cannot_change() -> None:
    space = Space(trained.SPACES["networks/cnn"])
    told = Lanes(space, trained.FIXED).parameters
    assert [one["fixed"] for one in told] == [name == "filters" for name in space.parameters]
    assert {name for own in trained.SPACES.values() for name in own} >= trained.FIXED


# files that pip does not bring ---------------------------------------------------------------------------------------


def answering(monkeypatch: pytest.MonkeyPatch, folder: Path, fetch: Any) -> list[list[str]]:
    """Every command succeeds but `fetch`, which may put files into a folder."""
    ran: list[list[str]] = []

    def run(words: list[str], **_: Any) -> Any:
        ran.append(words)
        code, text = fetch(Path(words[-1])) if words[1] == "-c" else (0, "")
        return subprocess.CompletedProcess(words, code, "", text)

    monkeypatch.setattr(environments, "FOLDER", folder)
    monkeypatch.setattr(subprocess, "run", run)
    return ran


def test_weights_that_cannot_be_fetched_leave_their_method_out_and_not_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def torn(folder: Path) -> tuple[int, str]:
        folder.mkdir(parents=True)
        (folder / "half").write_text("")
        return 1, "Traceback\nConnectionError: no route\n"

    answering(monkeypatch, tmp_path, torn)
    failures = environments.make(["neps"])
    assert list(failures) == ["neps_ifbo"]
    assert failures["neps_ifbo"].startswith("its weights are in no package")
    assert failures["neps_ifbo"].endswith("ConnectionError: no route")
    monkeypatch.setattr(environments, "find_python", lambda tool: Path(sys.executable))
    assert methods.is_installed("neps_asha")
    assert command.main(["methods"]) == 0
    told = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "absent: its weights are in no package" in told["neps_ifbo"]
    assert told["neps_ifbo"].endswith("python -m benchmarks race peers neps")
    assert "absent" not in told["neps_asha"]
    assert "recorded curves cannot answer" in told["ray_pbt"]
    line = running.do(running.Run(problems.Entrant("plain", "functions", "branin"), "neps_ifbo", 5, "seconds", 0))
    assert line["absent"].startswith("its weights")
    assert "neps_ifbo" not in methods.named(["all"], "tables")


def test_weights_that_were_fetched_let_their_method_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def good(folder: Path) -> tuple[int, str]:
        (folder / ".model").mkdir(parents=True)
        (folder / ".model" / "weights.pt").write_text("")
        return 0, ""

    ran = answering(monkeypatch, tmp_path, good)
    assert environments.make(["neps"]) == {}
    assert ran[-1][-1] == str(tmp_path / "neps" / "ifbo")
    monkeypatch.setattr(environments, "find_python", lambda tool: Path(sys.executable))
    assert methods.why_absent("neps_ifbo") is None
    monkeypatch.setattr(environments, "find_python", lambda tool: None)
    assert methods.why_absent("neps_ifbo") == "neps is not installed: python -m benchmarks race peers neps"


# told ----------------------------------------------------------------------------------------------------------------


def line(**changes: Any) -> dict[str, Any]:
    told = {"suite": "tables", "unit": "curves", "steps": 50, "pool": None, "source": "klein_cnn_cifar10", "table": "t"}
    told |= {"method": "asha", "budget": 1.0, "seed": 0, "at": "2026-01-01T00:00:00+00:00", "version": "1", "best": 0.5}
    told |= {"start": 1.0, "regret": 0.5, "thinking_s": 0.1, "decisions": 4, "trials": 2, "error": None}
    return told | changes


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


def test_plain_objectives_have_a_section_and_a_reference_of_their_own() -> None:
    facts = mixed_facts()
    assert [(part["suite"], part["reference"]) for part in facts["parts"]] == [
        ("tables", "sequential_halving"),
        ("plain", "cost_aware_ei"),
    ]
    text = page.html(facts)
    assert "cost_aware_ei on plain objectives" in text
    assert "a trial is one value, budgets in seconds, 1 being the median price of a trial</h2>" in text
    assert "<h3>Where cost_aware_ei is behind</h3><ul><li>botorch_logei at 20: by .100" in text
    assert "functions/branin ●" in text  # known to everybody who worked on cost_aware_ei
    said = digest.everything(facts, [])
    section = said[said.index("Plain objectives") :]
    assert (
        "functions/branin; 1 seeds where no other number is given. Budgets in the median price of a trial; †" in section
    )
    rows = [row.split("|")[1:3] for row in section.splitlines() if row.startswith("|")][2:]
    assert rows == [[" BoTorch, logei ", " **.100** "], [" `cost_aware_ei` ", " .200 "], [" HEBO, default ", " .300 "]]
    assert "Where `cost_aware_ei` is behind in the mean, paired on the same draws:\n\n- at 20: BoTorch" in section
    assert "BoTorch" not in said[: said.index("Plain objectives")]


def test_the_few_rows_say_who_may_be_ahead() -> None:
    assert "which may be chance: none." in digest.few(mixed_facts())  # equal in the mean
    lines = [line(method=m, regret=r, seed=s) for m, s, r in [("dehb_default", 0, 0.1), ("dehb_default", 1, 0.5)]]
    lines += [line(method="sequential_halving", regret=0.4, seed=s) for s in (0, 1)]
    lines += [{**one, "budget": 2.0} for one in lines]
    said = digest.few(statistics.summary(lines, resamples=50))
    assert said.endswith("in the mean, which may be chance: DEHB, default at 1 and at 2.\n")


def test_who_has_no_run_is_named_with_the_reason() -> None:
    said = digest.say_who_lacks(mixed_facts())
    assert "neps_ifbo (its weights are in no package, they are downloaded from figshare.com)" in said
    assert "ray_pbt (it copies" in said
    assert "hebo_default" not in said
    assert said in page.html(mixed_facts())


def test_every_note_is_on_a_method_that_there_is() -> None:
    assert set(environments.NOTES) <= set(methods.peers())
    for tool, known in environments.TOOLS.items():
        needing = {*known.fetched, *known.trained_methods}
        assert {f"{tool}_{method}" for method in needing} <= set(environments.NOTES)
        assert set(known.fetched) <= {*known.methods, *known.plain_methods}


def test_a_report_is_put_between_the_marks_of_a_file(tmp_path: Path, capsys: Any) -> None:
    runs = tmp_path / "runs.jsonl"
    runs.write_text(json.dumps(line(method="sequential_halving")) + "\n")
    told = ["report", str(runs), "--resamples", "5", "--markdown", "few"]
    assert command.main(told) == 0
    text = capsys.readouterr().out
    page_of = tmp_path / "README.md"
    page_of.write_text(f"before\n{digest.BEGIN}old\n{digest.END}after\n")
    for _ in range(2):
        assert command.main([*told, "--into", str(page_of)]) == 0
        assert page_of.read_text() == f"before\n{digest.BEGIN}{text}{digest.END}after\n"
    page_of.write_text("no marks\n")
    with pytest.raises(SystemExit, match="has no lines <!-- race report: begin -->"):
        command.main([*told, "--into", str(page_of)])
    with pytest.raises(SystemExit):
        command.main([*told[:4], "--into", str(page_of)])
    assert "has nothing to put there: add --markdown few, or all" in capsys.readouterr().err
