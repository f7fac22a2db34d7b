"""Tables, the matrix of latency and the pair of platforms in a real browser; axe-core."""

import csv
import io
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from fleet_rows import HOSTILE_DEVICE, HOSTILE_MODEL, hostile_results
from headless_browser import unfold
from stored_part import write_part

from fleetrank.analysis.report.page import build_report
from fleetrank.analysis.stored.cell_values import cell_values
from fleetrank.analysis.stored.load import load_measurements

pytestmark = [pytest.mark.browser, pytest.mark.thorough]
if TYPE_CHECKING:
    from playwright import sync_api as playwright

FORMULA = '=HYPERLINK("x")'
N_CELLS = 14 * 5 - 1


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One name is a formula of a spreadsheet, and one platform lacks a model."""
    results = hostile_results(tmp_path_factory.mktemp("tools") / "results")
    part = next((results / "measurements").rglob("*.parquet"))
    frame = pl.read_parquet(part)
    is_lacking = (pl.col("model") == "resnet50") & (pl.col("device") == HOSTILE_DEVICE)
    name = pl.col("model").replace("mnasnet1_0", FORMULA)
    frame.filter(~is_lacking).with_columns(name).pipe(write_part, part)
    return results


@pytest.fixture(scope="module")
def report(results: Path) -> str:
    return build_report(results, results.parent / "report.html").path.as_uri()


@pytest.fixture
def page(browser: "playwright.Browser", report: str) -> "Iterator[playwright.Page]":
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page, messages = context.new_page(), []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(report)
    unfold(page)
    yield page
    context.close()
    assert messages == []


def _column(page: "playwright.Page", table: str, number: int) -> list[str]:
    cells = page.locator(f"#table-{table} tbody tr:not([hidden]) > :nth-child({number})")
    return cells.all_text_contents()


def _open(page: "playwright.Page", table: str) -> None:
    page.locator(f"#table-{table}").evaluate(
        "t => { const d = t.closest('details'); if (d) d.open = true; }"
    )
    page.locator(f"#table-{table} .sort").first.wait_for()


def _latencies(results: Path) -> dict[tuple[str, str], float]:
    values = cell_values(load_measurements(results))
    rows = values.select("model", "platform_key", pl.col("latency_ns") / 1e6)
    return {(model, key): ms for model, key, ms in rows.iter_rows()}


@pytest.mark.parametrize("table", ["matrix", "latency"])
def test_the_keyboard_sorts_a_table_up_down_and_back(page: "playwright.Page", table: str) -> None:
    """`cells` is long, so the script writes its rows; `matrix` is written in the page."""
    _open(page, table)
    heads = page.locator(f"#table-{table} thead th")
    number = next(
        at
        for at in range(1, heads.count())
        if "number" in (heads.nth(at).get_attribute("class") or "")
    )
    before = _column(page, table, number + 1)
    heads.nth(number).locator("button").focus()
    for direction, is_down in (("ascending", False), ("descending", True)):
        page.keyboard.press("Enter")
        assert heads.nth(number).get_attribute("aria-sort") == direction
        values = [float(text.replace(",", "")) for text in _column(page, table, number + 1)]
        assert values == sorted(values, reverse=is_down)
        assert len(values) == len(before)
    page.keyboard.press("Enter")
    assert page.locator(f"#table-{table} [aria-sort]").count() == 0
    assert _column(page, table, number + 1) == before


def test_a_missing_value_is_last_in_both_directions(page: "playwright.Page") -> None:
    heads = page.locator("#table-matrix thead th").all_text_contents()
    number = next(at for at, head in enumerate(heads) if head.startswith(HOSTILE_DEVICE))
    for _ in range(2):
        page.locator("#table-matrix thead th .sort").nth(number).click()
        assert _column(page, "matrix", number + 1).index("-") == 13


def test_a_search_keeps_the_rows_with_all_words(page: "playwright.Page") -> None:
    _open(page, "latency")
    search = page.get_by_role("searchbox", name="Find in Latency", exact=True)
    search.fill("RESNET18 pixel-7")
    rows = page.locator("#table-latency tbody tr:not([hidden])").all_text_contents()
    assert len(rows) == 2
    assert all("resnet18" in row and "pixel-7" in row for row in rows)
    shown = page.locator("[data-rows=latency]").inner_text()
    assert f"2 of 2 rows that fit, of {N_CELLS}." in shown
    search.fill("")
    assert len(_column(page, "latency", 1)) == N_CELLS


def test_the_matrix_has_the_median_of_each_model_on_each_platform(
    page: "playwright.Page", results: Path
) -> None:
    found = page.locator("#table-matrix").evaluate(
        "t => [...t.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    data = page.evaluate("JSON.parse(document.getElementById('data').textContent)")
    keys = [platform["key"] for platform in data["platforms"]]
    latencies = _latencies(results)
    assert len(found) * len(keys) == len(latencies) + 1
    for model, *texts in found:
        for key, text in zip(keys, texts, strict=True):
            known = latencies.get((model, key))
            assert (text == "-") is (known is None)
            assert known is None or float(text.split()[0].replace(",", "")) == pytest.approx(
                known, rel=1e-3
            )


def test_every_table_with_rows_can_be_copied(page: "playwright.Page") -> None:
    filled = page.locator("main table[id]:has(tbody tr)").count()
    assert filled > 12
    for form in ("TSV", "CSV"):
        assert page.locator(f".tools button[aria-label$='as {form}']").count() == filled


@pytest.mark.parametrize(("form", "mark"), [("TSV", "\t"), ("CSV", ",")])
def test_a_copy_has_all_rows_in_their_order(page: "playwright.Page", form: str, mark: str) -> None:
    _open(page, "latency")
    page.locator("#table-latency .sort").first.click()
    page.get_by_role("button", name=f"Copy Latency as {form}", exact=True).click()
    page.locator(".tools [role=status]", has_text="Copied.").wait_for()
    text = page.evaluate("navigator.clipboard.readText()")
    head, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
    assert len(rows) == N_CELLS
    assert all(len(row) == len(head) for row in rows)
    names = [row[0].removeprefix("'") for row in rows]
    assert names == _column(page, "latency", 1)
    assert HOSTILE_MODEL in {field for row in rows for field in row}
    assert "-" not in {field for row in rows for field in row}


def test_where_the_clipboard_is_refused_the_rows_are_selected(
    page: "playwright.Page", report: str
) -> None:
    page.add_init_script(
        "Object.defineProperty(navigator, 'clipboard', { value: undefined });"
        "document.execCommand = () => false;"
    )
    page.reload()
    page.get_by_role("button", name="Copy Latency, ms: models by platforms as CSV").click()
    assert "Ctrl+C" in page.locator("#matrix .tools [role=status]").inner_text()
    assert page.evaluate("getSelection().toString()").startswith("model,")


def test_a_name_cannot_become_a_formula(page: "playwright.Page") -> None:
    page.get_by_role("button", name="Copy Latency, ms: models by platforms as CSV").click()
    page.locator("#matrix .tools [role=status]", has_text="Copied.").wait_for()
    text = page.evaluate("navigator.clipboard.readText()")
    assert f"'{FORMULA}" in {row[0] for row in csv.reader(io.StringIO(text, newline=""))}


def test_without_scripts_every_short_table_is_whole(
    browser: "playwright.Browser", report: str
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report)
    assert page.locator("#table-matrix tbody tr").count() == 14
    assert page.locator("#table-matrix tbody td").count() == 70
    assert page.locator(".tools").count() == 0
    assert HOSTILE_DEVICE in page.locator("#table-matrix thead").inner_text()
    context.close()


def test_at_400_pixels_the_heat_map_has_its_figures_and_names(
    browser: "playwright.Browser", report: str
) -> None:
    page = browser.new_page(viewport={"width": 400, "height": 800})
    page.goto(report)
    unfold(page)
    labels = page.locator("#transfer-1 svg g.role-axis-label text").all_text_contents()
    figures = page.locator("#transfer-1 svg g.mark-text.role-mark text")
    boxes = figures.evaluate_all("all => all.map(t => t.getBoundingClientRect().toJSON())")
    page.close()
    assert [label for label in labels if label.isdigit()] == ["1", "2", "3", "4", "5"]
    assert sum(label[:2] in {f"{n} " for n in range(1, 6)} for label in labels) == 5
    assert len(boxes) == 20
    for box in boxes:
        assert not [
            other for other in boxes
            if other is not box and abs(other["y"] - box["y"]) < 2
            and other["x"] < box["right"] and box["x"] < other["right"]
        ]  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_axe_finds_nothing(
    browser: "playwright.Browser", report: str, width: int, scheme: str
) -> None:
    pytest.importorskip("axe_playwright_python", reason="axe-core is not installed")
    axe = resources.files("axe_playwright_python").joinpath("axe.min.js")
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.goto(report)
    unfold(page)
    page.evaluate("document.querySelectorAll('main details').forEach(d => { d.open = true; })")
    page.evaluate(axe.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    page.close()
    assert len(found["passes"]) > 20
    assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
