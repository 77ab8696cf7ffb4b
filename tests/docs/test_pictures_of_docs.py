"""The pictures of the README and the docs are what their script draws, and every picture that is shown is there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_pictures", PICTURES / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def drawn(make: ModuleType) -> dict[str, str]:
    found: dict[str, str] = make.draw()
    return found


def test_committed_pictures_are_what_the_script_draws(drawn: dict[str, str]) -> None:
    assert len(drawn) >= 6
    for name, text in drawn.items():
        assert (PICTURES / name).read_text(encoding="utf-8") == text, f"{name}: run python docs/pictures/make.py"
    kept = {path.name for path in PICTURES.glob("report_*.svg")}
    assert kept == {name for name in drawn if name.startswith("report_")}, "no picture is left over"


def test_every_picture_of_a_report_is_shown_and_said_in_words() -> None:
    shown = {Path(place).name: words for page in PAGES for words, place in IMAGE.findall(page.read_text("utf-8"))}
    assert {path.name for path in PICTURES.glob("report_*.svg")} <= set(shown)
    assert all(len(words) > 20 for words in shown.values()), "for those who do not see them"


def test_pictures_in_pages_follow_the_reader(drawn: dict[str, str]) -> None:
    for name, text in drawn.items():
        assert ("@media (prefers-color-scheme: dark)" in text) == (name != "social-preview.svg")


def test_the_social_preview_has_the_size_that_is_asked_for(drawn: dict[str, str]) -> None:
    root = ElementTree.fromstring(drawn["social-preview.svg"])
    assert (root.attrib["width"], root.attrib["height"]) == ("1280", "640")
    picture = (PICTURES / "social-preview.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert [int.from_bytes(picture[at : at + 4], "big") for at in (16, 20)] == [1280, 640]
    assert len(picture) < 1_000_000
