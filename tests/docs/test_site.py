"""The site builds without a warning, has a page for everything, loads nothing from other sites, and fits a phone.

A headless Chromium opens the pages in frames and posts what it measured.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from html import unescape
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import shoestring
import shoestring.policy
import shoestring.testing
from shoestring import errors, policies

pytest.importorskip("mkdocstrings_handlers.python")
pytest.importorskip("material")

ROOT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PHONE_PX = 390
LAPTOP_PX = (1280, 800)
MAX_SCREENS = 5.6  # of a page, except in the reference
HARNESS = """<!doctype html><body><script>
const pages = %s, found = {wide: {}, cut: {}, height: {}, hits: []};
const wait = ms => new Promise(done => setTimeout(done, ms));
async function open(page, width) {
  const frame = document.createElement("iframe");
  frame.style = `width: ${width}px; height: 800px`;
  const loaded = new Promise(done => frame.onload = done);
  frame.src = "/" + page;
  document.body.append(frame);
  await loaded;
  await wait(100);
  return frame;
}
(async () => {
  for (const page of pages) {
    const frame = await open(page, %d);
    found.wide[page] = frame.contentDocument.documentElement.scrollWidth;
    frame.style.width = "%dpx";
    frame.getBoundingClientRect();  // so that the frame has this width now
    const seen = frame.contentDocument;
    found.cut[page] = [...seen.querySelectorAll("pre, pre code")].filter(code => code.scrollWidth > code.clientWidth + 1).length;
    found.height[page] = seen.querySelector(".md-content").offsetHeight;
    frame.remove();
    await fetch("/found", {method: "POST", body: JSON.stringify({pages: Object.keys(found.wide).length})});
  }
  const seen = (await open("?q=BudgetSearchCV", 1200)).contentDocument;
  for (let i = 0; i < 100 && !found.hits.length; i++) {
    await wait(100);
    found.hits = [...seen.querySelectorAll(".md-search-result__link")].map(link => new URL(link.href).pathname);
  }
  await fetch("/found", {method: "POST", body: JSON.stringify({...found, done: true})});
})();
</script></body>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def text_of(page: Path) -> str:
    return unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", shoestring.__all__)
def test_every_public_name_has_a_page_that_explains_it(site: Path, name: str) -> None:
    words = (getattr(shoestring, name).__doc__ or "").splitlines()[0].replace("`", "")
    text = text_of(site / "reference" / "api" / name / "index.html")
    assert words in text or name == "ShoestringError"


def test_names_inside_other_tools_are_on_one_page(site: Path) -> None:
    """The page shows their signatures and docstrings, although their packages are not installed."""
    text = text_of(site / "reference" / "api" / "integrations" / "index.html")
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "how-to").glob("*.md"))
    imports = re.findall(r"from shoestring\.integrations\.\w+ import (.+)", pages)
    used = {name.strip() for names in imports for name in names.split(",")} - {"checkpoint_of"}
    assert {"stepwise", "BudgetSearchCV"} <= used
    assert {name for name in used if not re.search(rf"import (\w+, )*{name}\b", text)} == set()
    assert "fit: Callable[[Steps], Any]" in text, "a signature is missing"
    assert "A callback that makes each epoch a step." in text


def test_the_page_of_errors_names_them_all(site: Path) -> None:
    text = text_of(site / "reference" / "api" / "ShoestringError" / "index.html")
    kinds = [
        name for name, kind in vars(errors).items() if isinstance(kind, type) and kind.__module__ == errors.__name__
    ]
    assert len(kinds) > 10
    assert [name for name in kinds if name not in text] == []


@pytest.mark.parametrize("name", shoestring.__all__)
def test_every_documented_parameter_is_a_row_of_its_page(site: Path, name: str) -> None:
    expected = documented_parameters(getattr(shoestring, name))
    assert set(expected) <= rows_of(site, name) or name == "ShoestringError"
    assert name != "tune" or expected == list(inspect.signature(shoestring.tune).parameters)


@pytest.mark.parametrize("module", [shoestring.policy, shoestring.testing], ids=["policy", "testing"])
def test_the_page_of_a_module_has_all_its_names(site: Path, module: ModuleType) -> None:
    page = module.__name__.rpartition(".")[2]
    text, rows = text_of(site / "reference" / "api" / page / "index.html"), rows_of(site, page)
    for name in module.__all__:
        assert re.search(rf"\b{name}\b", text), f"{name} is missing"
        thing = getattr(module, name)
        if name not in shoestring.__all__ and (inspect.isfunction(thing) or inspect.isclass(thing)):
            assert set(documented_parameters(thing)) <= rows, f"parameters of {name} are missing"


def rows_of(site: Path, page: str) -> set[str]:
    """Return the first column of the tables of parameters of a page."""
    text = (site / "reference" / "api" / page / "index.html").read_text(encoding="utf-8")
    return set(re.findall(r'<tr class="doc-section-item">\s*<td>\s*<code>(\w+)</code>', text))


def documented_parameters(thing: Any) -> list[str]:
    """Return the parameters that the docstrings of a function, or of a class and its own methods, describe."""
    found = [getattr(each, "__func__", each) for key, each in vars(thing).items() if not key.startswith("_")]
    documented = [thing, *(each for each in found if inspect.isfunction(each) and inspect.isclass(thing))]
    return [entry for each in documented for entry in parameter_entries(inspect.cleandoc(each.__doc__ or ""))]


def parameter_entries(docstring: str) -> list[str]:
    """Return the names in the section of parameters of a NumPy docstring."""
    found = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-{3,}$|\Z)", docstring, re.MULTILINE | re.DOTALL)
    entries = re.findall(r"^(\w[\w, *]*?)(?: :.*)?$", found.group(1), re.MULTILINE) if found else []
    return [name for entry in entries for name in entry.split(", ")]


@pytest.mark.parametrize("name", policies.REGISTRY)
def test_every_policy_has_a_page_and_its_settings_are_listed_with_their_meaning(site: Path, name: str) -> None:
    assert (site / "reference" / "policies" / name / "index.html").exists()
    listed = (site / "reference" / "policies" / "index.html").read_text(encoding="utf-8")
    _, _, after = listed.partition(f'id="{name}"')
    of_this_policy = after.partition("<h3")[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in of_this_policy.split("<tr>")]
    meanings = {cells[0]: re.sub(r"<[^>]+>", "", cells[2]) for cells in rows if len(cells) == 3}
    assert set(meanings) == {f"<code>{setting}</code>" for setting in policies.defaults_of(name)}
    assert all(len(meaning) > 5 for meaning in meanings.values()), meanings


def test_the_first_page_begins_as_the_readme_does(site: Path) -> None:
    assert "The best model you can afford." in text_of(site / "index.html")


def test_pages_load_nothing_from_other_sites(site: Path) -> None:
    loads = re.compile(
        r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?:https?:)?//|<link\b[^>]*\bhref=\"?(?:https?:)?//"
    )
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    assert {str(page): found[0] for page in pages if (found := loads.search(page.read_text(encoding="utf-8")))} == {}
    styles = [sheet.read_text(encoding="utf-8") for sheet in site.rglob("*.css")]
    assert not any(re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style) for style in styles)


class Handler(SimpleHTTPRequestHandler):
    """Serves the site, and receives what the browser measured."""

    def __init__(self, *args: Any, found: dict[str, Any], arrived: threading.Event, **more: Any) -> None:
        self.found, self.arrived = found, arrived
        super().__init__(*args, **more)

    def do_POST(self) -> None:
        self.found |= json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        if self.found.get("done"):
            self.arrived.set()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def measured(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Return what a browser measures: the width of pages on a phone, and how many pages a search finds."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    pages = [page.parent.relative_to(site).as_posix() + "/" for page in site.rglob("index.html")]
    (site / "harness.html").write_text(HARNESS % (json.dumps(pages), PHONE_PX, LAPTOP_PX[0]))
    found: dict[str, Any] = {}
    arrived = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=site, found=found, arrived=arrived))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run"]
    profile = f"--user-data-dir={tmp_path_factory.mktemp('profile')}"
    address = f"http://127.0.0.1:{server.server_port}/harness.html"
    browser = subprocess.Popen(
        [CHROMIUM, *flags, profile, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        seen = 0
        while not arrived.wait(240):  # on a busy machine all pages together may take longer
            assert found.get("pages", 0) > seen, "the browser did not answer"
            seen = found["pages"]
        yield found
    finally:
        browser.terminate()
        browser.wait(30)
        server.shutdown()
        server.server_close()


def test_no_page_scrolls_sideways_on_a_phone(measured: dict[str, Any]) -> None:
    assert len(measured["wide"]) > 50
    assert {page: wide for page, wide in measured["wide"].items() if wide > PHONE_PX} == {}


def test_no_code_is_cut_on_a_laptop(measured: dict[str, Any]) -> None:
    assert {page: blocks for page, blocks in measured["cut"].items() if blocks} == {}


def test_no_page_is_long(measured: dict[str, Any]) -> None:
    """A page of more than about five screens is split, or what was tried moves to benchmarks/."""
    screens = {page: round(height / LAPTOP_PX[1], 1) for page, height in measured["height"].items()}
    assert len(screens) > 50
    assert {page: n for page, n in screens.items() if n > MAX_SCREENS and not page.startswith("reference/")} == {}


def test_the_readme_is_divided_over_two_pages(site: Path) -> None:
    """As one page it has ten screens."""
    first, second = (text_of(site / page / "index.html") for page in ("", "more"))
    titles = re.findall(r"^## (.+)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(titles) >= 5
    assert [title for title in titles if (title in first) + (title in second) == 0] == []
    assert "Quick start" in first
    assert "How strictly the budget is kept" in second


def test_the_page_of_the_notebook_has_its_outputs(site: Path) -> None:
    page = (site / "tutorials" / "notebook" / "index.html").read_text(encoding="utf-8")
    assert page.count('class="output"') >= 3
    assert "spent 120 epochs of 120 epochs" in page
    assert "wrong after" in text_of(site / "tutorials" / "notebook" / "index.html").partition("The model")[2]
    assert page.count("<svg viewBox") >= 4


def test_the_how_tos_have_an_index(site: Path) -> None:
    links = Links(site / "how-to" / "index.html").targets
    pages = {page.stem for page in (ROOT / "docs" / "how-to").glob("*.md")} - {"README"}
    assert len(pages) > 20
    assert {page for page in pages if f"{page}/" not in links} == set()


def test_search_finds_the_page_that_explains_a_word(measured: dict[str, Any]) -> None:
    assert "/how-to/search-with-scikit-learn/" in measured["hits"]


class Links(HTMLParser):
    """The link targets and the anchors of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.places |= {place for place in (values.get("id"), values.get("name")) if place}
        self.targets += [target for target in (values.get("href"), values.get("src")) if target]


def test_every_link_of_the_site_has_a_target(site: Path) -> None:
    """MkDocs checks the links in our pages; this test also checks the links that MkDocs generates."""
    pages = {page: Links(page) for page in site.rglob("*.html") if page.name != "harness.html"}
    assert len(pages) > 50
    assert {
        f"{page.relative_to(site)} -> {x}"
        for page in pages
        for x in pages[page].targets
        if _is_broken(site, page, x, pages)
    } == set()


def _is_broken(site: Path, page: Path, target: str, pages: Mapping[Path, Links]) -> bool:
    address = urlsplit(target)
    if address.scheme or address.netloc:
        return False  # another site
    path = unquote(address.path)
    leads_to = ((site if path.startswith("/") else page.parent) / path.lstrip("/")).resolve() if path else page
    leads_to = leads_to / "index.html" if leads_to.is_dir() else leads_to
    place = unquote(address.fragment)
    return not leads_to.is_file() or (bool(place) and leads_to in pages and place not in pages[leads_to].places)
