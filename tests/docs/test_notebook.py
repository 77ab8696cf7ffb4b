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

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorials" / "notebook.ipynb"


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the executed code cells by their first line; the kernel finds the programs of this environment."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    folder = {"metadata": {"path": str(tmp_path_factory.mktemp("notebook"))}}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of Jupyter's own packages
        client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources=folder)
        client.execute(env=os.environ | {"PATH": path})
    return {cell.source.splitlines()[0]: cell for cell in notebook.cells if cell.cell_type == "code"}


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


def test_the_file_contains_no_output() -> None:
    assert all(not cell.get("outputs") for cell in nbformat.read(NOTEBOOK, as_version=4).cells)  # type: ignore[no-untyped-call]
