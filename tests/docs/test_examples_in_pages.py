"""A page that shows an example shows the file that the tests run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOWN = re.compile(r"<!-- example: (\w+\.\w+) -->\n```\w+\n(.*?)```", re.DOTALL)
BLOCKS = [
    (page, *block) for page in sorted(ROOT.glob("docs/**/*.md")) for block in SHOWN.findall(page.read_text("utf-8"))
]


@pytest.mark.parametrize(("page", "name", "code"), BLOCKS, ids=[name for _, name, _ in BLOCKS])
def test_a_page_shows_the_example_as_it_is(page: Path, name: str, code: str) -> None:
    assert (ROOT / "examples" / name).read_text("utf-8") == code, f"{page.name} shows another {name}"


def test_the_tutorial_shows_what_it_trains() -> None:
    tutorial = (ROOT / "docs" / "tutorials" / "first-study.md").read_text("utf-8")
    used = set(re.findall(r"shoestring run examples/(\S+?):\w+ --space examples/(\S+)", tutorial))
    assert used == {("digits.py", "digits.toml")}
    assert {name for page, name, _ in BLOCKS if page.name == "first-study.md"} == {"digits.py", "digits.toml"}


def test_the_page_of_pytorch_begins_with_a_plain_generator() -> None:
    page = (ROOT / "docs" / "how-to" / "train-with-pytorch.md").read_text("utf-8")
    first = SHOWN.search(page)
    assert first is not None
    (function,) = re.findall(r"def train\(config\):\n((?:    .*\n)+)", first[2])
    assert "yield" in function
    assert len(function.splitlines()) <= 8
    assert "integrations" not in first[2]


def test_every_framework_has_a_page() -> None:
    names = {name for _, name, _ in BLOCKS}
    assert {"pytorch_digits.py", "lightning_digits.py", "transformers_digits.py", "keras_digits.py"} <= names
    assert {"lightgbm_cancer.py", "sklearn_search.py"} <= names
