"""Pages agree with the code: marked blocks run, links have a target, references match the code."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from shoestring import policies
from shoestring.core.ledger import entries

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("examples/**/*.md"),
    *ROOT.glob("benchmarks/**/*.md"),
]
PUBLIC_MODULES = {"errors", "integrations", "policy", "testing"}
RUNNABLE = re.compile(r"<!-- run -->\n```python\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if RUNNABLE.search(p.read_text())], ids=page_id)
def test_marked_blocks_run(page: Path, tmp_path: Path) -> None:
    for number, code in enumerate(RUNNABLE.findall(page.read_text())):
        script = tmp_path / f"block_{number}.py"
        script.write_text(code)
        done = subprocess.run(
            [sys.executable, "-W", "error", script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{page}, block {number}:\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_link_has_a_target(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), f"{page}: {link}"


@pytest.mark.parametrize("page", [page for page in PAGES if "benchmarks" not in page.parts], ids=page_id)
def test_pages_import_public_modules_only(page: Path) -> None:
    imported = re.findall(r"^ *(?:from|import) shoestring\.([\w.]+)", page.read_text(), re.MULTILINE)
    named = re.findall(r"`(?:from )?shoestring\.([a-z_]+\.[\w.]+)", page.read_text())
    private = [name for name in (*imported, *named) if name.split(".")[0] not in PUBLIC_MODULES]
    assert private == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "cli.md"], ids=page_id)
def test_no_page_repeats_a_passage(page: Path) -> None:
    """A wrong merge repeats passages. The generated page of the command line is exempt: commands share options."""
    passages = [passage for passage in re.split(r"\n\s*\n", page.read_text()) if len(passage) > 120]
    lines = [line for line in page.read_text().splitlines() if len(line) > 60] if page.name == "CHANGELOG.md" else []
    assert len({*passages}) == len(passages)
    assert len({*lines}) == len(lines)


def test_the_cli_page_has_the_help_of_the_commands() -> None:
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs" / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.text(), "run: python docs/make_reference.py"


@pytest.mark.parametrize("name", policies.REGISTRY)
def test_every_policy_has_a_page_that_names_its_settings(name: str) -> None:
    page = ROOT / "docs" / "reference" / "policies" / f"{name}.md"
    assert page.exists(), f"write {page}"
    text = page.read_text()
    for setting in policies.defaults_of(name):
        assert f"`{setting}`" in text, f"{page} does not explain {setting}"


def test_the_page_about_installation_has_all_extras() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rows = "".join(line for line in page.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`([a-z]+)`", rows)) == set(project["optional-dependencies"])
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in page
    for dependency in project["dependencies"]:
        assert re.match(r"\w+", dependency)[0] in page  # type: ignore[index]


def test_the_index_of_how_tos_has_them_all() -> None:
    folder = ROOT / "docs" / "how-to"
    linked = set(LINK.findall((folder / "README.md").read_text()))
    assert linked == {page.name for page in folder.glob("*.md")} - {"README.md"}


def test_the_ledger_page_names_every_field() -> None:
    text = (ROOT / "docs" / "reference" / "ledger-format.md").read_text()
    rows = {row.split("`")[1]: row for row in text.splitlines() if row.startswith("| `")}
    for kind in (entries.StudyDefinition, entries.Order, entries.Receipt, entries.StateLoss, entries.Amendment):
        for field in dataclasses.fields(kind):
            assert f"`{field.name}`" in rows[kind.kind], f"{kind.kind}.{field.name}"


def test_the_ten_lines_of_the_readme_are_ten_lines() -> None:
    (block,) = RUNNABLE.findall((ROOT / "README.md").read_text())
    assert sum(1 for line in block.splitlines() if line.strip()) <= 10


RUN = "-m shoestring run --seed 1 --store {tmp}/e.db"
EXAMPLES = {
    "quickstart": "examples/quickstart.py",
    "sklearn_search": "examples/sklearn_search.py",
    "optuna_objective": "examples/optuna_objective.py",
    "digits": RUN + " examples/digits.py:Digits --space examples/digits.toml --budget '8 epochs' --max-steps 4",
    "any_script": RUN + " --budget '30 epochs' --max-steps 10 -p 'lr={float=[1e-3,1],log=true}'"
    " -p 'momentum={float=[0.0,0.99]}' -- sh examples/any_script/descend.sh '--lr={lr}' '--momentum={momentum}'",
    "xgboost_rounds": RUN + " examples/xgboost_rounds.py:train --space examples/xgboost_rounds.toml"
    " --budget '12 epochs' --max-steps 4",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name: str, tmp_path: Path) -> None:
    if name == "xgboost_rounds":
        pytest.importorskip("xgboost")
    words = shlex.split(EXAMPLES[name].replace("{tmp}", str(tmp_path)))
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
