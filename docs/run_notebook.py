"""Run docs/tutorials/notebook.ipynb and store it with its outputs, which the site and GitHub show.

python docs/run_notebook.py
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent / "tutorials" / "notebook.ipynb"
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


def main() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}})
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # the cells run `shoestring`
        client.execute(env=os.environ | {"PATH": path, "TMPDIR": folder})  # folders that the cells make are inside it
    paths = re.compile(rf"{re.escape(folder)}/(tmp\w+/)?")  # of this run: they say nothing to a reader
    for cell in notebook.cells:
        cell.metadata = {}  # when it was executed
        for output in cell.get("outputs", ()):
            if "text" in output:
                output.text = paths.sub("", _COLOURS.sub("", output.text))
            for kind, text in output.get("data", {}).items():
                output.data[kind] = paths.sub("", text)
    notebook.metadata = {name: notebook.metadata[name] for name in ("kernelspec", "language_info")}
    notebook.metadata.language_info = {"name": "python"}
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
