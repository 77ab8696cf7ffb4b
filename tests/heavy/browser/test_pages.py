"""Reports and the page of `shoestring watch` in headless Chromium: what a reader sees, points at, and reaches by keyboard."""

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
from shoestring import Report
def train(config):
    if config["layers"] == 4:
        raise RuntimeError("<script>alert(2)</script> \\x1b[31m no luck")
    for step in range(1, 21):
        time.sleep({sleep})
        yield Report(config["lr"] / step + 0.01 * config["layers"], cost=0.2 * config["layers"])
"""
PARAMETERS = (
    "lr={float=[1e-4,1.0],log=true}",
    "layers={int=[1,4]}",
    r'kind={choice=["plain","<script>alert(1)</script>\u001b[31mred"]}',
)


BUDGETS = {"sequential_halving": "300 epochs", "bhpt": "150 epochs", "cost_aware_ei": "200s"}


def shoestring(*words: str) -> list[str]:
    return [sys.executable, "-m", "shoestring", *words]


def tune(folder: Path, budget: str, sleep: float = 0.0, policy: str = "sequential_halving") -> list[str]:
    (folder / "train.py").write_text(TRAIN.replace("{sleep}", str(sleep)))
    parameters = [word for parameter in PARAMETERS for word in ("-p", parameter)]
    words = ("--budget", budget, "--max-steps", "20", "--seed", "1", "--policy", policy)
    return shoestring("run", "train.py:train", *words, *parameters)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"] if os.getuid() == 0 else [])
        yield chromium
        chromium.close()


class Visit:
    """One page in a new window, with the errors that it logged and the addresses that it requested."""

    def __init__(self, browser: Any, address: str, **window: Any) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page = browser.new_page(**window)
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.errors.append(dialog.message), dialog.dismiss()))  # type: ignore[func-returns-value]
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)


@pytest.fixture(scope="module", params=BUDGETS)
def report(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path_factory.mktemp("report")
    subprocess.run(
        tune(folder, BUDGETS[request.param], policy=request.param), cwd=folder, check=True, capture_output=True
    )
    report = shoestring("report", "-o", "report.html", "--compare", "asha")
    subprocess.run(report, cwd=folder, check=True, capture_output=True)
    return folder / "report.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_report_is_self_contained_and_fits_the_window(browser: Any, report: Path, width: int, scheme: str) -> None:
    visit = Visit(browser, report.as_uri(), viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = visit.page
    assert visit.errors == []
    assert visit.requests == [report.as_uri()], "a report loads nothing from the network"
    sections = page.locator("section:has(svg)")
    assert sections.count() >= 8
    for number in range(sections.count()):
        box = sections.nth(number).locator("svg:visible").bounding_box()
        assert box["width"] > 250
        assert box["height"] > 30
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing is wider than the window"
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, paper[4:-1].split(","))) < 200) == (scheme == "dark")
    assert page.locator("main").text_content().count("alert(1)") > 0, "texts of the user are shown as text"


def test_pointing_at_a_mark_shows_its_reason(browser: Any, report: Path) -> None:
    page = Visit(browser, report.as_uri(), viewport={"width": 1200, "height": 900}).page
    bar = page.locator("#timeline rect[data-t]").first
    bar.scroll_into_view_if_needed()
    bar.hover()
    tip = page.locator("#tip").inner_text()
    assert "order 0: trial 0" in tip
    assert "why:" in tip
    assert page.locator("#tip").is_visible()


def test_one_decision_is_shown_at_a_time(browser: Any, report: Path, request: pytest.FixtureRequest) -> None:
    page = Visit(browser, report.as_uri(), viewport={"width": 390, "height": 900}, java_script_enabled=False).page
    sections = page.locator("section:has(.choices)").all()
    has_surrogate = request.node.callspec.params["report"] != "sequential_halving"
    assert bool(sections) == has_surrogate, "only a surrogate has predictions to choose from"
    for section in sections:
        labels = section.locator(".choices > label")
        assert labels.count() > 1
        for number in range(labels.count()):
            labels.nth(number).click()
            assert section.locator("svg:visible").count() == 1
            assert labels.nth(number).inner_text() in section.locator("p:visible").inner_text().lower()
            assert section.locator("details:visible").count() == 1


def test_predictions_and_candidates_have_tips(browser: Any, report: Path) -> None:
    page = Visit(browser, report.as_uri(), viewport={"width": 1200, "height": 900}).page
    for mark in ("#expected svg:visible [data-t]", "#candidates svg:visible circle.best"):
        for found in page.locator(mark).all()[:1]:
            found.scroll_into_view_if_needed()
            found.hover(force=True)
            assert page.locator("#tip").is_visible()
    sections_found = {key for key in ("expected", "candidates", "replayed") if page.locator(f"#{key}").count()}
    policy = page.locator("p.lead").inner_text().split(" spent ")[0]
    expected_sections = {"bhpt": {"expected", "replayed"}, "cost_aware_ei": {"expected", "candidates", "replayed"}}
    assert sections_found == expected_sections.get(policy, {"replayed"})


def test_tables_can_be_opened_by_keyboard(browser: Any, report: Path) -> None:
    page = Visit(browser, report.as_uri(), viewport={"width": 1200, "height": 900}).page
    assert page.locator("section:not(#trials) table:visible").count() == 0
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    page.keyboard.press("Enter")
    assert page.locator("section:not(#trials) table:visible").count() == 1


# the table of trials --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report of 350 random trials: more than the table shows at first."""
    folder = tmp_path_factory.mktemp("trials")
    words = [*tune(folder, "350 epochs", policy="random_search"), "--metric", "validation error"]
    words[words.index("--max-steps") + 1] = "1"
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    subprocess.run(shoestring("report"), cwd=folder, check=True, capture_output=True)
    return folder / "report.html"


def open_trials(browser: Any, report: Path, width: int = 1200, **window: Any) -> Any:
    visit = Visit(browser, report.as_uri(), viewport={"width": width, "height": 900}, **window)
    assert visit.errors == []
    return visit.page


def column(page: Any, name: str) -> list[str]:
    """Return the texts of a column of the table of trials, as far as its rows are shown."""
    script = """name => {
      const names = [...document.querySelectorAll("#trials th")].map(head => head.textContent);
      return [...document.querySelectorAll("#trials tbody tr")].map(row => row.cells[names.indexOf(name)].textContent);
    }"""
    found: list[str] = page.evaluate(script, name)
    return found


def sorted_by(page: Any) -> dict[str, str]:
    script = """() => Object.fromEntries([...document.querySelectorAll("#trials th")]
      .filter(head => head.getAttribute("aria-sort") !== "none")
      .map(head => [head.textContent, head.getAttribute("aria-sort")]))"""
    found: dict[str, str] = page.evaluate(script)
    return found


def count_of(page: Any) -> str:
    return str(page.locator("#trials output").inner_text())


@pytest.mark.parametrize("width", [390, 1200])
def test_trials_are_sorted_by_any_column(browser: Any, trials: Path, width: int) -> None:
    page = open_trials(browser, trials, width)
    assert sorted_by(page) == {"validation error": "ascending"}
    values = [float(value) for value in column(page, "validation error") if value]
    assert values == sorted(values), "the best first"
    heads = page.locator("#trials th button")
    for name, is_number in (("lr", True), ("layers", True), ("time", False), ("kind", False)):
        for order in ("ascending", "descending"):
            heads.filter(has_text=name).first.click()
            assert sorted_by(page) == {name: order}
            if is_number:
                numbers = [float(value) for value in column(page, name)]
                assert numbers == sorted(numbers, reverse=order == "descending")
    heads.filter(has_text="validation error").click()
    for _ in range(2):
        heads.filter(has_text="validation error").click()
        while page.locator("#trials .more").is_visible():
            page.locator("#trials .more").click()
        shown = column(page, "validation error")
        assert shown.index("") == len([value for value in shown if value]), (
            "trials without a value are last, either way"
        )


def test_trials_are_filtered_by_text_and_by_conditions(browser: Any, trials: Path) -> None:
    page = open_trials(browser, trials)
    assert count_of(page) == "350 trials, 100 shown"
    field = page.get_by_label("Filter")
    field.fill("failed")
    failed = int(count_of(page).split()[0])
    assert 0 < failed < 350
    assert set(column(page, "state")) == {"failed"}
    assert set(column(page, "layers")) == {"4"}
    field.fill("lr<0.01 layers=2 PLAIN")
    assert 0 < len(column(page, "lr")) < 100
    assert all(float(value) < 0.01 for value in column(page, "lr"))
    assert set(column(page, "layers")) == {"2"}
    assert set(column(page, "kind")) == {"plain"}
    page.locator("#trials th button").filter(has_text="lr").click()
    numbers = [float(value) for value in column(page, "lr")]
    assert numbers == sorted(numbers), "the filter stays when the order changes"
    field.fill('"validation error">=0.2 layers!=3')
    assert all(float(value) >= 0.2 for value in column(page, "validation error"))
    assert "3" not in column(page, "layers")
    field.fill("kind=PLAIN valid<0.2")
    assert all(float(value) < 0.2 for value in column(page, "validation error")), "the beginning of a name is enough"
    field.fill("depth<3")
    assert count_of(page) == "no column depth; 350 trials, 100 shown"
    field.fill("lr<")
    assert count_of(page) == "350 trials, 100 shown", "the reader is still typing"
    field.fill("<script>")
    assert 0 < int(count_of(page).split()[0]) < 350
    field.fill("")
    page.get_by_role("button", name="Show 100 more").click()
    assert len(column(page, "trial")) == 200


def test_trials_are_sorted_and_filtered_by_keyboard(browser: Any, trials: Path) -> None:
    page = open_trials(browser, trials)
    page.locator("#trials summary").focus()
    page.keyboard.press("Tab")
    page.keyboard.type("lr>0.1")
    assert all(float(value) > 0.1 for value in column(page, "lr"))
    while page.evaluate("document.activeElement.textContent") != "layers":
        page.keyboard.press("Tab")
    for key, order in (("Enter", "ascending"), ("Space", "descending")):
        page.keyboard.press(key)
        assert sorted_by(page) == {"layers": order}
        assert page.evaluate("document.activeElement.textContent") == "layers", "the focus stays on the column"


def test_trials_are_a_plain_table_without_a_script(browser: Any, trials: Path) -> None:
    page = open_trials(browser, trials, java_script_enabled=False)
    assert page.locator("#trials input, #trials button").count() == 0, "there is no control that does nothing"
    page.locator("#trials summary").click()
    assert page.locator("#trials tbody tr:visible").count() == 350
    assert page.locator("#trials th[aria-sort=ascending]").inner_text() == "validation error"


def test_the_watch_page_keeps_what_the_reader_chose(browser: Any, tmp_path: Path) -> None:
    quiet: dict[str, Any] = {"cwd": tmp_path, "stderr": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(tune(tmp_path, "10000 epochs", sleep=0.15), **quiet) as running:
        while subprocess.run(shoestring("status"), cwd=tmp_path, capture_output=True, check=False).returncode:
            assert running.poll() is None
            time.sleep(0.05)
        with subprocess.Popen(shoestring("watch"), **quiet) as server:
            visit = Visit(browser, server.stdout.readline().strip(), viewport={"width": 1200, "height": 900})  # type: ignore[union-attr]
            page = visit.page
            playwright.expect(page.locator("#trials")).to_be_attached(timeout=60_000)
            page.locator("#trials th button").filter(has_text="lr").click()
            page.get_by_label("Filter").fill("lr>0.0")
            version = page.locator("main").get_attribute("data-version")
            playwright.expect(page.locator("main")).not_to_have_attribute("data-version", version, timeout=60_000)
            assert page.get_by_label("Filter").input_value() == "lr>0.0"
            assert page.evaluate("document.activeElement.id") == "trials-filter"
            assert sorted_by(page) == {"lr": "ascending"}
            numbers = [float(value) for value in column(page, "lr")]
            assert numbers == sorted(numbers)
            assert visit.errors == []
            server.terminate()
        running.terminate()


def test_texts_can_be_copied(browser: Any, report: Path) -> None:
    page = Visit(browser, report.as_uri(), viewport={"width": 1200, "height": 900}).page
    button = page.locator("button[data-copies]").first
    button.scroll_into_view_if_needed()
    button.click()
    playwright.expect(button).not_to_have_text("copy")
    copied = page.evaluate("getSelection().toString()") or page.locator("#copy-0").inner_text()
    assert "'lr':" in copied


def test_axe_finds_nothing_serious(browser: Any, report: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-not-found, unused-ignore]

    # axe runs as a script of the test, which the page's content security policy would forbid
    page = browser.new_page(bypass_csp=True, viewport={"width": 1200, "height": 900})
    page.goto(report.as_uri())
    found = Axe().run(page).response["violations"]
    assert [rule["id"] for rule in found if rule["impact"] in ("serious", "critical")] == []


def test_figures_are_written_as_png(report: Path) -> None:
    for words in (("--png", "figures"), ("--png", "figures", "--dark")):
        subprocess.run(shoestring("report", *words), cwd=report.parent, check=True, capture_output=True)
    found = {path.stem: path.read_bytes() for path in (report.parent / "figures").iterdir()}
    assert {"budget", "budget-dark", "curves", "curves-dark", "timeline"} <= set(found)
    assert all(content.startswith(b"\x89PNG") for content in found.values())
    assert found["curves"] != found["curves-dark"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_study_in_a_notebook_has_the_colours_of_its_page(browser: Any, report: Path, theme: str) -> None:
    """Show two outputs as JupyterLab does: the page, not the system, says whether it is light."""
    from shoestring import Study
    from shoestring.reports.figures import style

    study = Study.open(store=f"sqlite:///{report.parent}/shoestring.db")
    ink, ground = ("rgb(20, 20, 20)", "white") if theme == "light" else ("rgb(230, 230, 230)", "black")
    outputs = 2 * f"<div class='output'>{study._repr_html_()}</div>"
    body = f"<body data-jp-theme-light={str(theme == 'light').lower()} style='color:{ink};background:{ground}'>"
    page = report.parent / f"notebook-{theme}.html"
    page.write_text(f"<!doctype html><meta charset=utf-8>{body}<svg><text class=name>mine</text></svg>{outputs}")
    visit = Visit(browser, page.as_uri(), viewport={"width": 900, "height": 900}, color_scheme="light")
    assert visit.errors == []
    assert visit.requests == [page.as_uri()]
    shown = visit.page.locator(".output svg")
    assert shown.count() == 6
    fill = "(mark) => getComputedStyle(mark).fill"
    bars, names = visit.page.locator(".output rect.train"), visit.page.locator(".output text.name")
    colour = {"light": style.LIGHT, "dark": style.DARK}[theme]["c-train"]
    expected = "rgb({}, {}, {})".format(*(int(colour[i : i + 2], 16) for i in (1, 3, 5)))
    assert {bars.nth(i).evaluate(fill) for i in range(bars.count())} == {expected}
    assert {names.nth(i).evaluate(fill) for i in range(names.count())} == {ink}
    assert visit.page.locator("body > svg text").evaluate(fill) == "rgb(0, 0, 0)", (
        "other drawings in the notebook are not changed"
    )


def test_the_watch_page_follows_a_running_study(browser: Any, tmp_path: Path) -> None:
    quiet: dict[str, Any] = {"cwd": tmp_path, "stderr": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
    # The budget is larger than what it will train: on a busy machine a server and a browser start slowly.
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
            assert visit.errors == []
            assert all(address.startswith("http://127.0.0.1:") for address in visit.requests)
            refused = Visit(browser, address.split("?")[0])
            assert "token" in refused.page.locator("body").inner_text()
            server.terminate()
        running.terminate()
