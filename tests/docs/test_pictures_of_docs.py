"""The pictures of the README and the docs are what their script draws, and each picture of a report is shown on a page."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from shoestring import policies

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
def drawn_pictures(make: ModuleType) -> dict[str, str]:
    found: dict[str, str] = make.draw()
    return found


def test_committed_pictures_are_what_the_script_draws(drawn_pictures: dict[str, str]) -> None:
    assert len(drawn_pictures) >= 6
    for name, text in drawn_pictures.items():
        assert (PICTURES / name).read_text(encoding="utf-8") == text, f"{name}: run python docs/pictures/make.py"
    existing = {path.name for path in PICTURES.glob("report_*.svg")}
    assert existing == {name for name in drawn_pictures if name.startswith("report_")}, (
        "a picture that is no longer drawn remains"
    )


def test_every_picture_of_a_report_is_shown_with_an_alternative_text() -> None:
    texts = {Path(place).name: words for page in PAGES for words, place in IMAGE.findall(page.read_text("utf-8"))}
    assert {path.name for path in PICTURES.glob("report_*.svg")} <= set(texts)
    assert all(len(words) > 20 for words in texts.values()), "a picture has no alternative text"


def test_the_first_pictures_show_the_default_policy() -> None:
    """The terminal is recorded from a study and not compared, so nothing else says that it is out of date."""
    for name in ("terminal.svg", "race.svg"):
        assert policies.DEFAULT in (PICTURES / name).read_text(encoding="utf-8"), f"{name} shows another policy"
        assert f"docs/pictures/{name}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_pictures_in_pages_follow_the_colour_scheme_of_the_reader(drawn_pictures: dict[str, str]) -> None:
    for name, text in drawn_pictures.items():
        assert ("@media (prefers-color-scheme: dark)" in text) == (name != "social-preview.svg")


def test_the_social_preview_has_the_required_size(drawn_pictures: dict[str, str]) -> None:
    root = ElementTree.fromstring(drawn_pictures["social-preview.svg"])
    assert (root.attrib["width"], root.attrib["height"]) == ("1280", "640")
    picture = (PICTURES / "social-preview.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert [int.from_bytes(picture[at : at + 4], "big") for at in (16, 20)] == [1280, 640]
    assert len(picture) < 1_000_000
