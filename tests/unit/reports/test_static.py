"""Figures as files of their own: self-contained SVG, and PNG with the optional rasteriser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from shoestring import Float, Space, Study, policies
from shoestring.cli.main import cli
from shoestring.errors import MissingExtra, StudyError
from shoestring.reports.figures import static
from shoestring.reports.figures.drawing import Figure, Sheet
from shoestring.reports.figures.history import read_history
from shoestring.reports.figures.page import draw_study
from shoestring.reports.figures.static import draw_png, wrap_svg, write_svg
from shoestring.reports.figures.style import DARK, LIGHT, style_marks
from shoestring.runners.simulated.simulated_runner import SimulatedRunner
from shoestring.testing.curves import DecayingCurves
from shoestring.testing.policies import make_definition, simulate

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "<script>alert(1)</script>\x1b[31m"


@pytest.fixture(scope="module")
def figures() -> list[Figure]:
    policy = policies.make("sequential_halving")
    ledger = simulate(policy, DecayingCurves(), make_definition(policy, budget="200 epochs", max_steps=20)).ledger
    return draw_study(read_history("s", ledger))


@pytest.mark.parametrize(("look", "ground"), [("light", LIGHT["card"]), ("dark", DARK["card"])])
def test_every_figure_is_self_contained(figures: list[Figure], look: static.Look, ground: str) -> None:
    assert len(figures) >= 5
    for figure in figures:
        text = write_svg(figure, look)
        root = ElementTree.fromstring(text)
        assert root.findtext(f"{SVG}title") == figure.title
        assert root.findtext(f"{SVG}desc") == figure.sentence
        assert "var(" not in text, "few programs that show SVG know variables"
        assert "data-tip" not in text
        style = root.findtext(f"{SVG}style") or ""
        assert f"svg .ground {{ fill: {ground}; }}" in style
        left, top, width, height = map(float, root.attrib["viewBox"].split())
        assert (left, top) == (-static.PADDING, -static.PADDING)
        assert (float(root.attrib["width"]), float(root.attrib["height"])) == (width, height)
        drawn = {name for names in re.findall(r'class="([^"]*)"', text) for name in names.split()}
        styled = set(re.findall(r"\.([a-z][\w-]*)", style))
        assert styled <= drawn, "the style has no rule for a mark that is not drawn"


def test_a_file_has_the_same_marks_as_the_page(figures: list[Figure]) -> None:
    for figure in figures:
        root = ElementTree.fromstring(write_svg(figure))
        marks = [tag for tag in ("polyline", "line", "circle", "rect", "text") for _ in root.iter(f"{SVG}{tag}")]
        assert len(marks) == 1 + len(re.findall(r"<(?:polyline|line|circle|rect|text) ", figure.svg))


def test_a_file_can_follow_light_and_dark_mode(figures: list[Figure]) -> None:
    text = write_svg(figures[0], "reader")
    light, dark = text.split("@media (prefers-color-scheme: dark)")
    assert LIGHT["c-train"] in light
    assert DARK["c-train"] not in light
    assert DARK["c-train"] in dark


def test_texts_of_a_wide_picture_are_larger_on_small_screens() -> None:
    small_screen = "@media (max-width: 480px)"
    assert small_screen in wrap_svg(str(Sheet()), "wide", look="reader")
    assert small_screen not in wrap_svg(str(Sheet(480.0)), "drawn for a phone", look="reader")
    assert small_screen not in wrap_svg(str(Sheet()), "for a paper")


def test_texts_of_the_user_are_escaped() -> None:
    sheet = Sheet()
    sheet.text(1, 1, EVIL)
    root = ElementTree.fromstring(wrap_svg(str(sheet), EVIL, EVIL))
    assert not list(root.iter(f"{SVG}script"))
    assert "\x1b" not in ElementTree.tostring(root, encoding="unicode")
    assert "<script>" in (root.findtext(f"{SVG}text") or "")


def brightness(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((brightness(one), brightness(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_texts_have_contrast_and_shades_differ(colours: dict[str, str]) -> None:
    for name in ("ink", "soft", "accent", *(f"l{i}" for i in range(6))):  # colours that texts have: WCAG AA
        assert contrast(colours[name], colours["card"]) >= 4.5, name
    shades = [contrast(colours[f"s{i}"], colours["card"]) for i in range(1, 6)]
    assert shades == sorted(shades)
    assert min(shades) > 1.5
    assert len({colours[f"l{i}"] for i in range(6)}) == 6


def test_every_drawn_mark_has_a_style(figures: list[Figure]) -> None:
    styled = set(re.findall(r"\.([a-z][\w-]*)", style_marks()))
    plain = {"label", "ok", "paused", "new", "open", "running"}  # these look like their kind of mark
    for figure in figures:
        drawn = {name for names in re.findall(r'class="([^"]*)"', figure.svg) for name in names.split()}
        assert drawn <= styled | plain, figure.key


# the command ---------------------------------------------------------------------------------------------------------


def run_study(name: str) -> None:
    space = Space({"x": Float(0.0, 1.0)})
    study = Study.begin(space, "40 epochs", max_steps=8, seed=1, name=name, store="sqlite:///shoestring.db")
    study.run(SimulatedRunner(DecayingCurves()))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").write_text("")
    run_study("s")
    return tmp_path


def report(*words: str) -> str:
    result = CliRunner().invoke(cli, ["report", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_figures_are_written_to_a_folder(folder: Path) -> None:
    printed = json.loads(report("--svg", "a/b", "--json"))
    assert printed["report"] is None
    assert not (folder / "report.html").exists(), "no page is written unless -o asks for it"
    assert {"a/b/budget.svg", "a/b/best.svg", "a/b/curves.svg"} <= set(printed["figures"])
    assert printed["bytes"] == sum(path.stat().st_size for path in (folder / "a" / "b").iterdir())
    report("--svg", "one", "--figure", "curves", "--dark", "-o", "page.html")
    assert [path.name for path in (folder / "one").iterdir()] == ["curves-dark.svg"]
    page = (folder / "page.html").read_text()
    assert 'id="curves"' in page
    assert 'id="budget"' not in page


def test_a_report_on_two_studies_has_figures_of_each(folder: Path) -> None:
    run_study("t")
    found = report("--svg", "all").split()
    assert {"all/comparison.svg", "all/budget-0.svg", "all/curves-1.svg"} <= set(found)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--figure", "curve"), "there is no figure 'curve' of this study. Did you mean 'curves'?"),
        (("--svg", "a_file"), "'a_file' cannot be written: File exists"),
        (("-o", "nowhere/page.html"), "'nowhere/page.html' cannot be written: No such file or directory"),
    ],
)
def test_errors_are_one_line(folder: Path, words: tuple[str, ...], message: str) -> None:
    assert str(CliRunner().invoke(cli, ["report", *words]).exception) == message


@pytest.fixture
def no_rasteriser() -> Iterator[None]:
    """Forget the rasteriser that was found, before and after the test."""
    static.find_rasteriser.cache_clear()
    yield
    static.find_rasteriser.cache_clear()


@pytest.mark.usefixtures("no_rasteriser")
def test_png_without_its_package_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(static, "import_module", missing)
    error = CliRunner().invoke(cli, ["report", "--png", "figures"]).exception
    assert isinstance(error, MissingExtra)
    assert "PNG" in str(error)
    assert "resvg-py" in str(error)
    assert "shoestring[pictures]" in str(error)


@pytest.mark.usefixtures("no_rasteriser")
def test_png_without_a_font_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class FontlessRasteriser:
        @staticmethod
        def svg_to_bytes(svg_string: str, **_: float) -> bytes:
            return re.sub(r"<text.*</text>", "", svg_string).encode()  # as the rasteriser does without a font

    monkeypatch.setattr(static, "import_module", lambda name: FontlessRasteriser)
    with pytest.raises(StudyError, match=r"no font was found .*fonts-dejavu-core"):
        draw_png("<svg></svg>")


def test_figures_are_drawn_as_png(figures: list[Figure]) -> None:
    pytest.importorskip("resvg_py", reason="pip install 'shoestring[pictures]'")
    for figure in figures:
        light, dark = (draw_png(write_svg(figure, look)) for look in ("light", "dark"))
        assert light.startswith(b"\x89PNG")
        assert light != dark
        width = int.from_bytes(light[16:20], "big")
        assert width == round(static.PNG_ZOOM * (Sheet().width + 2 * static.PADDING))


def test_each_figure_to_choose_from_is_a_file_of_its_own(folder: Path) -> None:
    found = report("--svg", "all", "--compare", "asha", "--compare", "random_search", "--figure", "replayed").split()
    assert found == ["all/replayed-asha.svg", "all/replayed-random_search.svg"]
