"""Reports and the watching page in headless Chromium: what a reader sees, hovers, and can reach by keyboard."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")

TRAIN = """
import time
def train(config):
    if config["layers"] == 4:
        raise RuntimeError("<script>alert(2)</script> \\x1b[31m no luck")
    for step in range(1, 21):
        time.sleep({sleep})
        yield config["lr"] / step + 0.01 * config["layers"]
"""
PARAMETERS = (
    "lr={float=[1e-4,1.0],log=true}",
    "layers={int=[1,4]}",
    r'kind={choice=["plain","<script>alert(1)</script>\u001b[31mred"]}',
)


def shoestring(*words: str) -> list[str]:
    return [sys.executable, "-m", "shoestring", *words]


def tune(folder: Path, budget: str, sleep: float = 0.0) -> list[str]:
    (folder / "train.py").write_text(TRAIN.replace("{sleep}", str(sleep)))
    parameters = [word for parameter in PARAMETERS for word in ("-p", parameter)]
    return shoestring("run", "train.py:train", "--budget", budget, "--max-steps", "20", "--seed", "1", *parameters)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"] if os.getuid() == 0 else [])
        yield chromium
        chromium.close()


class Visit:
    """One page in a fresh window, with everything it complained about or asked for."""

    def __init__(self, browser: Any, address: str, **window: Any) -> None:
        self.trouble: list[str] = []
        self.requests: list[str] = []
        self.page = browser.new_page(**window)
        self.page.on("console", lambda said: self.trouble.append(said.text))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.trouble.append(dialog.message), dialog.dismiss()))  # type: ignore[func-returns-value]
        self.page.on("request", lambda asked: self.requests.append(asked.url))
        self.page.goto(address)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    subprocess.run(tune(folder, "300 epochs"), cwd=folder, check=True, capture_output=True)
    report = shoestring("report", "-o", "report.html", "--compare", "asha")
    subprocess.run(report, cwd=folder, check=True, capture_output=True)
    return folder / "report.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_report(browser: Any, report: Path, width: int, scheme: str) -> None:
    visit = Visit(browser, report.as_uri(), viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = visit.page
    assert visit.trouble == []
    assert visit.requests == [report.as_uri()], "a report asks nobody for anything"
    sections = page.locator("section:has(svg)")
    assert sections.count() >= 8
    for number in range(sections.count()):
        box = sections.nth(number).locator("svg").bounding_box()
        assert box["width"] > 250
        assert box["height"] > 30
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, paper[4:-1].split(","))) < 200) == (scheme == "dark")
    assert page.locator("main").text_content().count("alert(1)") > 0, "what a user wrote is shown as text"


def test_hovering_tells_why(browser: Any, report: Path) -> None:
    page = Visit(browser, report.as_uri(), viewport={"width": 1200, "height": 900}).page
    bar = page.locator("#timeline rect[data-t]").first
    bar.scroll_into_view_if_needed()
    bar.hover()
    said = page.locator("#tip").inner_text()
    assert "order 0: trial 0" in said
    assert "why:" in said
    assert page.locator("#tip").is_visible()


def test_tables_are_reached_by_keyboard(browser: Any, report: Path) -> None:
    page = Visit(browser, report.as_uri(), viewport={"width": 1200, "height": 900}).page
    assert page.locator("section table:visible").count() == 0
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    page.keyboard.press("Enter")
    assert page.locator("section table:visible").count() == 1


def test_texts_can_be_taken_away(browser: Any, report: Path) -> None:
    page = Visit(browser, report.as_uri(), viewport={"width": 1200, "height": 900}).page
    button = page.locator("button[data-copies]").first
    button.scroll_into_view_if_needed()
    button.click()
    playwright.expect(button).not_to_have_text("copy")
    copied = page.evaluate("getSelection().toString()") or page.locator("#copy-0").inner_text()
    assert "'lr':" in copied


def test_axe_finds_nothing_serious(browser: Any, report: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-not-found, unused-ignore]

    # axe runs as a script of the test, which the page's own policy would forbid
    page = browser.new_page(bypass_csp=True, viewport={"width": 1200, "height": 900})
    page.goto(report.as_uri())
    found = Axe().run(page).response["violations"]
    assert [rule["id"] for rule in found if rule["impact"] in ("serious", "critical")] == []


def test_watching_follows_a_running_study(browser: Any, tmp_path: Path) -> None:
    quiet: dict[str, Any] = {"cwd": tmp_path, "stderr": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
    # More epochs than it will train: on a busy machine a server and a browser take their time to start.
    with subprocess.Popen(tune(tmp_path, "10000 epochs", sleep=0.15), **quiet) as running:
        while subprocess.run(shoestring("status"), cwd=tmp_path, capture_output=True, check=False).returncode:
            assert running.poll() is None
            time.sleep(0.05)
        with subprocess.Popen(shoestring("watch"), **quiet) as server:
            address = server.stdout.readline().strip()  # type: ignore[union-attr]
            assert address.startswith("http://127.0.0.1:")
            visit = Visit(browser, address, viewport={"width": 1200, "height": 900})
            before = visit.page.locator("main").get_attribute("data-version")
            playwright.expect(visit.page.locator("main")).not_to_have_attribute("data-version", before, timeout=20_000)
            assert visit.trouble == []
            assert all(asked.startswith("http://127.0.0.1:") for asked in visit.requests)
            refused = Visit(browser, address.split("?")[0])
            assert "token" in refused.page.locator("body").inner_text()
            server.terminate()
        running.terminate()
