"""The site builds without a warning, has a page for everything, asks nobody else for anything, and fits a phone.

What a browser makes of it is seen by a headless Chromium: it opens pages in frames and posts what it measured.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import shoestring
from shoestring import errors, policies

pytest.importorskip("mkdocstrings_handlers.python")
pytest.importorskip("material")

ROOT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PHONE_PX = 390
LOOKED_AT = ["", "tutorials/first-study/", "reference/cli/", "reference/policies/", "reference/policies/boil/"]
LOOKED_AT += ["reference/json-line/", "reference/api/tune/", "reference/api/Study/", "explanation/how-it-works/"]
HARNESS = """<!doctype html><body><script>
const pages = %s, found = {wide: {}, hits: 0};
const wait = ms => new Promise(done => setTimeout(done, ms));
async function open(page, width) {
  const frame = document.createElement("iframe");
  frame.style = `width: ${width}px; height: 800px`;
  const loaded = new Promise(done => frame.onload = done);
  frame.src = "/" + page;
  document.body.append(frame);
  await loaded;
  await wait(300);
  return frame.contentDocument;
}
(async () => {
  for (const page of pages) {
    const seen = await open(page, %d);
    found.wide[page] = seen.documentElement.scrollWidth;
  }
  const seen = await open("?q=reserve", 1200);
  for (let i = 0; i < 100 && !found.hits; i++) {
    await wait(100);
    found.hits = seen.querySelectorAll(".md-search-result__item").length;
  }
  await fetch("/found", {method: "POST", body: JSON.stringify(found)});
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


def test_the_page_of_errors_names_them_all(site: Path) -> None:
    text = text_of(site / "reference" / "api" / "ShoestringError" / "index.html")
    kinds = [
        name for name, kind in vars(errors).items() if isinstance(kind, type) and kind.__module__ == errors.__name__
    ]
    assert len(kinds) > 10
    assert [name for name in kinds if name not in text] == []


def test_fields_are_explained_by_the_comments_behind_them(site: Path) -> None:
    text = text_of(site / "reference" / "api" / "Context" / "index.html")
    assert "until: int" in text
    assert "the last step that is paid for" in text


@pytest.mark.parametrize("name", policies.REGISTRY)
def test_every_policy_has_a_page_and_its_settings_are_listed(site: Path, name: str) -> None:
    assert (site / "reference" / "policies" / name / "index.html").exists()
    listed = (site / "reference" / "policies" / "index.html").read_text(encoding="utf-8")
    _, _, after = listed.partition(f'id="{name}"')
    of_this_policy = after.partition("<h3")[0]
    for setting in policies.defaults_of(name):
        assert f"<code>{setting}</code>" in of_this_policy


def test_the_first_page_begins_as_the_readme_does(site: Path) -> None:
    assert "The best model you can afford." in text_of(site / "index.html")


def test_pages_ask_nobody_else_for_anything(site: Path) -> None:
    loads = re.compile(
        r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?:https?:)?//|<link\b[^>]*\bhref=\"?(?:https?:)?//"
    )
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    assert {str(page): found[0] for page in pages if (found := loads.search(page.read_text(encoding="utf-8")))} == {}
    styles = [sheet.read_text(encoding="utf-8") for sheet in site.rglob("*.css")]
    assert not any(re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style) for style in styles)


class Handler(SimpleHTTPRequestHandler):
    """Serves the site, and takes what the browser found."""

    def __init__(self, *args: Any, found: dict[str, Any], arrived: threading.Event, **more: Any) -> None:
        self.found, self.arrived = found, arrived
        super().__init__(*args, **more)

    def do_POST(self) -> None:
        self.found |= json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.arrived.set()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def seen(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What a browser measures: the width of pages on a phone, and how many pages a search finds."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    (site / "harness.html").write_text(HARNESS % (json.dumps(LOOKED_AT), PHONE_PX))
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
        assert arrived.wait(120), "the browser did not answer"
        yield found
    finally:
        browser.terminate()
        browser.wait(30)
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("page", LOOKED_AT)
def test_a_phone_does_not_scroll_sideways(seen: dict[str, Any], page: str) -> None:
    assert seen["wide"][page] <= PHONE_PX


def test_search_finds_pages(seen: dict[str, Any]) -> None:
    assert seen["hits"] >= 3
