"""The tutorial for notebooks runs unchanged, shows a progress bar, and shows a study as a table."""

from __future__ import annotations

import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorials" / "notebook.ipynb"


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the executed code cells by their first line; the kernel finds the programs of this environment."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    executed = execute(notebook, tmp_path_factory.mktemp("notebook"))
    return {cell.source.splitlines()[0]: cell for cell in executed}


def execute(notebook: Any, folder: Path) -> list[Any]:
    """Execute a notebook in this folder and return its code cells."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of Jupyter's own packages
        resources = {"metadata": {"path": str(folder)}}
        client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources)
        client.execute(env=os.environ | {"PATH": path})
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def find(cells: dict[str, Any], start: str) -> Any:
    return cells.get(start) or next(cell for first, cell in cells.items() if first.startswith(f"{start} "))


def html_of(cell: Any, kind: str) -> list[str]:
    return [out.data["text/html"] for out in cell.outputs if out.output_type == kind and "text/html" in out.data]


def printed_text(cell: Any) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", "".join(out.text for out in cell.outputs if out.output_type == "stream"))


def test_the_progress_bar_is_one_output_and_ends_at_100_percent(cells: dict[str, Any]) -> None:
    cell = find(cells, "study = tune(Digits,")
    (html,) = html_of(cell, "display_data")
    assert '<progress value="1.0000" max="1"' in html
    assert "spent 120 epochs of 120 epochs" in html
    assert "best <b>" in html
    assert [out.output_type for out in cell.outputs] == ["display_data"]  # no warning, nothing printed


def test_a_study_is_shown_as_a_table(cells: dict[str, Any]) -> None:
    cell = find(cells, "study")
    (html,) = html_of(cell, "execute_result")
    assert "<table" in html
    assert "guided_halving, seed 1" in html
    assert "lr=" in html
    (plain,) = [out.data["text/plain"] for out in cell.outputs]
    assert plain.startswith("<Study 'study': guided_halving, 120 epochs of 120 epochs spent")


def test_the_commands_of_the_notebook_run(cells: dict[str, Any]) -> None:
    assert "guided_halving would train 60 configurations with 120 epochs" in printed_text(
        find(cells, "!shoestring plan")
    )
    assert "reason" in printed_text(find(cells, "!shoestring explain"))


def test_a_larger_budget_continues_and_the_model_is_loaded(cells: dict[str, Any]) -> None:
    assert "160 epochs in all" in printed_text(find(cells, "before = study.best.value"))
    assert re.search(r"0\.\d{3} wrong after \d+ epochs", printed_text(find(cells, "best = study.best.load(Digits)")))


def test_the_last_cell_was_run(cells: dict[str, Any]) -> None:
    assert "wrong after" in printed_text(list(cells.values())[-1])


def kinds_of(cell: Any) -> set[tuple[str, ...]]:
    """Return what kinds of output a cell has. A busy machine may print more lines on standard error."""
    return {(out.output_type, *sorted(out.get("data", ()))) for out in cell.outputs if out.get("name") != "stderr"}


def test_the_file_has_the_outputs_of_its_cells(cells: dict[str, Any]) -> None:
    """GitHub and the site show the stored outputs; `python docs/run_notebook.py` stores them."""
    stored = [cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]  # type: ignore[no-untyped-call]
    for cell, executed in zip(stored, cells.values(), strict=True):
        assert cell.source == executed.source
        assert kinds_of(cell) == kinds_of(executed), cell.source
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert not re.search(r"/tmp|/home|/Users|\\u001b", text), "an output names a folder of one machine, or has colours"
    assert len(text) < 200_000


STOPPED_CELL = """
import os, signal, threading
from shoestring import tune

def train(config):
    for step in range(100):
        if step == 3:  # as the button that interrupts the kernel does
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        yield config["x"]

study = tune(train, {"x": {"float": [0.0, 1.0]}}, "300 epochs", max_steps=100, policy="random_search")
print(study.ending.reason, study.spent)
"""


def test_interrupting_the_kernel_returns_the_study(tmp_path: Path) -> None:
    notebook = new_notebook(cells=[new_code_cell(STOPPED_CELL)])  # type: ignore[no-untyped-call]
    (cell,) = execute(notebook, tmp_path)
    assert "stopped 4.0" in printed_text(cell)
    assert "continues it" in printed_text(cell)
