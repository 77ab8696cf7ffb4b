"""Every field that a command prints with --json is on the page."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shoestring import Study
from shoestring.cli.main import cli

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "json-output.md").read_text()
CODE = "def train(config):\n    for step in range(1, 6):\n        yield config['x'] + 1 / step\n"
RUN = ["run", "made_up_code.py:train", "-p", "x={float=[0,1]}", "--budget", "20 epochs", "--max-steps", "5", "--quiet"]
COMMANDS = {
    "run": [*RUN, "--seed", "1"],
    "status": ["status"],
    "explain": ["explain", "0"],
    "plan": ["plan", "--budget", "20 epochs", "--max-steps", "5"],
    "replay": ["replay", "--policy", "random_search"],
    "report": ["report"],
    "serve": ["serve"],
}


def fields_on_page(command: str) -> set[str]:
    (section,) = [part for part in PAGE.split("\n## ") if f"`{command}`" in part.splitlines()[0]]
    return set(re.findall(r"`([a-z_]+)`", section))


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("json")
    (folder / "made_up_code.py").write_text(CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("shoestring.cli.serve._serve_until_signal", lambda server, check: 143)
        return {
            name: json.loads(CliRunner().invoke(cli, [*words, "--json"]).stdout) for name, words in COMMANDS.items()
        }


@pytest.mark.parametrize("command", COMMANDS)
def test_every_field_is_explained(command: str, outputs: dict[str, Any]) -> None:
    assert len(outputs[command]) > 4
    assert set(outputs[command]) <= fields_on_page(command)


def test_the_fields_about_the_studies_of_a_store_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Study.begin({"x": {"float": [0, 1]}}, "9 epochs", store="shoestring.db")
    call = partial(CliRunner().invoke, cli)
    rename, delete = ["rename", "other"], ["delete", "--study", "other", "--yes"]
    listed, renamed, deleted = (json.loads(call([*words, "--json"]).stdout) for words in (["list"], rename, delete))
    for fields in (listed, listed["studies"][0], renamed, deleted):
        assert len(fields) >= 2
        assert set(fields) <= fields_on_page("rename")


def test_the_parts_of_a_best_and_of_a_trial_are_explained(outputs: dict[str, Any]) -> None:
    assert set(outputs["status"]["best"]) <= fields_on_page("status")
    assert set(outputs["status"]["top_trials"][0]) <= fields_on_page("status")
    assert outputs["run"]["reason"] == "budget"
