"""The page in a real browser, opened as a file: what it draws, says, and never asks for.

`make test` opens one page of images whose models took turns; other pages are `thorough`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from daily import daily
from fleet_rows import HOSTILE_MODEL, Place, hostile_results, with_rounds, write_results
from headless_browser import unfold

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.page import build_report
from fleetrank.analysis.statistics.pairs.pair_answer import pair_sentences
from fleetrank.analysis.statistics.pairs.pairs import faster
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection

pytestmark = pytest.mark.browser
if TYPE_CHECKING:
    from playwright import sync_api as playwright

SECTIONS = (
    "latency",
    "transfer",
    "frontier",
    "flops",
    "memory",
    "turns",
)
WIDTHS = {"phone": 390, "laptop": 1366, "wide": 2200}


@dataclass
class Visit:
    """An open page and everything it said or asked for."""

    page: "playwright.Page"
    file_url: str
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_rounds(hostile_results(tmp_path_factory.mktemp("browser") / "results"))


@pytest.fixture(scope="module")
def report(results: Path) -> Path:
    return build_report(results, results.parent / "report.html").path


@pytest.fixture(scope="module")
def visit(browser: "playwright.Browser", report: Path) -> "Iterator[Visit]":
    context = browser.new_context(viewport={"width": WIDTHS["laptop"], "height": 800})
    visit = Visit(page=context.new_page(), file_url=report.as_uri())
    visit.page.on("console", lambda message: visit.messages.append(message.text))
    visit.page.on("pageerror", lambda error: visit.messages.append(str(error)))
    visit.page.on("dialog", lambda dialog: visit.messages.append(f"dialog {dialog.message}"))
    visit.page.on("request", lambda request: visit.requests.append(request.url))
    visit.page.goto(visit.file_url)
    _wait(visit.page)
    yield visit
    context.close()


def _wait(page: "playwright.Page") -> None:
    """Until every chart is drawn, or has said that it cannot be."""
    unfold(page)


def _centre(page: "playwright.Page", chart: str) -> None:
    """Away from the filter bar, which stays at the top and would catch the mouse."""
    page.locator(f"#{chart}").evaluate(
        "box => box.scrollIntoView({ block: 'center', behavior: 'instant' })"
    )


@pytest.mark.thorough
def test_every_chart_is_drawn_with_marks_and_described(visit: Visit) -> None:
    charts = visit.page.locator(".chart")
    assert charts.count() > 15
    for section in SECTIONS:
        assert visit.page.locator(f"#{section} .chart svg").count() > 0, section
    assert visit.page.locator(".chart.failed").count() == 0
    drawn = charts.evaluate_all(
        "all => all.map(one => [one.querySelectorAll('svg path').length, "
        "one.getAttribute('role'), one.getAttribute('aria-label')])"
    )
    assert len(drawn) == charts.count()
    for n_paths, role, label in drawn:
        assert n_paths > 5
        assert role == "img"
        assert label


def test_nothing_is_asked_for_and_nothing_goes_wrong(visit: Visit) -> None:
    assert visit.requests == [visit.file_url]
    assert visit.messages == []


@pytest.mark.thorough
def test_a_tooltip_shows_a_hostile_name_as_text(visit: Visit) -> None:
    page = visit.page
    _centre(page, "latency-1")
    for dot in page.locator("#latency-1 svg g.mark-symbol path").all():
        dot.hover(force=True)
        tooltip = page.locator("#vg-tooltip-element.visible")
        tooltip.wait_for()
        if HOSTILE_MODEL in tooltip.inner_text():
            assert tooltip.locator("script").count() == 0
            return
    pytest.fail("no point of the hostile model was found")


def test_a_filter_and_a_search_act_on_an_open_page(visit: Visit) -> None:
    page = visit.page
    assert page.locator("#shown").inner_text().startswith("Showing 5 of 5")
    assert page.locator(".overall").first.is_hidden()
    page.evaluate("location.hash = 'device=pixel-7&model=resnet18&model=resnet50&at=memory'")
    page.locator("#shown", has_text="Showing 2 of 5 platforms, 2 of 14 models.").wait_for()
    assert page.evaluate("document.activeElement.parentElement.id") == "memory"
    assert page.locator("[data-charts=latency] figcaption strong").count() == 2
    assert page.locator("#table-matrix tbody tr:not([hidden])").count() == 2
    page.get_by_role("searchbox", name="Find in Latency, ms: models by platforms").fill("resnet50")
    assert page.locator("#table-matrix tbody tr:not([hidden])").count() == 1
    page.locator("#reset").click()
    assert page.locator("#shown").inner_text().startswith("Showing 5 of 5")
    assert page.locator("#reset").is_hidden()
    assert page.url == visit.file_url
    assert page.locator("input:checked").count() == 0
    assert visit.messages == []


@pytest.mark.thorough
@pytest.mark.parametrize("width", [WIDTHS["phone"], WIDTHS["laptop"]])
def test_long_names_of_platforms_stay_apart_in_the_matrix(
    browser: "playwright.Browser", tmp_path: Path, width: int
) -> None:
    places = [
        Place(device=f"{vendor}-of-a-very-long-name-{n}-developer-kit", tier=tier, runtime="onnx",
              gflops=10.0 + n)
        for vendor, tier in (("north", "cpu"), ("south", "edge"))
        for n in range(4)
    ]  # fmt: skip
    results = write_results(tmp_path / "results", places=places)
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(build_report(results, tmp_path / "report.html").path.as_uri())
    _wait(page)
    texts = page.locator("#transfer-1 svg g.role-axis-label text").all_text_contents()
    page.close()
    # Each platform is named on both axes; a narrow page draws six at first, with numbers
    # across the bottom.
    is_narrow = width == WIDTHS["phone"]
    assert (len(texts), len(set(texts))) == ((12, 12) if is_narrow else (16, 8))
    assert max(map(len, texts)) < 50


@pytest.mark.thorough
@pytest.mark.parametrize("measure", daily(["1", "2"], "1"))
def test_the_matrix_shows_interval_and_null_on_hover(visit: Visit, measure: str) -> None:
    _centre(visit.page, f"transfer-{measure}")
    visit.page.locator(f"#transfer-{measure} svg g.mark-rect path").nth(1).hover(force=True)
    tooltip = visit.page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    text = tooltip.inner_text()
    assert "95 % interval" in text
    assert " to " in text
    assert "95th percentile" in text
    assert re.search(
        r"if only FLOPs transfer:?\s+mean [\d.-]+, (not )?exceeded, adjusted p = ", text
    )
    assert re.search(r"statistics:?\s+median", text)


@pytest.mark.thorough
def test_a_distribution_can_be_seen_relative_to_its_median(visit: Visit) -> None:
    page = visit.page
    page.get_by_role("button", name="relative to each median").click()
    _wait(page)
    axis = page.locator("#latency-1 svg g.role-axis-label text").all_text_contents()
    assert any(label.endswith("%") for label in axis)
    assert page.locator("#latency-1 svg g.mark-rule line").count() >= 3 * 13
    page.get_by_role("button", name="ms, one scale for all").click()
    _wait(page)


@pytest.mark.thorough
@pytest.mark.parametrize("width", daily(WIDTHS.values(), WIDTHS["phone"]), ids=WIDTHS.keys())
def test_the_body_never_scrolls_sideways(
    browser: "playwright.Browser", report: Path, width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(report.as_uri())
    _wait(page)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()


@pytest.mark.thorough
@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_paper_and_charts_follow_the_colour_scheme(
    browser: "playwright.Browser", report: Path, scheme: str, is_dark: bool
) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto(report.as_uri())
    _wait(page)
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


@pytest.mark.thorough
def test_a_print_has_every_table_open_and_fits_the_paper(
    browser: "playwright.Browser", report: Path
) -> None:
    page = browser.new_page()
    page.goto(report.as_uri())
    _wait(page)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    # How to read a table stays folded: paper is for figures.
    closed = "main details:not([open]):not(.explanation):not(.words):not(.pick)"
    assert page.locator(closed).count() == 0
    page.emulate_media(media="print")
    assert not page.locator("#filters summary").first.is_visible()
    # The width of A4 at 96 dots per inch: a wider page would be printed smaller.
    page.set_viewport_size({"width": 794, "height": 1123})
    assert page.evaluate("document.documentElement.scrollWidth") == 794
    page.close()


def _pick(page: "playwright.Page", label: str, name: str) -> None:
    page.locator(".question").get_by_label(label, exact=True).select_option(label=name)


def test_a_picked_pair_has_the_answer_of_the_analysis(
    browser: "playwright.Browser", results: Path, report: Path
) -> None:
    session = Session(load_measurements(results), Selection(source="cpu-*"))
    answer = faster(session, "mobilenet_v2", "squeezenet1_1")
    page = browser.new_page()
    page.goto(report.as_uri())
    _pick(page, "Model A", answer.here.model_a)
    _pick(page, "Model B", answer.here.model_b)
    _pick(page, "Here", answer.here.label)
    rows = [row.all_inner_texts() for row in _cells(page)]
    verdict = page.locator("#verdict").inner_text()
    _pick(page, "Model B", answer.here.model_a)
    assert page.locator("#verdict").inner_text() == "Pick two models."
    _pick(page, "Source", answer.here.label)
    _pick(page, "Target", next(one.label for one in answer.targets if "pixel" in one.label))
    swaps = page.locator("#swaps-table tr.reversed").count()
    said = page.locator("#swaps-table [role=status]").inner_text()
    shown = {row[0]: (row[1], row[2]) for row in rows}
    for one in (answer.here, *answer.targets):
        text, order = shown[one.label.replace(", ", " ", 1)]
        assert order == one.order
        assert re.findall(r"[\d.]+", text) == [f"{v:.2f}" for v in (one.ratio, one.low, one.high)]
    assert answer.here.model_a in verdict
    # The page says what `faster` does, with the conditions of the others.
    assert verdict == pair_sentences(answer)[0]
    assert swaps > 1, said
    assert re.search(r"Of \d+ pairs of models: .* \d+ reversed", said)


def _cells(page: "playwright.Page") -> "list[playwright.Locator]":
    """Device, ratio and order of each platform."""
    rows = page.locator(".orders tbody tr")
    return [row.locator("th, td:nth-child(n+3)") for row in rows.all()]


def test_every_chart_and_the_answer_can_be_saved_as_a_file(
    browser: "playwright.Browser", report: Path, tmp_path: Path
) -> None:
    page = browser.new_page()
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(report.as_uri())
    _wait(page)
    assert page.locator("figure").count() == page.locator("figure .tools button").count()
    for button in (
        page.get_by_role("button", name="Save the answer as SVG"),
        page.locator("#flops figure button").first,
    ):
        with page.expect_download() as saved:
            button.click()
        text = Path(saved.value.path()).read_text()
        assert re.match(r'<svg [^>]*width="688"[^>]*><desc>[^<]+</desc>', text)
        assert HOSTILE_MODEL not in text
    assert "standard_cnn" in text  # its own legend
    assert messages == []
    page.close()
