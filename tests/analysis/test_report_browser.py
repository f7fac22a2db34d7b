"""The page in a real browser, opened as a file: what it draws, says, and never asks for."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fleet_rows import HOSTILE_DEVICE, HOSTILE_MODEL, hostile_results

from analysis.report.page import build_report

pytestmark = pytest.mark.browser
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
WIDTHS = {"phone": 390, "laptop": 1280, "wide": 1920}
# Found by the script itself, so that a chart that fails is waited for like one that is drawn.
READY = "document.documentElement.dataset.charts !== undefined"


@dataclass
class Visit:
    """An open page and everything it said or asked for."""

    page: "playwright.Page"
    file_url: str
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    return build_report(hostile_results(folder / "results"), folder / "report.html").path


@pytest.fixture(scope="module")
def browser() -> "Iterator[playwright.Browser]":
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def visit(browser: "playwright.Browser", report: Path) -> "Iterator[Visit]":
    context = browser.new_context(viewport={"width": WIDTHS["laptop"], "height": 800})
    visit = Visit(page=context.new_page(), file_url=report.as_uri())
    visit.page.on("console", lambda message: visit.messages.append(message.text))
    visit.page.on("pageerror", lambda error: visit.messages.append(str(error)))
    visit.page.on("dialog", lambda dialog: visit.messages.append(f"dialog {dialog.message}"))
    visit.page.on("request", lambda request: visit.requests.append(request.url))
    visit.page.goto(visit.file_url)
    visit.page.wait_for_function(READY)
    yield visit
    context.close()


def test_every_chart_is_drawn_with_marks(visit: Visit) -> None:
    charts = visit.page.locator(".chart")
    assert charts.count() > 15
    assert visit.page.locator(".chart svg .mark-symbol, .chart svg .mark-rect").count() > 0
    assert visit.page.locator(".chart.failed").count() == 0
    for number in range(charts.count()):
        assert charts.nth(number).locator("svg path").count() > 5


def test_nothing_is_asked_for_and_nothing_goes_wrong(visit: Visit) -> None:
    assert visit.requests == [visit.file_url]
    assert visit.messages == []


def test_hostile_names_are_text_everywhere(visit: Visit) -> None:
    page = visit.page
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert HOSTILE_MODEL in page.locator("main").inner_text()
    assert HOSTILE_DEVICE in page.locator("main").inner_text()
    assert page.locator("main img").count() == 0
    labels = page.locator(".chart svg text").all_text_contents()
    assert any(label.startswith("<script>alert") for label in labels)
    described = page.locator(".chart").evaluate_all("all => all.map(c => c.ariaLabel).join(' ')")
    assert HOSTILE_DEVICE in described


def test_a_tooltip_shows_a_hostile_name_as_text(visit: Visit) -> None:
    page = visit.page
    for dot in page.locator("#latency-1 svg g.mark-symbol path").all():
        dot.hover(force=True)
        tooltip = page.locator("#vg-tooltip-element.visible")
        tooltip.wait_for()
        if HOSTILE_MODEL in tooltip.inner_text():
            assert tooltip.locator("script").count() == 0
            return
    pytest.fail("no point of the hostile model was found")


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS.keys())
def test_the_body_never_scrolls_sideways(
    browser: "playwright.Browser", report: Path, width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(report.as_uri())
    page.wait_for_function(READY)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_paper_and_charts_follow_the_colour_scheme(
    browser: "playwright.Browser", report: Path, scheme: str, is_dark: bool
) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto(report.as_uri())
    page.wait_for_function(READY)
    paper = _brightness(page, "body", "backgroundColor")
    text = _brightness(page, "#latency-1 svg g.role-axis-label text", "fill")
    page.close()
    assert (paper < 80) is is_dark
    assert abs(paper - text) > 120


def _brightness(page: "playwright.Page", selector: str, name: str) -> float:
    colour = page.locator(selector).first.evaluate(
        "(element, name) => getComputedStyle(element)[name]", name
    )
    channels = [float(part) for part in colour.strip("rgba()").split(",")[:3]]
    return sum(channels) / 3


def test_a_print_has_every_table_open_and_fits_the_paper(
    browser: "playwright.Browser", report: Path
) -> None:
    page = browser.new_page()
    page.goto(report.as_uri())
    page.wait_for_function(READY)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.emulate_media(media="print")
    # The width of A4 at 96 dots per inch: a wider page would be printed smaller.
    page.set_viewport_size({"width": 794, "height": 1123})
    assert page.evaluate("document.documentElement.scrollWidth") == 794
    page.close()
