"""The example notebook runs as it is, with a progress bar while it does and a study that prints as a table."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Its cells, executed in a kernel of their own."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    folder = {"metadata": {"path": str(tmp_path_factory.mktemp("notebook"))}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Jupyter's own packages say about each other
        NotebookClient(notebook, timeout=120, kernel_name="python3", resources=folder).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def html_of(cell: Any, kind: str) -> list[str]:
    return [out.data["text/html"] for out in cell.outputs if out.output_type == kind and "text/html" in out.data]


def test_the_bar_is_one_output_that_ends_full(cells: list[Any]) -> None:
    (shown,) = html_of(cells[1], "display_data")
    assert '<progress value="1.0000" max="1"' in shown
    assert "spent 200 epochs of 200 epochs" in shown
    assert "best <b>" in shown
    assert [out.output_type for out in cells[1].outputs] == ["display_data"]  # no warning, nothing printed


def test_the_study_is_a_table(cells: list[Any]) -> None:
    (shown,) = html_of(cells[2], "execute_result")
    assert "<table" in shown
    assert "sequential_halving, seed 1" in shown
    assert "lr=" in shown
    (plain,) = [out.data["text/plain"] for out in cells[2].outputs]
    assert plain.startswith("<Study 'study': sequential_halving, 200 epochs of 200 epochs spent")


def test_the_model_is_handed_back(cells: list[Any]) -> None:
    (result,) = [out for out in cells[3].outputs if out.output_type == "execute_result"]
    assert result.data["text/plain"].startswith("(True, [")


def test_no_output_is_kept_in_the_file() -> None:
    assert all(not cell.get("outputs") for cell in nbformat.read(NOTEBOOK, as_version=4).cells)  # type: ignore[no-untyped-call]
